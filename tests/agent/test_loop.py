"""The agent's rounds on a machine of simulated time: what is written, given back, and left alone."""

import msgspec
import pytest

from equipoise.ports import EvictionResult
from equipoise.ports.node import NodeContainer, NodePod
from tests.support.agent.machines import Scene, policies, told
from tests.support.qos.worlds import action, policy, rule

DOWN = policies(policy(rule("cpu_total_usage", 6000, "throttle")))
EVICT = policies(policy(rule("cpu_total_usage", 6000, "evict")))
QUICK = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50, "minCPURatio": 10}})
FAST = policies(QUICK, policy(rule("cpu_total_usage", 6000, "quick")))


def _busy(asked: object, **scene: object) -> Scene:
    """Give 9 cores of usage on 16, by three pods; the waterline is at 6."""
    made = Scene(**scene)  # type: ignore[arg-type]
    made.around.asked = asked  # type: ignore[assignment]
    made.add(told("a", limit=5), 4)
    made.add(told("b"), 3)
    made.add(told("c", qos_class="Guaranteed", request=2, limit=2), 2)
    return made


def test_a_breach_is_throttled_within_three_intervals_and_quotas_are_the_computed_ones() -> None:
    """What is in the cgroup is what the decision says; the guaranteed pod is not touched."""
    scene = _busy(FAST)
    first, second, *rest = scene.rounds(4)
    assert first.decision.reason.code == "BelowWaterlines"  # one look says nothing about CPU
    assert second.decision.reason.code == "Throttle"
    written = {outcome.action.pod: getattr(outcome.action, "quota", {}) for outcome in second.outcomes}
    assert written == {"d/a": {"c": 250000}, "d/b": {"c": 150000}}
    assert [outcome.result for outcome in second.outcomes] == ["Done", "Done"]
    assert scene.machine.quotas == {"a00000000": 250000, "b00000000": 150000, "c00000000": 200000}
    assert [done.outcomes for done in rest] == [[], []]
    used = sum(map(scene.machine.used, scene.machine.wanted))
    assert used <= 6
    assert set(scene.disk.content.throttled) == {"a00000000", "b00000000"}


def test_when_the_load_is_gone_everything_is_given_back_exactly() -> None:
    """To the limit that the pod has now, or to none; and the disk forgets."""
    scene = _busy(FAST)
    scene.rounds(2)
    assert scene.disk.content.throttled
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    held = scene.rounds(3)
    assert "HeldByCooldown" in [done.decision.reason.code for done in held]
    scene.rounds(30)
    assert scene.machine.quotas == {"a00000000": 500000, "b00000000": -1, "c00000000": 200000}
    assert scene.disk.content.throttled == {}
    writes = scene.disk.writes
    assert [done.decision.reason.code for done in scene.rounds(5)] == ["BelowWaterlines"] * 5
    assert scene.disk.writes == writes  # quiet at rest


@pytest.mark.parametrize("crashes_in", range(6))
def test_an_agent_that_dies_anywhere_gives_everything_back_after_its_restart(crashes_in: int) -> None:
    """Also between the disk and the cgroup."""
    scene = _busy(FAST)
    scene.machine.crashes_in = crashes_in
    try:
        scene.rounds(5)
    except KeyboardInterrupt:
        scene.pass_time()
    scene.machine.crashes_in = -1
    scene.restart()
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(40)
    assert scene.machine.quotas == {"a00000000": 500000, "b00000000": -1, "c00000000": 200000}
    assert scene.disk.content.throttled == {}


def test_the_way_out_gives_everything_back_at_once() -> None:
    """SIGTERM, and `--cleanup` in a new process; the taint too."""
    scene = _busy(FAST)
    scene.rounds(3)
    scene.around.is_disabled = True
    scene.restart()
    done = scene.loop.restore_all()
    assert [outcome.result for outcome in done] == ["Done"] * len(done)
    assert scene.machine.quotas == {"a00000000": 500000, "b00000000": -1, "c00000000": 200000}
    assert (scene.disk.content.throttled, scene.around.is_disabled) == ({}, False)


def _resized(pod: NodePod, limit: int) -> NodePod:
    (part,) = pod.containers
    return msgspec.structs.replace(
        pod, containers=(NodeContainer(part.name, part.id, part.cpu_request_nanos, limit * 10**9),)
    )


def test_a_resize_while_throttled_is_the_new_base() -> None:
    """The kubelet writes its quota, which is not ours; what is given back is the new limit."""
    scene = _busy(FAST)
    scene.rounds(3)
    assert scene.machine.quotas["a00000000"] < 500000
    scene.around.all_pods[0] = _resized(scene.around.all_pods[0], 6)
    scene.machine.quotas["a00000000"] = 600000
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(1)
    assert "a00000000" not in scene.disk.content.throttled
    scene.rounds(30)
    assert scene.machine.quotas["a00000000"] == 600000


def test_a_new_limit_that_only_the_pod_tells_is_what_is_given_back() -> None:
    """Never a saved number."""
    scene = _busy(FAST)
    scene.rounds(3)
    scene.around.all_pods[0] = _resized(scene.around.all_pods[0], 7)
    scene.loop.restore_all()
    assert scene.machine.quotas["a00000000"] == 700000


