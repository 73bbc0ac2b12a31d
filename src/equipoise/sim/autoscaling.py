"""HorizontalPodAutoscalers in the simulated cluster: the controller, its metrics-server, server-side apply.

The controller runs the algorithm of `hpa` on what its metrics-server saw, which is older than the truth. The
applier owns the HPAs that it made and the annotations that it set, as server-side apply does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.core.cluster import API_VERSIONS, HpaMetric, HpaSpec, WorkloadRef
from equipoise.core.quantity import parse_cores
from equipoise.ports import ApplyAnswer, ApplyResult
from equipoise.sim import template as names
from equipoise.sim.faults import FaultKind
from equipoise.sim.hpa import (
    DOWN_BY_DEFAULT,
    UP_BY_DEFAULT,
    Behavior,
    HpaPod,
    HpaScalingRules,
    ScalingPolicy,
    SimulatedHpaSpec,
    advise,
    highest,
    milli,
)
from equipoise.sim.load import CpuCounter
from equipoise.sim.state import HpaState, SimState, WorkloadState
from equipoise.sim.template import Template

_FRESH_SECONDS_MIN = 10.0
"""A container younger than one interval is measured from its start, but not over less than this."""


class Autoscaling:
    """Syncs every HPA at its own times."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        phase = state.settings.resource_phase_seconds
        interval = state.settings.resource_interval_seconds
        self._scrapes_from = state.now + (state.rng.random() * interval if phase is None else phase)

    def add(
        self, name: str, workload: WorkloadState, spec: SimulatedHpaSpec, manager: str = "kubectl"
    ) -> HpaState:
        """Add an HPA that scales a workload from now on."""
        hpa = HpaState(name, names.uid(self._state.rng), workload, spec, manager=manager)
        hpa.desired, hpa.version = workload.replicas, self._state.next_version()
        self._state.hpas.append(hpa)
        settings = self._state.settings
        phase = settings.hpa_phase_seconds
        if phase is None:
            phase = self._state.rng.random() * settings.hpa_sync_seconds
        self._state.timeline.every(
            settings.hpa_sync_seconds, lambda: self._sync(hpa), first_at=self._state.now + phase
        )
        return hpa

    def _sync(self, hpa: HpaState) -> None:
        workload, now = hpa.workload, self._state.now
        is_paused = workload.ref in self._state.autoscaler_pauses
        if is_paused or self._state.faults.now(FaultKind.API_UNAVAILABLE):
            return
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
        """Return what the metrics propose; what was proposed before, while nothing changes."""
        by_metric, current, now = self._pods_by_metric(hpa), hpa.workload.replicas, self._state.now
        is_quiet = by_metric is hpa.quiet_seen
        if is_quiet and hpa.quiet_proposal is not None and hpa.quiet_proposal[0] == current:
            return hpa.quiet_proposal[1]
        controller = self._state.settings.hpa
        proposed = highest(hpa.spec, by_metric, current, now, controller)
        if is_quiet and not _has_new_pods(by_metric, now - controller.cpu_initialization_seconds):
            hpa.quiet_proposal = (current, proposed)
        return proposed

    def _pods_by_metric(self, hpa: HpaState) -> list[list[HpaPod]]:
        """Return the pods as each metric shows them; this is most of a simulation's work, so it is spared."""
        is_silent = self._state.faults.now(FaultKind.RESOURCE_METRICS_OUTAGE) is not None
        workload = hpa.workload
        if hpa.quiet_since == workload.spread_at and not is_silent:
            return hpa.quiet_seen
        interval = self._state.settings.resource_interval_seconds
        visible_at = self._state.now - self._state.settings.resource_delay_seconds
        last = self._scrapes_from + math.floor((visible_at - self._scrapes_from) / interval) * interval
        by_metric = [
            _sampled_pods(workload, metric, last, interval, is_silent=is_silent or metric.name != "cpu")
            for metric in hpa.spec.metrics
        ]
        if last - 2 * interval >= workload.spread_at and not is_silent:
            hpa.quiet_since, hpa.quiet_seen, hpa.quiet_proposal = workload.spread_at, by_metric, None
        return by_metric


