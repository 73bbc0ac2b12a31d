"""One snapshot of the cluster for all workloads, and the observation of each.

Reading every workload on its own would take thousands of lists and queries. A cycle takes a few lists, one
metrics query per window and shard; `observe` joins what is about one workload.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from equipoise.core.cluster import FINISHED, Hpa, Pdb, Pod, Workload, WorkloadRef, hpas_by_workload
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.engine.disruption import SYSTEM_NAMESPACES, opted_out_by, protection_of
from equipoise.engine.isolation import Isolation, ignore
from equipoise.engine.policies import pods_by_workload
from equipoise.ports import (
    Actuator,
    Cluster,
    CpuUsage,
    FailedTurn,
    Journal,
    Leadership,
    Metrics,
    Pauses,
    Store,
)
from equipoise.rotation.decide import NoPlan, choose_metric
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import CORES_MAX, Observation, ObservedHpa, ObservedWorkload, PodLoad
from equipoise.rotation.status import Target

SAMPLE_AGE_MAX_SECONDS = 120.0
"""Age of two scrapes a minute apart; older samples are not used."""


class Sample(NamedTuple):
    """A container's usage over the window."""

    cores: float
    is_whole: bool
    """Whether its samples cover the whole window."""


Usage = Mapping[tuple[str, str], Mapping[str, Sample]]
"""Fresh samples, by namespace and pod, then by container."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one time, for all workloads of a cycle."""

    at: float
    pods: Mapping[WorkloadRef, Sequence[Pod]]
    hpas: Mapping[WorkloadRef, Sequence[Hpa]]
    pdbs: Sequence[Pdb]
    usage: Mapping[float, Usage]
    """Usage by metrics window."""
    pauses: Mapping[WorkloadRef, str]
    """Who paused the autoscaler of a workload, and how."""
    warnings: Sequence[str]
    failures: Sequence[str]
    """Errors of what could not be observed at all."""
    away: Collection[str]
    """The UIDs of all pods that are away, for any cause."""
    namespaces_protected: Collection[str] = SYSTEM_NAMESPACES
    partial: Mapping[float, str] = field(default_factory=dict)
    """Why the usage is incomplete or missing, by metrics window; nothing is decided from partial usage."""
    notes: set[str] = field(default_factory=set)
    """Warnings of the cycle, each reported once."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a rotation: in the operator, in a command, and in the simulator."""

    cluster: Cluster
    metrics: Metrics
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    journal: Journal
    new_id: Callable[[float], str]
    """Returns a new identifier for a record, round or entry, from the time."""
    now: Callable[[], float]
    """Returns the time, for intents and for the age of a snapshot."""
    heartbeat: Callable[[], object] = ignore
    """Called during a long cycle so that the liveness probe passes."""
    on_step: Callable[[str], object] = ignore
    """Called after each step of an eviction; tests stop the process there."""


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads a snapshot of the cluster and the metrics."""

    ports: Ports
    isolation: Isolation
    namespaces_protected: Collection[str]
    is_acting: bool

    def read(
        self,
        at: float,
        targets: Sequence[Target],
        others: Sequence[Workload] = (),
        namespace: str | None = None,
    ) -> ClusterSnapshot:
        """Return a snapshot of the targets, each over its own metrics window, and of the others' pods."""
        workloads = [*(target.workload for target in targets), *others]
        cluster, listed = self.ports.cluster, self.ports.cluster.pods(namespace)
        pods = pods_by_workload(workloads, listed, self.isolation)
        usage: dict[float, Usage] = {}
        warnings: list[str] = []
        failures: list[str] = []
        partial: dict[float, str] = {}
        for window in sorted({target.policy.metrics_window_seconds for target in targets}):
            names: dict[str, list[str]] = {}
            for target in targets:
                if target.policy.metrics_window_seconds == window:
                    own = pods.get(target.workload.ref, ())
                    names.setdefault(target.workload.ref.namespace, []).extend(pod.name for pod in own)
            self.ports.heartbeat()
            read = self._usage(names, at, window)
            if isinstance(read, FailedTurn):
                # Unknown, not zero: every decision of this window has incomplete metrics.
                usage[window], partial[window] = {}, read.error
                failures.append(f"the CPU usage over {print_seconds(window)} is unknown: {read.error}")
                continue
            answer, usage[window] = read
            warnings += [f"{answer.source}: {warning}" for warning in answer.warnings]
            if answer.partial:
                partial[window] = answer.partial[0]
        hpas, pdbs = hpas_by_workload(cluster.hpas(namespace)), cluster.pdbs(namespace)
        pauses, notes = self._autoscaler_pauses(namespace) if targets else ({}, set())
        return ClusterSnapshot(
            at=at,
            pods=pods,
            hpas=hpas,
            pdbs=pdbs,
            usage=usage,
            pauses=pauses,
            warnings=warnings,
            failures=failures,
            away=_away(workloads, pods, listed),
            namespaces_protected=self.namespaces_protected,
            partial=partial,
            notes=notes,
        )

    def _usage(
        self, names: Mapping[str, Sequence[str]], at: float, window: float
    ) -> tuple[CpuUsage, Usage] | FailedTurn:
        """Return the answer over one window and its fresh samples, or why the usage is unknown."""
        try:
            answer = self.ports.metrics.cpu_usage(names, at, window)
            return answer, fresh_usage(answer, at)
        except WorldFailed as error:
            return FailedTurn("", str(error))
        except Exception as error:  # noqa: BLE001 - an error affects this window only
            return self.isolation.take(f"the CPU usage over {print_seconds(window)}", error)

    def _autoscaler_pauses(self, namespace: str | None) -> tuple[Mapping[WorkloadRef, str], set[str]]:
        """Return the pauses of autoscalers; an error is a note for a plan, and raised otherwise."""
        try:
            return self.ports.cluster.autoscaler_pauses(namespace), set()
        except WorldFailed as error:
            if self.is_acting:
                raise
            return {}, {str(error)}


