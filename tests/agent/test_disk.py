"""A disk that is full: nothing is throttled, what was done is told, and everything can be given back."""

from dataclasses import dataclass

import pytest

from equipoise.core.errors import WorldFailed
from equipoise.qos.state import AgentState
from tests.support.agent.machines import Disk, Scene, policies, told
from tests.support.qos.worlds import action, policy, rule

QUICK = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50}})
FREE = {"a00000000": 500000, "b00000000": -1, "c00000000": 200000}


@dataclass
class Full(Disk):
    """Nothing can be written while it is full."""

    is_full: bool = False

    def save(self, state: AgentState) -> None:
        if self.is_full:
            raise WorldFailed("state.json: No space left on device")
        super().save(state)


def _busy(*rules: dict[str, object]) -> tuple[Scene, Full]:
    disk = Full()
    made = Scene(disk=disk)
    made.around.asked = policies(QUICK, policy(*rules))
    made.add(told("a", limit=5), 4, memory=200)
    made.add(told("b"), 3)
    made.add(told("c", qos_class="Guaranteed", request=2, limit=2), 2)
    return made, disk


def test_what_was_done_before_the_disk_was_needed_is_told() -> None:
    """An eviction needs no disk, and must not go untold because a throttle does."""
    scene, disk = _busy(rule("memory_total_usage", 100, "evict"), rule("cpu_total_usage", 4000, "quick"))
    disk.is_full = True
    first, second = scene.rounds(2)
    full = "state.json: No space left on device"
    assert [(one.action.pod, one.result) for one in first.outcomes] == [("d/a", "Accepted")]
    assert first.warnings == (full,)
    assert [(one.action.pod, one.result, one.detail) for one in second.outcomes] == [("d/b", "Failed", full)]
    assert scene.machine.quotas == FREE
    disk.is_full = False
    scene.rounds(1)
    assert scene.machine.quotas["b00000000"] == 150000
    assert set(disk.content.throttled) == {"b00000000"}


@pytest.mark.parametrize("is_full", [False, True])
def test_the_way_out_needs_no_disk(is_full: bool) -> None:
    """It is written once, at the end; a successor that finds the old file has nothing left to do."""
    scene, disk = _busy(rule("cpu_total_usage", 6000, "quick"))
    scene.rounds(3)
    assert set(disk.content.throttled) == {"a00000000", "b00000000"}
    disk.is_full, writes = is_full, disk.writes
    assert [one.result for one in scene.loop.restore_all()] == ["Done", "Done"]
    assert (scene.machine.quotas, disk.writes - writes) == (FREE, 0 if is_full else 1)
    disk.is_full = False
    scene.restart()
    assert scene.loop.restore_all() == []
    assert disk.content.throttled == {}


def test_a_step_back_waits_for_the_disk() -> None:
    """A quota between ours and the limit that nobody has written down would be taken for another's."""
    scene, disk = _busy(rule("cpu_total_usage", 6000, "quick"))
    scene.rounds(2)
    throttled = dict(scene.machine.quotas)
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    disk.is_full = True
    later = scene.rounds(6)
    assert {one.result for done in later for one in done.outcomes} == {"Failed"}
    assert scene.machine.quotas == throttled
    disk.is_full = False
    scene.rounds(30)
    assert (scene.machine.quotas, disk.content.throttled) == (FREE, {})
