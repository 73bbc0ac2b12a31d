"""Analytics and Recommendations that must pass, and those that must not, with who is able to tell."""

from typing import Any

from tests.support.crd.manifests import AT, Bad

SELECTOR = {"kind": "Deployment", "apiVersion": "apps/v1", "name": "nginx-deployment"}
SPEC = {"type": "HPA", "resourceSelectors": [SELECTOR]}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"}
ADVICE = {"type": "HPA", "targetRef": TARGET}
ALL_KEYS = {
    "ehpa.deployment-min-replicas": "1",
    "ehpa.statefulset-min-replicas": "1",
    "ehpa.workload-min-replicas": "1",
    "ehpa.pod-min-ready-seconds": "30",
    "ehpa.pod-available-ratio": "0.5",
    "ehpa.default-min-replicas": "2",
    "ehpa.max-replicas-factor": "3",
    "ehpa.min-cpu-usage-threshold": "10",
    "ehpa.fluctuation-threshold": "1.5",
    "ehpa.min-cpu-target-utilization": "30",
    "ehpa.max-cpu-target-utilization": "75",
    "ehpa.reference-hpa": "true",
}
"""The seed's table."""


def analytics(spec: Any, **others: Any) -> dict[str, Any]:
    return _object("Analytics", spec, **others)


def recommendation(spec: Any, **others: Any) -> dict[str, Any]:
    return _object("Recommendation", spec, **others)


def _object(kind: str, spec: Any, **others: Any) -> dict[str, Any]:
    return {
        "apiVersion": "analysis.crane.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "nginx-hpa"},
        "spec": spec,
        **others,
    }


def _select(**selector: Any) -> dict[str, Any]:
    return analytics(SPEC | {"resourceSelectors": [{"kind": "Deployment"} | selector]})


def _strategy(**strategy: Any) -> dict[str, Any]:
    return analytics(SPEC | {"completionStrategy": strategy})


ANALYTICS_GOOD: dict[str, dict[str, Any]] = {
    "least": analytics(SPEC),
    "all keys": analytics(SPEC | {"config": ALL_KEYS}),
    "what kubectl prints": _select(name="web", labelSelector={}),
    "by labels": _select(labelSelector={"matchLabels": {"app": "web"}}),
    "all of a kind": _select(),
    "resources, once": analytics(
        SPEC | {"type": "Resource", "completionStrategy": {"completionStrategyType": "Once"}}
    ),
    "every day": _strategy(completionStrategyType="Periodical"),
    "more than the seed": analytics(SPEC | {"algorithmType": "dsp", "adoptionType": "Auto"}),
    "a recommendation": recommendation(ADVICE),
    "a recommendation with a status": recommendation(
        ADVICE,
        status={
            "recommendedValue": "minReplicas: 2\n",
            "lastUpdateTime": AT,
            "recommendedInfo": "{}",
            "currentInfo": "{}",
            "action": "Patch",
            "description": "",
            "targetRef": {},
        },
    ),
}
ANALYTICS_BAD = [
    Bad("advice: no type", analytics({"resourceSelectors": [SELECTOR]}), "spec.type"),
    Bad("advice: another type", analytics(SPEC | {"type": "Replicas"}), "spec.type"),
    Bad("advice: no selector", analytics({"type": "HPA"}), "spec.resourceSelectors"),
    Bad("advice: an empty list", analytics(SPEC | {"resourceSelectors": []}), "spec.resourceSelectors"),
    Bad(
        "advice: a kind without replicas", _select(kind="DaemonSet"), "spec.resourceSelectors[0].kind", False
    ),
    Bad("advice: another group", _select(apiVersion="batch/v1"), "spec.resourceSelectors[0]", False),
    Bad("advice: a bad name", _select(name="Web"), "spec.resourceSelectors[0].name"),
    Bad("advice: an unknown key", analytics(SPEC | {"interval": 5}), "spec.interval"),
    Bad(
        "advice: a strategy",
        _strategy(completionStrategyType="Often"),
        "spec.completionStrategy.completionStrategyType",
    ),
    Bad("advice: no period", _strategy(periodSeconds=0), "spec.completionStrategy.periodSeconds"),
    Bad(
        "advice: a text for a period", _strategy(periodSeconds="10m"), "spec.completionStrategy.periodSeconds"
    ),
    Bad(
        "advice: a number for a setting",
        analytics(SPEC | {"config": {"ehpa.default-min-replicas": 2}}),
        "spec.config.ehpa.default-min-replicas",
    ),
    Bad("advice: an algorithm", analytics(SPEC | {"algorithmType": "crystal"}), "spec.algorithmType"),
    Bad("advice: an adoption", recommendation(ADVICE | {"adoptionType": "Force"}), "spec.adoptionType"),
    Bad("advice: no target", recommendation({"type": "HPA"}), "spec.targetRef"),
]
