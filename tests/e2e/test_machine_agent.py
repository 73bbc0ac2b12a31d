"""The agent's loop on a real cgroup v2, laid out by hand as cgroupfs does, and by systemd."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import NewMachine
from tests.testbed.guest import requirements

PRODUCT = Path(__file__).parents[2] / "src" / "equipoise"
PACKAGES = ("msgspec", "pydantic", "pyyaml", *requirements("pydantic"))

BY_HAND = """
ROOT = Path("/sys/fs/cgroup")
PLACE = ROOT / "kubepods" / "besteffort" / f"pod{UID}" / ID

def lay_out():
    PLACE.mkdir(parents=True)
    for folder in (ROOT, ROOT / "kubepods", ROOT / "kubepods/besteffort", PLACE.parent):
        (folder / "cgroup.subtree_control").write_text("+cpu +memory")

def burn():
    burner = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    (PLACE / "cgroup.procs").write_text(str(burner.pid))
    return burner.kill
"""
BY_SYSTEMD = """
SLICE = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
SCOPE = f"cri-containerd-{ID}.scope"
PLACE = Path("/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice") / SLICE / SCOPE

def lay_out():
    pass

def burn():
    words = ["systemd-run", "--quiet", "--scope", f"--slice={SLICE}", f"--unit={SCOPE}"]
    rest = ["sh", "-c", "sleep 1000 & while :; do :; done"]
    subprocess.Popen([*words, "--property=CPUAccounting=yes", "--property=CPUWeight=100", *rest])
    # Its process comes when systemd has written all that it writes.
    until(lambda: (PLACE / "cpu.max").exists() and (PLACE / "cgroup.procs").read_text().split())
    def end():
        for pid in (PLACE / "cgroup.procs").read_text().split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sh":
                os.kill(int(pid), signal.SIGKILL)
    return end
"""
SCRIPT = """
import json, os, signal, subprocess, time
from pathlib import Path

UID, ID = "0d4a2e6c-93b1-4b6c-9c1a-1f3f5b0a7e11", "ab" * 32
STATE = "/tmp/agent/state.json"

def until(holds, seconds=300):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)

%s

from equipoise.adapters.cgroups import connect_host
from equipoise.runtime.agent.state import StateFile
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionAnswer
from equipoise.qos.state import AgentState, find_throttled
from equipoise.qos.loop import QosLoop
from equipoise.ports.node import NodeContainer, NodePod
from equipoise.qos.policy import AvoidanceActionSpec, NodePolicy, ObjectiveEnsurance, QosPolicy
from equipoise.qos.observe import refs_of

def asked(cooldown):
    throttle = {"cpuThrottle": {"stepCPURatio": 70}}
    step = AvoidanceActionSpec.model_validate({"coolDownSeconds": cooldown, "throttle": throttle})
    return QosPolicy(policies=(NodePolicy(name="p", rules=(RULE,)),), actions={"step": step})

RULE = ObjectiveEnsurance.model_validate(
    {"name": "cpu", "metricRule": {"name": "cpu_total_usage", "value": 400}, "actionName": "step"}
)

class Around:
    def __init__(self, cooldown):
        self.asked = asked(cooldown)
    def pods(self):
        return [NodePod("d", "a", UID, containers=(NodeContainer("c", ID),), started_at=1.0)]
    def policy(self):
        return self.asked
    def labels(self):
        return {}
    def is_scheduling_disabled(self):
        return False
    def pause_of(self, namespace):
        return None
    def now(self):
        return time.time()

def loop(cooldown):
    around, host = Around(cooldown), connect_host(is_of_pods=True)
    keep = StateFile(STATE, host.boot_id())
    return QosLoop("n", host, around, around, around, keep, is_enforced=True)

def quota():
    return (PLACE / "cpu.max").read_text().split()[0]

lay_out()
end_load = burn()
found = {"layout": "systemd" if connect_host().layout.is_systemd else "cgroupfs", "before": quota()}
child = os.fork()
if child == 0:
    mine = loop(3600)  # on a slow machine it must not give back before it is killed
    while True:
        done = mine.cycle(time.time())
        rule = done.decision.reason.numbers["rules"]["p/cpu"]
        quotas = [outcome.action.quota["c"] for outcome in done.outcomes]
        with open("/tmp/agent-rounds", "a") as file:
            file.write(json.dumps({"used": rule["usage"], "quotas": quotas}) + "\\n")
        if Path("/tmp/agent-halt").exists():
            Path("/tmp/agent-halted").touch()
            signal.pause()
        time.sleep(0.7)

def rounds():
    file = Path("/tmp/agent-rounds")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

def first():
    return next((place for place, one in enumerate(rounds()) if one["quotas"]), None)

def later():
    return [one["used"] for one in rounds()[first() + 1 :]] if first() is not None else []

# A clock that leaps while the load runs counts as its usage, so one round does not tell.
until(lambda: len(later()) >= 3 and min(later()) <= 400)
# Between two rounds: one more leap would have it write another quota while we look.
Path("/tmp/agent-halt").touch()
until(Path("/tmp/agent-halted").exists)
found["written"] = str([quota for one in rounds() for quota in one["quotas"]][-1])
found["throttled"] = quota()
found["used"] = min(later())
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
found["after_kill"] = quota()
end_load()
mine = loop(10)
count = 0
while quota() != "max" and count < 40:
    mine.cycle(time.time())
    count += 1
    time.sleep(0.7)
found["restored"] = quota()
found["state"] = StateFile(STATE, connect_host().boot_id()).load().throttled

# As an agent left it whose state file is damaged: it is found from the cgroup, and given back.
(PLACE / "cpu.max").write_text("30000 100000")
sound = Path(STATE).read_bytes()
Path(STATE).write_bytes(sound[:-3] + bytes([255]) + sound[-2:])
mine = loop(10)
try:
    mine.state
except WorldFailed as error:
    found["said"] = str(error)
host, pods = mine.node, mine.node_api.pods()
lowered = find_throttled(pods, host.read(refs_of(pods), is_deep=True), ()).ours
found["lowered"] = [one.quota_us for one in lowered]
mine.adopt(AgentState(host.boot_id(), {one.container.id: one.throttled for one in lowered}))
count = 0
while quota() != "max" and count < 40:
    mine.cycle(time.time())
    count += 1
    time.sleep(0.7)
found["recovered"] = quota()
print(json.dumps(found))
"""


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_a_breach_is_throttled_and_given_back_after_a_kill(driver: str, new_machine: NewMachine) -> None:
    """What is in `cpu.max` is what was computed; usage falls below the waterline; a SIGKILL loses nothing.

    Nor does a state file that is damaged: what it told of is found from `cpu.max`.
    """
    is_systemd = driver == "systemd"
    machine = new_machine(is_systemd=is_systemd, code=[PRODUCT], packages=PACKAGES)
    ran = machine.run(SCRIPT % (BY_SYSTEMD if is_systemd else BY_HAND), seconds=900)
    assert ran.status == 0, ran.output
    (line,) = (line for line in ran.output.splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    assert (found["layout"], found["before"]) == (driver, "max")
    assert found["throttled"] == found["written"] == found["after_kill"]
    assert found["used"] <= 400
    assert (found["restored"], found["state"]) == ("max", {})
    assert "the state file is damaged" in found["said"]
    assert (found["lowered"], found["recovered"]) == ([30000], "max")
