"""From settings to a shell that is ready to start: which adapters stand behind the ports of all loops.

The parts that run beside the loops: the election, the caches, the journal.

Stands a shell up until a signal says stop.
"""

import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.records import CHANCE_BITS
from equipoise.adapters.kubernetes import CachedCluster, Client, Reflector, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.kubeconfig import SERVICE_ACCOUNT_FOLDER
from equipoise.adapters.kubernetes.lease import LeaseElection, process_identity
from equipoise.adapters.kubernetes.pauses import OPERATOR_NAMESPACE, NamespacePauses
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.adapters.prometheus.discover import NAMESPACES as PROMETHEUS_NAMESPACES
from equipoise.core.cluster import WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.ports import Clock, Cluster, Journal
from equipoise.runtime.layers import Effective
from equipoise.runtime.liveness import HeartbeatRegistry, end_on_signals, on_signals
from equipoise.runtime.logs import Log, make_log
from equipoise.runtime.operator.loops import LOOPS, Factory, Wiring, make_loops
from equipoise.runtime.operator.metrics import OperatorMetrics, ReflectorMeters
from equipoise.runtime.operator.metrics_source import ChosenPrometheus, DiscoveredMetrics, cached_clusters
from equipoise.runtime.operator.process import OperatorProcess, Part, StoppingLeadership
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.session import PrometheusOptions
from equipoise.runtime.settings import Journal as JournalSettings
from equipoise.runtime.settings import Prometheus, Settings

QUIET_SECONDS = 30.0
"""A reflector that heard from the server so recently has only stumbled."""
UNREADABLE_MAX = 20
"""Of so many objects of a kind that cannot be read it is logged which they are."""


class LeasePart:
    """The election on its thread."""

    def __init__(self, election: LeaseElection) -> None:
        self._election = election
        self._is_started = False

    def start(self) -> None:
        """Begin to stand for election."""
        self._election.start()
        self._is_started = True

    def stop(self, timeout_seconds: float) -> bool:
        """Return the lease up, so that a successor need not wait."""
        self._is_started = False
        return self._election.stop(timeout_seconds)

    def liveness_errors(self) -> list[str]:
        """Say that the thread has died, without which this process can never lead again."""
        is_there = any(thread.name == "lease" for thread in threading.enumerate())
        return ["the lease thread has died"] if self._is_started and not is_there else []

    def unready(self) -> list[str]:
        """Say nothing: who does not lead is ready too."""
        return []

    def complaints(self) -> Mapping[str, str]:
        """Return why the last turn of the election failed."""
        error = self._election.last_error
        return {} if error is None else {"lease": str(error)}


class Caches:
    """Everything that lists and watches: the cluster, the pauses, and what the loops bring."""

    def __init__(
        self,
        clusters: Sequence[CachedCluster],
        pauses: NamespacePauses,
        monotonic: Callable[[], float],
    ) -> None:
        self._reflectors: list[Reflector[Any]] = [r for cluster in clusters for r in cluster.reflectors]
        self._reflectors.append(pauses.reflector)
        self._loops: dict[int, str] = {}
        """For whom a reflector was made, by its position."""
        self._monotonic = monotonic
        self._is_started = False

    @property
    def reflectors(self) -> Sequence[Reflector[Any]]:
        """All of them."""
        return tuple(self._reflectors)

    def watch(self, loop: str, reflector: Reflector[Any]) -> None:
        """Take one more that only this loop asks, and start it when the others run."""
        self._loops[len(self._reflectors)] = loop
        self._reflectors.append(reflector)
        if self._is_started:
            reflector.start()

    def start(self) -> None:
        """Begin to list and watch."""
        self._is_started = True
        for reflector in self.reflectors:
            reflector.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End all at once, then wait for each."""
        until = self._monotonic() + timeout_seconds
        for reflector in self.reflectors:
            reflector.stop(0.0)
        ended = [reflector.stop(max(0.0, until - self._monotonic())) for reflector in self.reflectors]
        return all(ended)

    def liveness_errors(self) -> list[str]:
        """Say nothing: a reflector mends itself, and one without rights is not mended by a restart."""
        return []

    def unready(self) -> list[str]:
        """Return what has not been listed yet, and why."""
        return [_unlisted(each) for each in self.reflectors if not each.synced.is_set()]

    def awaited_by(self, loop: str) -> list[str]:
        """Return what of that this loop needs: a kind that is not installed stops only who works with it."""
        return [
            _unlisted(each)
            for position, each in enumerate(self.reflectors)
            if self._loops.get(position, loop) == loop and not each.synced.is_set()
        ]

    def complaints(self) -> Mapping[str, str]:
        """Return which reflectors have failed for a while, and which objects they can't read."""
        now = self._monotonic()
        failing = {
            f"watch of {reflector.kind.plural}": str(reflector.last_error)
            for reflector in self.reflectors
            if reflector.last_error is not None and reflector.last_contact_age_seconds(now) > QUIET_SECONDS
        }
        unreadable = {
            f"{reflector.kind.name} {outline.place}": f"the object cannot be read: {outline.why}"
            for reflector in self.reflectors
            for outline in list(reflector.unreadable.values())[:UNREADABLE_MAX]
        }
        return failing | unreadable


