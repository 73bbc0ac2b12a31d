"""What a balancer's loop is made from: the shared ports, and those that are opened for one loop alone.

A loop is made below the layer that chooses adapters. So it takes what it needs from a `Wiring`, which starts,
meters and stops the caches that it opens, and reads its settings through `LoopSettings`.
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
    from equipoise.ports.pools import PoolsUpkeep
    from equipoise.ports.state import Analyses, CycleReport, Journal, Leadership, Pauses, Policies, Store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEADLINE_SECONDS = 300.0
"""How long a batch may take in the worker process, where its caller does not say."""


class Loop(Protocol):
    """One balancer at work."""

    name: str
    interval_seconds: float

    def cycle(self, at: float) -> CycleReport:
        """Observe, decide, guard, execute and record once, without waiting; an error ends this cycle only."""
        ...


class Batches(Protocol):
    """A worker process for heavy, pure functions, so that they starve neither the Lease nor the probes."""

    replaced: int
    """How many workers were lost."""

    def submit(
        self, function: Callable[[*Ts], T], *args: *Ts, deadline_seconds: float = DEADLINE_SECONDS
    ) -> T:
        """Return what a function of a module returns in the worker, or raise what it raises."""
        ...


class SelectedPods(Protocol):
    """The pods of one namespace that a selector names."""

    def pods(self) -> Sequence[Pod]:
        """Return the pods; not knowing raises."""
        ...

    def is_gone(self, name: str, uid: str) -> bool:
        """Return whether the API server, asked by name, does not know this incarnation of a pod."""
        ...

    def has_changed(self) -> bool:
        """Return whether pods have changed since this was last asked."""
        ...


class Wiring(Protocol):
    """What a process gives to every loop; all of it may be used from any thread."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def actuator(self) -> Actuator: ...
    @property
    def leadership(self) -> Leadership:
        """Answers None from the moment that a stop is asked for, so that no new action begins."""
        ...

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
        """Names records, given the time."""
        ...

    @property
    def heartbeat(self) -> Callable[[], None]:
        """Called from inside a long cycle, which otherwise counts as stalled after a while."""
        ...

    @property
    def operator_namespace(self) -> str: ...

    def policies(self, kind: DefinedKind) -> Policies:
        """Return the custom resources of a kind, watched."""
        ...

    def analyses(self) -> Analyses:
        """Return the kinds in which advice is asked for and given, watched once they are installed."""
        ...

    def sizes(self) -> Sizes:
        """Return whose requests and limits can be set; DaemonSets are watched for it."""
        ...

    def applier(self) -> Applier:
        """Return server-side apply."""
        ...

    def history(self) -> tuple[History, Owners]:
        """Return where weeks of usage are kept, and who owned pods then; NoHistory where there is none."""
        ...

    def autoscalers(self) -> Autoscalers:
        """Return HPAs word for word, of the namespaces that may be read."""
        ...

    def pools(self) -> PoolsUpkeep:
        """Return the tiers as the settings describe them, on a server that may be away."""
        ...

    def selected_pods(self, namespace: str, selector: str) -> SelectedPods:
        """Return pods by their labels, watched; BadInput for a selector that makes no sense."""
        ...


class CompatSettings(Protocol):
    """Kinds of other groups: whose they are, and whether the operator acts for them."""

    @property
    def crane(self) -> str: ...
    @property
    def mode(self) -> Mode: ...


class DisruptionSettings(Protocol):
    """What all balancers together may disturb."""

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
    """What loops read of the operator's settings."""

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
        """Return how often a balancer runs its cycle."""
        ...
