"""The HPA controller and the metrics-server that it reads."""

import math

from equipoise.model.cluster import HpaMetric
from equipoise.sim.faults import FaultKind
from equipoise.sim.hpa import PodSeen, advise, highest, milli
from equipoise.sim.state import HpaState, State, WorkloadState
from equipoise.sim.template import Template
from equipoise.sim.usage import CpuCounter

_FRESH_SECONDS_MIN = 10.0
"""A container younger than one interval is measured from its start, but not over less than this."""


class Autoscaling:
    """Syncs every HPA at its own beat."""

    def __init__(self, state: State) -> None:
        self._state = state
        phase = state.settings.resource_phase_seconds
        interval = state.settings.resource_interval_seconds
        self._scrapes_from = state.now + (state.chance.random() * interval if phase is None else phase)

    def begin(self, hpa: HpaState) -> None:
        """Sync an HPA from now on."""
        settings = self._state.settings
        phase = settings.hpa_phase_seconds
        if phase is None:
            phase = self._state.chance.random() * settings.hpa_sync_seconds
        self._state.timeline.every(
            settings.hpa_sync_seconds, lambda: self._sync(hpa), first_at=self._state.now + phase
        )

    def _sync(self, hpa: HpaState) -> None:
        is_paused = hpa.workload.ref in self._state.autoscaler_pauses
        if is_paused or self._state.faults.now(FaultKind.API_UNAVAILABLE):
            return
        workload, now = hpa.workload, self._state.now
        advice = advise(
            hpa.spec,
            lambda: self._proposed(hpa),
            current=workload.replicas,
            memory=hpa.memory,
            at=now,
            controller=self._state.settings.hpa,
        )
        hpa.memory = advice.memory
        if advice.replicas != workload.replicas:
            self._state.log("Scaled", workload.ref, f"{workload.replicas}->{advice.replicas}")
            hpa.scaled_at = now
            workload.replicas = advice.replicas
            workload.generation += 1
            self._state.workload_changed(workload)
        if hpa.desired != advice.replicas:
            hpa.desired = advice.replicas
            hpa.version, hpa.view = self._state.next_version(), None

    def _proposed(self, hpa: HpaState) -> int | None:
        """Give what the metrics propose; what was proposed before, while nothing changes."""
        seen, current, now = self._all_seen(hpa), hpa.workload.replicas, self._state.now
        if seen is hpa.quiet_seen and hpa.quiet_proposal is not None and hpa.quiet_proposal[0] == current:
            return hpa.quiet_proposal[1]
        controller = self._state.settings.hpa
        proposed = highest(hpa.spec, seen, current, now, controller)
        if seen is hpa.quiet_seen and not _has_new_pods(seen, now - controller.cpu_initialization_seconds):
            hpa.quiet_proposal = (current, proposed)
        return proposed

    def _all_seen(self, hpa: HpaState) -> list[list[PodSeen]]:
        """Give the pods as each metric shows them; this is most of a simulation's work, so it is spared."""
        is_silent = self._state.faults.now(FaultKind.RESOURCE_METRICS_OUTAGE) is not None
        workload = hpa.workload
        if hpa.quiet_since == workload.spread_at and not is_silent:
            return hpa.quiet_seen
        interval = self._state.settings.resource_interval_seconds
        visible_at = self._state.now - self._state.settings.resource_delay_seconds
        last = self._scrapes_from + math.floor((visible_at - self._scrapes_from) / interval) * interval
        seen = [
            _seen(workload, metric, last, interval, is_silent=is_silent or metric.name != "cpu")
            for metric in hpa.spec.metrics
        ]
        if last - 2 * interval >= workload.spread_at and not is_silent:
            hpa.quiet_since, hpa.quiet_seen, hpa.quiet_proposal = workload.spread_at, seen, None
        return seen


def _has_new_pods(seen: list[list[PodSeen]], since: float) -> bool:
    """Whether time alone may change what a pod's sample counts for."""
    return any(pod.started_at is not None and pod.started_at > since for group in seen for pod in group)


def _seen(
    workload: WorkloadState, metric: HpaMetric, last: float, interval: float, *, is_silent: bool
) -> list[PodSeen]:
    """Give the pods as one metric shows them after metrics-server's scrape at `last`."""
    template, request_milli, part = None, None, 1.0
    seen = []
    for pod in workload.pods.values():
        if pod.template is not template:
            template = pod.template
            request_milli, part = _request_milli(template, metric), _part(template, metric)
        cores, window_seconds = (None, 0.0) if is_silent else sample(pod.counter, last, interval)
        seen.append(
            PodSeen(
                None if cores is None else milli(cores * part),
                request_milli,
                last,
                window_seconds,
                pod.started_at,
                pod.is_ready,
                pod.ready_changed_at,
                pod.phase,
                pod.deletion_at is not None,
            )
        )
    return seen


def sample(counter: CpuCounter | None, last: float, interval: float) -> tuple[float | None, float]:
    """Read what metrics-server shows of a pod after its scrape at `last`: cores, and over how long."""
    if counter is None or (counter.stopped_at is not None and last >= counter.stopped_at):
        return None, 0.0
    run_since, before = counter.run_since, last - interval
    if run_since > before:
        # Too young for two scrapes; metrics-server takes the start for the first of them.
        if last - run_since < _FRESH_SECONDS_MIN:
            return None, 0.0
        before = run_since
    return counter.mean_cores(before, last), last - before


def _part(template: Template, metric: HpaMetric) -> float:
    return template.part(metric.container) if metric.container else math.fsum(template.split)


def _request_milli(template: Template, metric: HpaMetric) -> int | None:
    total = 0
    for container in template.containers:
        if metric.container in {"", container.name}:
            is_cpu = metric.name == "cpu"
            asked = container.cpu_request_cores if is_cpu else container.memory_request_bytes
            if asked is None:
                return None
            total += milli(asked)
    return total
