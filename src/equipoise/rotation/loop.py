"""See and decide, for all workloads at once: a few lists and a query per shard, never one per workload."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from equipoise.guard.lag import held_by_lag
from equipoise.guard.protection import held_by_kind
from equipoise.model.cluster import Hpa, Pod, Selector, Workload
from equipoise.model.decision import Decision
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.model.references import API_VERSIONS, WorkloadRef
from equipoise.ports import Cluster, CpuUsage, Metrics
from equipoise.rotation.decide import Refused, choose_metric, decide
from equipoise.rotation.observation import HpaSeen, Observation, PodLoad
from equipoise.rotation.policy import RotationPolicy

SAMPLE_AGE_MAX_SECONDS = 120.0
"""Two scrapes a minute apart: an older sample says nothing about now."""

SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs", "DaemonSet": "ds"}
"""How kubectl's users write the kinds."""

Usage = Mapping[tuple[str, str], Mapping[str, float]]
"""Cores by container, by namespace and pod; only fresh samples."""


def plan(
    policy: RotationPolicy,
    cluster: Cluster,
    metrics: Metrics,
    at: float,
    namespace: str | None,
    names: Collection[str] = (),
    *,
    warn: Callable[[str], object] = str,
) -> list[Decision]:
    """Decide for the named workloads, or for all that an HPA scales; nothing is changed.

    `warn` is told what the metrics' source said beside its answer, such as that it is partial.
    """
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: expected NAME or KIND/NAME, such as web or deployment/web")
    hpas = hpas_by_workload(cluster.hpas(namespace))
    workloads = _chosen(cluster, hpas, namespace, names)
    pods = pods_by_workload(workloads, cluster.pods(namespace))
    answer = metrics.cpu_usage(_names_by_namespace(pods), at, policy.metrics_window_seconds)
    for warning in answer.warnings:
        warn(f"{answer.source}: {warning}")
    usage = fresh_usage(answer, at)
    decisions = [
        _held_by_kind(
            workload,
            policy,
            decide(
                policy, observe(policy, workload, hpas.get(workload.ref, ()), pods[workload.ref], usage, at)
            ),
        )
        for workload in workloads
    ]
    return hold_for_lag(policy, metrics, at, *decisions)


def _held_by_kind(workload: Workload, policy: RotationPolicy, decision: Decision) -> Decision:
    reason = held_by_kind(workload.ref.kind, includes_stateful_sets=policy.includes_stateful_sets)
    return decision if reason is None else decision.hold(reason)


def hpas_by_workload(hpas: Iterable[Hpa]) -> Mapping[WorkloadRef, Sequence[HpaSeen]]:
    """Index the HPAs by what their `scaleTargetRef` names."""
    found: dict[WorkloadRef, list[HpaSeen]] = defaultdict(list)
    for hpa in hpas:
        found[_canonical(hpa.target)].append(HpaSeen(hpa.name, hpa.metrics))
    return found


def _canonical(ref: WorkloadRef) -> WorkloadRef:
    """Old versions of a built-in group name the same object as the one that is listed."""
    version = API_VERSIONS.get(ref.kind, "")
    return ref._replace(api_version=version) if version.rpartition("/")[0] == ref.group else ref


