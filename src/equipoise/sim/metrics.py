"""What the simulated Prometheus knows: counters, read at each pod's own scrape times.

A rate needs two samples inside the window. It is the growth between the first and the last one divided by the
time between them: PromQL's `rate` with its extrapolation reaching both ends of the window.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from equipoise.model.errors import WorldFailed
from equipoise.ports import CpuUsage
from equipoise.sim.faults import Fault, FaultKind
from equipoise.sim.state import PodState, State


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
        rows: list[tuple[str, str, str, float, float]] = []
        wrong = 0
        for namespace, names in pods_by_namespace.items():
            for name in names:
                pod = self._state.pods.get((namespace, name)) or self._state.gone.get((namespace, name))
                found = self._rate(pod, at, window_seconds) if pod is not None else None
                if pod is None or found is None:
                    continue
                cores, sampled_at = found
                if math.isnan(cores):
                    wrong += len(pod.template.containers)
                    continue
                rows += [
                    (namespace, name, each.name, cores * pod.template.part(each.name), sampled_at)
                    for each in pod.template.containers
                ]
        return CpuUsage(
            namespaces=[row[0] for row in rows],
            pods=[row[1] for row in rows],
            containers=[row[2] for row in rows],
            cores=np.array([row[3] for row in rows], dtype=np.float64),
            sampled_at=np.array([row[4] for row in rows], dtype=np.float64),
            window_seconds=window_seconds,
            source="simulator",
            warnings=(f"{wrong} containers have a usage that is NaN: left out",) if wrong else (),
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

    def _rate(self, pod: PodState, at: float, window_seconds: float) -> tuple[float, float] | None:
        counter = pod.counter
        if counter is None:
            return None
        until = min(at, self._state.now - self._state.settings.scrape_delay_seconds)
        if counter.stopped_at is not None:
            until = min(until, counter.stopped_at)
        samples = self._samples(pod, max(at - window_seconds, counter.started_at), until)
        if len(samples) < 2:  # noqa: PLR2004 - a rate has two ends
            return None
        lost = self._spoilt(FaultKind.METRICS_NAN, pod)
        if any(_covers(fault, time) for fault in lost for time in samples):
            return math.nan, samples[-1]
        return counter.rate(samples), samples[-1]

    def _samples(self, pod: PodState, since: float, until: float) -> list[float]:
        """Give the times at which the pod was scraped, without those that were lost."""
        interval = self._state.settings.scrape_interval_seconds
        offset = pod.scrape_phase * interval
        first, last = math.ceil((since - offset) / interval), math.floor((until - offset) / interval)
        times = [number * interval + offset for number in range(first, last + 1)]
        lost = self._spoilt(FaultKind.METRICS_GAP, pod)
        return [time for time in times if not any(_covers(fault, time) for fault in lost)] if lost else times

    def _spoilt(self, kind: FaultKind, pod: PodState) -> list[Fault]:
        targets = {"", str(pod.ref), pod.workload.ref.subject}
        return [fault for fault in self._state.faults.of(kind) if fault.target in targets]


def _covers(fault: Fault, time: float) -> bool:
    return fault.starts_at <= time < fault.ends_at
