"""Tenants on a real API server, each with one object as damaged as that server accepts it."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from equipoise.adapters.kubernetes.store import entry_name
from equipoise.model.references import WorkloadRef
from tests.testbed import ControlPlane, binary

NODE = "node-1"
REPLICAS = 3
CALENDAR_END = "9999-12-31T23:59:59Z"
PAST_THE_CALENDAR = "9999-12-31T23:59:59-23:59"
BEFORE_THE_CALENDAR = "0001-01-01T00:00:00Z"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
ODD = "\u202e\u0000\ufeff\U0001f4a5{}[red]%s\n\"' "
BULK = (ODD * 100_000)[: 200 * 1024 // len(ODD.encode()) * len(ODD)]
"""As much as the annotations of one object may be, but for some kilobytes."""
DEPTH = 990
"""What ended a whole list: just below the depth at which Python's own recursion ends."""

Objects = dict[str, Any]
"""By kind; what is under `status/KIND` is written to the status afterwards."""


def nested(depth: int = DEPTH) -> str:
    """Return JSON so many levels deep; as text, since Python's own encoder can't make it."""
    return '{"a":' * depth + "1" + "}" * depth


class Raw:
    """Stands for a piece of JSON text in a document."""

    def __init__(self, text: str) -> None:
        self.text = text


def encoded(document: Any) -> str:
    """Return a document as JSON text, its raw pieces as they are."""
    pieces: dict[str, str] = {}

    def mark(part: Any) -> str:
        assert isinstance(part, Raw)
        name = f"@raw-{len(pieces)}@"
        pieces[f'"{name}"'] = part.text
        return name

    text = json.dumps(document, default=mark)
    for name, piece in pieces.items():
        text = text.replace(name, piece)
    return text


def meta(namespace: str, name: str, **more: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, **more}


def policies_of(namespace: str) -> Objects:
    """Return what asks each balancer to look after the Deployment `web`."""
    target = {"kind": "Deployment", "name": "web"}
    cores = {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": "10m"}}
    config = {"ehpa.min-cpu-usage-threshold": "0", "ehpa.fluctuation-threshold": "0"}
    config |= {"ehpa.deployment-min-replicas": "1", "ehpa.pod-min-ready-seconds": "0"}
    return {
        "RotationPolicy": {
            "apiVersion": "equipoise.dev/v1alpha1",
            "metadata": meta(namespace, "web"),
            "spec": {"targetRef": target, "minPodAge": "0s", "debounceCycles": 1},
        },
        "ScalingPolicy": {
            "apiVersion": "scalingpolicy.kope.io/v1alpha1",
            "metadata": meta(namespace, "web"),
            "spec": {
                "scaleTargetRef": target,
                "containers": [{"name": "app", "resources": {"requests": [cores]}}],
            },
        },
        "Analytics": {
            "apiVersion": "analysis.crane.io/v1alpha1",
            "metadata": meta(namespace, "web"),
            "spec": {
                "type": "HPA",
                "completionStrategy": {"completionStrategyType": "Periodical", "periodSeconds": 600},
                "resourceSelectors": [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "web"}],
                "config": config,
            },
        },
    }


def pod_named(namespace: str, name: str, labels: dict[str, str], owner: dict[str, Any] | None) -> Objects:
    """Return a pod that is said to run on the node, and what is said of it."""
    containers = [{"name": "app", "image": "example/app:1", "resources": {"requests": {"cpu": "1"}}}]
    owners = [] if owner is None else [owner | {"controller": True}]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    return {
        "Pod": {
            "apiVersion": "v1",
            "metadata": meta(namespace, name, labels=labels, ownerReferences=owners),
            "spec": {"nodeName": NODE, "containers": containers, "automountServiceAccountToken": False},
        },
        "status/Pod": {"phase": "Running", "conditions": [ready]},
    }


