"""What others do to real containers while they are throttled, and what a real eviction is waited for."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from equipoise.qos.state import AgentState
from tests.support.agent.machines import policies
from tests.support.agent.real import BASE, FREE, LIMITED, WATERLINE, Agent, both, first_quotas, pod
from tests.support.agent.trees import is_v1_writable, tree
from tests.support.qos.worlds import action, policy, rule

pytestmark = pytest.mark.skipif(not is_v1_writable(), reason="needs root and cgroup v1")
NEW_FREE, NEW_LIMITED = "cc" * 32, "dd" * 32
GENTLE = action("gentle", coolDownSeconds=300, eviction={"terminationGracePeriodSeconds": 60})
EVICT = policies(GENTLE, policy(rule("cpu_total_usage", WATERLINE, "gentle")))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with tree() as made:
        begun = Agent(made, tmp_path / "state.json")
        begun.start()
        yield begun


def test_a_real_container_that_restarts_while_throttled_begins_free(agent: Agent) -> None:
    """Its old id is forgotten; a further breach starts from its own quota, and all of that is given back."""
    agent.throttle()
    assert set(agent.kept.throttled) == {FREE, LIMITED}
    agent.tree.end_burners()
    agent.tree.forget("free", FREE)
    agent.tree.forget("limited", LIMITED)
    agent.node_api.all_pods = both(NEW_FREE, NEW_LIMITED)
    agent.start()
    agent.round()  # one look says nothing about the CPU of new containers
    assert (agent.quotas, agent.kept.throttled) == (BASE, {})
    done = agent.until(lambda: len(agent.lowered_pods) == 2)
    assert first_quotas(done)["limited"] == 9000  # a tenth of 90000, not of what its predecessor had
    assert set(agent.kept.throttled) == {NEW_FREE, NEW_LIMITED}
    agent.loop.restore_all()
    assert (agent.quotas, agent.kept.throttled) == (BASE, {})


def _rewrite(agent: Agent) -> None:
    agent.quota_file("free").write_text("70000")
    agent.quota_file("limited").write_text("45000")


def test_a_real_quota_by_another_hand_is_the_new_base(agent: Agent) -> None:
    """A breach in the same round starts from it; without one it stays, whoever restarts or cleans up."""
    agent.throttle()
    _rewrite(agent)
    done = agent.until(lambda: not set(agent.quotas) & {70000, 45000})
    assert first_quotas(done) == {"free": 7000, "limited": 4500}  # a tenth of what they found
    agent.tree.end_burners()
    _rewrite(agent)
    for _ in range(3):
        assert agent.round().outcomes == []
    assert agent.kept.throttled == {}
    assert agent.loop.restore_all() == []
    agent.begin()
    assert agent.loop.restore_all() == []
    assert agent.quotas == (70000, 45000)


def test_a_real_resize_while_throttled_is_what_is_given_back(agent: Agent) -> None:
    """Up or down, step by step and never beyond; a quota that the kubelet has written already stays."""
    agent.throttle()
    agent.tree.end_burners()
    agent.node_api.all_pods = [pod("free", FREE, 1500), pod("limited", LIMITED, 300)]
    seen = [agent.quotas]
    while len(seen) < 20 and agent.kept.throttled:
        agent.round()
        seen.append(agent.quotas)
    assert seen[-1] == (150000, 30000)
    assert all(0 < free <= 150000 and limited <= 30000 for free, limited in seen), seen
    # One of another limit, with the kubelet's own quota: not ours any more, and not given the old one.
    agent.node_api.all_pods[1] = pod("limited", LIMITED, 600)
    agent.quota_file("limited").write_text("60000")
    assert agent.round().outcomes == []
    assert agent.loop.restore_all() == []
    assert agent.quotas == (150000, 60000)


def test_a_state_file_of_another_boot_is_not_acted_on(agent: Agent) -> None:
    """The same file of this boot is."""
    agent.throttle()
    agent.tree.end_burners()
    ours = agent.kept
    assert set(ours.throttled) == {FREE, LIMITED}
    lowered = agent.quotas
    agent.file.write_bytes(msgspec.json.encode(msgspec.structs.replace(ours, boot_id="another")))
    agent.begin()
    assert agent.kept == AgentState(agent.node.boot_id())
    for _ in range(3):
        assert agent.round().outcomes == []
    assert agent.loop.restore_all() == []
    assert agent.quotas == lowered
    agent.file.write_bytes(msgspec.json.encode(ours))
    agent.begin()
    assert [one.result for one in agent.loop.restore_all()] == ["Done", "Done"]
    assert agent.quotas == BASE


def test_a_real_pod_that_takes_a_minute_to_go_is_waited_for(agent: Agent) -> None:
    """It burns on through a minute of further rounds, and nobody goes for it; then it is late."""
    agent.node_api.asked = EVICT
    first, second = agent.node_api.all_pods
    agent.node_api.all_pods[1] = msgspec.structs.replace(second, priority=1)
    agent.quota_file("free").write_text("60000")
    agent.quota_file("limited").write_text("15000")  # half of the waterline: without the first, no breach
    agent.loop.cycle(agent.node_api.now())
    agent.until(lambda: bool(agent.node_api.evictions))
    assert agent.node_api.evictions == [("free", 60)]
    agent.round(told_seconds=10)  # nobody has told yet that it terminates
    agent.node_api.all_pods[0] = msgspec.structs.replace(first, deletion_at=agent.node_api.clock_at + 60)
    over_at = agent.node_api.clock_at + 60
    used: list[float] = []
    while agent.node_api.clock_at < over_at and (len(used) < 6 or sum(one > WATERLINE for one in used) < 3):
        done = agent.round(told_seconds=10 if len(used) < 5 else None)
        assert (done.outcomes, done.decision.reason.numbers["terminating"]) == ([], 1)
        used.append(done.decision.reason.numbers["rules"]["p/cpu-total-usage"]["usage"])
    assert agent.node_api.evictions == [("free", 60)]
    assert sum(one > WATERLINE for one in used) >= 3, used  # real readings, which would send somebody away
    agent.node_api.clock_at = over_at + 31  # its grace and thirty seconds more have passed
    agent.until(lambda: len(agent.node_api.evictions) == 2)
    assert agent.node_api.evictions == [("free", 60), ("limited", 60)]
