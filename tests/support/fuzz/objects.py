"""Sound objects of every kind that is read, as an API server writes them."""

import json
from collections.abc import Mapping
from typing import Any

from equipoise.adapters.kubernetes.store import entry_name
from equipoise.core.cluster import ObjectRef, WorkloadRef
from tests.support.crd.analytics_manifests import ANALYTICS_GOOD, recommendation
from tests.support.crd.analytics_manifests import TARGET as ADVISED
from tests.support.crd.manifests import GOOD
from tests.support.crd.scaling_manifests import SCALING_GOOD
from tests.support.kubernetes.samples import pod
from tests.support.qos.worlds import THROTTLE, pod_qos, policy, rule

NEIGHBOUR = "neighbour"
ABOUT = ObjectRef("v1", "Pod", "shop", "web", "u-web")
LEDGERED = WorkloadRef("apps/v1", "Deployment", "shop", "web")
AT = "2026-11-01T10:00:00Z"
CPU = {"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": AT, "reason": "r", "message": "m"}
OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": True}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def _meta(name: str = "web", namespace: str = "shop", **more: Any) -> dict[str, Any]:
    """Return metadata with every field that is read."""
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"u-{name}",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": AT,
        "labels": {"app": "web", "app.kubernetes.io/managed-by": "equipoise"},
        "annotations": {
            "autoscaling.keda.sh/paused": "true",
            "equipoise.dev/paused": "me",
            "example.com/x": "1",
        },
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Apply",
                "time": AT,
                "fieldsV1": {
                    "f:spec": {
                        "f:containers": {'k:{"name":"app"}': {"f:resources": {"f:requests": {"f:cpu": {}}}}}
                    }
                },
            }
        ],
    } | more


def _object(spec: Any, status: Any = None, **meta: Any) -> dict[str, Any]:
    return {"metadata": _meta(**meta), "spec": spec} | ({} if status is None else {"status": status})


def _workload(**status: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "app", "resources": CPU}], "initContainers": []}}
    spec = {
        "replicas": 3,
        "selector": SELECTOR,
        "template": template,
        "updateStrategy": {"type": "RollingUpdate"},
    }
    counts = {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 3}
    return _object(spec, counts | status)


def _pod_on_node() -> dict[str, Any]:
    one = pod()
    one["metadata"] |= {"deletionGracePeriodSeconds": 30, "annotations": {"kubernetes.io/config.mirror": "x"}}
    one["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", "resources": CPU}]
    running = {"containerID": "containerd://0123456789abcdef", "state": {"running": {"startedAt": AT}}}
    one["status"] |= {
        "startTime": AT,
        "resize": "InProgress",
        "containerStatuses": [{"name": "app", "restartCount": 2, "resources": CPU} | running],
        "initContainerStatuses": [
            {"name": "side", "lastState": {"terminated": {"finishedAt": AT}}} | running
        ],
    }
    one["metadata"] |= {"name": "web"}
    return one


def _hpa() -> dict[str, Any]:
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    queue = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
    }
    ours = {
        "manager": "equipoise",
        "operation": "Apply",
        "time": AT,
        "fieldsV1": {"f:spec": {"f:maxReplicas": {}}},
    }
    behavior = {"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"policies": [{"type": "Pods", "value": 1}]}}
    spec = {
        "scaleTargetRef": TARGET,
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [cpu, queue],
        "behavior": behavior,
    }
    status = {"currentReplicas": 3, "desiredReplicas": 3, "lastScaleTime": AT}
    return _object(spec, status, managedFields=[ours])


def _ledger() -> dict[str, Any]:
    entry = {
        "id": "e1",
        "round": "r1",
        "balancer": "rotation",
        "action": "EvictPod",
        "pod": "web-1",
        "uid": "u1",
        "at": AT,
        "epoch": 7,
        "state": "Done",
    }
    data = {"workload": TARGET, "epoch": 7, "epochs": {"rotation": 7}, "entries": [entry], "entriesTotal": 1}
    memory = {"rotation": {"failures": 1, "futileUntil": 1.0}}
    return {
        "metadata": _meta(entry_name(LEDGERED), ownerReferences=[OWNER]),
        "data": data | {"memory": memory},
    }


def _definition() -> dict[str, Any]:
    versions = [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}]
    status = {"conditions": [{"type": "Established", "status": "True", "message": ""}]}
    return _object({"group": "a.io", "versions": versions}, status, ownerReferences=[])


