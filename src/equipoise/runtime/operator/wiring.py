"""Builds an operator from its settings: chooses the adapters behind the ports of all loops."""

import os
import platform
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.records import WRITER_BITS
from equipoise.adapters.kubernetes import Client, Reflector, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.cluster import HpaSpecs, KubernetesSelectedPods
from equipoise.adapters.kubernetes.kubeconfig import SERVICE_ACCOUNT_FOLDER
from equipoise.adapters.kubernetes.lease import LeaseElection, process_identity
from equipoise.adapters.kubernetes.pauses import OPERATOR_NAMESPACE, NamespacePauses
from equipoise.adapters.kubernetes.policies import KubernetesAnalyses, KubernetesPolicies, ListedPolicies
from equipoise.adapters.kubernetes.selectors import parse_selector
from equipoise.adapters.kubernetes.sizes import CachedSizes
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.adapters.prometheus.discover import NAMESPACES as PROMETHEUS_NAMESPACES
from equipoise.adapters.prometheus.errors import NotFound
from equipoise.core.cluster import HpaSpec, WorkloadRef
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.crd.definition import DefinedKind
from equipoise.engine.balancer import balancer
from equipoise.engine.executor import StoppingLeadership
from equipoise.ports import (
    Actuator,
    Autoscalers,
    Clock,
    Cluster,
    Journal,
    Leadership,
    Metrics,
    NoHistory,
    Pauses,
    Store,
)
from equipoise.ports.wiring import Batches as BatchesPort
from equipoise.ports.wiring import Loop, LoopSettings, Wiring
from equipoise.qos.status import QOS_KINDS, QosStatusLoop
from equipoise.runtime.layers import Effective
from equipoise.runtime.logs import Log, make_log
from equipoise.runtime.metrics import OperatorMetrics, ReflectorMetrics
from equipoise.runtime.metrics_source import (
    ChosenPrometheus,
    DiscoveredMetrics,
    PrometheusOptions,
    cached_clusters,
)
from equipoise.runtime.operator.process import (
    Caches,
    JournalPart,
    LeasePart,
    NoJournal,
    OperatorProcess,
    Part,
)
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.runner import HeartbeatRegistry, SystemClock, end_on_signals, on_signals
from equipoise.runtime.settings import Journal as JournalSettings
from equipoise.runtime.settings import Prometheus, Settings

if TYPE_CHECKING:
    from equipoise.adapters.prometheus.history import PrometheusHistory
    from equipoise.adapters.prometheus.metrics import PrometheusMetrics, PrometheusOwners
    from equipoise.runtime.redis import RemotePools


@dataclass(frozen=True, slots=True)
class OperatorWiring:
    """The adapters behind `equipoise.ports.wiring.Wiring`; reflectors that a loop adds are watched."""

    settings: Settings
    client: Client
    cluster: Cluster
    metrics: Metrics
    prometheus: Callable[[], "PrometheusMetrics"]
    """Returns the Prometheus, for what metrics.k8s.io does not have; raises NotFound if there is none."""
    actuator: Actuator
    leadership: Leadership
    store: Store
    pauses: Pauses
    journal: Journal
    new_id: Callable[[float], str]
    clock: Clock
    batches: BatchesPort
    watch: Callable[[Reflector[Any]], None]
    """Adds a reflector, which is then started, measured, awaited and stopped with the others."""
    heartbeat: Callable[[], None]
    operator_namespace: str

    def policies(self, kind: DefinedKind) -> KubernetesPolicies:
        """Return a watched cache of the custom resources of a kind."""
        policies = KubernetesPolicies(self.client, kind, namespaces=self.settings.namespaces)
        self.watch(policies.reflector)
        return policies

    def analyses(self) -> KubernetesAnalyses:
        return KubernetesAnalyses(self.client, self.watch, namespaces=self.settings.namespaces)

    def sizes(self) -> CachedSizes:
        sizes = CachedSizes(self.client, self.cluster, self.settings.namespaces)
        for reflector in sizes.reflectors.values():
            self.watch(reflector)
        return sizes

    def applier(self) -> KubernetesApplier:
        return KubernetesApplier(self.client)

    def history(self) -> "tuple[PrometheusHistory, PrometheusOwners]":
        from equipoise.adapters.prometheus.history import PrometheusHistory
        from equipoise.adapters.prometheus.metrics import PrometheusOwners

        if self.settings.metrics_from == "metrics-server":
            raise NoHistory(
                "recommendations need a week of history from Prometheus, and the setting metricsFrom is "
                "metrics-server: set it to prometheus"
            )
        try:
            found = self.prometheus()
        except NotFound as error:
            raise NoHistory(f"recommendations need a week of history from Prometheus: {error}") from error
        history = PrometheusHistory(found.client, found.names, found.extra_matchers)
        return history, PrometheusOwners(found.client, found.extra_matchers)

    def autoscalers(self) -> "SpecsOfNamespaces":
        return SpecsOfNamespaces(HpaSpecs(self.client), self.settings.namespaces)

    def pools(self) -> "RemotePools":
        from equipoise.runtime.redis import remote_pools, url_source

        return remote_pools(url_source(self.settings.pools), self.settings.pools)

    def selected_pods(self, namespace: str, selector: str) -> KubernetesSelectedPods:
        try:
            parse_selector(selector)
        except ValueError as error:
            raise BadInput(f"pools.selector: {error}") from error
        pods = KubernetesSelectedPods(self.client, namespace, selector)
        self.watch(pods.reflector)
        return pods


