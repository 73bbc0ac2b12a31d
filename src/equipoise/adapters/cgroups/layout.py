"""The cgroup folders of containers: cgroup v1 or v2, by the cgroupfs or the systemd driver.

v1, cgroupfs   <root>/cpu/kubepods/burstable/pod<UID>/<id>
v1, systemd    <root>/cpu/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice/cri-<id>.scope
v2             the same without the controller's folder

Names from the API server become parts of paths: only letters, digits and dashes are allowed.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef

UID = re.compile(r"[0-9A-Za-z]([0-9A-Za-z-]{0,126}[0-9A-Za-z])?")
CONTAINER_ID = re.compile(r"[0-9A-Za-z]{8,128}")
CLASSES = {"BestEffort": "besteffort", "Burstable": "burstable", "Guaranteed": ""}
MONITOR = "crio-conmon-"
"""The prefix of CRI-O's monitor folders, which end in the id of the container."""
PARENTS = ("", "kubelet")
"""Where `kubepods` may be: at the top, or below the kubelet's own cgroup (kind, some distributions)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of containers' cgroups on this machine."""

    cpu: Path
    """The folder of `kubepods` that has quotas."""
    cpuacct: Path
    memory: Path
    is_v2: bool
    is_systemd: bool
    stem: str
    """The prefix of slice names: `kubepods` or `kubelet-kubepods`."""

    def pod_parts(self, uid: str, qos_class: str) -> Iterator[str]:
        """Yield the folders in which a pod may be, the likely one first."""
        if not UID.fullmatch(uid):
            return
        likely = CLASSES.get(qos_class, "")
        for word in (likely, *(other for other in CLASSES.values() if other != likely)):
            if not self.is_systemd:
                yield f"{word}/pod{uid}" if word else f"pod{uid}"
                continue
            slice_ = f"{self.stem}-{word}" if word else self.stem
            name = f"{slice_}-pod{uid.replace('-', '_')}.slice"
            yield f"{slice_}.slice/{name}" if word else name

    def find(self, container: ContainerRef) -> str | None:
        """Return the folder of a container below those of the controllers; None where it does not exist."""
        if not CONTAINER_ID.fullmatch(container.id):
            return None
        for pod in self.pod_parts(container.pod_uid, container.qos_class):
            try:
                names = [entry.name for entry in os.scandir(self.cpu / pod)]
            except (FileNotFoundError, NotADirectoryError):
                continue
            ends = (f"-{container.id}.scope", f"-{container.id}")
            for name in names:
                if name == container.id or (name.endswith(ends) and not name.startswith(MONITOR)):
                    return f"{pod}/{name}"
            return None
        return None


def find_layout(root: Path, parent: str = "") -> Layout:
    """Find how containers are kept below a mount of cgroups; `parent` is where to look for `kubepods`."""
    try:
        return _found(root, parent)
    except OSError as error:
        raise WorldFailed(f"{error.filename or root}: {error.strerror or error}") from error


def _found(root: Path, parent: str) -> Layout:
    is_v2 = (root / "cgroup.controllers").is_file()
    cpu = root if is_v2 else _controller(root, "cpu")
    for place in (parent,) if parent else PARENTS:
        for is_systemd in (False, True):
            below = _kubepods(place, is_systemd=is_systemd)
            if (cpu / below).is_dir():
                return Layout(
                    cpu=cpu / below,
                    cpuacct=(root if is_v2 else _controller(root, "cpuacct")) / below,
                    memory=(root if is_v2 else _controller(root, "memory")) / below,
                    is_v2=is_v2,
                    is_systemd=is_systemd,
                    stem=f"{place}-kubepods" if place and is_systemd and not parent else "kubepods",
                )
    where = f"{cpu}/{parent}" if parent else str(cpu)
    raise WorldFailed(f"{where}: no cgroup of pods (kubepods or kubepods.slice); is a kubelet running here?")


def _kubepods(place: str, *, is_systemd: bool) -> str:
    if not is_systemd:
        return f"{place}/kubepods" if place else "kubepods"
    if place in PARENTS and place:
        return f"{place}.slice/{place}-kubepods.slice"
    return f"{place}/kubepods.slice" if place else "kubepods.slice"


def _controller(root: Path, name: str) -> Path:
    """Find the mount of a v1 controller, which may be shared: `cpu,cpuacct`."""
    for folder in (name, "cpu,cpuacct", "cpuacct,cpu"):
        if (root / folder).is_dir():
            return root / folder
    raise WorldFailed(f"{root}: no cgroup controller {name} is mounted there")
