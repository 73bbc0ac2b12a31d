"""What a command that runs once works with: one cluster, and every port over it.

The operator reads through caches and acts under a Lease. A command asks the server anew and holds no Lease:
the compare-and-swap of each workload's ledger keeps it apart from the operator and from other commands.
"""

import os
import time
from dataclasses import dataclass, field

from equipoise.adapters.kubernetes import Client, KubernetesCluster, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.pauses import DirectPauses
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.cli.journal import CommandJournal, new_ids
from equipoise.core.cluster import Selector, WorkloadRef
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.engine.executor import LeaselessLeadership
from equipoise.ports import Metrics, Pauses
from equipoise.runtime.metrics_source import PrometheusOptions, prometheus_metrics, resource_metrics
from equipoise.runtime.output import warn

SOURCES = ("auto", "prometheus", "metrics-server")


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """The cluster, the namespaces and the metrics of a command."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    is_everywhere: bool = False
    operator_namespace: str = "equipoise-system"
    selector: Selector | None = None
    """The labels of the workloads; None means any."""
    metrics_from: str = "auto"
    prometheus: PrometheusOptions = field(default_factory=PrometheusOptions)

    def expect_one_scope(self) -> None:
        """Raise BadInput for both -n and -A; -A overrides a namespace of the environment."""
        if self.namespace is not None and self.is_everywhere and "KUBE_NAMESPACE" not in os.environ:
            raise BadInput("-n and -A: expected one of them, not both")

    def client(self) -> Client:
        return connect(self.kubeconfig, self.context)

    def scope(self, client: Client, own: str = "") -> str | None:
        """Return the namespace, by default `own` or the context's; None means all."""
        return None if self.is_everywhere else self.namespace or own or client.namespace

    def metrics(self, client: Client) -> Metrics:
        """Return the source of usage; `auto` is Prometheus, or metrics.k8s.io if there is none."""
        if self.metrics_from not in SOURCES:
            raise BadInput(f"--metrics-from: expected {', '.join(SOURCES)}, got {self.metrics_from!r}")
        if self.metrics_from == "metrics-server":
            return resource_metrics(client)
        if self.metrics_from == "prometheus":
            return prometheus_metrics(client, self.prometheus)
        from equipoise.adapters.prometheus.errors import NotFound, Undecided

        try:
            return prometheus_metrics(client, self.prometheus)
        except NotFound as error:
            warn(f"no Prometheus was found, so usage is read from metrics.k8s.io ({error})")
            return resource_metrics(client)
        except Undecided as error:
            raise WorldFailed(f"{error}; --metrics-from metrics-server reads metrics.k8s.io") from error


class Session:
    """One connection to a cluster, and a balancer's ports on it."""

    def __init__(self, request: ClusterRequest, client: Client | None = None, *, is_acting: bool) -> None:
        """Connect unless there is a client; a session that does not act only warns of unreadable pauses."""
        self.client = request.client() if client is None else client
        self.cluster = KubernetesCluster(self.client)
        self.actuator = KubernetesActuator(self.client)
        self.store = LedgerStore(self.client, uid_of=self._uid)
        pauses = DirectPauses(self.client, operator_namespace=request.operator_namespace)
        self.pauses: Pauses = pauses if is_acting else WarningPauses(pauses)
        self.journal = CommandJournal()
        self.leadership = LeaselessLeadership(time.monotonic)
        self.new_id = new_ids()
        self.namespaces_protected = ("kube-system", request.operator_namespace)

    def now(self) -> float:
        """Return the system time, as a `Clock`."""
        return time.time()

    def _uid(self, ref: WorkloadRef) -> str | None:
        """Return the uid for the owner reference of a workload's ledger."""
        workload = self.cluster.workload(ref)
        return None if workload is None else workload.uid


@dataclass(frozen=True, slots=True)
class WarningPauses:
    """The pauses of a plan, which changes nothing: if they cannot be read, warn once."""

    inner: Pauses
    warnings: set[str] = field(default_factory=set)

    def pause_of(self, namespace: str) -> str | None:
        """Return who paused a namespace; None if it is not paused or cannot be read."""
        try:
            return self.inner.pause_of(namespace)
        except WorldFailed as error:
            if str(error) not in self.warnings:
                warn(f"it is unknown whether namespace {namespace} is paused: {error}")
                self.warnings.add(str(error))
            return None
