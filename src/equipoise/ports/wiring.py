"""What a balancer's loop is built from: ports shared by all loops, and ports opened for one loop.

A loop is built below the layer that chooses adapters. So it takes its ports from a `Wiring`, which starts,
meters and stops the caches behind them, and reads its settings through `LoopSettings`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from equipoise.core.cluster import Pod
    from equipoise.crd.definition import DefinedKind
    from equipoise.crd.targets import Mode
    from equipoise.ports.actions import Actuator, Applier, Sizes
    from equipoise.ports.cluster import Autoscalers, Clock, Cluster, History, Metrics, Owners
    from equipoise.ports.state import (
        Analyses,
        CycleReport,
        Journal,
        Leadership,
        Pauses,
        Policies,
        PoolsUpkeep,
        Store,
    )

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEADLINE_SECONDS = 300.0
"""How long a batch may take in the worker process, unless its caller sets a deadline."""


class Loop(Protocol):
    """The loop of one balancer."""

    name: str
    interval_seconds: float

    def cycle(self, at: float) -> CycleReport:
        """Observe, decide, guard, execute and record once, without waiting; an error ends this cycle only."""


class Batches(Protocol):
    """A worker process for heavy, pure functions, so that they starve neither the Lease nor the probes."""

    replaced: int
    """How many workers were replaced."""

    def submit(
        self, function: Callable[[*Ts], T], *args: *Ts, deadline_seconds: float = DEADLINE_SECONDS
    ) -> T:
        """Run a module's function in the worker; return its result or raise its exception."""


class SelectedPods(Protocol):
    """The pods of one namespace that a selector names."""

    def pods(self) -> Sequence[Pod]:
        """Return the pods; raise when they are unknown."""

    def is_gone(self, name: str, uid: str) -> bool:
        """Read the pod from the API server and return whether this incarnation no longer exists."""

    def has_changed(self) -> bool:
        """Return whether pods have changed since the last call."""


class Wiring(Protocol):
    """The ports that a process offers to every loop; all may be used from any thread."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def actuator(self) -> Actuator: ...
    @property
    def leadership(self) -> Leadership:
        """Leadership whose epoch is None as soon as a stop is requested, so that no new action begins."""

    @property
    def store(self) -> Store: ...
    @property
    def pauses(self) -> Pauses: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def batches(self) -> Batches: ...
    @property
    def new_id(self) -> Callable[[float], str]:
        """A function that returns a new record ID for a time."""

    @property
    def heartbeat(self) -> Callable[[], None]:
        """The heartbeat; call it during long work so that the liveness probe passes."""

    @property
    def operator_namespace(self) -> str: ...

    def policies(self, kind: DefinedKind) -> Policies:
        """Return the custom resources of a kind, watched."""

    def analyses(self) -> Analyses:
        """Return Analytics and Recommendations, watched once their kinds are installed."""

    def sizes(self) -> Sizes:
        """Return the port for requests and limits; it watches DaemonSets."""

    def applier(self) -> Applier: ...

    def history(self) -> tuple[History, Owners]:
        """Return the past usage and the pods' owners at that time; raise NoHistory without a source."""

    def autoscalers(self) -> Autoscalers:
        """Return the whole specs of HPAs, of the namespaces that may be read."""

    def pools(self) -> PoolsUpkeep:
        """Return the tiers of the settings; their server may be unreachable."""

    def selected_pods(self, namespace: str, selector: str) -> SelectedPods:
        """Return pods by their labels, watched; raise BadInput for an invalid selector."""


class CompatSettings(Protocol):
    """Kinds of other API groups: who owns them, and whether the operator acts on them."""

    @property
    def crane(self) -> str: ...
    @property
    def mode(self) -> Mode: ...


class DisruptionSettings(Protocol):
    """How many pods all balancers together may disrupt."""

    @property
    def cluster_max(self) -> int: ...


class ProportionalSettings(Protocol):
    """How often the resources of one workload may change."""

    @property
    def change_seconds(self) -> float: ...
    @property
    def rollout_seconds(self) -> float: ...


class PoolsSettings(Protocol):
    """Pods in tiers."""

    @property
    def mode(self) -> Mode: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def selector(self) -> str | None: ...
    @property
    def loss_max(self) -> float: ...
    @property
    def missing_seconds(self) -> float: ...
    @property
    def marks_busy(self) -> bool: ...


class LoopSettings(Protocol):
    """The operator's settings that loops read."""

    @property
    def namespaces(self) -> Sequence[str]: ...
    @property
    def compat(self) -> CompatSettings: ...
    @property
    def disruption(self) -> DisruptionSettings: ...
    @property
    def proportional(self) -> ProportionalSettings: ...
    @property
    def pools(self) -> PoolsSettings: ...

    def interval_seconds(self, balancer: str) -> float:
        """Return the interval between cycles of a balancer."""
