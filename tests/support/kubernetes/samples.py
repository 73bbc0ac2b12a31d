"""Objects as an API server writes them."""

from __future__ import annotations

from typing import Any


def pod(
    name: str = "web-1", namespace: str = "shop", version: str = "7", uid: str = "", **spec: Any
) -> dict[str, Any]:
    """A pod with many fields that we do not read."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-11-01T10:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "abc"},
            "annotations": {"kubectl.kubernetes.io/restartedAt": "x" * 100},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-abc",
                    "uid": "rs-1",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "node-1",
            "priority": 100,
            "priorityClassName": "high",
            "containers": [
                {
                    "name": "app",
                    "image": "registry/web:1",
                    "resources": {
                        "requests": {"cpu": "250m", "memory": "128Mi"},
                        "limits": {"cpu": "1", "memory": "256Mi"},
                    },
                }
            ],
            "volumes": [{"name": "token", "projected": {"sources": []}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            **spec,
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T10:00:30Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T10:00:00Z"},
            ],
            "containerStatuses": [
                {"name": "app", "restartCount": 0, "ready": True, "image": "registry/web:1"}
            ],
        },
    }


def page(items: list[dict[str, Any]], version: str = "10", token: str | None = None) -> dict[str, Any]:
    """One page of a list."""
    metadata = {"resourceVersion": version}
    if token:
        metadata["continue"] = token
    return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}