def _away(
    workloads: Sequence[Workload], pods: Mapping[WorkloadRef, Sequence[Pod]], listed: Sequence[Pod]
) -> set[str]:
    """Return the UIDs of pods that are away; for a workload with unknown pods, all that may be its own."""
    away = {pod.uid for group in pods.values() for pod in group if is_away(pod)}
    unsure = {each.ref.namespace for each in workloads if each.ref not in pods}
    return away | {pod.uid for pod in listed if pod.namespace in unsure and is_away(pod)}


def is_away(pod: Pod) -> bool:
    """Return whether a pod is not ready, or is about to be deleted."""
    if pod.phase in FINISHED:
        return False
    return pod.deletion_at is not None or pod.is_disruption_target or not pod.is_ready


def away_now(pods: Iterable[Pod], replicas: int) -> int:
    """Return how many pods a workload lacks: a terminating pod and its replacement count as one."""
    present = [pod for pod in pods if pod.phase not in FINISHED]
    staying = [pod for pod in present if pod.deletion_at is None and not pod.is_disruption_target]
    lacking = max(0, replicas - len(staying)) + sum(not pod.is_ready for pod in staying)
    return max(len(present) - len(staying), lacking)


def fresh_usage(usage: CpuUsage, at: float) -> Usage:
    """Return the fresh and plausible samples by pod and container."""
    found: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    is_fresh = ((usage.sampled_at >= at - SAMPLE_AGE_MAX_SECONDS) & (usage.cores <= CORES_MAX)).tolist()
    covered = usage.is_covered
    is_whole = [True] * len(is_fresh) if covered is None else covered.tolist()
    samples = map(Sample, usage.cores.tolist(), is_whole)
    rows = zip(usage.namespaces, usage.pods, usage.containers, samples, is_fresh, strict=True)
    for namespace, pod, container, sample, fresh in rows:
        if fresh:
            found[namespace, pod][container] = sample
    return found


