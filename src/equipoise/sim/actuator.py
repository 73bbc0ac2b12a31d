"""The simulated API server's writes, and the clock."""

from dataclasses import dataclass

from equipoise.model.errors import WorldFailed
from equipoise.model.references import ObjectRef, PodRef
from equipoise.ports import EvictionAnswer
from equipoise.sim.disruption import Disruption
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State


class SimClock:
    """Simulated time."""

    def __init__(self, state: State) -> None:
        self._state = state

    def now(self) -> float:
        """Give the Unix time in seconds."""
        return self._state.now


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event as `kubectl describe` would show it."""

    at: float
    about: ObjectRef
    reason: str
    sentence: str
    is_warning: bool


class SimActuator:
    """Evictions and events."""

    def __init__(self, state: State, disruption: Disruption) -> None:
        self._state = state
        self._disruption = disruption
        self.events: list[EventSeen] = []

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
        self.events.append(EventSeen(self._state.now, about, reason, sentence, is_warning))

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
