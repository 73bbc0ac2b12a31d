"""Weeks of usage behind the port `History`: what pods used minute by minute, and a past before the start."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.model.cluster import Container
from equipoise.model.errors import WorldFailed
from equipoise.model.history import Grouping, Measure, Reduction, UsageHistory
from equipoise.sim import names
from equipoise.sim.faults import FaultKind
from equipoise.sim.load import Shape
from equipoise.sim.state import PodState, State, WorkloadState
from equipoise.stats.arrays import Whole

STEP_SECONDS = 60.0
KEPT_SECONDS = 8 * 86400.0
"""A week is asked for, and a day more is kept."""

Key = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass(slots=True)
class _Series:
    """One container: the place of its first sample on the grid, and its samples without a hole."""

    first: int
    cores: list[float]


class SimHistory:
    """Scrapes every pod at whole minutes; a pod's memory is what it requests."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._series: dict[Key, _Series] = {}
        self._memory: dict[Key, float] = {}
        begin = state.now // STEP_SECONDS * STEP_SECONDS
        state.timeline.every(STEP_SECONDS, self._scrape, first_at=begin + STEP_SECONDS)

    def remember(
        self, workload: WorkloadState, shape: Shape, *, seconds: float, replicas: int, noise: float = 0.0
    ) -> None:
        """Make up the past of a workload: pods of an earlier revision that shared this demand until now.

        Each container's usage varies by `noise` around its share, as a part of it.
        """
        end = _place(self._state.now)
        count = round(seconds / STEP_SECONDS)
        times = (np.arange(end - count + 1, end + 1)) * STEP_SECONDS
        demand = np.array([shape.cores(float(at)) for at in times]) / replicas
        chance = names.seeded(self._state.seed, f"{workload.ref.subject} past")
        spread = np.random.default_rng(chance.getrandbits(64))
        revision = names.template_hash(workload.template, 0)
        for _ in range(replicas):
            name = f"{workload.ref.name}-{revision}-{names.suffix(chance)}"
            for container, part in workload.template.parts:
                varied = np.maximum(0.0, 1.0 + noise * spread.standard_normal(count))
                key = (workload.ref.namespace, name, container)
                self._series[key] = _Series(end - count + 1, (demand * part * varied).tolist())
                self._memory[key] = _memory(workload.template.containers, container)

    def read(
        self,
        measures: Sequence[Measure],
        start: float,
        end: float,
        step_seconds: float,
        *,
        namespaces: Sequence[str] | None = None,
        grouping: Grouping | None = None,
        on_bytes: Callable[[int], None] | None = None,
    ) -> Iterator[UsageHistory]:
        """Give the histories in one lot for each measure, in the given order."""
        del grouping
        if self._state.faults.now(FaultKind.METRICS_OUTAGE):
            raise WorldFailed("the metrics do not answer (simulated)")
        if step_seconds != STEP_SECONDS:
            raise WorldFailed(
                f"the history has a step of {STEP_SECONDS:g} s (simulated), not {step_seconds:g}"
            )
        places = np.arange(_place(start), _place(end) + 1)
        keys = [key for key in self._series if namespaces is None or key[0] in namespaces]
        for measure in measures:
            table = self._table(measure, keys, places)
            if on_bytes is not None:
                on_bytes(table.nbytes)
            yield UsageHistory(
                measure=measure.name,
                scope=None if namespaces is None else tuple(namespaces),
                namespaces=[key[0] for key in keys],
                pods=[key[1] for key in keys],
                containers=[key[2] for key in keys],
                timestamps=(places * STEP_SECONDS).astype(np.float64),
                values=table,
                window_seconds=STEP_SECONDS,
                source="simulator",
            )

    def _table(self, measure: Measure, keys: Sequence[Key], places: Whole) -> NDArray[np.float64]:
        if measure.reduction is Reduction.HIGHEST:
            highest = np.full((len(keys), len(places)), np.nan)
            highest[:, -1] = [self._memory[key] for key in keys]
            return highest
        return np.array([_on(self._series[key], places) for key in keys]).reshape(len(keys), len(places))

    def _scrape(self) -> None:
        """Add what every pod used in the last minute; one that was not there all of it is unknown."""
        if self._state.faults.now(FaultKind.METRICS_OUTAGE):
            return
        now = self._state.now
        place = _place(now)
        for pod in self._state.pods.values():
            counter = pod.counter
            if counter is None or counter.started_at > now - STEP_SECONDS or counter.stopped_at is not None:
                continue
            self._keep(pod, place, counter.mean_cores(now - STEP_SECONDS, now))
        self._forget(place - round(KEPT_SECONDS / STEP_SECONDS))

    def _keep(self, pod: PodState, place: int, cores: float) -> None:
        for container, part in pod.template.parts:
            key = (pod.workload.ref.namespace, pod.name, container)
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series(place, [])
            series.cores += [float("nan")] * (place - series.first - len(series.cores))
            series.cores.append(cores * part)
            self._memory[key] = _memory(pod.template.containers, container)

    def _forget(self, before: int) -> None:
        for key, series in list(self._series.items()):
            if series.first + len(series.cores) <= before:
                del self._series[key], self._memory[key]
            elif series.first < before - 1440:  # a day at a time
                del series.cores[: before - series.first]
                series.first = before


def _place(at: float) -> int:
    return round(at // STEP_SECONDS)


def _memory(containers: Sequence[Container], name: str) -> float:
    return next(each.memory_request_bytes or 0.0 for each in containers if each.name == name)


def _on(series: _Series, places: Whole) -> NDArray[np.float64]:
    """Lay a series on a part of the grid; NaN where it has nothing."""
    laid = np.full(len(places), np.nan)
    first = int(places[0])
    low, high = max(series.first, first), min(series.first + len(series.cores), first + len(places))
    if low < high:
        laid[low - first : high - first] = series.cores[low - series.first : high - series.first]
    return laid
