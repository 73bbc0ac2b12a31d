"""Objects of tenants, as a control plane with controllers would have made them, and how they get there."""

import json
import subprocess
from typing import Any

from tests.testbed import ControlPlane, binary

NODE = "node-1"
REPLICAS = 3
Objects = dict[str, Any]
"""By kind; what is under `status/KIND` is written to the status afterwards."""


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
            "observedGeneration": 9,  # an annotation makes a new generation, and no controller is here
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
        "status/PodDisruptionBudget": {
            **dict.fromkeys(("currentHealthy", "expectedPods"), REPLICAS),
            "desiredHealthy": REPLICAS - 1,
            "disruptionsAllowed": 1,
            "observedGeneration": 1,
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
