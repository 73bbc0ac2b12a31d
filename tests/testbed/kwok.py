"""kwok: nodes and pods that exist for the API alone, with a load that a test sets."""

import json
from pathlib import Path

import urllib3

from tests.testbed.api import ApiError
from tests.testbed.build import binary, kwok_stages
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process, free_port, is_answering, wait_until, with_free_ports

_METRICS_PATH = "/metrics/nodes/{}/metrics/resource"


class Kwok:
    """Keeps every node with the label `type=kwok` alive, runs its pods and serves their usage."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._control_plane = control_plane
        self._folder = folder
        self._serving = control_plane.authority.issue("kwok", "kwok", hosts=["127.0.0.1", "localhost"])
        self._process: Process | None = None
        self.port = 0
        self.nodes: list[str] = []
        self.targets = folder / "kwok-targets.json"
        """What a Prometheus may scrape, kept up to date in the format of its file discovery."""

    @property
    def address(self) -> str:
        """Where kwok serves, over plain HTTP and HTTPS alike: `host:port`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with_free_ports(self._start)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    @property
    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def metrics_path(self, node: str) -> str:
        """Give the path of a node's usage, in the format of a kubelet's /metrics/resource."""
        return _METRICS_PATH.format(node)

    def add_node(self, name: str, *, cpu: str = "32", memory: str = "256Gi", pods: str = "500") -> None:
        """Add a node, and wait until it is ready."""
        room = {"cpu": cpu, "memory": memory, "pods": pods}
        self._control_plane.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
                    "annotations": {"metrics.k8s.io/resource-metrics-path": self.metrics_path(name)},
                },
            }
        )
        path = f"/api/v1/nodes/{name}"
        self._control_plane.api.patch(f"{path}/status", {"status": {"capacity": room, "allocatable": room}})
        wait_until(lambda: self._is_ready(path), f"node {name} ready", 120)
        if name not in self.nodes:
            self.nodes.append(name)
            self._write_targets()

    def set_load(
        self, namespace: str, pod: str, *, cpu: str | None = None, memory: str | None = None
    ) -> None:
        """Say what a pod uses from now on; its counters follow at the next scrape."""
        wanted = {"kwok.x-k8s.io/usage-cpu": cpu, "kwok.x-k8s.io/usage-memory": memory}
        annotations = {name: value for name, value in wanted.items() if value is not None}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._control_plane.api.patch(path, {"metadata": {"annotations": annotations}})

    def usage(self, node: str) -> str:
        """Give what a node's pods have used, as text; a pod's counter begins at the first look."""
        with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
            return pool.request("GET", f"http://{self.address}{self.metrics_path(node)}").data.decode()

    def _write_targets(self) -> None:
        groups = [
            {
                "targets": [self.address],
                "labels": {"__metrics_path__": self.metrics_path(node), "node": node},
            }
            for node in self.nodes
        ]
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.rename(self.targets)

    def _start(self) -> None:
        self.port = free_port()
        self._write_targets()
        self._process = Process(
            "kwok",
            [
                binary("kwok"),
                f"--kubeconfig={self._control_plane.kubeconfig}",
                f"--config={kwok_stages()}",
                "--manage-nodes-with-label-selector=type=kwok",
                "--node-ip=127.0.0.1",
                f"--node-port={self.port}",
                f"--server-address={self.address}",
                f"--tls-cert-file={self._serving.certificate}",
                f"--tls-private-key-file={self._serving.key}",
                "--node-lease-duration-seconds=40",
                "--cidr=10.244.0.1/16",  # addresses for show, apart from the services'
            ],
            self._folder / "logs" / "kwok.log",
        )
        self._process.hurry()
        self._process.start()
        try:
            self._process.wait_until(
                lambda: is_answering(f"http://{self.address}/healthz"), "kwok serving", 120
            )
        except BaseException:
            self._process.stop()
            raise

    def _is_ready(self, path: str) -> bool:
        try:
            status = self._control_plane.api.get(path).get("status", {})
        except ApiError:
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
