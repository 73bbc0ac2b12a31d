"""Small worlds for the rotation's tests."""

from typing import Any

from equipoise.model.cluster import HpaMetric
from equipoise.rotation.observation import HpaSeen, Observation, PodLoad

UTILIZATION_70 = HpaMetric("Resource", "cpu", "Utilization", 70)


def pod(name: str, cpu: float | None, request: float | None = 1.0, **rest: Any) -> PodLoad:
    """One pod, harmless where nothing else is said."""
    return PodLoad(name, cpu, request, **rest)


def world(*pods: PodLoad, metric: HpaMetric = UTILIZATION_70) -> Observation:
    """A workload behind one HPA."""
    return Observation("shop/web", 0.0, (HpaSeen("keda-hpa-web", (metric,)),), pods, "shop")


def seed_pods() -> list[PodLoad]:
    """The six pods of the seed's worked example."""
    return [pod(name, cpu) for name, cpu in zip("abcdef", (1.2, 1.1, 0.8, 0.6, 0.4, 0.3), strict=True)]
