"""Converts API objects to our records, which are small and share equal values.

A quantity or a time that cannot be parsed makes that one field unknown, and is counted; the rest of the list
is unaffected. A creation time that cannot be parsed counts as the far future: the object is never old enough.
Pod-level resources make the containers' requests unknown, since the HPA then uses the pod's own request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from equipoise.adapters.kubernetes.cache import Pool, Warnings
from equipoise.adapters.kubernetes.selectors import parse_selector, selector_of
from equipoise.adapters.kubernetes.structs import (
    ContainerStatus,
    MetricSpec,
    MetricTarget,
    ObjectMeta,
    RawCondition,
    RawContainer,
    RawHpa,
    RawLabelSelector,
    RawNode,
    RawPdb,
    RawPod,
    RawScale,
    RawScalingRules,
    RawWorkload,
    Resources,
    Volume,
    resize_of,
    restarts_for,
)
from equipoise.core.cluster import (
    API_VERSIONS,
    MORE_API_VERSIONS,
    TOLERANCE,
    Container,
    Hpa,
    HpaMetric,
    Node,
    Owner,
    Pdb,
    Pod,
    Requirement,
    RulesCondition,
    Selector,
    Workload,
    WorkloadRef,
)
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_bytes, parse_cores, parse_moment

EXPENDABLE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
"""Names of volumes, separated by commas, whose loss is acceptable."""
ANNOTATIONS_KEPT = frozenset(
    {
        "karpenter.sh/do-not-disrupt",
        "karpenter.sh/do-not-evict",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        EXPENDABLE_VOLUMES,
        "descheduler.alpha.kubernetes.io/evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    }
)
"""Annotations of other tools that a balancer reads. All others are dropped to save memory."""
PREFIXES_KEPT = ("equipoise.dev/", "autoscaling.keda.sh/paused")
"""Our own annotations, and the pauses that KEDA copies to its HPAs."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
NOTHING_MATCHES = Selector((Requirement("", "In", ()),))
"""Replaces a selector that is absent or unreadable where a record needs one; it selects no pod."""

Pairs = tuple[tuple[str, str], ...]


