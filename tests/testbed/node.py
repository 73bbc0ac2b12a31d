"""A real node on this machine: kubelet, containerd and runc in a cell of their own, with real cgroups."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml

from tests.testbed import cell, kubeconfig
from tests.testbed.api import ApiError
from tests.testbed.build import binary
from tests.testbed.cache import Unavailable
from tests.testbed.cache import folder as cache_folder
from tests.testbed.control_plane import ControlPlane
from tests.testbed.guest import ENVIRONMENT, python_layer
from tests.testbed.images import BUSYBOX, PAUSE, write_image
from tests.testbed.node_settings import containerd_settings, kubelet_settings, network_settings
from tests.testbed.processes import Process

_SOCKET = "/run/containerd/containerd.sock"
_PORT = 10250
_TOOLS = ("unshare", "nsenter", "ip", "mount", "umount", "sh")
_JOIN = 'for place in $PLACES; do echo 0 > "$place/node/cgroup.procs"; done; exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that runs for a pod, as the node's own files know it."""

    id: str
    pod_uid: str
    quality: str
    """Where its pod is among the others: `guaranteed`, `burstable` or `besteffort`."""


class RealNode:
    """One node in a cell, with a control plane of its own that its pods can reach.

    Inside the cell everything is where it is on an ordinary machine: `/sys/fs/cgroup`, `/run/containerd`,
    `/var/lib/kubelet`. From outside, `root` leads to the same files, and `run` starts a command inside.
    """

    def __init__(self, folder: Path, *, name: str = "real-1") -> None:
        self.name = name
        self.folder = folder
        self._cell: Process | None = None
        self._containerd: Process | None = None
        self._kubelet: Process | None = None
        self._control_plane: ControlPlane | None = None
        self._facts: dict[str, Any] = {}

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane that the node belongs to; nothing else does."""
        assert self._control_plane is not None, "the node was not started"
        return self._control_plane

    @property
    def address(self) -> str:
        """The node's address, where its kubelet and the API server are, for tests and for pods."""
        return f"{self._facts['network']}.1"

    @property
    def root(self) -> Path:
        """The cell's file system, seen from outside: `root / "sys/fs/cgroup/cpu/kubepods"`."""
        return Path(f"/proc/{self._facts['pid']}/root")

    @property
    def processes(self) -> list[Process]:
        own = [self._kubelet, self._containerd, self._cell]
        rest = self._control_plane.processes if self._control_plane else []
        return [*(process for process in own if process is not None), *rest]

    def start(self) -> None:
        """Start everything, and wait until the node is ready."""
        _check_machine(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start_cell()
            self._start_containerd()
            network = self._facts["network"]
            plane = ControlPlane(self.folder, address=self.address, services=f"{network}.0/25")
            self._control_plane = plane.start()
            self._add_images()
            self._start_kubelet()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything: the cell takes pods, shims, mounts, links and cgroups with it."""
        for process in (self._kubelet, self._containerd):
            if process is not None:
                process.kill()
        if self._control_plane is not None:
            self._control_plane.stop()
        if self._cell is not None:
            self._cell.stop(grace_seconds=40)

    def command(self, *words: str | Path) -> list[str]:
        """Give the words that run a command inside the cell, for `subprocess`."""
        spaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc"]
        places = " ".join(cell.hierarchies())
        join = ["env", f"PLACES={places}", "sh", "-c", _JOIN, "sh"]
        enter = [str(shutil.which("nsenter")), f"--target={self._facts['pid']}", *spaces, "--"]
        return [*enter, *join, *(str(word) for word in words)]

    def run(self, *words: str | Path, seconds: float = 60) -> str:
        """Run a command inside the cell; give what it printed."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr.strip()}"
        return done.stdout

    def ctr(self, *words: str | Path, seconds: float = 60) -> str:
        """Run containerd's own client on the node's containers and images."""
        client = binary("containerd").with_name("ctr")
        return self.run(client, f"--address={_SOCKET}", "--namespace=k8s.io", *words, seconds=seconds)

    def add_image(self, name: str, **options: Any) -> None:
        """Give the node an image under a name; takes the options of `write_image`."""
        file = self.folder / "image.tar"
        self.ctr("images", "import", write_image(file, name, **options), seconds=120)
        file.unlink()

    def add_python_image(self, name: str) -> None:
        """Give the node an image with our Python; `product.add_product_image` gives it the product itself."""
        self.add_image(name, layers=[python_layer()], environment=ENVIRONMENT, command=["python3"])

    def container(self, namespace: str, pod: str, name: str | None = None) -> Container:
        """Give the running container of a pod, by its name if it has several."""
        found = self.control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        statuses = found["status"]["containerStatuses"]
        status = next(entry for entry in statuses if name in (None, entry["name"]))
        return Container(
            id=status["containerID"].removeprefix("containerd://"),
            pod_uid=found["metadata"]["uid"],
            quality=found["status"]["qosClass"].lower(),
        )

    def cgroup(self, container: Container, controller: str = "cpu") -> Path:
        """Give the folder of a container's cgroup, from outside the cell."""
        root = self.root / "sys/fs/cgroup"
        if (root / controller).is_dir():
            root = root / controller
        parts = ["kubepods", container.quality, f"pod{container.pod_uid}", container.id]
        return root.joinpath(*(part for part in parts if part != "guaranteed"))

    def quota(self, container: Container) -> tuple[int, int]:
        """Give the CPU quota and its period, in microseconds, as the kernel has them; no quota is -1."""
        group = self.cgroup(container)
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
            return (-1 if quota == "max" else int(quota)), int(period)
        return int((group / "cpu.cfs_quota_us").read_text()), int((group / "cpu.cfs_period_us").read_text())

    def kubelet(self, path: str) -> str:
        """Ask the kubelet itself, e.g. for `/metrics/resource`; give its answer as text."""
        with urllib3.PoolManager(timeout=30.0, retries=False, ca_certs=str(self.control_plane.ca)) as pool:
            answer = pool.request("GET", f"https://{self.address}:{_PORT}{path}")
        assert answer.status == 200, f"kubelet {path}: {answer.status} {answer.data[:300]!r}"
        return answer.data.decode()

    def scrape_config(self, path: str = "/metrics/cadvisor", job: str = "kubelet") -> dict[str, Any]:
        """Say to a Prometheus how to scrape the kubelet, as its usual installations do."""
        return {
            "job_name": job,
            "scheme": "https",
            "metrics_path": path,
            "tls_config": {"ca_file": str(self.control_plane.ca)},
            "static_configs": [
                {
                    "targets": [f"{self.address}:{_PORT}"],
                    "labels": {"node": self.name, "metrics_path": path},
                }
            ],
        }

    def kill_kubelet(self) -> None:
        """End the kubelet at once, as a crash would; its pods go on."""
        assert self._kubelet is not None, "the node was not started"
        self._kubelet.kill()

    def restart_kubelet(self) -> None:
        """Start the kubelet again, and wait until it answers and the node is ready."""
        assert self._kubelet is not None, "the node was not started"
        self._kubelet.kill()
        self._kubelet.start()
        self._wait_for_kubelet()

    def _start_cell(self) -> None:
        lock = cache_folder() / "locks" / "networks"
        lock.parent.mkdir(parents=True, exist_ok=True)
        facts = self.folder / "cell.json"
        facts.unlink(missing_ok=True)
        words = [sys.executable, "-I", "-S", cell.__file__, str(os.getpid()), str(self.folder), str(lock)]
        self._cell = Process("cell", words, self.folder / "logs" / "cell.log")
        self._cell.start()
        self._cell.wait_until(facts.exists, "the cell of a node", 120)
        self._facts = json.loads(facts.read_text())

    def _start_containerd(self) -> None:
        network, name = self._facts["network"], self._facts["name"]
        plugins = self.folder / "cni"
        plugins.mkdir(exist_ok=True)
        (plugins / "10-bridge.conflist").write_text(json.dumps(network_settings(name, network)))
        config = self.folder / "containerd.toml"
        config.write_text(
            containerd_settings(
                root=self.folder / "containerd",
                socket=_SOCKET,
                pause=PAUSE,
                runc=binary("runc"),
                plugins=binary("cni-bridge").parent,
                networks=plugins,
            )
        )
        daemon = binary("containerd")
        search = os.pathsep.join([str(daemon.parent), os.environ.get("PATH", "")])
        words = self.command("env", f"PATH={search}", daemon, f"--config={config}")
        self._containerd = Process("containerd", words, self.folder / "logs" / "containerd.log")
        self._containerd.start()

    def _add_images(self) -> None:
        assert self._containerd is not None
        self._containerd.wait_until((self.root / _SOCKET[1:]).exists, "containerd listening", 120)
        self.add_image(BUSYBOX)
        self.add_image(PAUSE, command=["/bin/sleep", "2147483647"])

    def _start_kubelet(self) -> None:
        plane = self.control_plane
        serving = plane.authority.issue("kubelet", self.name, hosts=[self.address, self.name])
        client = plane.authority.issue("node", f"system:node:{self.name}", ["system:nodes"])
        config = self.folder / "kubelet.yaml"
        config.write_text(yaml.safe_dump(kubelet_settings(self.address, _PORT, serving, _SOCKET)))
        words: list[str | Path] = [
            binary("kubelet"),
            f"--kubeconfig={plane.kubeconfig_for('kubelet', kubeconfig.user_of(client))}",
            f"--config={config}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--housekeeping-interval=1s",  # how often usage is read, for tests that wait for it
        ]
        self._kubelet = Process("kubelet", self.command(*words), self.folder / "logs" / "kubelet.log")
        self._kubelet.start()
        self._wait_for_kubelet()

    def _wait_for_kubelet(self) -> None:
        assert self._kubelet is not None
        self._kubelet.wait_until(self._is_ready, f"node {self.name} ready", 300)

    def _is_ready(self) -> bool:
        try:
            status = self.control_plane.api.get(f"/api/v1/nodes/{self.name}").get("status", {})
            self.kubelet("/healthz")
        except (ApiError, AssertionError, urllib3.exceptions.HTTPError):
            return False
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def _check_machine(folder: Path) -> None:
    """Say why this machine cannot have a real node, if so."""
    wish = "a real node needs"
    if os.geteuid() != 0:
        raise Unavailable(f"{wish} root, for cgroups, mounts and a bridge")
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"{wish} {', '.join(missing)} on PATH (Debian: util-linux, iproute2)")
    for path in (folder, cache_folder()):
        hidden = [place for place in cell.PRIVATE if path.is_relative_to(place)]
        if hidden:
            raise Unavailable(
                f"{wish} its folders outside of {hidden[0]}, which it has for itself, not {path}"
            )
    found = " ".join(cell.hierarchies().values())
    if "cgroup2" not in found and not {"cpu", "memory", "pids"} <= set(found.replace(",", " ").split()):
        raise Unavailable(f"{wish} cgroups at /sys/fs/cgroup: version 2, or 1 with cpu, memory and pids")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise Unavailable(f"{wish} the kernel's overlay file system")
    spaces = ["unshare", "--mount", "--pid", "--fork", "--cgroup", "--uts", "--ipc", "--mount-proc", "true"]
    done = subprocess.run(spaces, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Unavailable(f"{wish} namespaces, and the kernel refuses them: {done.stderr.strip()}")