@dataclass(frozen=True, slots=True)
class SpecsOfNamespaces:
    """Lists the specs of the HPAs in the namespaces that may be read."""

    inner: Autoscalers
    namespaces: Sequence[str]

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        places = self.namespaces if namespace is None and self.namespaces else (namespace,)
        return [spec for place in dict.fromkeys(places) for spec in self.inner.specs(place)]


LoopMaker = Callable[[Wiring, LoopSettings], Loop]


def make_operator(
    settings: Settings, log: Log, stopping: threading.Event, makers: Mapping[str, LoopMaker] = {}
) -> OperatorProcess:
    """Connect to the cluster and build the operator; nothing is started yet.

    `makers` replace the loop makers of some balancers' descriptors.
    """
    client = connect(settings.kubernetes.kubeconfig, settings.kubernetes.context)
    version = client.server_version()
    namespace = operator_namespace(settings, client)
    log.info("the cluster answers", server=client.address, version=version, operator_namespace=namespace)
    metrics, heartbeats, clock = OperatorMetrics(), HeartbeatRegistry(), SystemClock()
    batches = Batches(heartbeat=heartbeats.renew)
    metrics.read_gauge("batch_workers_lost", lambda: batches.replaced)
    election = _election(settings, client, namespace, log, metrics)
    cluster, clusters = cached_clusters(client, settings.namespaces)
    pauses = NamespacePauses(client, operator_namespace=namespace)
    # An operator that runs only balancers without workloads needs no permission to list them.
    observes_workloads = any(balancer(name).observes_workloads for name in settings.balancers)
    caches = Caches(clusters if observes_workloads else (), pauses, client.world.monotonic)
    metrics.registry.register(ReflectorMetrics(lambda: caches.reflectors, client.world.monotonic))
    journal, journal_parts = _journal(settings.journal, clock, metrics)
    prometheus = ChosenPrometheus(client, prometheus_options(settings.prometheus, namespace), log)
    wiring = OperatorWiring(
        settings=settings,
        client=client,
        cluster=cluster,
        metrics=DiscoveredMetrics.of(client, settings.metrics_from, prometheus.metrics, log.warning),
        prometheus=prometheus.metrics,
        actuator=KubernetesActuator(client, instance=election.identity),
        leadership=StoppingLeadership(election, stopping),
        store=LedgerStore(client, uid_of=partial(_uid, cluster), namespaces=settings.namespaces),
        pauses=pauses,
        journal=journal,
        new_id=RecordIds(secrets.randbits(WRITER_BITS)).next,
        clock=clock,
        batches=batches,
        watch=partial(caches.watch, ""),
        heartbeat=heartbeats.renew,
        operator_namespace=namespace,
    )
    loops = []
    for name in dict.fromkeys(settings.balancers):
        make_loop = makers.get(name) or balancer(name).make_loop
        assert make_loop is not None, f"the settings admit {name}, which the operator does not run"
        loops.append(make_loop(replace(wiring, watch=partial(caches.watch, name)), settings))
    return OperatorProcess(
        loops=[*loops, *_qos_status_loops(wiring, settings)],
        awaited_by=caches.awaited_by,
        lease=LeasePart(election),
        parts=[*journal_parts, caches],
        batches=batches,
        heartbeats=heartbeats,
        metrics=metrics,
        clock=clock,
        address=settings.http.address,
        stop_seconds=settings.stop_seconds,
        stopping=stopping,
        log=log,
    )


