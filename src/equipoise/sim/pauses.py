"""Stop and go, as people say it by annotation."""

from equipoise.model.errors import WorldFailed
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State


class SimPauses:
    """Who paused what. A namespace is known once something is in it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._paused: dict[str | None, str] = {}

    def pause(self, namespace: str | None, who: str) -> None:
        """Stop every action in a namespace, or everywhere."""
        self._paused[namespace] = who

    def resume(self, namespace: str | None) -> None:
        """Let go again."""
        self._paused.pop(namespace, None)

    def pause_of(self, namespace: str) -> str | None:
        """Say who or what paused this namespace, or None; not knowing raises."""
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")
        if None in self._paused:
            return f"everything is paused: {self._paused[None]}"
        if namespace not in self._state.namespaces:
            raise WorldFailed(f"namespace {namespace}: not known, so nobody can say whether it is paused")
        who = self._paused.get(namespace)
        return None if who is None else f"namespace {namespace} is paused: {who}"
