"""What the simulated Prometheus knows: counters, read at each pod's own scrape times, and weeks of history.

A rate needs two samples inside the window. It is the growth between the first and the last one divided by the
time between them: PromQL's `rate` with its extrapolation reaching both ends of the window. The history is
usage minute by minute behind the port `History`, with a past before the start.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.core.errors import WorldFailed
from equipoise.ports import CpuUsage
from equipoise.ports.cluster import Grouping, Measure, Reduction, UsageHistory
from equipoise.sim import template
from equipoise.sim.faults import Fault, FaultKind
from equipoise.sim.load import CpuCounter, Shape
from equipoise.sim.state import PodState, SimState, WorkloadState
from equipoise.stats.grid import is_covered
from equipoise.stats.ranks import Whole


class _Rate(NamedTuple):
    """A rate, and the samples that it is from."""

    cores: float
    sampled_at: float
    span_seconds: float
    samples: int


class SimMetrics:
    """Usage by container, from samples."""

    def __init__(self, state: SimState, advance: Callable[[float], object]) -> None:
        self._state = state
        self._advance = advance
        self.scalars: dict[str, Callable[[float], float | None]] = {}
        """What to answer to which query, by time."""

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        at = self._asked(at)
        rows: list[tuple[str, str, str, float, float, float, int]] = []
        wrong = 0
        pods, gone, faults = self._state.pods, self._state.gone, self._state.faults
        is_plain = not faults.of(FaultKind.METRICS_GAP) and not faults.of(FaultKind.METRICS_NAN)
        for namespace, names_of_pods in pods_by_namespace.items():
            for name in names_of_pods:
                pod = pods.get((namespace, name)) or gone.get((namespace, name))
                found = self._rate(pod, at, window_seconds, is_plain=is_plain) if pod is not None else None
                if pod is None or found is None:
                    continue
                cores, sampled_at, span, count = found
                if math.isnan(cores):
                    wrong += len(pod.template.containers)
                    continue
                for each, part in pod.template.parts:
                    rows.append((namespace, name, each, cores * part, sampled_at, span, count))
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(7)]
        stamps, spans, counts = (np.array(column, dtype=np.float64) for column in columns[4:])
        return CpuUsage(
            namespaces=columns[0],
            pods=columns[1],
            containers=columns[2],
            cores=np.array(columns[3], dtype=np.float64),
            sampled_at=stamps,
            window_seconds=window_seconds,
            source="simulator",
            warnings=(f"the usage of {wrong} containers was ignored: it is NaN",) if wrong else (),
            is_covered=is_covered(window_seconds, spans, counts, at - stamps),
        )

    def scalar(self, query: str, at: float) -> float | None:
        """Answer a query that the test knows; nothing to any other."""
        at = self._asked(at)
        answer = self.scalars.get(query)
        return None if answer is None else answer(at)

    def _asked(self, at: float) -> float:
        """Apply the faults of this moment; return the time that the answer is of."""
        if self._state.faults.now(FaultKind.METRICS_OUTAGE):
            raise WorldFailed("the metrics do not answer (simulated)")
        late = self._state.faults.now(FaultKind.METRICS_LATE)
        if late is not None:
            self._advance(late.value)
        stale = self._state.faults.now(FaultKind.METRICS_STALE)
        return at if stale is None else at - stale.value

    def _rate(self, pod: PodState, at: float, window_seconds: float, *, is_plain: bool) -> _Rate | None:
        counter = pod.counter
        if counter is None:
            return None
        until = min(at, self._state.now - self._state.settings.scrape_delay_seconds)
        if counter.stopped_at is not None:
            until = min(until, counter.stopped_at)
        since = max(at - window_seconds, counter.started_at)
        if is_plain and not counter.resets:
            return self._plain_rate(pod, counter, since, until)
        samples = self._samples(pod, since, until)
        if len(samples) < 2:  # noqa: PLR2004 - a rate has two ends
            return None
        lost = self._spoilt(FaultKind.METRICS_NAN, pod)
        if any(_covers(fault, time) for fault in lost for time in samples):
            return _Rate(math.nan, samples[-1], 0.0, 0)
        return _Rate(counter.rate(samples), samples[-1], samples[-1] - samples[0], len(samples))

    def _plain_rate(self, pod: PodState, counter: CpuCounter, since: float, until: float) -> _Rate | None:
        """Return the rate where nothing was lost or restarted: two samples say it all."""
        first, last, interval, offset = self._scrapes(pod, since, until)
        if first >= last:
            return None
        began, ended = first * interval + offset, last * interval + offset
        return _Rate(counter.rate((began, ended)), ended, ended - began, last - first + 1)

    def _scrapes(self, pod: PodState, since: float, until: float) -> tuple[int, int, float, float]:
        """Return the numbers of a pod's first and last scrape in a time, their interval and their offset."""
        interval = self._state.settings.scrape_interval_seconds
        offset = pod.scrape_phase * interval
        first, last = math.ceil((since - offset) / interval), math.floor((until - offset) / interval)
        return first, last, interval, offset

    def _samples(self, pod: PodState, since: float, until: float) -> list[float]:
        """Return the times at which the pod was scraped, without those that were lost."""
        first, last, interval, offset = self._scrapes(pod, since, until)
        times = [number * interval + offset for number in range(first, last + 1)]
        lost = self._spoilt(FaultKind.METRICS_GAP, pod)
        return [time for time in times if not any(_covers(fault, time) for fault in lost)] if lost else times

    def _spoilt(self, kind: FaultKind, pod: PodState) -> list[Fault]:
        targets = {"", str(pod.ref), pod.workload.ref.subject}
        return [fault for fault in self._state.faults.of(kind) if fault.target in targets]