def pods_of(namespace: str) -> dict[str, Objects]:
    labels = {"app": "web", "pod-template-hash": "6c9f"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c9f", "uid": f"rs-{namespace}"}
    names = [f"web-6c9f-{letter}bcdf" for letter in "bcd"[:REPLICAS]]
    return {name: pod_named(namespace, name, labels, owner) for name in names}


def tenant(namespace: str) -> Objects:
    """Return a Deployment of three pods with HPA, budget and policies."""
    labels = {"app": "web"}
    containers = [{"name": "app", "image": "example/app:1", "resources": {"requests": {"cpu": "1"}}}]
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    return {
        "Namespace": {"apiVersion": "v1", "metadata": {"name": namespace}},
        "ServiceAccount": {"apiVersion": "v1", "metadata": meta(namespace, "default")},
        "Deployment": {
            "apiVersion": "apps/v1",
            "metadata": meta(namespace, "web", labels=labels),
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        },
        "status/Deployment": {
            **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), REPLICAS),
            "availableReplicas": REPLICAS,
            "observedGeneration": 1,
        },
        "HorizontalPodAutoscaler": {
            "apiVersion": "autoscaling/v2",
            "metadata": meta(namespace, "web"),
            "spec": {
                "scaleTargetRef": web,
                "minReplicas": REPLICAS,
                "maxReplicas": 2 * REPLICAS,
                "metrics": [{"type": "Resource", "resource": cpu}],
            },
        },
        "PodDisruptionBudget": {
            "apiVersion": "policy/v1",
            "metadata": meta(namespace, "web"),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        },
        **policies_of(namespace),
    }


def create(plane: ControlPlane, objects: Objects) -> None:
    """Create objects in order, then what their statuses say; whatever the server refuses fails."""
    for kind, document in objects.items():
        if "/" not in kind:
            whole = {"kind": kind} | document
            path = plane.api.path_of(whole).rpartition("/")[0]
            if _is_raw(whole):
                _kubectl(plane, encoded(whole), "create", "--raw", path, "-f", "-")
            else:
                plane.api.create(path, whole)
    for kind, status in objects.items():
        if kind.startswith("status/"):
            own = kind.removeprefix("status/")
            whole = {"kind": own} | objects[own]
            plane.api.patch(f"{plane.api.path_of(whole)}/status", {"status": status})


def _is_raw(part: Any) -> bool:
    if isinstance(part, dict):
        return any(map(_is_raw, part.values()))
    return isinstance(part, Raw) or (isinstance(part, list) and any(map(_is_raw, part)))


def _kubectl(plane: ControlPlane, text: str, *words: str) -> None:
    """Send JSON text as it is: documents this deep no client in Python makes."""
    done = subprocess.run(
        [binary("kubectl"), f"--kubeconfig={plane.kubeconfig}", *words],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.decode(errors='replace')[:500]}"


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


MANY = [{"key": f"k{n}", "operator": "NotIn", "values": [f"v{m}" for m in range(50)]} for n in range(200)]
DAMAGE: dict[str, Callable[[Objects], None]] = {
    "namespace-annotations": _annotated("Namespace"),
    "deployment-annotations": _annotated("Deployment"),
    "deployment-numbers": _put("Deployment", replicas=INT32_MAX),
    "deployment-status": _put("status/Deployment", replicas=INT32_MAX, observedGeneration=INT64_MAX),
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


def loose_definition(kind: str, plural: str, group: str, version: str) -> Objects:
    """Return a definition that takes everything."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}
            ],
        },
    }


def _nothing(_: Objects) -> None:
    """Leave all as it is."""


def damage_to(tenant: str) -> Callable[[Objects], None]:
    """Return what is to be done to the objects of a tenant."""
    return DAMAGE.get(tenant, _nothing)


def damage_to_pod(tenant: str) -> Callable[[Objects], None]:
    """Return what is to be done to the first pod of a tenant."""
    return POD_DAMAGE.get(tenant, _nothing)
