"""What is known of live workloads beside their CPU usage: pods, requests, containers, memory, OOM kills.

`LiveFacts.observation` puts it together with a batch's usage, as the observation that advice is made from.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from equipoise.core.cluster import HpaSpec, Pod, Workload, WorkloadRef
from equipoise.ports.cluster import UsageHistory
from equipoise.recommendation.observe import Containers, Inherited, Observation
from equipoise.recommendation.settings import AdviceRequest
from equipoise.recommendation.usage import PodOwnership, Usage

BYTES_MAX = 1e18
"""Largest plausible sample; larger ones count as missing."""
MADE_BY_CRANE = ("app.kubernetes.io/managed-by", "effective-hpa-controller")
"""Label of the HPAs that Crane writes. Their metrics are Crane's own, so advice does not inherit them."""


def inherited_by_workload(specs: Iterable[HpaSpec]) -> tuple[dict[WorkloadRef, Inherited], list[str]]:
    """Return what each workload's HPA has beside CPU, and warnings; nothing where there are several HPAs."""
    own: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    warnings = []
    for spec in specs:
        if spec.unreadable:
            name = f"{spec.target.namespace}/{spec.name}"
            warnings.append(
                f"HorizontalPodAutoscaler {name} cannot be read ({spec.unreadable}): nothing is inherited"
            )
        elif MADE_BY_CRANE not in spec.labels:
            own[spec.target].append(spec)
    for ref, several in own.items():
        if len(several) > 1:
            names = ", ".join(sorted(spec.name for spec in several))
            warnings.append(f"{ref} has {len(several)} HPAs ({names}): nothing is inherited from them")
    single = {ref: Inherited(one[0].metrics, one[0].behavior) for ref, one in own.items() if len(one) == 1}
    return single, warnings


@dataclass(slots=True)
class LiveFacts:
    """The facts of one pass over the history, which are collected while it is read."""

    ownership: PodOwnership
    inherited: Mapping[WorkloadRef, Inherited]
    at: float
    end: float
    """The last time of the history's grid."""
    step_seconds: float
    peaks: dict[tuple[WorkloadRef, str], float] = field(default_factory=dict)
    """The highest memory of each container of a workload, over all pods."""
    partial_peaks: dict[WorkloadRef, str] = field(default_factory=dict)
    """Why the memory peak of a workload may be too low."""
    oom_killed: set[tuple[WorkloadRef, str]] = field(default_factory=set)
    """The containers that ran out of memory in the week."""

    def add_peaks(self, history: UsageHistory, chosen: Collection[WorkloadRef]) -> None:
        if history.partial:
            within = [ref for ref in chosen if is_within(ref, history)]
            self.partial_peaks |= dict.fromkeys(within, history.partial[0])
        highest = np.fmax.reduce(history.values, axis=1, initial=np.nan).tolist()
        rows = zip(history.namespaces, history.pods, history.containers, highest, strict=True)
        for namespace, pod, container, peak in rows:
            ref = self.ownership.of(namespace, pod)
            if ref is not None and ref in chosen and peak <= BYTES_MAX:  # NaN does not pass either
                self.peaks[ref, container] = max(peak, self.peaks.get((ref, container), 0.0))

    def add_oom_kills(
        self, recorded: Iterable[tuple[str, str, str]], chosen: Collection[WorkloadRef], since: float
    ) -> None:
        """Add the OOM kills that were recorded, and those in the statuses of live pods.

        What is recorded does not end with the week: the status of a live pod knows when it was.
        """
        too_old = set()
        for ref in chosen:
            for pod in self.ownership.pods.get(ref, ()):
                recent = {name for name, ended_at in pod.oom_kills if ended_at >= since}
                self.oom_killed |= {(ref, name) for name in recent}
                too_old |= {
                    (pod.namespace, pod.name, name) for name, _ in pod.oom_kills if name not in recent
                }
        for namespace, pod_name, container in set(recorded) - too_old:
            owner = self.ownership.of(namespace, pod_name)
            if owner is not None and owner in chosen:
                self.oom_killed.add((owner, container))

    def _current_pods(self, ref: WorkloadRef) -> list[Pod]:
        pods = self.ownership.pods.get(ref, ())
        return [pod for pod in pods if pod.phase in {"Pending", "Running"} and pod.deletion_at is None]

    def observation(
        self, request: AdviceRequest, workloads: Sequence[Workload], used: Usage, missing: str
    ) -> Observation:
        """Return a batch of workloads with their usage; `missing` is why that is partial."""
        refs = [workload.ref for workload in workloads]
        pods = [self._current_pods(ref) for ref in refs]
        newest = [max(some, key=lambda pod: (pod.created_at, pod.name), default=None) for some in pods]
        ready_at = self.at - request.policy.pod_ready_seconds_min
        containers, whys = None, [missing] * len(refs)
        if request.needs_containers:
            containers = self._containers(workloads, newest, used)
            whys = [missing or self.partial_peaks.get(ref, "") for ref in refs]
        return Observation(
            subjects=[ref.subject for ref in refs],
            kinds=[ref.kind for ref in refs],
            replicas=np.array([workload.replicas_wanted for workload in workloads], np.intp),
            pods=np.array([len(some) for some in pods], np.intp),
            available=np.array([sum(_is_available(pod, ready_at) for pod in some) for some in pods], np.intp),
            request_cores=np.array([_request(pod) for pod in newest]),
            history=used.cores,
            interval_seconds=self.step_seconds,
            at=self.end,
            pod_p99_cores=used.pod_p99_cores,
            inherited=[self.inherited.get(ref) for ref in refs],
            containers=containers,
            measurable=used.measurable,
            unmeasured=used.unmeasured,
            unknown=used.pods_unknown,
            partial=whys,
        )

    def _containers(
        self, workloads: Sequence[Workload], newest: Sequence[Pod | None], used: Usage
    ) -> Containers:
        """Return the containers in the order of their pods' specs; without a pod, the template's."""
        parts = [
            (place, workload.ref, container)
            for place, (workload, pod) in enumerate(zip(workloads, newest, strict=True))
            for container in (workload.containers if pod is None else pod.containers)
        ]
        keys = [(ref, container.name) for _, ref, container in parts]
        cores = [used.container_cores.get((place, spec.name), np.nan) for place, _, spec in parts]
        return Containers(
            owner=np.array([place for place, _, _ in parts], np.intp),
            specs=[container for _, _, container in parts],
            cpu_cores=np.array(cores, np.float64),
            memory_peak_bytes=np.array([self.peaks.get(key, np.nan) for key in keys], np.float64),
            is_oom_killed=np.array([key in self.oom_killed for key in keys], np.bool_),
        )


def is_within(ref: WorkloadRef, history: UsageHistory) -> bool:
    """Return whether a part of the history has all samples of a workload."""
    is_in_scope = history.scope is None or ref.namespace in history.scope
    return is_in_scope and (history.groups is None or ref in history.groups)


def _is_available(pod: Pod, ready_at: float) -> bool:
    return pod.phase == "Running" and pod.is_ready and (pod.ready_since or 0.0) <= ready_at


def _request(pod: Pod | None) -> float:
    """Return the CPU request of a pod in cores; callers pass the newest, which matches the template."""
    cores = None if pod is None else pod.cpu_request_cores
    return np.nan if cores is None else cores