def _service() -> dict[str, Any]:
    spec = {
        "ports": [{"port": 9090, "name": "http", "appProtocol": "http"}],
        "selector": {"app": "p"},
        "clusterIP": "x",
    }
    return _object(
        spec, name="prometheus", namespace="monitoring", labels={"app.kubernetes.io/name": "prometheus"}
    )


def _node() -> dict[str, Any]:
    sizes = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    spec = {"unschedulable": False, "taints": [{"key": "a", "effect": "NoSchedule", "value": "b"}]}
    return _object(
        spec, {"allocatable": sizes, "capacity": sizes, "conditions": [READY | {"lastHeartbeatTime": AT}]}
    )


_PAGES: Mapping[str, Any] = {
    "Pod": _pod_on_node(),
    "Node": _node(),
    "Deployment": _workload(),
    "StatefulSet": _workload(),
    "ReplicaSet": _workload(),
    "DaemonSet": _workload(desiredNumberScheduled=3, currentNumberScheduled=3, numberReady=3),
    "HorizontalPodAutoscaler": _hpa(),
    "PodDisruptionBudget": _object(
        {"selector": SELECTOR, "minAvailable": 1},
        {
            "disruptionsAllowed": 1,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 3,
            "observedGeneration": 3,
        },
    ),
    "Namespace": _object({}, {"phase": "Active"}),
    "RotationPolicy": _object(
        GOOD["full"]["spec"] if "full" in GOOD else next(iter(GOOD.values()))["spec"],
        {"observedGeneration": 3},
    ),
    "ScalingPolicy": _object(SCALING_GOOD["everything"]["spec"], {"observedGeneration": 3}),
    "Analytics": _object(ANALYTICS_GOOD["all keys"]["spec"], {"lastUpdateTime": AT, "conditions": [READY]}),
    "Recommendation": _object(
        recommendation({"type": "HPA", "targetRef": ADVISED})["spec"], {"conditions": [READY]}
    ),
    "NodeQOSEnsurancePolicy": _object(policy(rule("cpu_total_usage", 6000, "throttle"))["spec"]),
    "NodeQOS": _object({"selector": SELECTOR, "rules": [{"name": "a", "avoidanceThreshold": 1}]}),
    "AvoidanceAction": _object(THROTTLE["spec"]),
    "PodQOS": _object(pod_qos(labelSelector=SELECTOR)["spec"]),
    "ScaledObject": _object({"scaleTargetRef": TARGET, "triggers": [{"type": "cron"}]}),
    "VerticalPodAutoscaler": _object({"targetRef": TARGET, "updatePolicy": {"updateMode": "Auto"}}),
    "Lease": _object(
        {
            "holderIdentity": "",
            "leaseTransitions": 3,
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-01T10:00:00.000000Z",
            "renewTime": "2026-11-01T10:00:00.000000Z",
        }
    ),
    "Ledger": _ledger(),
    "Scale": _object({"replicas": 3}, {"replicas": 3, "selector": "app=web,tier in (a,b)"}),
    "Definition": _definition(),
    "Service": _service(),
    "Prometheus": _object(
        {
            "serviceName": "p",
            "portName": "web",
            "routePrefix": "/",
            "shards": 1,
            "web": {},
            "podMetadata": {"labels": {}},
        },
        name="k8s",
        namespace="monitoring",
    ),
    "Managed": _object({"containers": []}),
    "Any": _object({"a": [1, {"b": None}], "c": "d"}, {"e": 1.5}),
    "Metrics": {
        "metadata": {"name": "web", "namespace": "shop"},
        "timestamp": AT,
        "window": "30s",
        "containers": [{"name": "app", "usage": {"cpu": "123456789n", "memory": "1Ki"}}],
    },
}
SOUND: Mapping[str, bytes] = {name: json.dumps(one).encode() for name, one in _PAGES.items()}


def named(sound: bytes) -> bytes:
    """Return the same object under another name, in another namespace; of a Ledger, of another workload."""
    one = json.loads(sound)
    one["metadata"] |= {"name": NEIGHBOUR, "uid": "u-neighbour"}
    if "namespace" in one["metadata"]:
        one["metadata"]["namespace"] = "other"
    data = one.get("data")
    if isinstance(data, dict) and "workload" in data:
        data["workload"]["name"] = NEIGHBOUR
        one["metadata"]["name"] = entry_name(LEDGERED._replace(namespace="other", name=NEIGHBOUR))
    for key in ("scaleTargetRef", "targetRef"):
        if key in one.get("spec", {}):
            one["spec"][key]["name"] = NEIGHBOUR
    return json.dumps(one).encode()
