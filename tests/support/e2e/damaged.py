"""What can be wrong with an object: as much as a real API server accepts."""

from collections.abc import Callable
from typing import Any

from equipoise.adapters.kubernetes.store import entry_name
from equipoise.core.cluster import WorkloadRef
from tests.support.e2e.tenants import Objects, Raw, meta

CALENDAR_END = "9999-12-31T23:59:59Z"
PAST_THE_CALENDAR = "9999-12-31T23:59:59-23:59"
BEFORE_THE_CALENDAR = "0001-01-01T00:00:00Z"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
ODD = "\u202e\u0000\ufeff\U0001f4a5{}[red]%s\n\"' "
BULK = (ODD * 100_000)[: 200 * 1024 // len(ODD.encode()) * len(ODD)]
"""As much as the annotations of one object may be, but for some kilobytes."""
DEPTH = 990
"""What ended a whole list: just below the depth at which Python's own recursion ends."""


def nested(depth: int = DEPTH) -> str:
    """Return JSON so many levels deep; as text, since Python's own encoder can't make it."""
    return '{"a":' * depth + "1" + "}" * depth


def _annotated(kind: str) -> Callable[[Objects], None]:
    def damage(objects: Objects) -> None:
        objects[kind]["metadata"]["annotations"] = {"example.com/odd": BULK, "example.com/nothing": ""}

    return damage


def _deep(kind: str, *path: str) -> Callable[[Objects], None]:
    def damage(objects: Objects) -> None:
        place = objects[kind]
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = Raw(nested())

    return damage


def _put(kind: str, **changes: Any) -> Callable[[Objects], None]:
    """Change the top level of a kind's spec, or of its status."""

    def damage(objects: Objects) -> None:
        part = objects.setdefault(kind, {}) if "/" in kind else objects[kind]["spec"]
        part.update(changes)

    return damage


def _extra(kind: str, api_version: str, name: str = "web", **parts: Any) -> Callable[[Objects], None]:
    """Add an object of another kind to the tenant's."""

    def damage(objects: Objects) -> None:
        namespace = objects["Namespace"]["metadata"]["name"]
        objects[kind] = {"apiVersion": api_version, "metadata": meta(namespace, name), **parts}

    return damage


def _ledger(**data: Any) -> Callable[[Objects], None]:
    """Add the ledger of the tenant's Deployment."""
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    name = entry_name(WorkloadRef("apps/v1", "Deployment", "any", "web"))
    return _extra("Ledger", "equipoise.dev/v1alpha1", name, data={"workload": workload} | data)


def _entry(**changes: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "round": "1",
        "balancer": "rotation",
        "action": "EvictPod",
        "pod": "web-1",
        "uid": "u",
        "at": CALENDAR_END,
        "state": "Intent",
        "epoch": 1,
    } | changes


def _ready(**changes: Any) -> list[dict[str, Any]]:
    return [{"type": "Ready", "status": "True", "lastTransitionTime": CALENDAR_END} | changes]


def _odd_workload(kind: str, **spec: Any) -> Callable[[Objects], None]:
    """Add a workload whose pods nobody has made, with annotations and a selector as large as may be."""
    template = {
        "metadata": {"labels": {"app": "odd"}},
        "spec": {"containers": [{"name": "app", "image": "i"}]},
    }
    base = {"selector": {"matchLabels": {"app": "odd"}}, "template": template}

    def damage(objects: Objects) -> None:
        _extra(kind, "apps/v1", "odd", spec=base | spec)(objects)
        _annotated(kind)(objects)

    return damage


MANY = [{"key": f"k{n}", "operator": "NotIn", "values": [f"v{m}" for m in range(50)]} for n in range(200)]
DAMAGE: dict[str, Callable[[Objects], None]] = {
    "namespace-annotations": _annotated("Namespace"),
    "deployment-annotations": _annotated("Deployment"),
    "deployment-numbers": _put("Deployment", replicas=INT32_MAX),
    "deployment-status": _put("status/Deployment", replicas=INT32_MAX, observedGeneration=INT64_MAX),
    "stateful-set": _odd_workload("StatefulSet", replicas=INT32_MAX, serviceName="odd"),
    "replica-set": _odd_workload("ReplicaSet", replicas=INT32_MAX),
    "daemon-set": _odd_workload("DaemonSet"),
    "hpa-annotations": _annotated("HorizontalPodAutoscaler"),
    "hpa-numbers": _put("HorizontalPodAutoscaler", maxReplicas=INT32_MAX),
    "hpa-status": _put(
        "status/HorizontalPodAutoscaler",
        lastScaleTime=CALENDAR_END,
        currentReplicas=INT32_MAX,
        desiredReplicas=0,
    ),
    "hpa-past": _put(
        "status/HorizontalPodAutoscaler",
        lastScaleTime=BEFORE_THE_CALENDAR,
        currentReplicas=0,
        desiredReplicas=0,
    ),
    "budget-annotations": _annotated("PodDisruptionBudget"),
    "budget-selector": _put("PodDisruptionBudget", selector={"matchExpressions": MANY}),
    "budget-status": _put(
        "status/PodDisruptionBudget",
        disruptionsAllowed=INT32_MAX,
        observedGeneration=INT64_MAX,
        **dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0),
    ),
    "scaling-deep": _deep("ScalingPolicy", "spec", "containers"),
    "scaling-deep-shorthand": _deep("ScalingPolicy", "spec", "functions"),
    "scaling-annotations": _annotated("ScalingPolicy"),
    "scaling-status": _put("status/ScalingPolicy", observedGeneration=2**53, memory={"deeds": ODD}),
    "rotation-annotations": _annotated("RotationPolicy"),
    "rotation-window": _put("RotationPolicy", metricsWindow="7d", minPodAge="1s"),
    "rotation-query": _put("RotationPolicy", kafkaLag={"enabled": True, "query": "}{" + ODD, "threshold": 1}),
    "rotation-status": _put(
        "status/RotationPolicy", rotatedAt=CALENDAR_END, decisions=[], memory={"a": ODD}, workloads=0
    ),
    "analytics-config": _put("Analytics", config={f"ehpa.{n}": ODD.strip() * 10 for n in range(50)}),
    "analytics-dates": _put(
        "status/Analytics",
        lastUpdateTime=PAST_THE_CALENDAR,
        observedGeneration=1,
        conditions=_ready(reason="X", message=ODD),
    ),
    "analytics-annotations": _annotated("Analytics"),
    "recommendation": _extra(
        "Recommendation",
        "analysis.crane.io/v1alpha1",
        spec={"type": "HPA", "targetRef": {"kind": ODD, "name": "x" * 253}, "adoptionType": "Auto"},
    ),
    "ledger-dates": _ledger(entries=[_entry(at=PAST_THE_CALENDAR)]),
    "ledger-early": _ledger(entries=[_entry(at=BEFORE_THE_CALENDAR), _entry(id="2")]),
    "ledger-deep": _ledger(memory=Raw(f'{{"rotation": {nested(DEPTH - 2)}}}')),
    "ledger-numbers": _ledger(epoch=2**53, epochs={"rotation": 2**53}, entriesTotal=2**53),
    "lease": _extra(
        "Lease",
        "coordination.k8s.io/v1",
        "equipoise",
        spec={"holderIdentity": ODD, "leaseTransitions": INT32_MAX, "leaseDurationSeconds": INT32_MAX},
    ),
    "scaled-object-deep": _extra(
        "ScaledObject", "keda.sh/v1alpha1", spec=Raw(f'{{"scaleTargetRef":{nested(DEPTH)}}}')
    ),
    "scaled-object-odd": _extra("ScaledObject", "keda.sh/v1alpha1", spec={"scaleTargetRef": 7}, status=[[]]),
    "vpa-deep": _extra("VerticalPodAutoscaler", "autoscaling.k8s.io/v1", spec=Raw(nested())),
    "vpa-odd": _extra("VerticalPodAutoscaler", "autoscaling.k8s.io/v1", spec={"targetRef": [7]}),
}
"""What is wrong with the tenant of that name."""