def test_a_quota_by_another_hand_is_left_alone() -> None:
    """It is nobody's to give back; a further breach starts from it."""
    scene = _busy(FAST)
    scene.rounds(2)
    scene.machine.quotas["b00000000"] = 12345
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.01)
    scene.rounds(30)
    assert scene.machine.quotas["b00000000"] == 12345


def test_a_container_that_restarts_while_throttled_begins_free() -> None:
    """Its old id is forgotten."""
    scene = _busy(FAST)
    scene.rounds(3)
    scene.machine.end("b00000000")
    scene.around.all_pods[1] = msgspec.structs.replace(
        scene.around.all_pods[1], containers=(NodeContainer("c", "b11111111"),)
    )
    scene.machine.start(scene.around.all_pods[1], 0.1)
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(30)
    assert scene.machine.quotas["b11111111"] == -1
    assert scene.disk.content.throttled == {}


def test_a_pod_that_takes_a_minute_to_go_is_waited_for() -> None:
    """Six further rounds evict nobody: what it uses counts as released; after its time it does no more."""
    scene = _busy(EVICT)
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30)]
    scene.rounds(1)  # nobody has told us yet that it terminates
    scene.around.all_pods[0] = msgspec.structs.replace(
        scene.around.all_pods[0], deletion_at=scene.around.clock_at + 60
    )
    later = scene.rounds(6)
    assert scene.around.evictions == [("a", 30)]
    assert {done.decision.reason.code for done in later} == {"BelowWaterlines"}
    scene.rounds(4)  # 60 s of grace and 30 s more have passed
    assert scene.around.evictions == [("a", 30), ("b", 30)]


def test_an_eviction_that_is_refused_releases_nothing() -> None:
    """The next pod goes instead, in the same round; and the first is not asked for again at once."""
    scene = _busy(EVICT)
    scene.around.answers["a"] = EvictionResult.BLOCKED
    _, done = scene.rounds(2)
    assert scene.around.evictions == [("a", 30), ("b", 30)]
    assert [outcome.result for outcome in done.outcomes] == ["Blocked", "Accepted"]
    scene.rounds(1)
    assert len(scene.around.evictions) == 2


def test_an_eviction_without_an_answer_counts_as_gone_for_a_while() -> None:
    """Nobody else goes for it."""
    scene = _busy(EVICT)
    scene.around.answers["a"] = None
    _, done = scene.rounds(2)
    assert [outcome.result for outcome in done.outcomes] == ["Unknown"]
    assert scene.around.evictions == [("a", 30)]


def test_memory_is_reclaimed_until_the_measured_gap_is_closed() -> None:
    """Where less was released than foreseen, the next pod gives the rest, in the same round."""
    scene = Scene()
    scene.around.asked = policies(policy(rule("memory_total_usage", 100, "reclaim")))
    for name, memory in (("a", 60), ("b", 50), ("c", 40)):
        scene.add(told(name), 0, memory)
        scene.machine.reclaimable[f"{name}00000000"] = 40
    scene.machine.yields = 0.5  # the kernel gets half of what was asked for
    (done,) = scene.rounds(1)
    assert [outcome.action.pod for outcome in done.outcomes] == ["d/a", "d/b", "d/c"]
    assert [outcome.detail for outcome in done.outcomes] == ["20 bytes of memory reclaimed"] * 3
    assert done.decision.reason.code == "Throttle"
    assert sum(scene.machine.memory.values()) == 90
    assert scene.rounds(1)[0].outcomes == []


def test_a_pause_and_a_preview_change_nothing() -> None:
    """Stop means stop; a preview says what it would do."""
    paused = _busy(DOWN)
    paused.around.paused = "by me"
    _, done = paused.rounds(2)
    assert (done.decision.reason.code, done.outcomes) == ("HeldByPause", [])
    preview = _busy(DOWN, is_enforced=False)
    _, said = preview.rounds(2)
    assert (said.decision.reason.code, said.outcomes) == ("Throttle", [])
    assert said.decision.reason.sentence.startswith("Preview: ")
    for scene in (paused, preview):
        assert scene.machine.quotas == {"a00000000": 500000, "b00000000": -1, "c00000000": 200000}
        assert scene.disk.content.throttled == {}


def test_cpu_is_judged_on_an_interval_that_lies_wholly_after_the_throttle() -> None:
    """A round right after a throttle sees nothing of the time before it."""
    scene = _busy(FAST)
    scene.rounds(1)
    second = scene.loop.cycle(scene.around.now())
    assert second.outcomes
    third = scene.loop.cycle(scene.around.now())  # no time has passed since
    assert (third.decision.reason.code, third.outcomes) == ("BelowWaterlines", [])
    assert "cpu_total_usage could not be read" in third.decision.reason.sentence


def test_scheduling_is_disabled_and_enabled_again_also_across_a_restart() -> None:
    """By an action that is neither a throttle nor an eviction."""
    close = action("soon", coolDownSeconds=20)
    scene = _busy(policies(close, policy(rule("cpu_total_usage", 6000, "soon"))))
    scene.rounds(2)
    assert scene.around.is_disabled
    scene.restart()
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(5)
    assert not scene.around.is_disabled