class Decoder:
    """Converts API objects to records, with the pool and the warnings of one cache."""

    def __init__(self) -> None:
        self.pool = Pool()
        self.warnings = Warnings()

    def pod(self, raw: RawPod) -> Pod:
        meta, spec, status, share = raw.metadata, raw.spec, raw.status, self.pool.share
        ready = _condition(status.conditions, "Ready")
        target = _condition(status.conditions, "DisruptionTarget")
        statuses = [*(status.containerStatuses or ()), *(status.initContainerStatuses or ())]
        restarts, restarted_at = self._restarts(meta, statuses)
        annotations, created_at = meta.annotations or {}, self._time(meta, meta.creationTimestamp)
        return Pod(
            namespace=share(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resourceVersion,
            node=share(spec.nodeName),
            phase=share(status.phase),
            is_ready=ready is not None and ready.status == "True",
            ready_since=self._time(meta, ready.lastTransitionTime) if ready else None,
            created_at=math.inf if created_at is None else created_at,
            deletion_at=self._time(meta, meta.deletionTimestamp),
            owner=self._owner(meta),
            labels=self._labels(meta),
            annotations=self._annotations(meta),
            containers=self._containers(meta, spec.containers, spec.initContainers, spec.resources),
            restarts=restarts,
            restarted_at=restarted_at,
            priority=spec.priority or 0,
            priority_class=share(spec.priorityClassName),
            qos_class=share(status.qosClass),
            has_local_storage=_has_local_storage(spec.volumes or (), annotations.get(EXPENDABLE_VOLUMES, "")),
            is_mirror=MIRROR_ANNOTATION in annotations,
            is_disruption_target=target is not None and target.status == "True",
            resize=resize_of(spec, status),
            oom_kills=self._oom_kills(meta, statuses),
        )

    def node(self, raw: RawNode) -> Node:
        """Return a node; a size that cannot be read is 0, which fits no pod."""
        meta, sizes = raw.metadata, raw.status.allocatable or {}
        ready = _condition(raw.status.conditions, "Ready")
        return Node(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resourceVersion,
            is_ready=ready is not None and ready.status == "True",
            is_cordoned=bool(raw.spec.unschedulable),
            cpu_cores=self._quantity(meta, sizes.get("cpu"), parse_cores) or 0.0,
            memory_bytes=self._quantity(meta, sizes.get("memory"), parse_bytes) or 0.0,
            pods_max=int(self._quantity(meta, sizes.get("pods"), parse_bytes) or 0),
            labels=self._labels(meta),
            rules=rules_condition(raw.status.conditions),
        )

    def workload(self, raw: RawWorkload, kind: str) -> Workload:
        """Return a workload of a kind with a pod template; a ReplicaSet has no updated replicas."""
        meta, status, template = raw.metadata, raw.status, raw.spec.template.spec
        if kind == "DaemonSet":
            wanted, seen = status.desiredNumberScheduled, status.currentNumberScheduled
            ready, updated = status.numberReady, status.updatedNumberScheduled
        else:
            wanted = 1 if raw.spec.replicas is None else raw.spec.replicas
            seen, ready = status.replicas, status.readyReplicas
            updated = status.replicas if kind == "ReplicaSet" else status.updatedReplicas
        strategy = raw.spec.updateStrategy.type if raw.spec.updateStrategy else ""
        return Workload(
            ref=WorkloadRef((API_VERSIONS | MORE_API_VERSIONS)[kind], kind, meta.namespace, meta.name),
            uid=meta.uid,
            resource_version=meta.resourceVersion,
            replicas_wanted=wanted,
            replicas_seen=seen,
            replicas_ready=ready,
            replicas_updated=updated,
            generation=meta.generation,
            generation_observed=status.observedGeneration,
            selector=self._selector(meta, raw.spec.selector, NOTHING_MATCHES) or NOTHING_MATCHES,
            annotations=self._annotations(meta),
            owner=self._owner(meta),
            labels=self._labels(meta),
            containers=self._containers(
                meta, template.containers, template.initContainers, template.resources
            ),
            replaces_pods=kind != "ReplicaSet" and strategy != "OnDelete",
        )

    def scale(self, raw: RawScale, ref: WorkloadRef, meta: ObjectMeta | None = None) -> Workload:
        """Return a workload from its `scale`; without readiness and generations, it counts as settled."""
        selector = NOTHING_MATCHES
        try:
            selector = parse_selector(raw.status.selector) if raw.status.selector else NOTHING_MATCHES
        except DECODE_ERRORS:
            self.warnings.add("a selector that cannot be read", f"the scale of {ref}")
        return Workload(
            ref=ref,
            uid=raw.metadata.uid,
            resource_version=raw.metadata.resourceVersion,
            replicas_wanted=raw.spec.replicas,
            replicas_seen=raw.status.replicas,
            replicas_ready=raw.status.replicas,
            replicas_updated=raw.status.replicas,
            generation=raw.metadata.generation,
            generation_observed=raw.metadata.generation,
            selector=selector,
            annotations=() if meta is None else self._annotations(meta),
        )

    def hpa(self, raw: RawHpa) -> Hpa:
        """Return an HPA; its target is in its own namespace."""
        meta, spec = raw.metadata, raw.spec
        return Hpa(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resourceVersion,
            target=spec.scaleTargetRef.workload(meta.namespace),
            replicas_min=1 if spec.minReplicas is None else spec.minReplicas,
            replicas_max=spec.maxReplicas,
            replicas_current=raw.status.currentReplicas,
            replicas_desired=raw.status.desiredReplicas,
            scaled_at=self._time(meta, raw.status.lastScaleTime),
            metrics=tuple(self._metric(meta, metric) for metric in spec.metrics or ()),
            annotations=self._annotations(meta),
            labels=self._labels(meta),
            tolerance_up=self._tolerance(meta, spec.behavior.scaleUp if spec.behavior else None),
            tolerance_down=self._tolerance(meta, spec.behavior.scaleDown if spec.behavior else None),
        )

    def pdb(self, raw: RawPdb) -> Pdb:
        """Return a PodDisruptionBudget; without a selector it selects nothing, with an empty one everything.

        One whose selector cannot be read protects everything, to be safe.
        """
        meta, status = raw.metadata, raw.status
        return Pdb(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resourceVersion,
            selector=self._selector(meta, raw.spec.selector, Selector()),
            disruptions_allowed=status.disruptionsAllowed,
            pods_healthy=status.currentHealthy,
            pods_desired=status.desiredHealthy,
            pods_expected=status.expectedPods,
            is_current=status.observedGeneration >= meta.generation,
        )

    def _owner(self, meta: ObjectMeta) -> Owner | None:
        for reference in meta.ownerReferences or ():
            if reference.controller:
                # Not by the UID alone: a user can write any UID into a pod.
                key = (Owner, reference.apiVersion, reference.kind, reference.name, reference.uid)
                owner = self.pool.find(key)
                if isinstance(owner, Owner):
                    return owner
                made = Owner(reference.apiVersion, reference.kind, reference.name, reference.uid)
                self.pool.put(key, made)
                return made
        return None

    def _labels(self, meta: ObjectMeta) -> Pairs:
        share = self.pool.share
        return share(tuple(share(pair) for pair in sorted(meta.labels.items()))) if meta.labels else ()

    def _annotations(self, meta: ObjectMeta) -> Pairs:
        if not meta.annotations:
            return ()
        kept = [k for k in meta.annotations if k in ANNOTATIONS_KEPT or k.startswith(PREFIXES_KEPT)]
        return self.pool.share(tuple((k, meta.annotations[k]) for k in sorted(kept)))

    def _containers(
        self,
        meta: ObjectMeta,
        usual: list[RawContainer],
        first: list[RawContainer] | None,
        whole: Resources | None,
    ) -> tuple[Container, ...]:
        """Return containers and native sidecars, which the HPA counts alike."""
        sidecars = [c for c in first or () if c.restartPolicy == "Always"]
        pod_level = (whole.requests if whole else None) or {}
        hidden = frozenset(name for name in ("cpu", "memory") if name in pod_level)
        if hidden:
            self._warn(meta, "pod-level resources make the requests of containers unknown")
        return self.pool.share(tuple(self._container(meta, c, hidden) for c in (*usual, *sidecars)))

    def _container(self, meta: ObjectMeta, raw: RawContainer, hidden: frozenset[str]) -> Container:
        resources = raw.resources or Resources()
        requests = {k: v for k, v in (resources.requests or {}).items() if k not in hidden}
        limits = resources.limits or {}
        asked = (requests.get("cpu"), requests.get("memory"), limits.get("cpu"), limits.get("memory"))
        key = (raw.name, *asked, raw.restartPolicy == "Always", restarts_for(raw))
        found = self.pool.find(key)
        if isinstance(found, Container):
            return found
        made = Container(
            name=raw.name,
            cpu_request_cores=self._quantity(meta, requests.get("cpu"), parse_cores),
            memory_request_bytes=self._quantity(meta, requests.get("memory"), parse_bytes),
            cpu_limit_cores=self._quantity(meta, limits.get("cpu"), parse_cores),
            memory_limit_bytes=self._quantity(meta, limits.get("memory"), parse_bytes),
            is_sidecar=key[5],
            restarts_for=key[6],
        )
        self.pool.put(key, made)
        return made

    def _restarts(self, meta: ObjectMeta, statuses: list[ContainerStatus]) -> tuple[int, float | None]:
        """Count restarts and find the latest: the end of the last run, or the start of this one."""
        count, times = 0, []
        for status in statuses:
            if status.restartCount > 0:
                count += status.restartCount
                last = status.lastState.terminated if status.lastState else None
                now = status.state.running if status.state else None
                times += [self._time(meta, last.finishedAt if last else None)]
                times += [self._time(meta, now.startedAt if now else None)]
        return count, max((moment for moment in times if moment is not None), default=None)

    def _oom_kills(self, meta: ObjectMeta, statuses: list[ContainerStatus]) -> tuple[tuple[str, float], ...]:
        """Return the containers whose last run, or this one, ended out of memory, and when."""
        states = ((each.name, state) for each in statuses for state in (each.state, each.lastState) if state)
        ended = ((name, state.terminated) for name, state in states if state.terminated)
        killed = ((name, end.finishedAt) for name, end in ended if end.reason == "OOMKilled")
        return tuple((name, self._time(meta, at) or 0.0) for name, at in killed)

    def _metric(self, meta: ObjectMeta, spec: MetricSpec) -> HpaMetric:
        source = spec.resource or spec.containerResource or spec.pods or spec.object or spec.external
        if source is None:
            self._warn(meta, "a metric without a source")
            return HpaMetric(spec.type, "", "", math.nan)
        name = source.name or (source.metric.name if source.metric else "")
        return HpaMetric(
            type=spec.type,
            name=name,
            target_type=source.target.type,
            target_value=self._target(meta, source.target),
            container=source.container,
        )

    def _target(self, meta: ObjectMeta, target: MetricTarget) -> float:
        """Return the target as a number; NaN, which compares as false, when it cannot be parsed."""
        value: str | float | None = target.value
        if target.type == "Utilization":
            value = target.averageUtilization
        elif target.type == "AverageValue":
            value = target.averageValue
        number = self._quantity(meta, value, parse_bytes)
        return math.nan if number is None else number

    def _tolerance(self, meta: ObjectMeta, rules: RawScalingRules | None) -> float:
        """Return the HPA's tolerance (since Kubernetes 1.33), or the default."""
        number = self._quantity(meta, None if rules is None else rules.tolerance, parse_bytes)
        return TOLERANCE if number is None else number

    def _selector(
        self, meta: ObjectMeta, fields: RawLabelSelector | None, unreadable: Selector
    ) -> Selector | None:
        if fields is None:
            return None
        try:
            return self.pool.share(selector_of(fields))
        except DECODE_ERRORS:
            self._warn(meta, "a selector that cannot be read")
            return unreadable

    def _quantity(
        self, meta: ObjectMeta, value: str | float | None, parse: Callable[[str | float], float]
    ) -> float | None:
        try:
            return None if value is None else parse(value)
        except DECODE_ERRORS:
            self._warn(meta, "a quantity that cannot be read")
            return None

    def _warn(self, meta: ObjectMeta, what: str) -> None:
        self.warnings.add(what, f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name)

    def _time(self, meta: ObjectMeta, text: str | None) -> float | None:
        try:
            return None if text is None else parse_time(text)
        except DECODE_ERRORS:
            self._warn(meta, "a time that cannot be read")
            return None


@lru_cache(maxsize=8192)
def parse_time(text: str) -> float:
    """Return an RFC 3339 time as Unix seconds. Pods of one rollout share it, and so its float."""
    return parse_moment(text)


def time_or_none(text: str | None) -> float | None:
    """Return an RFC 3339 time as Unix seconds; None where it is absent or cannot be read."""
    try:
        return None if text is None else parse_time(text)
    except DECODE_ERRORS:
        return None


def _condition(conditions: list[RawCondition] | None, kind: str) -> RawCondition | None:
    return next((condition for condition in conditions or () if condition.type == kind), None)


def rules_condition(conditions: list[RawCondition] | None) -> RulesCondition | None:
    """Return what a node's agent has reported about its rules; None where it has not."""
    found = _condition(conditions, RulesCondition.TYPE)
    if found is None:
        return None
    return RulesCondition(
        found.status, found.reason, found.message, reported_at=time_or_none(found.lastHeartbeatTime)
    )


def _has_local_storage(volumes: Iterable[Volume], expendable: str) -> bool:
    """Return whether a pod has local storage, as for the descheduler; expendable volumes do not count."""
    names = expendable.split(",") if expendable else ()
    local = (volume for volume in volumes if volume.emptyDir is not None or volume.hostPath is not None)
    return any(volume.name not in names for volume in local)
