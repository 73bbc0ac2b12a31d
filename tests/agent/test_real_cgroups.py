"""The loop on this machine's real cgroups, with processes that really burn CPU."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise.core.errors import WorldFailed
from equipoise.qos.loop import NodeCycleReport
from equipoise.qos.state import AgentState
from equipoise.runtime.agent.state import StateFile
from tests.support.agent.real import (
    BASE,
    FREE,
    ROUNDS_TO_BREACH,
    STEP_PERCENT,
    WATERLINE,
    Agent,
    first_quotas,
    pod,
    process,
    wait_until,
)
from tests.support.agent.trees import is_v1_writable, tree

pytestmark = pytest.mark.skipif(not is_v1_writable(), reason="needs root and cgroup v1")
ROUNDS_TO_RESTORE = 20


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with tree() as made:
        yield Agent(made, tmp_path / "state.json")


def _computed(done: NodeCycleReport) -> dict[str, int]:
    """Give what the ruling asks for, from what was measured: whole microseconds, of quota or else usage."""
    found = {}
    for seen in done.observation.pods:
        (part,) = seen.containers
        assert part.cpu_nanos is not None
        # A period is 100 ms: a nanocore is a ten thousandth of a microsecond of quota.
        start_nanos = part.cpu_nanos if part.quota_us < 0 else part.quota_us * 10**4
        found[seen.name] = max(1000, start_nanos * (100 - STEP_PERCENT) // 100 // 10**4)
    return found


def test_a_real_breach_is_throttled_restored_and_survives_its_agent(agent: Agent) -> None:
    """Within three intervals; the quotas are the computed ones; then the load goes, and all is given back."""
    agent.interval = 0.6
    agent.start()
    agent.loop.cycle(agent.node_api.now())
    used: list[float] = []
    deeds: list[NodeCycleReport] = []
    while len(used) < ROUNDS_TO_BREACH and not (deeds and used[-1] <= WATERLINE):
        done = agent.round()
        used.append(done.decision.reason.numbers["rules"]["p/cpu-total-usage"]["usage"])
        if used[-1] > WATERLINE:
            deeds.append(done)
            computed, written = _computed(done), first_quotas([done])
            assert written == {name: computed[name] for name in written}
            assert written == {name: agent.quota(name) for name in written}
            assert written.keys() <= agent.kept_pods
    # A machine that stood still may show less at first; from the first breach on it is three intervals.
    assert 1 <= len(deeds) <= 2, used
    assert used[-1] <= WATERLINE, used
    assert {one.decision.reason.code for one in deeds} == {"Throttle"}
    # Another process, with only the file: it knows what is throttled, and gives back when the load is gone.
    agent.begin()
    agent.tree.end_burners()
    agent.interval = 0.3
    agent.until(lambda: agent.quotas == BASE, ROUNDS_TO_RESTORE)
    assert agent.kept.throttled == {}


@pytest.mark.parametrize("writes", [0, 1, -1])
def test_an_agent_killed_in_the_middle_is_followed_by_one_that_gives_all_back(
    agent: Agent, writes: int
) -> None:
    """By SIGKILL: between the disk and the first quota, between the two, and while both are throttled."""
    with process(agent, writes) as child:
        agent.start()
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        if writes < 0:
            wait_until(lambda: agent.lowered_pods == {"free", "limited"})
            child.kill()
        assert child.wait(120) == -signal.SIGKILL
    lowered = agent.lowered_pods
    assert lowered <= agent.kept_pods
    if writes >= 0:
        assert (len(agent.kept_pods), len(lowered)) == (writes + 1, writes)
    agent.begin()
    agent.tree.end_burners()
    agent.round()
    agent.until(lambda: agent.quotas == BASE, ROUNDS_TO_RESTORE)
    assert agent.kept.throttled == {}


def test_the_way_out_and_a_resize(agent: Agent) -> None:
    """At once, to what the pods' status says now."""
    agent.start()
    agent.throttle()
    assert agent.kept_pods == {"free", "limited"}
    agent.node_api.all_pods[0] = pod("free", FREE, 1500)
    agent.begin()
    agent.loop.restore_all()
    assert agent.quotas == (150000, 90000)
    assert agent.kept.throttled == {}


def test_a_damaged_file_is_put_aside_and_said(tmp_path: Path) -> None:
    """It raises once, and begins anew after that."""
    file = tmp_path / "state.json"
    file.write_text("{")
    with pytest.raises(WorldFailed, match=r"state\.damaged"):
        StateFile(file, "boot").load()
    assert StateFile(file, "boot").load() == AgentState("boot")
    assert (tmp_path / "state.damaged").read_text() == "{"
