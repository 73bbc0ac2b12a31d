"""The loop on this machine's real cgroups, with processes that really burn CPU."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from equipoise.adapters.cgroups import HostNode, connect_host
from equipoise.adapters.cgroups.state import StateFile
from equipoise.model.errors import WorldFailed
from equipoise.qos.keep import AgentState
from equipoise.qos.loop import QosLoop, Round
from equipoise.qos.pods import ContainerTold, PodTold
from tests.agent.machines import Around, policies
from tests.agent.trees import Tree, is_v1_writable, tree
from tests.qos.worlds import action, policy, rule

pytestmark = pytest.mark.skipif(not is_v1_writable(), reason="needs root and cgroup v1")
STEP = action("step", coolDownSeconds=0, throttle={"cpuThrottle": {"stepCPURatio": 80}})
WATERLINE = 600
ASKED = policies(STEP, policy(rule("cpu_total_usage", WATERLINE, "step")))
INTERVAL_SECONDS = 0.6
FREE, LIMITED = "aa" * 32, "bb" * 32


class Agent:
    """The loop of one process; another one begins with what is on the disk."""

    def __init__(self, made: Tree, file: Path) -> None:
        self.tree, self.file = made, file
        self.around = Around(asked=ASKED)
        self.around.all_pods = [_pod("free", FREE, 0), _pod("limited", LIMITED, 900)]
        self.node: HostNode = connect_host(parent=made.parent, is_of_pods=True)
        self.begin()

    def begin(self) -> None:
        keep = StateFile(self.file, self.node.boot_id())
        around = self.around
        self.loop = QosLoop("n1", self.node, around, around, around, keep, around, is_enforced=True)

    def round(self) -> Round:
        """Do a round after an interval of real time: it is what is measured."""
        time.sleep(INTERVAL_SECONDS)
        self.around.clock_at += INTERVAL_SECONDS
        return self.loop.round()

    def quota(self, uid: str, container: str) -> int:
        return int((self.tree.folder("cpu", uid, container) / "cpu.cfs_quota_us").read_text())

    @property
    def quotas(self) -> tuple[int, int]:
        return self.quota("free", FREE), self.quota("limited", LIMITED)

    def until(self, holds: Callable[[], bool], rounds: int) -> list[Round]:
        """Do rounds until it holds; too many fail."""
        done: list[Round] = []
        for _ in range(rounds):
            if holds():
                return done
            done.append(self.round())
        assert holds(), (self.quotas, [one.decision.reason.sentence for one in done])
        return done


def _pod(name: str, container: str, limit_milli: int) -> PodTold:
    return PodTold(
        "d", name, name, containers=(ContainerTold("c", container, 0, limit_milli * 10**6),), started_at=1.0
    )


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with tree() as made:
        made.add("free", FREE, burners=1)
        (made.add("limited", LIMITED, burners=1) / "cpu.cfs_quota_us").write_text("90000")
        yield Agent(made, tmp_path / "state.json")


def test_a_real_breach_is_throttled_restored_and_survives_its_agent(agent: Agent) -> None:
    """Within three intervals; the quotas are the computed ones; then the load goes, and all is given back."""
    agent.loop.round()
    done = agent.until(lambda: agent.quotas != (-1, 90000), rounds=3)
    (first,) = [one for one in done if one.outcomes]
    assert first.decision.reason.code == "Throttle"
    written = {outcome.action.pod: getattr(outcome.action, "quota", None) for outcome in first.outcomes}
    for name, container in (("free", FREE), ("limited", LIMITED)):
        if f"d/{name}" in written:
            assert written[f"d/{name}"] == {"c": agent.quota(name, container)}
    assert set(StateFile(agent.file, agent.node.boot_id()).load().throttled) <= {FREE, LIMITED}
    used: list[float] = []
    for _ in range(3):
        rules = agent.round().decision.reason.numbers["rules"]
        used.append(rules["p/cpu-total-usage"]["usage"])
        if used[-1] <= WATERLINE:
            break
    assert used[-1] <= WATERLINE, used
    # Another process, with only the file: it knows what is throttled, and gives back when the load is gone.
    agent.begin()
    agent.tree.end_burners()
    agent.until(lambda: agent.quotas == (-1, 90000), rounds=20)
    assert StateFile(agent.file, agent.node.boot_id()).load().throttled == {}


def test_the_way_out_a_resize_and_another_boot(agent: Agent) -> None:
    """At once, to what the pods' status says now; a file of another boot says nothing."""
    agent.loop.round()
    agent.until(lambda: agent.quota("free", FREE) != -1, rounds=3)
    throttled = StateFile(agent.file, agent.node.boot_id()).load()
    assert FREE in throttled.throttled
    assert StateFile(agent.file, "another").load() == AgentState("another")
    agent.around.all_pods[0] = _pod("free", FREE, 1500)
    agent.begin()
    agent.loop.restore_all()
    assert agent.quota("free", FREE) == 150000
    assert StateFile(agent.file, agent.node.boot_id()).load().throttled == {}


def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path) -> None:
    """It raises once, and begins anew after that."""
    file = tmp_path / "state.json"
    file.write_text("{")
    with pytest.raises(WorldFailed, match=r"state\.damaged"):
        StateFile(file, "boot").load()
    assert StateFile(file, "boot").load() == AgentState("boot")
    assert (tmp_path / "state.damaged").read_text() == "{"
