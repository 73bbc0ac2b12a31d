"""The worlds in which pods can be changed in place: the simulator, and an API server with kwok's nodes."""

from __future__ import annotations

from equipoise.adapters.kubernetes import Client, KubernetesCluster
from equipoise.adapters.kubernetes.sizes import KubernetesSizes
from equipoise.core.cluster import Pod, WorkloadRef
from equipoise.ports.actions import Sizes, Values
from tests.support.contracts.real import RealWorld
from tests.support.contracts.simulated import SimulatedWorld
from tests.support.contracts.worlds import ref_of
from tests.testbed import ControlPlane, wait_until


class SimulatedSizes(SimulatedWorld):
    """The simulator's way."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Sizes = self.sim.sizes

    def resize_as(self, who: str, pod: Pod, values: Values) -> None:
        self.sim.sizes.resize(ref_of(pod), values, manager=who)


class RealSizes(RealWorld):
    """The API server's; somebody must say what the pods have, as a kubelet does."""

    def __init__(self, control_plane: ControlPlane, client: Client, namespace: str) -> None:
        super().__init__(control_plane, client, namespace)
        self.sizes: Sizes = KubernetesSizes(client, KubernetesCluster(client), [namespace])

    def add_workload(self, name: str, replicas: int) -> WorkloadRef:
        ref = super().add_workload(name, replicas)

        def are_granted() -> bool:
            pods = self._bed.api.items(self._pods(), labelSelector=f"app={name}")
            statuses = [each for pod in pods for each in pod["status"].get("containerStatuses", ())]
            return all("resources" in each for each in statuses)

        wait_until(are_granted, "what the pods have in their status", 60)
        return ref

    def resize_as(self, who: str, pod: Pod, values: Values) -> None:
        containers = [{"name": name, "resources": part} for name, part in values.items()]
        self._bed.api.request(
            "PATCH",
            f"{self._pods()}/{pod.name}/resize",
            {"spec": {"containers": containers}},
            query={"fieldManager": who},
            content_type="application/strategic-merge-patch+json",
        )
