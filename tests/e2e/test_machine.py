"""The virtual machine is sound: a real cgroup version 2, by hand and laid out by systemd."""

import json
from pathlib import Path

import pytest

from tests.testbed import NewMachine
from tests.testbed.processes import NotInTime

PRODUCT = Path(__file__).parents[2] / "src" / "equipoise"

BY_HAND = """
import json, subprocess, time
from pathlib import Path
root = Path("/sys/fs/cgroup")
(root / "cgroup.subtree_control").write_text("+cpu +memory")
pods = root / "kubepods"
pods.mkdir()
(pods / "cgroup.subtree_control").write_text("+cpu +memory")
pod = pods / "pod-a"
pod.mkdir()
burner = subprocess.Popen(["sh", "-c", "while :; do :; done"])
(pod / "cgroup.procs").write_text(str(burner.pid))

def counters():
    lines = (pod / "cpu.stat").read_text().splitlines()
    return {key: int(value) for key, value in map(str.split, lines)}

def share(seconds):
    before, began = counters(), time.monotonic()
    while time.monotonic() < began + seconds:
        time.sleep(0.02)
    return (counters()["usage_usec"] - before["usage_usec"]) / 1e6 / (time.monotonic() - began)

for _ in range(10):
    free = share(1.5)
    if free > 0.7:
        break  # else the burner waited for its disk
(pod / "cpu.max").write_text("20000 100000")
for _ in range(10):
    throttled = share(3)
    if 0 < throttled < 0.3:
        break  # else the clock leapt while the burner ran, and that was counted as its own
burner.kill()
print(json.dumps({
    "controllers": (root / "cgroup.controllers").read_text().split(),
    "free": free,
    "throttled": throttled,
    "times": counters()["nr_throttled"],
    "has_pressure": (pod / "cpu.pressure").read_text().startswith("some "),
}))
"""


def test_a_burner_is_throttled_by_cpu_max(new_machine: NewMachine) -> None:
    """With a fifth of a core it uses that, and the kernel counts how often it was held back."""
    ran = new_machine().run(BY_HAND, seconds=600)
    assert ran.status == 0, ran.output
    found = json.loads(ran.output)
    assert {"cpu", "cpuset", "memory", "pids", "io"} <= set(found["controllers"])
    # A busy host makes the machine's clock leap, so a share is known roughly.
    assert found["throttled"] < 0.3, found
    assert found["free"] > 2 * found["throttled"] > 0, found
    assert found["times"] > 0, found
    assert found["has_pressure"]


BY_SYSTEMD = """
import json, subprocess, time
from pathlib import Path
place = ["--slice=kubepods-burstable-pod1234.slice", "--unit=cri-containerd-abc.scope"]
burn = ["sh", "-c", "while :; do :; done"]
burner = subprocess.Popen(["systemd-run", "--scope", *place, "--property=CPUQuota=20%", *burn])
pods = Path("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234.slice")
place = pods / "cri-containerd-abc.scope"
quota = place / "cpu.max"
end = time.monotonic() + 300
# systemd makes the group first and writes its quota a moment later.
while time.monotonic() < end and (not quota.exists() or quota.read_text().startswith("max")):
    time.sleep(0.05)
import equipoise
print(json.dumps({
    "first": Path("/proc/1/comm").read_text().strip(),
    "quota": quota.read_text().split(),
    "product": str(Path(equipoise.__file__).parent),
}))
"""


def test_systemd_lays_out_the_cgroups_and_the_product_is_there(new_machine: NewMachine) -> None:
    """A pod's slices and its container's scope, as a kubelet with the systemd driver would have them."""
    ran = new_machine(is_systemd=True, code=[PRODUCT]).run(BY_SYSTEMD, seconds=600)
    assert ran.status == 0, ran.output
    (line,) = (line for line in ran.output.splitlines() if line.startswith("{"))  # systemd-run says more
    found = json.loads(line)
    assert found == {"first": "systemd", "quota": ["20000", "100000"], "product": "/opt/code/equipoise"}


def test_a_script_that_does_not_end_is_ended(new_machine: NewMachine) -> None:
    """The bound holds, and nothing goes on behind it."""
    machine = new_machine()
    with pytest.raises(NotInTime, match="not within 2 s"):
        machine.run("import time; time.sleep(1000)", seconds=2)
    assert not any(process.alive for process in machine.processes)