def _chosen(
    cluster: Cluster,
    hpas: Mapping[WorkloadRef, object],
    namespace: str | None,
    names: Collection[str],
) -> list[Workload]:
    """Take the named workloads, or everything that an HPA scales; kinds that no list shows, by `scale`."""
    listed = {workload.ref: workload for workload in cluster.workloads(namespace)}
    chosen: dict[WorkloadRef, Workload] = {}
    for name in names or [""]:
        found = (
            [ref for ref in listed if _is_named(ref, name)]
            if name
            else [ref for ref in listed if ref in hpas]
        )
        others = [ref for ref in hpas if ref not in listed and (not name or _is_named(ref, name))]
        scaled = [workload for ref in others if (workload := cluster.workload(ref)) is not None]
        if name and not (found or scaled):
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}")
        chosen |= {ref: listed[ref] for ref in found} | {workload.ref: workload for workload in scaled}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Whether `web`, `deployment/web`, `deploy/web` or `deployments.apps/web` means this workload."""
    kind, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    kind = kind.partition(".")[0].lower()
    return not kind or kind in {ref.kind.lower(), ref.kind.lower() + "s", SHORT_NAMES.get(ref.kind)}


Labels = tuple[tuple[str, str], ...]


def pods_by_workload(
    workloads: Iterable[Workload], pods: Iterable[Pod]
) -> Mapping[WorkloadRef, Sequence[Pod]]:
    """Give each workload the pods that its selector picks in its namespace, as its HPA does."""
    alike: dict[tuple[str, Labels], list[Pod]] = defaultdict(list)
    for pod in pods:
        alike[pod.namespace, pod.labels].append(pod)
    # Found by its rarest label, a workload costs what its own pods cost, however many others there are.
    by_label: dict[tuple[str, str, str], list[Labels]] = defaultdict(list)
    for namespace, labels in alike:
        for key, value in labels:
            by_label[namespace, key, value].append(labels)
    found: dict[WorkloadRef, Sequence[Pod]] = {}
    for workload in workloads:
        namespace = workload.ref.namespace
        found[workload.ref] = [
            pod
            for labels in _label_sets(workload.selector, namespace, alike, by_label)
            if workload.selector.matches(dict(labels))
            for pod in alike[namespace, labels]
        ]
    return found


def _label_sets(
    selector: Selector,
    namespace: str,
    alike: Mapping[tuple[str, Labels], object],
    by_label: Mapping[tuple[str, str, str], Sequence[Labels]],
) -> Sequence[Labels]:
    """Give the fewest label sets that can hold all that the selector picks; an empty one picks nothing."""
    if not selector.requirements:
        return []
    exact = [
        by_label.get((namespace, term.key, term.values[0]), ())
        for term in selector.requirements
        if term.operator == "In" and len(term.values) == 1
    ]
    return min(exact, key=len) if exact else [labels for place, labels in alike if place == namespace]


def _names_by_namespace(pods: Mapping[WorkloadRef, Sequence[Pod]]) -> Mapping[str, Sequence[str]]:
    names: dict[str, list[str]] = defaultdict(list)
    for ref, group in pods.items():
        names[ref.namespace] += [pod.name for pod in group]
    return names


def fresh_usage(usage: CpuUsage, at: float) -> Usage:
    """Index the samples by pod and container, and leave out the old ones."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    is_fresh = (usage.sampled_at >= at - SAMPLE_AGE_MAX_SECONDS).tolist()
    rows = zip(usage.namespaces, usage.pods, usage.containers, usage.cores.tolist(), is_fresh, strict=True)
    for namespace, pod, container, cores, fresh in rows:
        if fresh:
            found.setdefault((namespace, pod), {})[container] = cores
    return found


def observe(
    policy: RotationPolicy,
    workload: Workload,
    hpas: Sequence[HpaSeen],
    pods: Sequence[Pod],
    usage: Usage,
    at: float,
) -> Observation:
    """Join what the cluster and the metrics say of one workload."""
    try:
        container = choose_metric(policy, hpas).container
    except Refused:
        container = ""
    loads = tuple(_load(pod, usage, container, at, policy.metrics_window_seconds) for pod in pods)
    return Observation(workload.ref.subject, at, tuple(hpas), loads, workload.ref.namespace)


def _load(pod: Pod, usage: Usage, container: str, at: float, window_seconds: float) -> PodLoad:
    has_restarted = pod.restarted_at is not None and pod.restarted_at > at - window_seconds
    return PodLoad(
        name=pod.name,
        cpu_cores=_cores(pod, usage.get((pod.namespace, pod.name)), container),
        request_cores=_request(pod, container),
        is_ready=pod.is_ready and pod.phase == "Running" and pod.deletion_at is None,
        age_seconds=at - pod.created_at,
        has_restarted=has_restarted,
        node=pod.node,
        uid=pod.uid,
    )


def _cores(pod: Pod, samples: Mapping[str, float] | None, container: str) -> float | None:
    """Sum the pod's containers, or take the one; a container without a sample makes the sum unknown."""
    if samples is None:
        return None
    if container:
        return samples.get(container)
    total = 0.0
    for part in pod.containers:
        cores = samples.get(part.name)
        if cores is None:
            return None
        total += cores
    return total


def _request(pod: Pod, container: str) -> float | None:
    if not container:
        return pod.cpu_request_cores
    return next((part.cpu_request_cores for part in pod.containers if part.name == container), None)


def hold_for_lag(policy: RotationPolicy, metrics: Metrics, at: float, *decisions: Decision) -> list[Decision]:
    """Ask the lag gate once for all, and only when something would be done."""
    lag = policy.kafka_lag
    if not lag.is_enabled or not any(decision.actions for decision in decisions):
        return list(decisions)
    try:
        value = metrics.scalar(lag.query, at) if lag.query else None
    except WorldFailed:
        value = None
    reason = held_by_lag(value, lag.threshold, lag.query)
    return list(decisions) if reason is None else [decision.hold(reason) for decision in decisions]
