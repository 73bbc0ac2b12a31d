"""Workloads that several tests and the example need, made by the real controllers."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from tests.testbed.control_plane import ControlPlane
from tests.testbed.kwok import Kwok
from tests.testbed.processes import wait_until

SIX_LOADS = (1.2, 1.1, 0.8, 0.6, 0.4, 0.3)
"""Cores that six pods use, hottest first: the example that the rotation balancer is explained with."""


def six_pods(
    control_plane: ControlPlane,
    kwok: Kwok,
    *,
    namespace: str,
    name: str = "web",
    loads: Sequence[float] = SIX_LOADS,
    request: str = "1",
    hpa_target_percent: int | None = 70,
    replicas_max: int = 12,
    max_unavailable: int | None = 1,
) -> dict[str, str]:
    """Make a Deployment with one pod per load, an HPA and a PDB; give the pods' names by letter.

    The real controllers choose the names, so the loads go to the pods in the order of their names: the
    first load is `A`'s, the second `B`'s, and so on.
    """
    objects = [namespaced(namespace), deployment(namespace, name, replicas=len(loads), request=request)]
    if max_unavailable is not None:
        objects.append(pdb(namespace, name, max_unavailable))
    control_plane.apply(objects)
    pods = running_pods(control_plane, namespace, name, len(loads))
    if max_unavailable is not None:
        wait_for_budget(control_plane, namespace, name, len(loads))
    for pod, load in zip(pods, loads, strict=True):
        kwok.set_load(namespace, pod, cpu=f"{round(load * 1000)}m", memory="128Mi")
    if hpa_target_percent is not None:
        # After the loads: an HPA that sees idle pods first would want fewer of them.
        control_plane.apply(hpa(namespace, name, hpa_target_percent, len(loads), replicas_max))
    return dict(zip(ascii_uppercase, pods, strict=False))


def history(
    control_plane: ControlPlane,
    kwok: Kwok,
    namespace: str,
    loads: Mapping[str, float],
    *,
    until: float,
    seconds: int = 3600,
) -> str:
    """Tell a past of steady loads by pod, as OpenMetrics text for `Prometheus.backfill`.

    The series are those that are scraped from then on: a rate over minutes is right at once, since the
    scraped counter, which starts from nothing, looks like a restart of the container.
    """
    for node in kwok.nodes:
        kwok.usage(node)  # the counters begin now, so that nothing is missing between past and present
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for pod, cores in loads.items():
        node = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["spec"]["nodeName"]
        labels = {
            "container": "app",
            "instance": kwok.address,
            "job": "kubelet",
            "namespace": namespace,
            "node": node,
            "pod": pod,
        }
        name = "container_cpu_usage_seconds_total{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}"
        ages = range(seconds, -1, -5)
        lines += [f"{name} {cores * (seconds - age):.3f} {until - age:.3f}" for age in ages]
    return "\n".join([*lines, "# EOF", ""])


def running_pods(
    control_plane: ControlPlane, namespace: str, name: str, count: int, seconds: float = 120
) -> list[str]:
    """Wait until a workload has exactly so many ready pods; give their names, sorted."""

    def ready() -> list[str]:
        found = control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app={name}")
        names = sorted(pod["metadata"]["name"] for pod in found if _is_ready(pod))
        return names if len(names) == len(found) == count else []

    return wait_until(ready, f"{count} ready pods of {namespace}/{name}", seconds)


def wait_for_budget(control_plane: ControlPlane, namespace: str, name: str, healthy: int) -> None:
    """Wait until a PodDisruptionBudget is worked out with so many healthy pods: until then it allows none."""
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"

    def is_worked_out() -> bool:
        found = control_plane.api.get(path)
        status = found.get("status", {})
        is_current = int(status.get("observedGeneration", 0)) >= int(found["metadata"]["generation"])
        return is_current and int(status.get("currentHealthy", -1)) == healthy

    wait_until(is_worked_out, f"the budget {namespace}/{name}", 120)


def namespaced(name: str) -> dict[str, Any]:
    """Describe a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(namespace: str, name: str, *, replicas: int, request: str) -> dict[str, Any]:
    """Describe a Deployment of plain pods on kwok's nodes."""
    labels = {"app": name}
    container = {
        "name": "app",
        "image": "example/app:1",
        "resources": {"requests": {"cpu": request, "memory": "256Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"type": "kwok"}, "containers": [container]},
            },
        },
    }


def hpa(namespace: str, name: str, percent: int, replicas_min: int, replicas_max: int) -> dict[str, Any]:
    """Describe an HPA on CPU utilization, with the name that KEDA would give it."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{name}", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": replicas_min,
            "maxReplicas": replicas_max,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def pdb(namespace: str, name: str, max_unavailable: int) -> dict[str, Any]:
    """Describe a PodDisruptionBudget for a workload."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": name}}},
    }


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
