"""The simulated API server's applies: HPAs that are ours, and annotations of workloads."""

from collections.abc import Mapping
from typing import Any

from equipoise.model.cluster import HpaMetric
from equipoise.model.errors import WorldFailed
from equipoise.model.quantity import parse_cores
from equipoise.model.references import API_VERSIONS, WorkloadRef
from equipoise.ports import ApplyAnswer, ApplyResult
from equipoise.sim import names
from equipoise.sim.autoscaling import Autoscaling
from equipoise.sim.faults import FaultKind
from equipoise.sim.hpa import HpaSpec
from equipoise.sim.hpa_behavior import DOWN_BY_DEFAULT, UP_BY_DEFAULT, Behavior, ScalingPolicy, ScalingRules
from equipoise.sim.state import HpaState, State

MANAGER = "equipoise"
METRIC_FIELDS = {"Resource": "resource", "ContainerResource": "containerResource"}


class SimApplier:
    """Makes HPAs that the simulated controller obeys from then on."""

    def __init__(self, state: State, autoscaling: Autoscaling) -> None:
        self._state = state
        self._autoscaling = autoscaling

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        """Make this HPA, or bring the one that we made to it; one that somebody else made is left alone."""
        self._check_available()
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        target = _ref(manifest["spec"]["scaleTargetRef"], namespace)
        if target not in self._state.workloads:
            return ApplyAnswer(ApplyResult.GONE, f"{target} is not there")
        refusal = self._in_the_way(namespace, name, target)
        if refusal is not None:
            return refusal
        spec = _spec(manifest["spec"])
        if not 1 <= spec.replicas_min <= spec.replicas_max:
            detail = f"spec.maxReplicas: {spec.replicas_max} is below minReplicas {spec.replicas_min}"
            return ApplyAnswer(ApplyResult.REFUSED, detail)
        before = self._named(namespace, name)
        if before is not None:
            return self._change(before, spec, is_dry_run=is_dry_run)
        if not is_dry_run:
            self._create(name, target, spec)
        return ApplyAnswer(ApplyResult.CREATED)

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        """Set these annotations of a workload, and touch nothing else of it."""
        self._check_available()
        found = self._state.workloads.get(workload)
        if found is None:
            return ApplyAnswer(ApplyResult.GONE, f"{workload} is not there")
        wanted = {**dict(found.annotations), **annotations}
        if wanted == dict(found.annotations):
            return ApplyAnswer(ApplyResult.UNCHANGED)
        if not is_dry_run:
            found.annotations = tuple(sorted(wanted.items()))
            self._state.log("Annotated", workload, ", ".join(sorted(annotations)))
            self._state.workload_changed(found)
        return ApplyAnswer(ApplyResult.CHANGED)

    def _in_the_way(self, namespace: str, name: str, target: WorkloadRef) -> ApplyAnswer | None:
        there = self._named(namespace, name)
        if there is not None and there.manager != MANAGER:
            detail = f"HorizontalPodAutoscaler {namespace}/{name} belongs to {there.manager}"
            return ApplyAnswer(ApplyResult.NOT_OURS, detail, there.manager)
        if there is not None and there.workload.ref != target:
            detail = f"HorizontalPodAutoscaler {namespace}/{name} of ours scales {there.workload.ref} already"
            return ApplyAnswer(ApplyResult.REFUSED, detail)
        for hpa in self._state.hpas:
            if hpa is not there and hpa.workload.ref == target:
                detail = f"HorizontalPodAutoscaler {namespace}/{hpa.name} scales it, and is {hpa.manager}'s"
                return ApplyAnswer(ApplyResult.NOT_OURS, detail, hpa.manager)
        if target in self._state.autoscaler_pauses:
            return ApplyAnswer(ApplyResult.NOT_OURS, f"ScaledObject {target.subject} scales it", "KEDA")
        return None

    def _named(self, namespace: str, name: str) -> HpaState | None:
        found = (hpa for hpa in self._state.hpas if hpa.workload.ref.namespace == namespace)
        return next((hpa for hpa in found if hpa.name == name), None)

    def _change(self, hpa: HpaState, spec: HpaSpec, *, is_dry_run: bool) -> ApplyAnswer:
        if spec == hpa.spec:
            return ApplyAnswer(ApplyResult.UNCHANGED)
        if hpa.edited_by:
            detail = f".spec of HorizontalPodAutoscaler {hpa.name} was set by {hpa.edited_by}"
            return ApplyAnswer(ApplyResult.NOT_OURS, detail, hpa.edited_by)
        if not is_dry_run:
            hpa.spec, hpa.view = spec, None
            hpa.quiet_since, hpa.quiet_proposal = -1.0, None
            hpa.version = self._state.next_version()
            self._state.log("HpaApplied", hpa.workload.ref, f"{spec.replicas_min}-{spec.replicas_max}")
        return ApplyAnswer(ApplyResult.CHANGED)

    def _create(self, name: str, target: WorkloadRef, spec: HpaSpec) -> None:
        workload = self._state.workloads[target]
        hpa = HpaState(name, names.uid(self._state.chance), workload, spec, manager=MANAGER)
        hpa.desired, hpa.version = workload.replicas, self._state.next_version()
        self._state.hpas.append(hpa)
        self._autoscaling.begin(hpa)
        self._state.log("HpaApplied", target, f"{spec.replicas_min}-{spec.replicas_max}")

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")


def _ref(target: Mapping[str, str], namespace: str) -> WorkloadRef:
    api_version = target.get("apiVersion") or API_VERSIONS.get(target["kind"], "")
    return WorkloadRef(api_version, target["kind"], namespace, target["name"]).canonical


def _spec(spec: Mapping[str, Any]) -> HpaSpec:
    behavior = spec.get("behavior")
    return HpaSpec(
        metrics=tuple(_metric(metric) for metric in spec.get("metrics", ())),
        replicas_min=spec.get("minReplicas", 1),
        replicas_max=spec["maxReplicas"],
        behavior=None
        if behavior is None
        else Behavior(
            _rules(behavior.get("scaleUp"), UP_BY_DEFAULT), _rules(behavior.get("scaleDown"), DOWN_BY_DEFAULT)
        ),
    )


def _metric(metric: Mapping[str, Any]) -> HpaMetric:
    kind = metric["type"]
    source = metric[METRIC_FIELDS.get(kind, kind.lower())]
    name = source["name"] if "name" in source else source["metric"]["name"]
    target = source["target"]
    value = target.get("averageUtilization")
    if value is None:
        value = parse_cores(target.get("averageValue") or target["value"])
    return HpaMetric(kind, name, target["type"], float(value), source.get("container", ""))


def _rules(said: Mapping[str, Any] | None, default: ScalingRules) -> ScalingRules:
    if said is None:
        return default
    policies = tuple(
        ScalingPolicy(one["type"], one["value"], one["periodSeconds"]) for one in said.get("policies", ())
    )
    tolerance = said.get("tolerance")
    return ScalingRules(
        policies or default.policies,
        said.get("selectPolicy", default.select),
        said.get("stabilizationWindowSeconds", default.stabilization_seconds),
        None if tolerance is None else parse_cores(tolerance),
    )
