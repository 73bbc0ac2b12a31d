"""What the simulated Prometheus knows: counters, read at each pod's own scrape times.

A rate needs two samples inside the window. It is the growth between the first and the last one divided by the
time between them: PromQL's `rate` with its extrapolation reaching both ends of the window.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from equipoise.model.errors import WorldFailed
from equipoise.ports import CpuUsage
from equipoise.sim.faults import Fault, FaultKind
from equipoise.sim.state import PodState, State
from equipoise.sim.usage import CpuCounter
from equipoise.stats.coverage import is_covered


class _Rate(NamedTuple):
    """A rate, and the samples that it is from."""

    cores: float
    sampled_at: float
    span_seconds: float
    samples: int


class SimMetrics:
    """Usage by container, from samples."""

    def __init__(self, state: State, advance: Callable[[float], object]) -> None:
        self._state = state
        self._advance = advance
        self.scalars: dict[str, Callable[[float], float | None]] = {}
        """What to answer to which query, by time."""

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        """Read the CPU usage of all these pods as of a time."""
        at = self._asked(at)
        rows: list[tuple[str, str, str, float, float, float, int]] = []
        wrong = 0
        pods, gone, is_plain = self._state.pods, self._state.gone, not self._has_spoilt
        for namespace, names in pods_by_namespace.items():
            for name in names:
                pod = pods.get((namespace, name)) or gone.get((namespace, name))
                found = self._rate(pod, at, window_seconds, is_plain=is_plain) if pod is not None else None
                if pod is None or found is None:
                    continue
                cores, sampled_at, span, count = found
                if math.isnan(cores):
                    wrong += len(pod.template.containers)
                    continue
                rows += [
                    (namespace, name, each, cores * part, sampled_at, span, count)
                    for each, part in pod.template.parts
                ]
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
            warnings=(f"{wrong} containers have a usage that is NaN: left out",) if wrong else (),
            is_covered=is_covered(window_seconds, spans, counts, at - stamps),
        )

    def scalar(self, query: str, at: float) -> float | None:
        """Answer a query that the test knows; nothing to any other."""
        at = self._asked(at)
        answer = self.scalars.get(query)
        return None if answer is None else answer(at)

    def _asked(self, at: float) -> float:
        """Let the faults of the moment do their part; give the time that the answer is of."""
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

    @property
    def _has_spoilt(self) -> bool:
        """Whether any sample was ever lost or wrong."""
        faults = self._state.faults
        return bool(faults.of(FaultKind.METRICS_GAP) or faults.of(FaultKind.METRICS_NAN))

    def _plain_rate(self, pod: PodState, counter: CpuCounter, since: float, until: float) -> _Rate | None:
        """Give the rate where nothing was lost or restarted: two samples say it all."""
        first, last, interval, offset = self._scrapes(pod, since, until)
        if first >= last:
            return None
        began, ended = first * interval + offset, last * interval + offset
        return _Rate(counter.rate((began, ended)), ended, ended - began, last - first + 1)

    def _scrapes(self, pod: PodState, since: float, until: float) -> tuple[int, int, float, float]:
        """Give the numbers of a pod's first and last scrape in a time, their interval and their offset."""
        interval = self._state.settings.scrape_interval_seconds
        offset = pod.scrape_phase * interval
        first, last = math.ceil((since - offset) / interval), math.floor((until - offset) / interval)
        return first, last, interval, offset

    def _samples(self, pod: PodState, since: float, until: float) -> list[float]:
        """Give the times at which the pod was scraped, without those that were lost."""
        first, last, interval, offset = self._scrapes(pod, since, until)
        times = [number * interval + offset for number in range(first, last + 1)]
        lost = self._spoilt(FaultKind.METRICS_GAP, pod)
        return [time for time in times if not any(_covers(fault, time) for fault in lost)] if lost else times

    def _spoilt(self, kind: FaultKind, pod: PodState) -> list[Fault]:
        targets = {"", str(pod.ref), pod.workload.ref.subject}
        return [fault for fault in self._state.faults.of(kind) if fault.target in targets]


def _covers(fault: Fault, time: float) -> bool:
    return fault.starts_at <= time < fault.ends_at
