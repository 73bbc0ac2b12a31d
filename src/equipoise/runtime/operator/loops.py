"""Where the shell and the balancers meet: what a loop is, what it is given, and which loops there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.core.errors import BadInput
from equipoise.ports import Actuator, Clock, Cluster, CycleReport, Journal, Leadership, Metrics, Pauses, Store
from equipoise.runtime.settings import Settings

if TYPE_CHECKING:
    from equipoise.adapters.journal import RecordIds
    from equipoise.adapters.kubernetes import Client, Reflector
    from equipoise.adapters.prometheus.metrics import PrometheusMetrics
    from equipoise.runtime.operator.worker import Batches


class Loop(Protocol):
    """A balancer at work: one cycle sees, decides, guards, acts and records; it never waits for the world."""

    name: str
    interval_seconds: float

    def cycle(self, at: float) -> CycleReport:
        """Do one turn; WorldFailed ends this turn only."""
        ...


@dataclass(frozen=True, slots=True)
class Wiring:
    """What the shell gives to every loop. All of it may be used from any thread."""

    client: "Client"
    """For kinds of the balancer's own; a reflector made with it goes to `watch`."""
    cluster: Cluster
    metrics: Metrics
    prometheus: "Callable[[], PrometheusMetrics]"
    """Where metrics.k8s.io is not enough; it raises where there is none."""
    actuator: Actuator
    leadership: Leadership
    """Answers None from the moment that a stop is asked for, so that no new action begins."""
    store: Store
    pauses: Pauses
    journal: Journal
    record_ids: "RecordIds"
    clock: Clock
    batches: "Batches"
    watch: "Callable[[Reflector[Any]], None]"
    """Has the shell start, meter, await and stop one more reflector."""
    beat: Callable[[], None]
    """Says from inside a long cycle that it still gets on; without, it counts as stalled after a while."""
    operator_namespace: str


Factory = Callable[[Wiring, Settings], Loop]


def _rotation(wiring: Wiring, settings: Settings) -> Loop:
    from equipoise.runtime.operator.rotation_loop import rotation_loop

    return rotation_loop(wiring, settings)


def _pools(wiring: Wiring, settings: Settings) -> Loop:
    from equipoise.runtime.operator.pools_loop import pools_loop

    return pools_loop(wiring, settings)


def _recommendation(wiring: Wiring, settings: Settings) -> Loop:
    from equipoise.runtime.operator.recommendation_loop import recommendation_loop

    return recommendation_loop(wiring, settings)


def _proportional(wiring: Wiring, settings: Settings) -> Loop:
    from equipoise.runtime.operator.proportional_loop import proportional_loop

    return proportional_loop(wiring, settings)


LOOPS: dict[str, Factory] = {
    "proportional": _proportional,
    "rotation": _rotation,
    "recommendation": _recommendation,
    "pools": _pools,
}
"""The balancers that exist, by name."""


def make_loops(
    wiring: Callable[[str], Wiring], settings: Settings, table: Mapping[str, Factory] = LOOPS
) -> list[Loop]:
    """Make the loops that the settings ask for, each with what is wired for it."""
    missing = [name for name in settings.balancers if name not in table]
    if missing:
        has = ", ".join(table) or "none"
        raise BadInput(f"balancers: {', '.join(missing)} has no loop in this version, which has {has}")
    return [table[name](wiring(name), settings) for name in dict.fromkeys(settings.balancers)]
