"""metrics-server, so that `kubectl top` and the real HPA controller see what kwok's pods use."""

from pathlib import Path

from tests.testbed.api import ApiError
from tests.testbed.build import binary
from tests.testbed.control_plane import ControlPlane
from tests.testbed.processes import Process, free_port, wait_until, with_free_ports

_API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"


class MetricsServer:
    """Runs beside the API server, which passes `metrics.k8s.io` on to it."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._control_plane = control_plane
        self._folder = folder
        self._process: Process | None = None

    @property
    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def start(self) -> None:
        with_free_ports(self._start)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def wait_for_pods(self, namespace: str, count: int, seconds: float = 180) -> None:
        """Wait until so many pods of a namespace have a measured usage: that takes two of its scrapes."""
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"

        def is_measured() -> bool:
            try:
                return len(self._control_plane.api.items(path)) >= count
            except ApiError:
                return False

        wait_until(is_measured, f"usage of {count} pods in {namespace}", seconds)

    def _start(self) -> None:
        port = free_port()
        kubeconfig = self._control_plane.kubeconfig
        self._process = Process(
            "metrics-server",
            [
                binary("metrics-server"),
                f"--kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--kubelet-use-node-status-port",
                f"--kubelet-certificate-authority={self._control_plane.ca}",
                "--kubelet-preferred-address-types=InternalIP",
                "--kubelet-request-timeout=5s",
                "--metric-resolution=10s",  # the shortest it takes
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self._folder / 'metrics-server'}",
            ],
            self._folder / "logs" / "metrics-server.log",
        )
        self._process.hurry()
        self._process.start()
        try:
            self._register(port)
            self._process.wait_until(self._is_available, "metrics.k8s.io available", 300)
        except BaseException:
            self._process.stop()
            raise

    def _register(self, port: int) -> None:
        """Tell the API server where to pass `metrics.k8s.io` on to."""
        service = {"name": "metrics-server", "namespace": "kube-system"}
        self._control_plane.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": service,
                    "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
                },
                {
                    "apiVersion": "apiregistration.k8s.io/v1",
                    "kind": "APIService",
                    "metadata": {"name": "v1beta1.metrics.k8s.io"},
                    "spec": {
                        "group": "metrics.k8s.io",
                        "version": "v1beta1",
                        "groupPriorityMinimum": 100,
                        "versionPriority": 100,
                        "insecureSkipTLSVerify": True,
                        "service": {**service, "port": port},
                    },
                },
            ]
        )

    def _is_available(self) -> bool:
        conditions = self._control_plane.api.get(_API_SERVICE).get("status", {}).get("conditions", [])
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)