def _qos_status_loops(wiring: OperatorWiring, settings: Settings) -> list[Loop]:
    """Return the loop that writes the status of the qos kinds, on which agents act; none without nodes."""
    observes_nodes = any(balancer(name).observes_workloads for name in settings.balancers)
    if not (observes_nodes and settings.qos.statuses and settings.compat.crane != "off"):
        return []
    listed = ListedPolicies(wiring.client, QOS_KINDS)
    takes_over = settings.compat.crane == "on"
    return [QosStatusLoop(listed, wiring.cluster, wiring.leadership, takes_over=takes_over)]


def operator_namespace(settings: Settings, client: Client) -> str:
    """Return the namespace of the Lease and of the global pause: as set, else the pod's, else the default."""
    if settings.lease.namespace:
        return settings.lease.namespace
    token_file = client.target.identity.token_file or ""
    is_in_pod = token_file.startswith(str(SERVICE_ACCOUNT_FOLDER))
    return client.namespace if is_in_pod else OPERATOR_NAMESPACE


def _uid(cluster: Cluster, ref: WorkloadRef) -> str | None:
    """Return the uid for the owner reference of a workload's ledger; None if it cannot be read."""
    try:
        workload = cluster.workload(ref)
    except WorldFailed:
        return None
    return None if workload is None else workload.uid or None


def prometheus_options(settings: Prometheus, namespace: str) -> PrometheusOptions:
    """Return the settings as options of the one-shot commands, and search the operator's namespace too."""
    return PrometheusOptions(
        url=settings.url,
        namespaces=settings.namespaces or (*PROMETHEUS_NAMESPACES, namespace),
        token_file=settings.token_file,
        user=settings.user,
        password_file=settings.password_file,
        ca_file=settings.ca_file,
        headers=tuple(map("=".join, settings.headers.items())),
        matchers=tuple(map("=".join, settings.matchers.items())),
        labels=tuple(map("=".join, settings.labels.items())),
        timeout=print_seconds(settings.timeout_seconds),
    )


def _election(
    settings: Settings, client: Client, namespace: str, log: Log, metrics: OperatorMetrics
) -> LeaseElection:
    lease = settings.lease

    def changed(epoch: int | None) -> None:
        metrics.leadership_changed(epoch)
        sentence = f"this process is the leader, in epoch {epoch}"
        if epoch is None:
            sentence = "this process is no longer the leader"
        log.info(sentence, lease=f"{namespace}/{lease.name}", epoch=epoch)

    election = LeaseElection(
        client,
        namespace,
        lease.name,
        process_identity(os.environ.get("POD_NAME") or platform.node()),
        lease_seconds=lease.duration_seconds,
        renew_seconds=lease.renew_seconds,
        retry_seconds=lease.retry_seconds,
        on_change=changed,
    )
    metrics.read_gauge("lease_failures", lambda: election.failures)
    return election


def _journal(settings: JournalSettings, clock: Clock, metrics: OperatorMetrics) -> tuple[Journal, list[Part]]:
    if settings.path is None:
        return NoJournal(), []
    journal = SqliteJournal(
        settings.path, age_max_seconds=settings.age_max_seconds, bytes_max=settings.bytes_max, clock=clock
    )
    part = JournalPart(journal)
    metrics.read_gauge("journal_bytes", part.size_bytes)
    metrics.read_gauge("journal_records_lost", lambda: journal.lost)
    return journal, [part]


def run(effective: Effective) -> None:
    """Run the operator until a signal; a failure at the start is raised."""
    log = make_log(effective.settings.logs)
    for warning in effective.warnings:
        log.warning(warning)
    end_on_signals()
    run_until_signalled(make_operator(effective.settings, log, threading.Event()))


def run_until_signalled(operator: OperatorProcess) -> None:
    """Start, wait for SIGTERM or SIGINT, then stop; a second signal ends the process at once."""
    on_signals(operator.stopping)
    operator.start()
    operator.watch()
    if not operator.stop():
        # A thread that hangs must not keep the process: at exit, the interpreter waits for thread pools.
        sys.stderr.flush()
        os._exit(0)
