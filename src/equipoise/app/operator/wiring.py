"""From settings to a shell that is ready to start: which adapters stand behind the ports of all loops."""

import os
import platform
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.ids import CHANCE_BITS
from equipoise.adapters.kubernetes import Client, connect
from equipoise.adapters.kubernetes.actuator import KubernetesActuator
from equipoise.adapters.kubernetes.kubeconfig import SERVICE_ACCOUNT_FOLDER
from equipoise.adapters.kubernetes.lease import LeaseElection, process_identity
from equipoise.adapters.kubernetes.pauses import OPERATOR_NAMESPACE, NamespacePauses
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.adapters.prometheus.discover import NAMESPACES as PROMETHEUS_NAMESPACES
from equipoise.app.live import PrometheusOptions
from equipoise.app.operator.batches import Batches
from equipoise.app.operator.hearts import Hearts
from equipoise.app.operator.logs import Log
from equipoise.app.operator.loops import LOOPS, Factory, Wiring, make_loops
from equipoise.app.operator.meters import Meters, ReflectorMeters
from equipoise.app.operator.parts import Caches, JournalPart, LeasePart, NoJournal
from equipoise.app.operator.settings import Journal as JournalSettings
from equipoise.app.operator.settings import Prometheus, Settings
from equipoise.app.operator.shell import Part, Shell, Turnstile
from equipoise.app.operator.sight import ChosenPrometheus, FoundMetrics, cached_clusters
from equipoise.model.duration import print_seconds
from equipoise.model.errors import WorldFailed
from equipoise.model.references import WorkloadRef
from equipoise.ports import Clock, Cluster, Journal


@dataclass(frozen=True, slots=True)
class WallClock:
    """The time of day."""

    def now(self) -> float:
        """Give the Unix time in seconds."""
        return time.time()


def make_shell(
    settings: Settings, log: Log, stopping: threading.Event, table: Mapping[str, Factory] = LOOPS
) -> Shell:
    """Reach the cluster, and put everything together; nothing runs yet."""
    client = connect(settings.kubernetes.kubeconfig, settings.kubernetes.context)
    version = client.server_version()
    namespace = operator_namespace(settings, client)
    log.info("the cluster answers", server=client.address, version=version, operator_namespace=namespace)
    meters, hearts, clock = Meters(), Hearts(), WallClock()
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
        metrics=FoundMetrics.of(client, settings.metrics_from, prometheus.metrics, log.warning),
        prometheus=prometheus.metrics,
        actuator=KubernetesActuator(client, instance=election.identity),
        leadership=Turnstile(election, stopping),
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
    return Shell(
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
    """Say where the Lease and a pause of everything are: as set, else the pod's own, else the usual."""
    if settings.lease.namespace:
        return settings.lease.namespace
    token_file = client.target.identity.token_file or ""
    is_in_pod = token_file.startswith(str(SERVICE_ACCOUNT_FOLDER))
    return client.namespace if is_in_pod else OPERATOR_NAMESPACE


def _uid(cluster: Cluster, ref: WorkloadRef) -> str | None:
    """Give the owner with which a workload's ledger is to vanish, where it can be told now."""
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


def _election(settings: Settings, client: Client, namespace: str, log: Log, meters: Meters) -> LeaseElection:
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


def _journal(settings: JournalSettings, clock: Clock, meters: Meters) -> tuple[Journal, list[Part]]:
    if settings.path is None:
        return NoJournal(), []
    journal = SqliteJournal(
        settings.path, age_max_seconds=settings.age_max_seconds, bytes_max=settings.bytes_max, clock=clock
    )
    part = JournalPart(journal)
    meters.read_gauge("journal_bytes", part.size_bytes)
    meters.read_gauge("journal_records_lost", part.lost)
    return journal, [part]
