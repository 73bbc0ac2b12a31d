"""Pods for a real node: they run, they use what they are told to, and they end at once."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.testbed.images import BUSYBOX
from tests.testbed.node import RealNode
from tests.testbed.processes import wait_until

BURN = ("sh", "-c", "while :; do :; done")
"""Uses one core, or as much as its limit lets it: always give it one."""
PACED = ("sh", "-c", "while :; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.05; done")
"""Uses some of a core, and leaves the rest to others; for pods without a limit."""
REST = ("sleep", "2147483647")
"""Uses nothing."""


def pod_spec(
    *,
    command: Sequence[str] = REST,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    grace_seconds: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """Describe what a pod with one container `app` runs; `more` goes into the spec as it is."""
    container = {
        "name": "app",
        "image": BUSYBOX,
        "command": list(command),
        "resources": {"requests": dict(requests or {}), "limits": dict(limits or {})},
    }
    return {"terminationGracePeriodSeconds": grace_seconds, "containers": [container], **more}


def real_pod(
    namespace: str, name: str, *, labels: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """Describe a pod that nobody owns; takes what `pod_spec` takes."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(**spec)}


def real_deployment(namespace: str, name: str, *, replicas: int, **spec: Any) -> dict[str, Any]:
    """Describe a Deployment of such pods; takes what `pod_spec` takes."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def ready_pods(
    node: RealNode, namespace: str, count: int, *, app: str = "", seconds: float = 120
) -> list[str]:
    """Wait until a namespace, or one app in it, has exactly so many pods, all ready; give their names."""
    query = {"labelSelector": f"app={app}"} if app else {}

    def ready() -> list[str]:
        found = node.control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods", **query)
        names = sorted(pod["metadata"]["name"] for pod in found if _is_ready(pod))
        return names if len(names) == len(found) == count else []

    return wait_until(ready, f"{count} ready pods of {namespace}/{app or '*'} on {node.name}", seconds)


def resize(
    node: RealNode, namespace: str, pod: str, *, container: str = "app", **resources: Mapping[str, str]
) -> None:
    """Change a pod in place: `requests` and `limits` of one container."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/resize"
    change = {"spec": {"containers": [{"name": container, "resources": resources}]}}
    node.control_plane.api.request(
        "PATCH", path, change, content_type="application/strategic-merge-patch+json"
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