POD_DAMAGE: dict[str, Callable[[Objects], None]] = {
    "pod-annotations": _annotated("Pod"),
    "pod-dates": _put(
        "status/Pod",
        startTime=CALENDAR_END,
        conditions=_ready(lastProbeTime=BEFORE_THE_CALENDAR, message=ODD * 1000),
        containerStatuses=[
            {
                "name": "app",
                "image": ODD,
                "imageID": "",
                "ready": True,
                "restartCount": INT32_MAX,
                "lastState": {"terminated": {"exitCode": INT32_MAX, "finishedAt": CALENDAR_END}},
            }
        ],
    ),
    "pod-requests": lambda objects: objects["Pod"]["spec"]["containers"][0].update(
        resources={"requests": {"cpu": "9223372036854775807", "memory": "1n"}}
    ),
    "pod-affinity": _put("Pod", nodeSelector={f"example.com/{n}": "v" * 63 for n in range(2000)}),
}
"""The same for one pod of the tenant's Deployment."""


def nothing(_: Objects) -> None:
    """Leave all as it is."""


def damage_to(tenant: str) -> Callable[[Objects], None]:
    """Return what is to be done to the objects of a tenant."""
    return DAMAGE.get(tenant, nothing)


def damage_to_pod(tenant: str) -> Callable[[Objects], None]:
    """Return what is to be done to the first pod of a tenant."""
    return POD_DAMAGE.get(tenant, nothing)