def _covers(fault: Fault, time: float) -> bool:
    return fault.starts_at <= time < fault.ends_at


STEP_SECONDS = 60.0
RETENTION_SECONDS = 8 * 86400.0
"""A week is asked for, and a day more is kept."""

Key = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass(slots=True)
class CounterSamples:
    """One container: the place of its first sample on the grid, and its samples without a hole."""

    first: int
    cores: list[float]


class SimHistory:
    """Scrapes every pod at whole minutes; a pod's memory is what it requests."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._series: dict[Key, CounterSamples] = {}
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
        rng = template.seeded(self._state.seed, f"{workload.ref.subject} past")
        spread = np.random.default_rng(rng.getrandbits(64))
        revision = template.template_hash(workload.template, 0)
        for _ in range(replicas):
            name = f"{workload.ref.name}-{revision}-{template.suffix(rng)}"
            for container, part in workload.template.parts:
                varied = np.maximum(0.0, 1.0 + noise * spread.standard_normal(count))
                key = (workload.ref.namespace, name, container)
                self._series[key] = CounterSamples(end - count + 1, (demand * part * varied).tolist())
                self._memory[key] = workload.template.container(container).memory_request_bytes or 0.0

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
        """Yield the histories in one lot for each measure, in the given order."""
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
        self._forget(place - round(RETENTION_SECONDS / STEP_SECONDS))

    def _keep(self, pod: PodState, place: int, cores: float) -> None:
        for container, part in pod.template.parts:
            key = (pod.workload.ref.namespace, pod.name, container)
            series = self._series.setdefault(key, CounterSamples(place, []))
            series.cores += [float("nan")] * (place - series.first - len(series.cores))
            series.cores.append(cores * part)
            self._memory[key] = pod.template.container(container).memory_request_bytes or 0.0

    def _forget(self, before: int) -> None:
        for key, series in list(self._series.items()):
            if series.first + len(series.cores) <= before:
                del self._series[key], self._memory[key]
            elif series.first < before - 1440:  # a day at a time
                del series.cores[: before - series.first]
                series.first = before


def _place(at: float) -> int:
    return round(at // STEP_SECONDS)


def _on(series: CounterSamples, places: Whole) -> NDArray[np.float64]:
    """Lay a series on a part of the grid; NaN where it has nothing."""
    laid = np.full(len(places), np.nan)
    first = int(places[0])
    low, high = max(series.first, first), min(series.first + len(series.cores), first + len(places))
    if low < high:
        laid[low - first : high - first] = series.cores[low - series.first : high - series.first]
    return laid
