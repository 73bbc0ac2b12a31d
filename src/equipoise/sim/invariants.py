"""What must hold after every instant of simulated time, checked on the state itself.

Each check returns what is wrong, or None. A failure names the seed, which reproduces it.
"""

import math
from collections.abc import Callable, Iterator

from equipoise.sim.controllers import room_for
from equipoise.sim.state import NodeState, SimState, WorkloadState
from equipoise.sim.store import SimStore


class InvariantBroken(AssertionError):  # noqa: N818 - reads as a fact
    """An invariant does not hold."""


def pods_are_not_too_many(workload: WorkloadState, _: SimState) -> str | None:
    """No more active pods than replicas and a rollout's surge, unless a reconcile is due."""
    count, most = len(workload.active()), room_for(workload)
    if count > most and not workload.is_reconcile_due:
        return f"{count} active pods, at most {most} were expected"
    return None


def demand_is_conserved(workload: WorkloadState, _: SimState) -> str | None:
    """All work is with pods that serve, or counted as unserved."""
    work = math.fsum(pod.work_cores for pod in workload.pods.values())
    if not math.isclose(work + workload.unserved_cores, workload.demand_cores, rel_tol=1e-9, abs_tol=1e-9):
        demand = workload.demand_cores
        return f"{work} cores of work and {workload.unserved_cores} unserved of a demand of {demand}"
    idle = [pod.name for pod in workload.pods.values() if pod.work_cores > 0 and not pod.is_serving]
    return f"work at pods that do not serve: {idle}" if idle else None


def usage_is_within_limits(workload: WorkloadState, _: SimState) -> str | None:
    """No pod uses more than its limit, or less than nothing."""
    for pod in workload.pods.values():
        if not 0 <= pod.rate_cores <= pod.template.cpu_limit_cores:
            return f"pod {pod.name} uses {pod.rate_cores} cores"
    return None


def pods_are_indexed(workload: WorkloadState, state: SimState) -> str | None:
    """Each name belongs to one incarnation, and a ready pod is placed and running."""
    for pod in workload.pods.values():
        if state.pods.get((workload.ref.namespace, pod.name)) is not pod:
            return f"pod {pod.name} is known under another identity"
        if pod.is_ready and (pod.node is None or pod.phase != "Running" or pod.deletion_at is not None):
            return f"pod {pod.name} is ready, but not in a state to be"
    return None


def budgets_are_kept(workload: WorkloadState, _: SimState) -> str | None:
    """No budget allows less than nothing, or more than it has."""
    for pdb in workload.pdbs:
        status = pdb.status
        if status.allowed < 0 or status.allowed > max(status.healthy - status.desired, 0):
            return f"budget {pdb.name} allows {status.allowed} of {status}"
    return None


def node_is_not_overfull(node: NodeState) -> str | None:
    """All that is placed fits."""
    cpu = math.fsum(pod.template.cpu_request_cores for pod in node.pods.values())
    if cpu > node.cpu_cores + 1e-6 or len(node.pods) > node.pods_max:
        return f"{len(node.pods)} pods with {cpu} cores on {node.name}"
    if not math.isclose(cpu, node.cpu_taken_cores, rel_tol=1e-6, abs_tol=1e-6):
        return f"{node.name} counts {node.cpu_taken_cores} cores where {cpu} are"
    return None


Invariant = Callable[[WorkloadState, SimState], str | None]
OF_WORKLOADS: tuple[Invariant, ...] = (pods_are_not_too_many, budgets_are_kept, pods_are_indexed)
OF_LOADS: tuple[Invariant, ...] = (demand_is_conserved, usage_is_within_limits)
"""What a load alone can break."""


class Invariants:
    """Checks what changed since the last check."""

    def __init__(self, state: SimState, store: SimStore) -> None:
        self._state = state
        self._store = store
        self._evictions = 0
        self._commits = 0
        self._versions: dict[object, str] = {}

    def check(self) -> None:
        for problem in self._problems():
            raise InvariantBroken(f"seed {self._state.seed}, at {self._state.now!r}: {problem}")

    def _problems(self) -> Iterator[str]:
        touched, self._state.touched = self._state.touched, set()
        reloaded, self._state.reloaded = self._state.reloaded, set()
        for refs, invariants in ((touched, OF_WORKLOADS), (touched | reloaded, OF_LOADS)):
            for workload in map(self._state.workloads.__getitem__, refs):
                for invariant in invariants:
                    if problem := invariant(workload, self._state):
                        yield f"{workload.ref}: {problem}"
        yield from self._evictions_kept_budgets()
        yield from self._no_write_was_lost()

    def check_nodes(self) -> None:
        """Raise when a node holds more than fits; called less often, since it reads every pod."""
        uids = [pod.uid for pod in self._state.pods.values()]
        if len(set(uids)) < len(uids):
            raise InvariantBroken(f"seed {self._state.seed}: an identity was used twice")
        for node in self._state.nodes.values():
            if problem := node_is_not_overfull(node):
                raise InvariantBroken(f"seed {self._state.seed}, at {self._state.now!r}: {problem}")

    def _evictions_kept_budgets(self) -> Iterator[str]:
        """No eviction took a healthy pod that its budget needed, as far as the API could know."""
        fresh = self._state.evictions[self._evictions :]
        self._evictions += len(fresh)
        for eviction in fresh:
            if eviction.was_healthy and eviction.healthy_left + eviction.lost_unseen < eviction.desired:
                left, desired = eviction.healthy_left, eviction.desired
                yield f"evicting {eviction.pod} left {left} healthy pods; {eviction.budget} wants {desired}"

    def _no_write_was_lost(self) -> Iterator[str]:
        """Every write followed the version that was there."""
        fresh = self._store.commits[self._commits :]
        self._commits += len(fresh)
        for commit in fresh:
            before = self._versions.get(commit.key, "")
            self._versions[commit.key] = commit.version
            if commit.based_on != before:
                yield f"a write of ledger based on {commit.based_on!r} replaced {before!r}"
