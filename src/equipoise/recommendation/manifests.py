"""Advice as manifests: a native HPA, and the EffectiveHorizontalPodAutoscaler of the seed."""

from typing import Any

from equipoise.model.decision import Decision
from equipoise.model.references import API_VERSIONS

PREDICTION_WINDOW_SECONDS = 3600
HISTORY_LENGTH = "7d"
UNSCALED = frozenset({"DaemonSet", "Job", "CronJob", "Pod"})
"""Kinds of Kubernetes' own that have pods, and that no HPA can scale."""


def hpa_manifest(decision: Decision) -> dict[str, Any] | None:
    """Give an `autoscaling/v2` HPA; None where nothing is recommended."""
    recommended = decision.extra.get("recommended")
    if not recommended or "maxReplicas" not in recommended:
        return None
    spec = _spec(decision, recommended)
    return _object("autoscaling/v2", "HorizontalPodAutoscaler", decision.subject, spec)


def ehpa_manifest(decision: Decision, interval_seconds: float) -> dict[str, Any] | None:
    """Give an EHPA in Preview, with a prediction where the workload is predictable."""
    recommended = decision.extra.get("recommended")
    if not recommended or "maxReplicas" not in recommended:
        return None
    spec = {**_spec(decision, recommended), "scaleStrategy": "Preview"}
    if decision.extra["prediction"]["predictable"]:
        # Crane knows no other algorithm; its block stands here whichever of ours decided.
        spec["prediction"] = {
            "predictionWindowSeconds": PREDICTION_WINDOW_SECONDS,
            "predictionAlgorithm": {
                "algorithmType": "dsp",
                "dsp": {"sampleInterval": f"{interval_seconds:g}s", "historyLength": HISTORY_LENGTH},
            },
        }
    api_version = "autoscaling.crane.io/v1alpha1"
    return _object(api_version, "EffectiveHorizontalPodAutoscaler", decision.subject, spec)


def _spec(decision: Decision, recommended: dict[str, Any]) -> dict[str, Any]:
    kind = decision.extra["kind"]
    target = {"kind": kind, "name": decision.subject.rpartition("/")[2]}
    if kind in API_VERSIONS:
        target = {"apiVersion": API_VERSIONS[kind], **target}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": recommended["minReplicas"],
        "maxReplicas": recommended["maxReplicas"],
        "metrics": recommended["metrics"],
    }
    if recommended["behavior"] is not None:
        spec["behavior"] = recommended["behavior"]
    return spec


def _object(api_version: str, kind: str, subject: str, spec: dict[str, Any]) -> dict[str, Any]:
    namespace, _, name = subject.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