QOS = "ensurance.crane.io/v1alpha1"
THROTTLE = {"cpuThrottle": {"minCPURatio": 10, "stepCPURatio": 20}}
NODE_DAMAGE: dict[str, Objects] = {
    "annotations": {"NodeQOSEnsurancePolicy": {"metadata": {"annotations": {"example.com/odd": BULK}}}},
    "selector": {"NodeQOSEnsurancePolicy": {"spec": {"selector": {"matchExpressions": MANY[:50]}}}},
    "waterline": {"rule": {"metricRule": {"name": "cpu_total_usage", "value": "9007199254740992"}}},
    "rounds": {"rule": {"avoidanceThreshold": 1000, "restoreThreshold": 1000}},
    "missing-action": {"rule": {"actionName": "x" * 253}},
    "cool-down": {"AvoidanceAction": {"spec": {"coolDownSeconds": 604800}}},
    "action-annotations": {"AvoidanceAction": {"metadata": {"annotations": {"example.com/odd": BULK}}}},
}
"""What is wrong with a policy of nodes of that name, or with its action."""


def node_policy(name: str, damage: Objects) -> Objects:
    """Return a policy that throttles from 2 cores on, and its action, but for what is wrong with them."""
    rule = {"name": "cpu", "metricRule": {"name": "cpu_total_usage", "value": "2000"}, "actionName": name}
    found: Objects = {
        "AvoidanceAction": {
            "apiVersion": QOS,
            "metadata": {"name": name},
            "spec": {"coolDownSeconds": 30, "throttle": THROTTLE},
        },
        "NodeQOSEnsurancePolicy": {
            "apiVersion": QOS,
            "metadata": {"name": name},
            "spec": {"objectiveEnsurances": [rule | damage.get("rule", {})]},
        },
    }
    for kind, document in found.items():
        for part, changes in damage.get(kind, {}).items():
            document[part] = document[part] | changes
    return found


def damaged_scopes(well: str) -> list[Objects]:
    """Return what allows the pods of a namespace to be throttled, beside damaged PodQOS and NodeQOS."""
    odd = {"annotations": {"example.com/odd": BULK}}
    here = {"scopeName": "Namespace", "operator": "In", "values": [well]}
    crowd = {"scopeName": "Namespace", "operator": "NotIn", "values": [f"n{n}" for n in range(50)]}
    pods = {
        "well": ({}, {"scopeSelector": {"matchExpressions": [here]}, "allowedActions": [well]}),
        "odd-annotations": (odd, {"scopeSelector": {"matchExpressions": [here]}, "allowedActions": ["none"]}),
        "odd-scopes": (
            {},
            {"scopeSelector": {"matchExpressions": [crowd] * 10}, "allowedActions": ["x" * 253]},
        ),
    }
    found: list[Objects] = [
        {"PodQOS": {"apiVersion": QOS, "metadata": {"name": name} | more, "spec": spec}}
        for name, (more, spec) in pods.items()
    ]
    high = {"name": "cpu_total_usage", "value": "9007199254740992"}
    rules = [{"name": f"r{n}", "metricRule": high, "actionName": "x" * 253} for n in range(20)]
    node_qos = {"apiVersion": QOS, "metadata": {"name": "odd-rules"} | odd, "spec": {"rules": rules}}
    return [*found, {"NodeQOS": node_qos}]
