"""The machine itself: which folder is whose, what its files say, and what vanishes meanwhile."""

import os
import time
from pathlib import Path

import pytest

from equipoise.adapters.cgroups import HostNode, connect_host, find_layout, proc
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef
from equipoise.qos.observation import METRICS
from tests.support.agent.trees import is_v1_writable, tree, write

UID = "0d4a2e6c-93b1-4b6c-9c1a-1f3f5b0a7e11"
ID = "3f" * 32
STAT_V1 = "cache 1\ntotal_inactive_file 300\ntotal_active_file 200\n"
STAT_V2 = "anon 500\ninactive_file 300\nactive_file 200\n"
PLACES = {
    "v1, cgroupfs": (False, f"kubepods/burstable/pod{UID}/{ID}"),
    "v1, cgroupfs, guaranteed": (False, f"kubepods/pod{UID}/{ID}"),
    "v1, cgroupfs, CRI-O": (False, f"kubepods/besteffort/pod{UID}/crio-{ID}"),
    "v1, systemd": (
        False,
        (
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/"
            f"cri-containerd-{ID}.scope"
        ),
    ),
    "v2, cgroupfs": (True, f"kubepods/burstable/pod{UID}/{ID}"),
    "v2, systemd": (
        True,
        (
            f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice/"
            f"crio-{ID}.scope"
        ),
    ),
    "v2, systemd, guaranteed": (
        True,
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/docker-{ID}.scope",
    ),
    "v2, kind": (
        True,
        (
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
        ),
    ),
    "v1, below the kubelet": (False, f"kubelet/kubepods/burstable/pod{UID}/{ID}"),
}


def _made(root: Path, place: str, *, is_v2: bool) -> None:
    if is_v2:
        (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        write(
            root / place,
            cpu_stat="usage_usec 5000000\nuser_usec 1\n",
            cpu_max="max 100000\n",
            memory_current="1000\n",
            memory_stat=STAT_V2,
            memory_reclaim="",
        )
        return
    for controller in ("cpu,cpuacct", "memory"):
        (root / controller).mkdir(parents=True)
    write(root / "cpu,cpuacct" / place, cpuacct_usage="5000000000\n")
    write(root / "cpu,cpuacct" / place, cpu_cfs_quota_us="-1\n", cpu_cfs_period_us="100000\n")
    write(root / "memory" / place, memory_usage_in_bytes="1000\n", memory_stat=STAT_V1, memory_force_empty="")


def _host(root: Path) -> HostNode:
    return HostNode(find_layout(root), Path("/proc"))


@pytest.mark.parametrize("case", PLACES)
def test_a_container_is_found_and_read_in_every_layout(case: str, tmp_path: Path) -> None:
    """CPU time, the working set as cAdvisor has it, the quota; and a quota is written."""
    is_v2, place = PLACES[case]
    _made(tmp_path, place, is_v2=is_v2)
    host, container = _host(tmp_path), ContainerRef(UID, ID, "Burstable")
    (found,) = host.read([container], is_deep=True).values()
    assert (found.cpu_nanos, found.memory_bytes, found.reclaimable_bytes) == (5 * 10**9, 700, 200)
    assert (found.quota_us, found.period_us) == (-1, 100000)
    assert host.set_quota(container, 54321)
    assert host.read([container], is_deep=True)[ID].quota_us == 54321
    written = "cpu.max" if is_v2 else "cpu.cfs_quota_us"
    (file,) = tmp_path.rglob(written)
    assert file.read_text().startswith("54321 100000" if is_v2 else "54321")
    assert host.set_quota(container, -1)
    assert host.read([container], is_deep=True)[ID].quota_us == -1
    assert host.reclaim(container, 100) == 0


def test_a_kernel_that_cannot_reclaim_says_so(tmp_path: Path) -> None:
    """Nothing released would look as if there had been nothing to release."""
    place = PLACES["v2, cgroupfs"][1]
    _made(tmp_path, place, is_v2=True)
    (tmp_path / place / "memory.reclaim").unlink()
    with pytest.raises(WorldFailed, match=r"memory\.reclaim: not there"):
        _host(tmp_path).reclaim(ContainerRef(UID, ID, "Burstable"), 100)


@pytest.mark.parametrize("case", ["v1, cgroupfs, CRI-O", "v2, systemd"])
def test_the_monitor_of_a_container_is_not_the_container(case: str, tmp_path: Path) -> None:
    """CRI-O keeps it beside: its folder ends in the same id, and its quota is nobody's affair."""
    is_v2, place = PLACES[case]
    monitor = place.replace("crio-", "crio-conmon-")
    _made(tmp_path, monitor, is_v2=is_v2)
    host, container = _host(tmp_path), ContainerRef(UID, ID, "BestEffort")
    assert host.read([container], is_deep=True) == {}
    assert not host.set_quota(container, 54321)
    folder = (tmp_path if is_v2 else tmp_path / "cpu,cpuacct") / place
    write(folder, cpu_stat="usage_usec 7\n", cpuacct_usage="7000\n", cpu_max="max 100000\n")
    assert host.read([container], is_deep=False)[ID].cpu_nanos == 7000


def test_what_has_vanished_is_not_there(tmp_path: Path) -> None:
    """A container, its pod, and one that comes back under another id."""
    _made(tmp_path, PLACES["v2, cgroupfs"][1], is_v2=True)
    host, container = _host(tmp_path), ContainerRef(UID, ID, "Burstable")
    assert host.read([container, ContainerRef(UID, "ab" * 32), ContainerRef("none", ID)], is_deep=False)
    folder = tmp_path / PLACES["v2, cgroupfs"][1]
    folder.rename(folder.parent / ("ab" * 32))
    assert host.read([container], is_deep=True) == {}
    assert not host.set_quota(container, 1000)
    assert host.reclaim(container, 1) is None
    assert list(host.read([ContainerRef(UID, "ab" * 32)], is_deep=False)) == ["ab" * 32]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "..", "x" * 500, "a\0b", "a\nb"])