def observe(policy: RotationPolicy, workload: Workload, snapshot: ClusterSnapshot) -> Observation:
    ref, at = workload.ref, snapshot.at
    hpas = tuple(_hpa(hpa, at) for hpa in snapshot.hpas.get(ref, ()))
    try:
        container = choose_metric(policy, hpas).container
    except NoPlan:
        container = ""
    window = policy.metrics_window_seconds
    usage = snapshot.usage[window]
    present = [pod for pod in snapshot.pods[ref] if pod.phase not in FINISHED]
    return Observation(
        subject=ref.subject,
        at=at,
        hpas=hpas,
        pods=tuple(_load(policy, pod, usage, container, at) for pod in present),
        namespace=ref.namespace,
        workload=_workload(workload, snapshot),
        metrics_partial=snapshot.partial.get(window, ""),
    )


def _workload(workload: Workload, snapshot: ClusterSnapshot) -> ObservedWorkload:
    return ObservedWorkload(
        kind=workload.ref.kind,
        replicas_wanted=workload.replicas_wanted,
        replicas_seen=workload.replicas_seen,
        replicas_updated=workload.replicas_updated,
        is_observed=workload.generation_observed >= workload.generation,
        opt_out=opted_out_by(workload.annotations),
        autoscaler_pause=snapshot.pauses.get(workload.ref, ""),
        is_protected=workload.ref.namespace in snapshot.namespaces_protected,
    )


def _hpa(hpa: Hpa, at: float) -> ObservedHpa:
    return ObservedHpa(
        name=hpa.name,
        metrics=hpa.metrics,
        replicas_min=hpa.replicas_min,
        replicas_max=hpa.replicas_max,
        replicas_current=hpa.replicas_current,
        replicas_desired=hpa.replicas_desired,
        scaled_seconds=None if hpa.scaled_at is None else at - hpa.scaled_at,
        tolerance_up=hpa.tolerance_up,
        tolerance_down=hpa.tolerance_down,
    )


def _load(policy: RotationPolicy, pod: Pod, usage: Usage, container: str, at: float) -> PodLoad:
    began = at - policy.metrics_window_seconds
    is_leaving = pod.deletion_at is not None or pod.is_disruption_target
    requests = {part.name: part.cpu_request_cores for part in pod.containers}
    return PodLoad(
        name=pod.name,
        cpu_cores=_cores(pod, usage.get((pod.namespace, pod.name)), container, began),
        request_cores=requests.get(container) if container else pod.cpu_request_cores,
        is_ready=pod.is_ready and pod.phase == "Running" and not is_leaving,
        age_seconds=at - pod.created_at,
        has_restarted=pod.restarted_at is not None and pod.restarted_at > began,
        node=pod.node,
        uid=pod.uid,
        ready_seconds=None if pod.ready_since is None else at - pod.ready_since,
        protection=protection_of(
            pod,
            includes_local_storage=policy.includes_local_storage,
            includes_stateful_sets=policy.includes_stateful_sets,
        ),
        is_leaving=is_leaving,
        revision=pod.owner.uid if pod.owner is not None else "",
    )


def _cores(pod: Pod, samples: Mapping[str, Sample] | None, container: str, began: float) -> float | None:
    """Return the sum of the pod's containers, or the usage of the one; unknown if a container has no sample.

    Samples that cover only a part of the window are too low, and do not count. A pod younger than the window
    has no others, and is no candidate yet.
    """
    if samples is None:
        return None
    is_young = pod.created_at > began
    total = 0.0
    for name in (container,) if container else [part.name for part in pod.containers]:
        sample = samples.get(name)
        if sample is None or not (sample.is_whole or is_young):
            return None
        total += sample.cores
    return total