def _has_new_pods(by_metric: list[list[HpaPod]], since: float) -> bool:
    """Return whether time alone may change what a pod's sample counts for."""
    return any(pod.started_at is not None and pod.started_at > since for group in by_metric for pod in group)


def _sampled_pods(
    workload: WorkloadState, metric: HpaMetric, last: float, interval: float, *, is_silent: bool
) -> list[HpaPod]:
    """Return the pods as one metric shows them after metrics-server's scrape at `last`."""
    template, request_milli, part = None, None, 1.0
    by_metric = []
    for pod in workload.pods.values():
        if pod.template is not template:
            template = pod.template
            request_milli = _request_milli(template, metric)
            part = template.part(metric.container) if metric.container else math.fsum(template.split)
        cores, window_seconds = (None, 0.0) if is_silent else sample(pod.counter, last, interval)
        by_metric.append(
            HpaPod(
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
    return by_metric


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


def _request_milli(template: Template, metric: HpaMetric) -> int | None:
    is_cpu = metric.name == "cpu"
    asked = [
        each.cpu_request_cores if is_cpu else each.memory_request_bytes
        for each in template.containers
        if metric.container in {"", each.name}
    ]
    return None if None in asked else sum(milli(each) for each in asked if each is not None)


MANAGER = "equipoise"
METRIC_FIELDS = {"Resource": "resource", "ContainerResource": "containerResource"}


class SimApplier:
    """Creates and updates HPAs, which the simulated controller syncs from then on, and reads their specs."""

    def __init__(self, state: SimState, autoscaling: Autoscaling) -> None:
        self._state = state
        self._autoscaling = autoscaling

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        """Create this HPA, or update the one that we created; another's is not changed."""
        self._state.check_api()
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        scaled = manifest["spec"]["scaleTargetRef"]
        api_version = scaled.get("apiVersion") or API_VERSIONS.get(scaled["kind"], "")
        target = WorkloadRef(api_version, scaled["kind"], namespace, scaled["name"]).canonical
        if target not in self._state.workloads:
            return ApplyAnswer(ApplyResult.GONE, f"{target} does not exist")
        refusal = self._conflict(namespace, name, target)
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
            self._autoscaling.add(name, self._state.workloads[target], spec, MANAGER)
            self._state.log("HpaApplied", target, f"{spec.replicas_min}-{spec.replicas_max}")
        return ApplyAnswer(ApplyResult.CREATED)

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        self._state.check_api()
        found = self._state.workloads.get(workload)
        if found is None:
            return ApplyAnswer(ApplyResult.GONE, f"{workload} does not exist")
        merged = {**dict(found.annotations), **annotations}
        if merged == dict(found.annotations):
            return ApplyAnswer(ApplyResult.UNCHANGED)
        if not is_dry_run:
            found.annotations = tuple(sorted(merged.items()))
            self._state.log("Annotated", workload, ", ".join(sorted(annotations)))
            self._state.workload_changed(found)
        return ApplyAnswer(ApplyResult.CHANGED)

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        self._state.check_api()
        return [
            HpaSpec(
                name=hpa.name,
                target=hpa.workload.ref,
                metrics=tuple(map(_metric_document, hpa.spec.metrics)),
                behavior=_behavior_document(hpa.spec.behavior),
                replicas_min=hpa.spec.replicas_min,
                replicas_max=hpa.spec.replicas_max,
            )
            for hpa in self._state.hpas
            if namespace in {None, hpa.workload.ref.namespace}
        ]

    def _conflict(self, namespace: str, name: str, target: WorkloadRef) -> ApplyAnswer | None:
        there = self._named(namespace, name)
        if there is not None and there.manager != MANAGER:
            detail = f"HorizontalPodAutoscaler {namespace}/{name} is managed by {there.manager}"
            return ApplyAnswer(ApplyResult.NOT_OURS, detail, there.manager)
        if there is not None and there.workload.ref != target:
            managed = f"HorizontalPodAutoscaler {namespace}/{name} is managed by Equipoise"
            detail = f"{managed} and already scales {there.workload.ref}"
            return ApplyAnswer(ApplyResult.REFUSED, detail)
        for hpa in self._state.hpas:
            if hpa is not there and hpa.workload.ref == target:
                scales = f"HorizontalPodAutoscaler {namespace}/{hpa.name} already scales it"
                detail = f"{scales} and is managed by {hpa.manager}"
                return ApplyAnswer(ApplyResult.NOT_OURS, detail, hpa.manager)
        if target in self._state.autoscaler_pauses:
            return ApplyAnswer(ApplyResult.NOT_OURS, f"ScaledObject {target.subject} scales it", "KEDA")
        return None

    def _named(self, namespace: str, name: str) -> HpaState | None:
        found = (hpa for hpa in self._state.hpas if hpa.workload.ref.namespace == namespace)
        return next((hpa for hpa in found if hpa.name == name), None)

    def _change(self, hpa: HpaState, spec: SimulatedHpaSpec, *, is_dry_run: bool) -> ApplyAnswer:
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


def _spec(spec: Mapping[str, Any]) -> SimulatedHpaSpec:
    behavior, metrics = None, tuple(_metric(metric) for metric in spec.get("metrics", ()))
    if written := spec.get("behavior"):
        up, down = written.get("scaleUp", {}), written.get("scaleDown", {})
        behavior = Behavior(_rules(up, UP_BY_DEFAULT), _rules(down, DOWN_BY_DEFAULT))
    return SimulatedHpaSpec(metrics, spec.get("minReplicas", 1), spec["maxReplicas"], behavior)


def _metric(metric: Mapping[str, Any]) -> HpaMetric:
    kind = metric["type"]
    source = metric[METRIC_FIELDS.get(kind, kind.lower())]
    name = source["name"] if "name" in source else source["metric"]["name"]
    target = source["target"]
    value = target.get("averageUtilization")
    if value is None:
        value = parse_cores(target.get("averageValue") or target["value"])
    return HpaMetric(kind, name, target["type"], float(value), source.get("container", ""))


def _rules(rules: Mapping[str, Any], default: HpaScalingRules) -> HpaScalingRules:
    policies = tuple(
        ScalingPolicy(one["type"], one["value"], one["periodSeconds"]) for one in rules.get("policies", ())
    )
    tolerance = rules.get("tolerance")
    return HpaScalingRules(
        policies or default.policies,
        rules.get("selectPolicy", default.select),
        rules.get("stabilizationWindowSeconds", default.stabilization_seconds),
        None if tolerance is None else parse_cores(tolerance),
    )


def _metric_document(metric: HpaMetric) -> Mapping[str, Any]:
    target: dict[str, Any] = {"type": metric.target_type}
    if metric.target_type == "Utilization":
        target["averageUtilization"] = round(metric.target_value)
    else:
        target["averageValue"] = f"{round(metric.target_value * 1000)}m"
    source = {"name": metric.name, "target": target}
    if metric.container:
        source["container"] = metric.container
    return {"type": metric.type, METRIC_FIELDS.get(metric.type, metric.type.lower()): source}


def _behavior_document(behavior: Behavior | None) -> Mapping[str, Any] | None:
    if behavior is None:
        return None
    return {"scaleUp": _rules_document(behavior.up), "scaleDown": _rules_document(behavior.down)}


def _rules_document(rules: HpaScalingRules) -> Mapping[str, Any]:
    policies = [
        {"type": one.type, "value": one.value, "periodSeconds": one.period_seconds} for one in rules.policies
    ]
    found: dict[str, Any] = {"policies": policies, "selectPolicy": rules.select}
    if rules.stabilization_seconds is not None:
        found["stabilizationWindowSeconds"] = rules.stabilization_seconds
    if rules.tolerance is not None:
        found["tolerance"] = f"{round(rules.tolerance * 1000)}m"
    return found