def test_hostile_names_lead_nowhere(name: str, tmp_path: Path) -> None:
    """Neither as a UID nor as an id."""
    _made(tmp_path, PLACES["v1, cgroupfs"][1], is_v2=False)
    host = _host(tmp_path)
    for container in (ContainerRef(name, ID), ContainerRef(UID, name)):
        assert host.read([container], is_deep=True) == {}
        assert not host.set_quota(container, 5)


def test_files_that_make_no_sense_are_unknown(tmp_path: Path) -> None:
    """Never zero."""
    place = PLACES["v2, cgroupfs"][1]
    _made(tmp_path, place, is_v2=True)
    write(tmp_path / place, memory_current="lots\n", cpu_max="\n", memory_stat="inactive_file\n")
    (found,) = _host(tmp_path).read([ContainerRef(UID, ID, "Burstable")], is_deep=True).values()
    assert (found.memory_bytes, found.quota_us) == (None, None)
    write(tmp_path / place, cpu_stat="nothing\n")
    assert _host(tmp_path).read([ContainerRef(UID, ID, "Burstable")], is_deep=True) == {}


def test_a_machine_without_pods_says_so(tmp_path: Path) -> None:
    """With the folder that was looked in."""
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    with pytest.raises(WorldFailed, match="no cgroup of pods"):
        find_layout(tmp_path)
    with pytest.raises(WorldFailed, match="no cgroup controller cpu"):
        find_layout(tmp_path / "none")


def test_proc_tells_of_this_machine() -> None:
    """Busy time grows, memory is within its bounds, every gauge is a metric."""
    if not Path("/proc/meminfo").exists():
        pytest.skip("no /proc here")
    host = HostNode(None, Path("/proc"))  # type: ignore[arg-type]
    first = host.read_node()
    deadline = time.monotonic() + 60
    while (second := host.read_node()).cpu_nanos == first.cpu_nanos and time.monotonic() < deadline:
        sum(range(10**5))
    assert second.cpu_nanos is not None
    assert first.cpu_nanos is not None
    assert second.cpu_nanos > first.cpu_nanos
    assert second.memory_used_bytes is not None
    assert second.memory_total_bytes is not None
    assert 0 < second.memory_used_bytes < second.memory_total_bytes
    assert second.cpus == os.cpu_count()
    assert set(second.gauges) <= set(METRICS)
    assert "cpu_load_1_min" in second.gauges
    assert host.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_machine_of_two_thousand_cpus_has_them_all(tmp_path: Path) -> None:
    """Its share of usage would be too high if some of them were not counted."""
    line = "4705 356 584312345 3699876543 23 23 1234567 0 0 0"
    lines = [f"cpu  {line}", *(f"cpu{number} {line}" for number in range(2000)), "intr 1", "ctxt 2"]
    (tmp_path / "stat").write_text("\n".join(lines))
    busy, cpus = proc.cpu_time(tmp_path, 100)
    assert (busy, cpus) == ((4705 + 356 + 584312345 + 23 + 1234567) * 10**7, 2000)


def test_one_line_of_many_is_found_exactly() -> None:
    """`active_file` is not the end of `inactive_file`."""
    text = b"inactive_file 1\nactive_file 2\nfile 3"
    assert [proc.field(text, name) for name in (b"file", b"active_file", b"inactive_file")] == [3, 2, 1]
    assert proc.field(text, b"ile") is None
    assert proc.field(None, b"file") is None


@pytest.mark.skipif(not is_v1_writable(), reason="needs root and cgroup v1")
def test_real_counters_and_quotas_of_cgroup_v1() -> None:
    """A process that burns: its time grows, a quota is kept, and the kernel's memory is measured."""
    with tree() as made:
        made.add(UID, ID, burners=1)
        host = connect_host(parent=made.parent, is_of_pods=True)
        container = ContainerRef(UID, ID, "BestEffort")
        first = host.read([container], is_deep=True)[ID]
        assert (first.quota_us, first.period_us) == (-1, 100000)
        assert host.set_quota(container, 20000)
        deadline = time.monotonic() + 60
        now = first
        while now.cpu_nanos == first.cpu_nanos or not now.memory_bytes:
            assert time.monotonic() < deadline, now
            now = host.read([container], is_deep=True)[ID]
        assert now.quota_us == 20000
        whole = host.read_node()
        assert whole.cpu_nanos is not None
        assert now.cpu_nanos is not None
        assert whole.cpu_nanos >= now.cpu_nanos
        assert host.reclaim(container, 2**20) is not None
        made.end_burners()
