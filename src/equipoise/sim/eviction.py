"""Writes to the simulated API server: the Eviction API with PodDisruptionBudgets, events, and the clock.

An eviction is refused as the real API refuses it: by the budget's status, which the disruption controller
fills in a little later than the truth.
"""

from dataclasses import dataclass

from equipoise.core.cluster import ObjectRef, PodRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionAnswer, EvictionResult
from equipoise.sim import template
from equipoise.sim.controllers import Kubelet
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import EvictionRequest, PdbState, PodState, SimState, WorkloadState


class EvictionApi:
    """Both halves of the disruption budget, which meet in its status."""

    def __init__(self, state: SimState, kubelet: Kubelet) -> None:
        self._state = state
        self._kubelet = kubelet
        state.listeners.append(self._notice)

    def _notice(self, workload: WorkloadState) -> None:
        for pdb in workload.pdbs:
            self.sync_soon(pdb)

    def sync_soon(self, pdb: PdbState) -> None:
        """Reconcile a budget after the controller's delay."""
        if not pdb.is_sync_due:
            pdb.is_sync_due = True
            self._state.timeline.after(self._state.settings.budget_delay_seconds, lambda: self._sync(pdb))

    def _sync(self, pdb: PdbState) -> None:
        pdb.is_sync_due = False
        now, believed_seconds = self._state.now, self._state.settings.disrupted_seconds
        pods = pdb.pods()
        here = {pod.name for pod in pods if pod.deletion_at is None}
        pdb.disrupted = {
            name: at for name, at in pdb.disrupted.items() if name in here and at + believed_seconds >= now
        }
        healthy = [pod for pod in pods if pod.is_ready and pod.deletion_at is None]
        counted = sum(pod.name not in pdb.disrupted for pod in healthy)
        scale = sum(
            workload.replicas for workload in {pod.workload.ref: pod.workload for pod in pods}.values()
        )
        found = template.status(pdb.budget, pods=len(pods), scale=scale, healthy=counted)
        pdb.healthy_seen, pdb.evicted_since = frozenset(pod.uid for pod in healthy), set()
        if found != pdb.status or not pdb.is_current:
            pdb.status, pdb.is_current = found, True
            pdb.version, pdb.view = self._state.next_version(), None
        if pdb.disrupted:
            self._state.timeline.after(believed_seconds, lambda: self.sync_soon(pdb))

    def evict(self, ref: PodRef, grace_seconds: int | None, *, is_dry_run: bool) -> EvictionAnswer:
        """Answer an eviction as the API server does."""
        pod = self._state.pods.get((ref.namespace, ref.name))
        if pod is None:
            return EvictionAnswer(EvictionResult.GONE, f"pod {ref} is not there")
        if pod.phase == "Pending" or pod.deletion_at is not None:
            return self._let_go(pod, ref, None, grace_seconds, is_dry_run=is_dry_run)
        budgets = pod.workload.pdbs
        if len(budgets) > 1:
            return EvictionAnswer(
                EvictionResult.REFUSED, f"pod {ref} has {len(budgets)} PodDisruptionBudgets; one is supported"
            )
        budget = budgets[0] if budgets else None
        if budget is not None and not self.allows(budget, pod, is_dry_run=is_dry_run):
            status = budget.status
            sentence = f"budget {budget.name} needs {status.desired} healthy pods, has {status.healthy}"
            return EvictionAnswer(EvictionResult.BLOCKED, sentence)
        return self._let_go(pod, ref, budget, grace_seconds, is_dry_run=is_dry_run)

    def allows(self, pdb: PdbState, pod: PodState, *, is_dry_run: bool) -> bool:
        """Ask a budget for one pod, and take it from what the budget allows."""
        if not pod.is_ready:
            if pdb.budget.unhealthy_policy == "AlwaysAllow":
                return True
            if pdb.status.healthy >= pdb.status.desired > 0:
                return True
        if not pdb.is_current or pdb.status.allowed <= 0:
            return False
        if not is_dry_run:
            before = pdb.status
            pdb.status = type(before)(before.expected, before.desired, before.healthy, before.allowed - 1)
            pdb.disrupted[pod.name] = self._state.now
            pdb.version, pdb.view = self._state.next_version(), None
        return True

    def _let_go(
        self, pod: PodState, ref: PodRef, pdb: PdbState | None, grace_seconds: int | None, *, is_dry_run: bool
    ) -> EvictionAnswer:
        # Compared last, as the server does: an order for another incarnation has cost its budget by now.
        if ref.uid and pod.uid != ref.uid:
            if pdb is not None:
                self.sync_soon(pdb)
            return EvictionAnswer(EvictionResult.GONE, f"pod {ref} is not there: the name is another's")
        if not is_dry_run:
            if pdb is None:
                self._state.evictions.append(EvictionRequest(self._state.now, pod.ref))
            else:
                self._state.evictions.append(_audited(self._state, pdb, pod))
                pdb.evicted_since.add(pod.uid)
            pod.is_disruption_target = True
            self._kubelet.end(pod, grace_seconds=grace_seconds, why="Evicted")
        return EvictionAnswer(EvictionResult.ACCEPTED)


def _audited(state: SimState, pdb: PdbState, pod: PodState) -> EvictionRequest:
    """Count by hand what an eviction leaves; the budget's own numbers play no part but the one it wants."""
    healthy = {other.uid for other in pdb.pods() if other.is_ready and other.deletion_at is None}
    unseen = pdb.healthy_seen - healthy - pdb.evicted_since
    return EvictionRequest(
        at=state.now,
        pod=pod.ref,
        budget=pdb.name,
        healthy_left=len(healthy - {pod.uid}),
        lost_unseen=len(unseen),
        desired=pdb.status.desired,
        was_healthy=pod.uid in healthy,
    )


class SimClock:
    """Simulated time."""

    def __init__(self, state: SimState) -> None:
        self._state = state

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return self._state.now


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as `kubectl describe` would show it."""

    at: float
    about: ObjectRef
    reason: str
    sentence: str
    is_warning: bool


class SimActuator:
    """Evictions and events."""

    def __init__(self, state: SimState, disruption: EvictionApi) -> None:
        self._state = state
        self._disruption = disruption
        self.events: list[RecordedEvent] = []

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        """Evict exactly this incarnation of a pod."""
        self._check_available()
        answer = self._disruption.evict(pod, grace_seconds, is_dry_run=is_dry_run)
        self._state.log("EvictionAsked", pod, f"{answer.result} dry={is_dry_run}")
        if self._state.faults.now(FaultKind.EVICTION_ANSWER_LOST, str(pod)):
            raise WorldFailed(f"the answer to the eviction of {pod} was lost (simulated)")
        return answer

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Keep one sentence about an object."""
        self._check_available()
        self.events.append(RecordedEvent(self._state.now, about, reason, sentence, is_warning))

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