class JournalPart:
    """The diary: never in anybody's way, and closed at the end so that nothing is lost."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal

    def start(self) -> None:
        """Do nothing: it was opened when it was made."""

    def stop(self, timeout_seconds: float) -> bool:
        """Write down what is left; on a disk that hangs, give up in time."""
        closing = threading.Thread(target=self._journal.close, name="journal-close", daemon=True)
        closing.start()
        closing.join(timeout_seconds)
        return not closing.is_alive()

    def liveness_errors(self) -> list[str]:
        """Say nothing: losing the diary changes no decision."""
        return []

    def unready(self) -> list[str]:
        """Say nothing, for the same reason."""
        return []

    def complaints(self) -> Mapping[str, str]:
        """Return why it could not write."""
        found = {"journal": self._journal.unwell, "journal's file": self._journal.damage}
        return {who: what for who, what in found.items() if what}

    def size_bytes(self) -> float:
        """Measure the file, its log and the log's index together."""
        path = self._journal.path
        return float(sum(_size(path.with_name(path.name + suffix)) for suffix in ("", "-wal", "-shm")))

    def lost(self) -> float:
        """Count the records that could not be kept."""
        return float(self._journal.lost)


class NoJournal:
    """What loops write to when no journal is kept."""

    def append(self, *records: object, is_whole: bool = False) -> None:
        """Forget them."""


def _unlisted(reflector: Reflector[Any]) -> str:
    error = reflector.last_error
    return f"the {reflector.kind.plural} have not been listed yet" + (f": {error}" if error else "")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class WallClock:
    """The time of day."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()


def make_shell(
    settings: Settings, log: Log, stopping: threading.Event, table: Mapping[str, Factory] = LOOPS
) -> OperatorProcess:
    """Reach the cluster, and put everything together; nothing runs yet."""
    client = connect(settings.kubernetes.kubeconfig, settings.kubernetes.context)
    version = client.server_version()
    namespace = operator_namespace(settings, client)
    log.info("the cluster answers", server=client.address, version=version, operator_namespace=namespace)
    meters, hearts, clock = OperatorMetrics(), HeartbeatRegistry(), WallClock()
    batches = Batches(beat=hearts.beat)
    meters.read_gauge("batch_workers_lost", lambda: batches.replaced)
    election = _election(settings, client, namespace, log, meters)
    meters.read_gauge("lease_failures", lambda: election.failures)
    cluster, clusters = cached_clusters(client, settings.namespaces)
    pauses = NamespacePauses(client, operator_namespace=namespace)
    # Pools look at their own pods only: an operator for them alone needs no right to see the rest.
    looks_at_workloads = set(settings.balancers) != {"pools"}
    caches = Caches(clusters if looks_at_workloads else (), pauses, client.world.monotonic)
    meters.add(ReflectorMeters(lambda: caches.reflectors, client.world.monotonic))
    journal, journal_parts = _journal(settings.journal, clock, meters)
    prometheus = ChosenPrometheus(client, prometheus_options(settings.prometheus, namespace), log)
    wiring = Wiring(
        client=client,
        cluster=cluster,
        metrics=DiscoveredMetrics.of(client, settings.metrics_from, prometheus.metrics, log.warning),
        prometheus=prometheus.metrics,
        actuator=KubernetesActuator(client, instance=election.identity),
        leadership=StoppingLeadership(election, stopping),
        store=LedgerStore(client, uid_of=partial(_uid, cluster), namespaces=settings.namespaces),
        pauses=pauses,
        journal=journal,
        record_ids=RecordIds(secrets.randbits(CHANCE_BITS)),
        clock=clock,
        batches=batches,
        watch=partial(caches.watch, ""),
        beat=hearts.beat,
        operator_namespace=namespace,
    )
    return OperatorProcess(
        loops=make_loops(lambda name: replace(wiring, watch=partial(caches.watch, name)), settings, table),
        awaited_by=caches.awaited_by,
        lease=LeasePart(election),
        parts=[*journal_parts, caches],
        batches=batches,
        hearts=hearts,
        meters=meters,
        clock=clock,
        address=settings.http.address,
        stop_seconds=settings.stop_seconds,
        stopping=stopping,
        log=log,
    )


def operator_namespace(settings: Settings, client: Client) -> str:
    """Return where the Lease and a pause of everything are: as set, else the pod's own, else the usual."""
    if settings.lease.namespace:
        return settings.lease.namespace
    token_file = client.target.identity.token_file or ""
    is_in_pod = token_file.startswith(str(SERVICE_ACCOUNT_FOLDER))
    return client.namespace if is_in_pod else OPERATOR_NAMESPACE


