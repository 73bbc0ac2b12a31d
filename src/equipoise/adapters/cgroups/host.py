"""The port `Host` on this machine: quotas and counters in the cgroup folders of containers.

The folders are those of cgroup v1 or v2, by the cgroupfs or the systemd driver:

v1, cgroupfs   <root>/cpu/kubepods/burstable/pod<UID>/<id>
v1, systemd    <root>/cpu/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU.slice/cri-<id>.scope
v2             the same without the controller's folder

Names from the API server become parts of paths: only letters, digits and dashes are allowed.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from equipoise.adapters.cgroups import proc
from equipoise.adapters.cgroups import proc as files
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef, Counters, NodeCounters

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
        is_v2 = (root / "cgroup.controllers").is_file()
        cpu = root if is_v2 else _controller(root, "cpu")
        for place, is_systemd in product((parent,) if parent else PARENTS, (False, True)):
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
    except OSError as error:
        raise WorldFailed(f"{error.filename or root}: {error.strerror or error}") from error
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


NANOS_PER_MICRO = 1000
PERIOD_US = 100_000
UNLIMITED = -1
PARTLY = frozenset({errno.EAGAIN, errno.EBUSY})
"""The kernel reclaimed less than requested; the result is measured."""


@dataclass(slots=True)
class HostNode:
    """Reads counters and writes quotas. The folder of a container is cached while it exists."""

    layout: Layout
    proc: Path
    monotonic: Callable[[], float] = time.monotonic
    is_of_pods: bool = False
    """Whether the machine's CPU and memory are taken as what all pods use together."""
    _places: dict[str, str] = field(default_factory=dict)
    _lock: int | None = None
    _ticks: int = field(default_factory=lambda: os.sysconf("SC_CLK_TCK"))

    def hold(self) -> None:
        """Lock these cgroups against any other agent until the process ends."""
        folder = self.layout.cpu
        try:
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WorldFailed(f"{folder}: another agent of this node is running; stop it first") from error
        except OSError as error:
            raise WorldFailed(f"{folder}: {error.strerror or error}") from error

    def boot_id(self) -> str:
        path = self.proc / "sys" / "kernel" / "random" / "boot_id"
        try:
            found = (files.read(path) or b"").strip()
        except OSError as error:
            raise WorldFailed(f"{path}: {error.strerror or error}") from error
        if not found:
            raise WorldFailed(f"{path}: expected an id")
        return found.decode("ascii", "replace")

    def read_node(self) -> NodeCounters:
        try:
            busy, cpus = proc.cpu_time(self.proc, self._ticks)
            total, used = proc.memory(self.proc)
            nanos: int | None = busy
            if self.is_of_pods:
                whole = self._read("", is_deep=True)
                nanos, used = (None, None) if whole is None else (whole.cpu_nanos, whole.memory_bytes)
            return NodeCounters(nanos, self.monotonic(), cpus, total, used, proc.gauges(self.proc))
        except OSError as error:
            raise WorldFailed(f"{error.filename or self.proc}: {error.strerror or error}") from error

    def read(self, containers: Sequence[ContainerRef], *, is_deep: bool) -> Mapping[str, Counters]:
        """Read counters by container id, without vanished containers.

        The counters of a container that cannot be read are None; raise where none can be read.
        """
        found: dict[str, Counters] = {}
        failures: list[OSError] = []
        for container in containers:
            try:
                place = self._place(container)
                counters = None if place is None else self._read(place, is_deep=is_deep)
            except OSError as error:
                failures.append(error)
                counters = Counters(None, self.monotonic())
            if counters is None:
                self._places.pop(container.id, None)
            else:
                found[container.id] = counters
        if failures and len(failures) == len(found):
            first = failures[0]
            raise WorldFailed(f"{first.filename or self.layout.cpu}: {first.strerror or first}") from first
        known = {container.id for container in containers}
        for gone in self._places.keys() - known:
            del self._places[gone]
        return found

    def _place(self, container: ContainerRef) -> str | None:
        place = self._places.get(container.id) or self.layout.find(container)
        if place is not None:
            self._places[container.id] = place
        return place

    def _read(self, place: str, *, is_deep: bool) -> Counters | None:
        at, cpu = self.monotonic(), self._cpu_nanos(place)
        if cpu is None or not is_deep:
            return None if cpu is None else Counters(cpu, at)
        quota, period = self.quota(place)
        used, reclaimable = self._memory(place)
        return Counters(cpu, at, used, reclaimable, quota, period)

    def _cpu_nanos(self, place: str) -> int | None:
        if not self.layout.is_v2:
            return files.read_int(f"{self.layout.cpuacct}/{place}/cpuacct.usage")
        micros = files.field(files.read(f"{self.layout.cpuacct}/{place}/cpu.stat"), b"usage_usec")
        return None if micros is None else micros * NANOS_PER_MICRO

    def quota(self, place: str) -> tuple[int | None, int]:
        """Return the quota and its period; -1 is unlimited."""
        if not self.layout.is_v2:
            period = files.read_int(f"{self.layout.cpu}/{place}/cpu.cfs_period_us")
            return files.read_int(f"{self.layout.cpu}/{place}/cpu.cfs_quota_us"), period or PERIOD_US
        words = (files.read(f"{self.layout.cpu}/{place}/cpu.max") or b"").split()
        if not words:
            return None, PERIOD_US
        period = files.to_int(words[1]) if len(words) > 1 else None
        return UNLIMITED if words[0] == b"max" else files.to_int(words[0]), period or PERIOD_US

    def _memory(self, place: str) -> tuple[int | None, int]:
        """Return the working set as cAdvisor computes it, and the file pages in it."""
        folder, is_v2 = f"{self.layout.memory}/{place}", self.layout.is_v2
        used = files.read_int(f"{folder}/{'memory.current' if is_v2 else 'memory.usage_in_bytes'}")
        stat = files.read(f"{folder}/memory.stat")
        inactive = files.field(stat, b"inactive_file" if is_v2 else b"total_inactive_file")
        active = files.field(stat, b"active_file" if is_v2 else b"total_active_file") or 0
        if used is None or inactive is None:
            return None, 0
        working_set = max(0, used - inactive)
        return working_set, min(active, working_set)

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        folder = str(self.layout.cpu)
        try:
            place = self._place(container)
            if place is None:
                return False
            folder = f"{folder}/{place}"
            if not self.layout.is_v2:
                return files.write(f"{folder}/cpu.cfs_quota_us", str(quota_us))
            _, period = self.quota(place)
            word = "max" if quota_us < 0 else str(quota_us)
            return files.write(f"{folder}/cpu.max", f"{word} {period}")
        except OSError as error:
            raise WorldFailed(f"{folder}: quota {quota_us}: {error.strerror or error}") from error

    def reclaim(self, container: ContainerRef, amount_bytes: int) -> int | None:
        try:
            place = self._place(container)
            before = None if place is None else self._memory(place)[0]
            if place is None or before is None:
                return None
            self._take_back(f"{self.layout.memory}/{place}", amount_bytes)
            after = self._memory(place)[0]
        except OSError as error:
            where = error.filename or f"{self.layout.memory}: {container.id}"
            raise WorldFailed(f"{where}: reclaim: {error.strerror or error}") from error
        return None if after is None else max(0, before - after)

    def _take_back(self, folder: str, amount_bytes: int) -> None:
        name = "memory.reclaim" if self.layout.is_v2 else "memory.force_empty"
        try:
            is_there = files.write(f"{folder}/{name}", str(amount_bytes) if self.layout.is_v2 else "0")
        except OSError as error:
            if error.errno not in PARTLY:
                raise
            return
        if not is_there and Path(folder).is_dir():
            raise WorldFailed(f"{folder}/{name}: not there; cgroup v2 has it from Linux 5.19 on")


def connect_host(
    cgroups: str = "/sys/fs/cgroup", proc_folder: str = "/proc", parent: str = "", *, is_of_pods: bool = False
) -> HostNode:
    return HostNode(find_layout(Path(cgroups), parent), Path(proc_folder), is_of_pods=is_of_pods)
