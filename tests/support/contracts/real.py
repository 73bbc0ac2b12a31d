"""The real API server with its controllers and kwok's nodes, as the facts need them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from equipoise.adapters.kubernetes import Client, KubernetesCluster, Unreachable, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.pauses import NamespacePauses, pause, resume
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.cli.manifests import KINDS
from equipoise.core.cluster import Pod, WorkloadRef
from equipoise.crd.definition import definition
from equipoise.ports import Actuator, Applier, Cluster, Pauses, Policies
from equipoise.rotation.policy import ROTATION_POLICY
from tests.support.contracts.keda import install_scaled_objects, scaled_object
from tests.testbed import ControlPlane, wait_until
from tests.testbed.api import ApiError
from tests.testbed.scenes import deployment, hpa, pdb, running_pods, wait_for_budget

T = TypeVar("T")

_UNTIL_SECONDS = 120.0
_SETTLE_SECONDS = 1.0
_FINALIZER = "equipoise.dev/held-by-a-test"


def session_of(control_plane: ControlPlane) -> Client:
    """Open a session with all rights."""
    return connect(str(control_plane.kubeconfig), environment={})


def install_kinds(control_plane: ControlPlane) -> None:
    """Bring the definitions that the chart brings, and wait until they are served."""
    query = {"fieldManager": "testbed", "force": "true"}
    for kind in KINDS:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.definition_name}"
        control_plane.api.request(
            "PATCH", path, definition(kind), query=query, content_type="application/apply-patch+yaml"
        )
        served = f"/apis/{kind.group}/{kind.version}/{kind.plural}"
        wait_until(lambda at=served: control_plane.api.answers(at), f"{kind.plural} served", _UNTIL_SECONDS)  # type: ignore[misc]


class RealOperator:
    """Policies and pauses of a real cluster, by the reflectors that the operator uses."""

    other_namespace = "default"

    def __init__(self, control_plane: ControlPlane, client: Client, namespace: str) -> None:
        self._bed = control_plane
        self._client = client
        self.namespace = namespace
        kind = ROTATION_POLICY
        self._path = f"/apis/{kind.group}/{kind.version}/namespaces/{namespace}/{kind.plural}"
        policies = KubernetesPolicies(client, kind)
        # A namespace of the fact's own stands for the operator's, so that facts do not pause each other.
        pauses = NamespacePauses(client, operator_namespace=namespace)
        self.policies: Policies = policies
        self.pauses: Pauses = pauses
        self._reflectors = (policies.reflector, pauses.reflector)
        for reflector in self._reflectors:
            reflector.start()
            assert reflector.synced.wait(_UNTIL_SECONDS)

    def close(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()

    def add_policy(self, name: str, spec: Mapping[str, Any]) -> None:
        self._bed.apply(
            {
                "apiVersion": "equipoise.dev/v1alpha1",
                "kind": "RotationPolicy",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": dict(spec),
            }
        )

    def remove_policy(self, name: str) -> None:
        self._bed.api.delete(f"{self._path}/{name}")

    def pause(self, namespace: str | None, who: str) -> None:
        pause(self._client, namespace, who, operator_namespace=self.namespace)

    def resume(self, namespace: str | None) -> None:
        resume(self._client, namespace, operator_namespace=self.namespace)

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        return wait_until(lambda: _known(condition), what, _UNTIL_SECONDS)


def _known(condition: Callable[[], T | None]) -> T | None:
    """Look; a machine that stood still has not heard the server for too long, and is asked again."""
    try:
        return condition()
    except Unreachable:
        return None


class RealWorld:
    """A namespace of a real cluster."""

    def __init__(self, control_plane: ControlPlane, client: Client, namespace: str) -> None:
        self._bed = control_plane
        self.namespace = namespace
        self.cluster: Cluster = KubernetesCluster(client)
        self.actuator: Actuator = KubernetesActuator(client)
        self.applier: Applier = KubernetesApplier(client, read_seconds_max=60.0)

    def add_workload(self, name: str, replicas: int) -> WorkloadRef:
        self._bed.apply(deployment(self.namespace, name, replicas=replicas, request="500m"))
        running_pods(self._bed, self.namespace, name, replicas)
        return WorkloadRef("apps/v1", "Deployment", self.namespace, name)

    def add_budget(self, name: str, app: str, max_unavailable: int) -> None:
        item = pdb(self.namespace, app, max_unavailable)
        item["metadata"]["name"] = name
        self._bed.apply(item)
        pods = len(self._bed.api.items(self._pods(), labelSelector=f"app={app}"))
        wait_for_budget(self._bed, self.namespace, name, pods)

    def add_hpa(self, name: str, target: WorkloadRef, percent: int, replicas_max: int) -> None:
        item = hpa(self.namespace, target.name, percent, 1, replicas_max)
        item["metadata"]["name"] = name
        self._bed.apply(item)

    def edit_hpa(self, name: str, who: str, replicas_max: int) -> None:
        path = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers/{name}"
        self._bed.api.request(
            "PATCH",
            path,
            {"spec": {"maxReplicas": replicas_max}},
            query={"fieldManager": who},
            content_type="application/merge-patch+json",
        )

    def pause_autoscaler(self, target: WorkloadRef, by: str) -> None:
        install_scaled_objects(self._bed)
        self._bed.apply(scaled_object(target, {by: "true"}))

    def resume_autoscaler(self, target: WorkloadRef) -> None:
        self._bed.api.delete(self._bed.api.path_of(scaled_object(target, {})))

    def hold_terminating(self, pods: Sequence[Pod]) -> None:
        """A finalizer keeps what was told to end; a quota of none keeps out what would replace it."""
        for pod in pods:
            self._bed.api.patch(f"{self._pods()}/{pod.name}", {"metadata": {"finalizers": [_FINALIZER]}})
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "held", "namespace": self.namespace},
            "spec": {"hard": {"pods": "0"}},
        }
        self._bed.apply(quota)
        path = self._bed.api.path_of(quota)
        wait_until(lambda: self._is_enforced(path), "a quota of no pods", _UNTIL_SECONDS)

    def _is_enforced(self, path: str) -> bool:
        status: dict[str, Any] = self._bed.api.get(path).get("status", {})
        return "pods" in status.get("hard", {}) and "pods" in status.get("used", {})

    def let_go(self, pods: Sequence[Pod]) -> None:
        self._bed.api.delete(f"/api/v1/namespaces/{self.namespace}/resourcequotas/held")
        for pod in pods:
            try:
                self._bed.api.patch(f"{self._pods()}/{pod.name}", {"metadata": {"finalizers": None}})
            except ApiError as error:
                if error.status != 404:
                    raise

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        return wait_until(condition, what, _UNTIL_SECONDS)

    def settle(self) -> None:
        time.sleep(_SETTLE_SECONDS)

    def sentences_about(self, workload: WorkloadRef) -> Sequence[tuple[str, str]]:
        events = self._bed.api.items(
            f"/api/v1/namespaces/{self.namespace}/events",
            fieldSelector=f"involvedObject.kind={workload.kind},involvedObject.name={workload.name}",
        )
        return [(event["reason"], event["message"]) for event in events]

    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"
