"""The port `Host` on this machine."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from equipoise.adapters.cgroups import proc
from equipoise.adapters.cgroups import proc as files
from equipoise.adapters.cgroups.layout import Layout, find_layout
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef, Counters, NodeCounters

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
        """Return the ID of this boot."""
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
            if self.is_of_pods:
                whole = self._read("", self.monotonic(), is_deep=True)
                busy_of_pods, used = (None, None) if whole is None else (whole.cpu_nanos, whole.memory_bytes)
                return NodeCounters(busy_of_pods, self.monotonic(), cpus, total, used, proc.gauges(self.proc))
            return NodeCounters(busy, self.monotonic(), cpus, total, used, proc.gauges(self.proc))
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
                counters = None if place is None else self._read(place, self.monotonic(), is_deep=is_deep)
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
        place = self._places.get(container.id)
        if place is None:
            place = self.layout.find(container)
            if place is not None:
                self._places[container.id] = place
        return place

    def _read(self, place: str, at: float, *, is_deep: bool) -> Counters | None:
        cpu = self._cpu_nanos(place)
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
        """Write a quota, -1 for none; return False where the container has vanished."""
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
        """Have the kernel reclaim memory; return the measured bytes."""
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
        name, text = (
            ("memory.reclaim", str(amount_bytes)) if self.layout.is_v2 else ("memory.force_empty", "0")
        )
        try:
            is_there = files.write(f"{folder}/{name}", text)
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
