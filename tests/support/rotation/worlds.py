"""Small worlds for the rotation's tests."""

from collections.abc import Mapping
from typing import Any

from equipoise.core.cluster import HpaMetric
from equipoise.core.decision import Decision
from equipoise.core.ledger import Entry, EntryState
from equipoise.rotation.decide import NOTHING, decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation, ObservedHpa, ObservedWorkload, PodLoad

NOW = 1_800_000_000.0
UTILIZATION_70 = HpaMetric("Resource", "cpu", "Utilization", 70)


def decision_of(
    policy: RotationPolicy, observation: Observation, memory: Mapping[str, Any] = NOTHING
) -> Decision:
    """The decision alone, without its details."""
    return decide(policy, observation, memory).decision


def pod(name: str, cpu: float | None, request: float | None = 1.0, **rest: Any) -> PodLoad:
    """One pod, harmless where nothing else is said."""
    return PodLoad(name, cpu, request, **rest)


def world(*pods: PodLoad, metric: HpaMetric = UTILIZATION_70) -> Observation:
    """A workload behind one HPA."""
    return Observation("shop/web", 0.0, (ObservedHpa("keda-hpa-web", (metric,)),), pods, "shop")


def seed_pods() -> list[PodLoad]:
    """The six pods of the seed's worked example."""
    return [pod(name, cpu) for name, cpu in zip("abcdef", (1.2, 1.1, 0.8, 0.6, 0.4, 0.3), strict=True)]


def live(
    *pods: PodLoad,
    workload: dict[str, Any] | None = None,
    hpa: dict[str, Any] | None = None,
    at: float = NOW,
) -> Observation:
    """A workload of a live cluster, at rest where nothing else is said."""
    count = len(pods)
    scaled = {"replicas_min": 3, "replicas_max": 20, "replicas_current": count, "replicas_desired": count}
    wanted: dict[str, Any] = {
        "kind": "Deployment",
        "replicas_wanted": count,
        "replicas_seen": count,
        "replicas_updated": count,
    }
    return Observation(
        "shop/web",
        at,
        (ObservedHpa("keda-hpa-web", (UTILIZATION_70,), **(scaled | (hpa or {}))),),
        pods,
        "shop",
        ObservedWorkload(**(wanted | (workload or {}))),
    )


def ledger_entry(number: int, at: float, **changes: Any) -> Entry:
    """One eviction that was carried out."""
    fields: dict[str, Any] = {
        "id": f"e{number}",
        "round": "r0",
        "balancer": "rotation",
        "action": "EvictPod",
        "pod": f"p{number}",
        "uid": f"u{number}",
        "at": at,
        "epoch": 1,
        "state": EntryState.DONE,
    }
    return Entry(**(fields | changes))
