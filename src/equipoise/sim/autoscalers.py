"""HPAs word for word, as the simulated API server has them: the port `Autoscalers`."""

from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.model.cluster import HpaMetric, HpaSpec
from equipoise.model.errors import WorldFailed
from equipoise.sim.applier import METRIC_FIELDS
from equipoise.sim.faults import FaultKind
from equipoise.sim.hpa_behavior import Behavior, ScalingRules
from equipoise.sim.state import State


class SimAutoscalers:
    """What HPAs ask for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List what every HorizontalPodAutoscaler asks for."""
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")
        return [
            HpaSpec(
                name=hpa.name,
                target=hpa.workload.ref,
                metrics=tuple(_metric(metric) for metric in hpa.spec.metrics),
                behavior=None if hpa.spec.behavior is None else _behavior(hpa.spec.behavior),
                replicas_min=hpa.spec.replicas_min,
                replicas_max=hpa.spec.replicas_max,
            )
            for hpa in self._state.hpas
            if namespace in {None, hpa.workload.ref.namespace}
        ]


def _metric(metric: HpaMetric) -> Mapping[str, Any]:
    is_share = metric.target_type == "Utilization"
    value: dict[str, Any] = (
        {"averageUtilization": round(metric.target_value)}
        if is_share
        else {"averageValue": f"{round(metric.target_value * 1000)}m"}
    )
    source = {"name": metric.name, "target": {"type": metric.target_type} | value}
    if metric.container:
        source["container"] = metric.container
    return {"type": metric.type, METRIC_FIELDS.get(metric.type, metric.type.lower()): source}


def _behavior(behavior: Behavior) -> Mapping[str, Any]:
    return {"scaleUp": _rules(behavior.up), "scaleDown": _rules(behavior.down)}


def _rules(rules: ScalingRules) -> Mapping[str, Any]:
    policies = [
        {"type": one.type, "value": one.value, "periodSeconds": one.period_seconds} for one in rules.policies
    ]
    found: dict[str, Any] = {"policies": policies, "selectPolicy": rules.select}
    if rules.stabilization_seconds is not None:
        found["stabilizationWindowSeconds"] = rules.stabilization_seconds
    if rules.tolerance is not None:
        found["tolerance"] = f"{round(rules.tolerance * 1000)}m"
    return found
