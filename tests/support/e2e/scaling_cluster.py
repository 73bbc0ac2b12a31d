"""Nodes of a test's own that come and go, workloads that follow them, and what their pods ask for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.testbed import ControlPlane, Kwok, wait_until
from tests.testbed.api import ApiError
from tests.testbed.scenes import deployment, running_pods

GROUP = "scalingpolicy.kope.io"
CORES = 4
SETTINGS: dict[str, Any] = {
    "balancers": ["proportional"],
    "compat": {"mode": "Enforce"},
    "intervals": {"proportional": "1s"},
    "proportional": {"change": "0s", "rollout": "0s"},
}
"""The operator at the pace of a test."""


@dataclass
class Scaled:
    """A namespace with workloads, and nodes that only its policies count."""

    plane: ControlPlane
    kwok: Kwok
    namespace: str
    nodes: list[str] = field(default_factory=list)

    def add_node(self) -> str:
        """Add a node with 4 cores that nobody else's pods get on, ready."""
        name = f"{self.namespace}-{len(self.nodes)}"
        self.nodes.append(name)
        self.put_node(name)
        return name

    def put_node(self, name: str) -> None:
        room = {"cpu": str(CORES), "memory": "16Gi", "pods": "50"}
        path = f"/api/v1/nodes/{name}"
        self.plane.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "spec": {"taints": [{"key": "scaled", "value": self.namespace, "effect": "NoSchedule"}]},
            }
        )
        self.plane.api.patch(f"{path}/status", {"status": {"capacity": room, "allocatable": room}})
        # Only now kwok takes it up: it would give its own size to a node without one.
        labels = {"type": "kwok", "scaled": self.namespace}
        self.plane.api.patch(path, {"metadata": {"labels": labels}})

        def is_ready() -> bool:
            conditions = self.plane.api.get(path).get("status", {}).get("conditions", [])
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        wait_until(is_ready, f"node {name} ready", 60)

    def take_node(self, name: str) -> None:
        """Take a node away."""
        self.plane.api.delete(f"/api/v1/nodes/{name}")

    @contextmanager
    def cleaned(self) -> Iterator[None]:
        try:
            yield
        finally:
            for name in self.nodes:
                try:
                    self.take_node(name)
                except ApiError as error:
                    if error.status != 404:
                        raise

    def add_deployment(self, name: str, replicas: int) -> list[str]:
        """Make a Deployment that asks for 100m, and wait for its pods."""
        self.plane.apply(deployment(self.namespace, name, replicas=replicas, request="100m"))
        return running_pods(self.plane, self.namespace, name, replicas)

    def add_set(self, kind: str, name: str) -> None:
        """Make a StatefulSet, or a ReplicaSet of nobody's, of one pod."""
        more = {"serviceName": name} if kind == "StatefulSet" else {}
        item = deployment(self.namespace, name, replicas=1, request="100m") | {"kind": kind}
        kept = {
            key: part for key, part in item["spec"].items() if key in {"replicas", "selector", "template"}
        }
        self.plane.apply(item | {"spec": kept | more})

    def add_daemon_set(self, name: str) -> None:
        """Make a DaemonSet on the nodes of the test."""
        item = deployment(self.namespace, name, replicas=1, request="100m")
        item["kind"] = "DaemonSet"
        del item["spec"]["replicas"]
        item["spec"]["template"]["spec"] |= {
            "nodeSelector": {"scaled": self.namespace},
            "tolerations": [{"key": "scaled", "operator": "Exists"}],
        }
        self.plane.apply(item)

    def add_policy(self, name: str, kind: str = "Deployment", target: str = "", **more: Any) -> None:
        """Let a workload follow the nodes: 100m and 10m per core."""
        self.plane.apply(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "ScalingPolicy",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": self.spec(target or name, kind) | more,
            }
        )

    def spec(self, target: str, kind: str = "Deployment") -> dict[str, Any]:
        """Say it as a policy's spec."""
        function = {"input": "cores", "base": "100m", "slope": "10m"}
        resources = {"requests": [{"resource": "cpu", "function": function}]}
        return {
            "scaleTargetRef": {"kind": kind, "name": target},
            "nodeSelector": {"matchLabels": {"scaled": self.namespace}},
            "containers": [{"name": "app", "resources": resources}],
        }

    def pods(self, app: str) -> list[dict[str, Any]]:
        """The pods of an app that are not on their way out."""
        found = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"app={app}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def requests(self, app: str) -> list[str]:
        """What its pods ask for."""
        return [pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in self.pods(app)]

    def have(self, app: str, cpu: str, count: int) -> Callable[[], bool]:
        """Whether exactly so many pods ask for exactly this."""
        return lambda: self.requests(app) == [cpu] * count

    def writes(self, app: str) -> int:
        """How often its pods were changed since they were made: each change is another generation."""
        return sum(pod["metadata"].get("generation", 1) - 1 for pod in self.pods(app))

    def restarts(self, app: str) -> int:
        return sum(
            status.get("restartCount", 0)
            for pod in self.pods(app)
            for status in pod["status"].get("containerStatuses", ())
        )

    def uids(self, app: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods(app)}

    def template(self, kind: str, name: str) -> str:
        found = self.plane.api.get(f"/apis/apps/v1/namespaces/{self.namespace}/{kind}/{name}")
        return str(found["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])

    def status(self, name: str) -> dict[str, Any]:
        path = f"/apis/{GROUP}/v1alpha1/namespaces/{self.namespace}/scalingpolicies/{name}"
        return dict(self.plane.api.get(path).get("status", {}))

    def condition(self, name: str, kind: str) -> str:
        """The reason of a condition, or nothing."""
        found = {each["type"]: each["reason"] for each in self.status(name).get("conditions", ())}
        return str(found.get(kind, ""))

    def reason(self, name: str) -> str:
        return str(self.status(name).get("lastDecision", {}).get("reason", ""))

    def put_back(self, pod: str, cpu: str, who: str) -> None:
        """Let another field manager set a pod's request in place."""
        containers = [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]
        self.plane.api.request(
            "PATCH",
            f"/api/v1/namespaces/{self.namespace}/pods/{pod}/resize",
            {"spec": {"containers": containers}},
            query={"fieldManager": who},
            content_type="application/strategic-merge-patch+json",
        )


VPA_GROUP = "autoscaling.k8s.io"


def install_vpas(plane: ControlPlane) -> None:
    """Bring the kind of the Vertical Pod Autoscaler, without its controllers."""
    names = {
        "kind": "VerticalPodAutoscaler",
        "listKind": "VerticalPodAutoscalerList",
        "plural": "verticalpodautoscalers",
        "singular": "verticalpodautoscaler",
    }
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    plane.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"verticalpodautoscalers.{VPA_GROUP}",
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler"},
            },
            "spec": {"group": VPA_GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
        }
    )
    path = f"/apis/{VPA_GROUP}/v1/verticalpodautoscalers"
    wait_until(lambda: plane.api.answers(path), "VerticalPodAutoscalers served", 60)


def vpa(namespace: str, name: str, mode: str) -> dict[str, Any]:
    """Describe a VerticalPodAutoscaler of a Deployment."""
    return {
        "apiVersion": f"{VPA_GROUP}/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": mode},
        },
    }