def _uid(cluster: Cluster, ref: WorkloadRef) -> str | None:
    """Return the owner with which a workload's ledger is to vanish, where it can be told now."""
    try:
        workload = cluster.workload(ref)
    except WorldFailed:
        return None
    return None if workload is None else workload.uid or None


def prometheus_options(settings: Prometheus, namespace: str) -> PrometheusOptions:
    """Return the options of the one-shot commands; an operator also looks into its own namespace."""
    return PrometheusOptions(
        url=settings.url,
        namespaces=settings.namespaces or (*PROMETHEUS_NAMESPACES, namespace),
        token_file=settings.token_file,
        user=settings.user,
        password_file=settings.password_file,
        ca_file=settings.ca_file,
        headers=tuple(f"{name}={value}" for name, value in settings.headers.items()),
        matchers=tuple(f"{name}={value}" for name, value in settings.matchers.items()),
        labels=tuple(f"{name}={value}" for name, value in settings.labels.items()),
        timeout=print_seconds(settings.timeout_seconds),
    )


def _election(
    settings: Settings, client: Client, namespace: str, log: Log, meters: OperatorMetrics
) -> LeaseElection:
    lease = settings.lease

    def changed(epoch: int | None) -> None:
        meters.leadership_changed(epoch)
        sentence = (
            "this process leads no more" if epoch is None else f"this process leads now, in epoch {epoch}"
        )
        log.info(sentence, lease=f"{namespace}/{lease.name}", epoch=epoch)

    return LeaseElection(
        client,
        namespace,
        lease.name,
        process_identity(os.environ.get("POD_NAME") or platform.node()),
        lease_seconds=lease.duration_seconds,
        renew_seconds=lease.renew_seconds,
        retry_seconds=lease.retry_seconds,
        on_change=changed,
    )


def _journal(settings: JournalSettings, clock: Clock, meters: OperatorMetrics) -> tuple[Journal, list[Part]]:
    if settings.path is None:
        return NoJournal(), []
    journal = SqliteJournal(
        settings.path, age_max_seconds=settings.age_max_seconds, bytes_max=settings.bytes_max, clock=clock
    )
    part = JournalPart(journal)
    meters.read_gauge("journal_bytes", part.size_bytes)
    meters.read_gauge("journal_records_lost", part.lost)
    return journal, [part]


def run(found: Effective) -> None:
    """Run the operator; a failure at the start is raised, and after that only a signal ends it."""
    log = make_log(found.settings.logs)
    for warning in found.warnings:
        log.warning(warning)
    end_on_signals()
    stand(make_shell(found.settings, log, threading.Event()))


def stand(shell: OperatorProcess) -> None:
    """Start, wait for SIGTERM or SIGINT, stop. A second signal ends the process at once."""
    on_signals(shell.stopping)
    shell.start()
    shell.watch()
    if not shell.stop():
        # A thread that hangs must not hold the process: interpreters wait for pools of threads.
        sys.stderr.flush()
        os._exit(0)
