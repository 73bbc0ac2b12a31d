"""What the API server, and the node, of a recording have: one workload, one node, policies of each kind."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tools.freeze.api import Api

NAMESPACES = ("shop", "batch", "voice", "monitoring", "equipoise-system", "kube-system")
USAGE_CORES = {"a": 1.4, "b": 1.0, "c": 0.6, "d": 0.45, "e": 0.4, "f": 0.3}
LONG_AGO = "2026-07-01T00:00:00Z"
NODE = "n1"
CONTAINER = "ab" * 32
BUSY_CORES = 4.0
TICK_SECONDS = 0.05
SETTINGS = {"cpu": "1"}
POLICIES = """
apiVersion: equipoise.dev/v1alpha1
kind: RotationPolicy
metadata: {name: web, namespace: shop}
spec: {mode: Enforce, targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, topK: 1}
---
apiVersion: scalingpolicy.kope.io/v1alpha1
kind: ScalingPolicy
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  containers:
  - name: web
    resources:
      requests:
      - {resource: cpu, function: {input: cores, base: 500m, slope: 100m, per: 1}}
---
apiVersion: analysis.crane.io/v1alpha1
kind: Analytics
metadata: {name: web, namespace: shop}
spec:
  type: HPA
  completionStrategy: {completionStrategyType: Once}
  resourceSelectors: [{kind: Deployment, apiVersion: apps/v1, name: web}]
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: throttle}
spec: {coolDownSeconds: 60, throttle: {cpuThrottle: {minCPURatio: 10, stepCPURatio: 100}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOSEnsurancePolicy
metadata: {name: busy}
spec:
  objectiveEnsurances:
  - name: cpu
    metricRule: {name: cpu_total_usage, value: 1000}
    actionName: throttle
    avoidanceThreshold: 1
    restoreThreshold: 1
"""
PLURALS = {
    "RotationPolicy": "rotationpolicies",
    "ScalingPolicy": "scalingpolicies",
    "Analytics": "analytics",
    "AvoidanceAction": "avoidanceactions",
    "NodeQOSEnsurancePolicy": "nodeqosensurancepolicies",
}


def make_api(definitions: str) -> Api:
    """Return a server that has all of it, and our definitions."""
    api = Api()
    for definition in yaml.safe_load_all(definitions):
        served = {"conditions": [{"type": "Established", "status": "True"}]}
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
        api.add(path, {**definition, "status": served})
    for name in NAMESPACES:
        metadata = {"name": name, "uid": f"uid-{name}", "labels": {}}
        api.add(f"/api/v1/namespaces/{name}", {"metadata": metadata})
    size = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]
    node = {"allocatable": size, "capacity": size, "conditions": ready}
    api.add(f"/api/v1/nodes/{NODE}", {"metadata": {"name": NODE, "labels": {}}, "spec": {}, "status": node})
    _add_workload(api)
    for name, cores in USAGE_CORES.items():
        _add_pod(api, f"web-{name}", cores)
    _add_batch_pod(api)
    for policy in yaml.safe_load_all(POLICIES):
        metadata = policy["metadata"]
        within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        path = f"/apis/{policy['apiVersion']}{within}/{PLURALS[policy['kind']]}/{metadata['name']}"
        api.add(path, policy)
    return api


def _add_workload(api: Api) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "resources": {"requests": SETTINGS}}]},
    }
    count = len(USAGE_CORES)
    counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count)
    selector = {"matchLabels": {"app": "web"}}
    deployment = {"replicas": count, "selector": selector, "template": template}
    api.add(
        "/apis/apps/v1/namespaces/shop/deployments/web",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "labels": {"app": "web"}},
            "spec": deployment,
            "status": {**counts, "observedGeneration": 1},
        },
    )
    api.add(
        "/apis/apps/v1/namespaces/shop/replicasets/web-1",
        {
            "metadata": {
                "name": "web-1",
                "namespace": "shop",
                "uid": "uid-web-1",
                "labels": {"app": "web"},
                "ownerReferences": [_owner("Deployment", "web", "uid-web")],
            },
            "spec": deployment,
            "status": {**counts, "observedGeneration": 1},
        },
    )
    target = {"type": "Utilization", "averageUtilization": 70}
    api.add(
        "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web",
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            },
            "status": {"currentReplicas": count, "desiredReplicas": count, "conditions": []},
        },
    )


def _owner(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def _add_pod(api: Api, name: str, cores: float) -> None:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"app": "web"}}
    state = {"name": "web", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": LONG_AGO}}}
    api.add(
        f"/api/v1/namespaces/shop/pods/{name}",
        {
            "metadata": {**metadata, "ownerReferences": [_owner("ReplicaSet", "web-1", "uid-web-1")]},
            "spec": {"nodeName": "n2", "containers": [{"name": "web", "resources": {"requests": SETTINGS}}]},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "startTime": LONG_AGO,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
                "containerStatuses": [state],
            },
        },
    )
    usage = {"name": "web", "usage": {"cpu": f"{cores}", "memory": "100Mi"}}
    times = {"timestamp": "2026-07-07T10:00:00Z", "window": "15s"}
    api.add(
        f"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/{name}",
        {"metadata": metadata, **times, "containers": [usage]},
    )


def _add_batch_pod(api: Api) -> None:
    state = {"name": "c", "containerID": f"containerd://{CONTAINER}", "state": {"running": {}}}
    api.add(
        "/api/v1/namespaces/batch/pods/report",
        {
            "metadata": {"name": "report", "namespace": "batch", "uid": "uid-report"},
            "spec": {"nodeName": NODE, "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [state]},
        },
    )


@contextmanager
def machine(folder: Path) -> Iterator[Path]:
    """Make the cgroups of a node whose one pod is busy; return the file of its quota."""
    root = folder / "kubepods"
    place = root / "besteffort" / "poduid-report" / CONTAINER
    place.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpu memory")
    for part in (root, place):
        (part / "cpu.max").write_text("max 100000\n")
        (part / "memory.current").write_text("4096\n")
        (part / "memory.stat").write_text("inactive_file 0\nactive_file 0\n")
        (part / "cpu.stat").write_text("usage_usec 0\n")
    stopping = threading.Event()

    def burn() -> None:
        began = time.monotonic()
        while not stopping.wait(TICK_SECONDS):
            spent = int((time.monotonic() - began) * BUSY_CORES * 1e6)
            for part in (root, place):
                fresh = part / ".cpu.stat"
                fresh.write_text(f"usage_usec {spent}\n")
                fresh.replace(part / "cpu.stat")

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        yield place / "cpu.max"
    finally:
        stopping.set()
        thread.join()
