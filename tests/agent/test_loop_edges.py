"""Where the agent could have done too much, or kept what was not its own to keep."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from equipoise.adapters.journal import Query, open_reader
from equipoise.cli.replay import replay
from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionResult, PolicyObject
from equipoise.ports.node import ContainerRef, Counters, NodeContainer, NodeCounters
from equipoise.qos.state import AgentState
from equipoise.runtime.agent.node_api import read_objects
from equipoise.runtime.agent.run import AgentJournal
from equipoise.runtime.agent.state import StateFile
from tests.support.agent.machines import Machine, Scene, policies, told
from tests.support.qos.worlds import EVICT as EVICTION
from tests.support.qos.worlds import action, pod_qos, policy, rule

EVICT = policies(policy(rule("cpu_total_usage", 6000, "evict")))
QUICK = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50}})
FAST = policies(QUICK, policy(rule("cpu_total_usage", 6000, "quick")))


def _busy(asked: object, machine: Machine | None = None) -> Scene:
    """Give 9 cores of usage on 16, by three pods; the waterline is at 6."""
    made = Scene(machine or Machine())
    made.around.asked = asked  # type: ignore[assignment]
    made.add(told("a", limit=5), 4)
    made.add(told("b"), 3)
    made.add(told("c", qos_class="Guaranteed", request=2, limit=2), 2)
    return made


def test_what_an_evicted_pod_used_before_it_ended_sends_nobody_else_away() -> None:
    """It ends within an interval, whose usage still has it: 5 cores of others, and its own 4."""
    scene = _busy(EVICT)
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30)]
    scene.machine.end("a00000000")  # ten seconds after the second round
    scene.around.all_pods.pop(0)
    (done,) = scene.rounds(1)
    assert (done.decision.reason.code, scene.around.evictions) == ("BelowWaterlines", [("a", 30)])
    # From the next interval on the usage is of those who are there.
    scene.machine.wanted["b00000000"] = 8
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30), ("b", 30)]


def test_the_container_that_is_left_of_a_terminating_pod_counts_as_released() -> None:
    """Its neighbour has ended, and nobody has told yet: the pod as a whole is unknown, its rest is not."""
    scene = Scene()
    scene.around.asked = EVICT
    pair = (NodeContainer("c", "x00000000"), NodeContainer("d", "y00000000"))
    pod = scene.add(told("a", containers=pair), 2)
    scene.add(told("b"), 3)
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30)]
    scene.around.all_pods[0] = msgspec.structs.replace(pod, deletion_at=scene.around.clock_at + 60)
    scene.machine.end("x00000000")
    scene.machine.wanted["b00000000"] = 5
    later = scene.rounds(4)
    assert [done.outcomes for done in later] == [[]] * 4
    assert scene.around.evictions == [("a", 30)]


def test_rounds_are_counted_anew_after_a_restart() -> None:
    """A count of long ago and one breach of now are not three in a row."""
    asked = policies(policy(rule("cpu_total_usage", 6000, "evict", avoidanceThreshold=3)))
    scene = _busy(asked)
    scene.rounds(4)
    assert scene.around.evictions == [("a", 30)]
    scene.machine.end("a00000000")
    scene.around.all_pods.pop(0)
    scene.rounds(20)
    scene.restart()
    scene.machine.wanted["b00000000"] = 9
    codes = [done.decision.reason.code for done in scene.rounds(3)]
    assert codes == ["BelowWaterlines", "HeldByThreshold", "HeldByThreshold"]
    assert scene.around.evictions == [("a", 30)]


def test_a_refused_eviction_does_not_lift_a_throttle() -> None:
    """The pod stays throttled until the waterlines are clear and the cool-down is over."""
    slow = action("slow", coolDownSeconds=3600, throttle={"cpuThrottle": {"stepCPURatio": 50}})
    both = policy(rule("cpu_total_usage", 6000, "slow"), rule("memory_total_usage", 100, "evict"))
    scene = _busy(policies(slow, both))
    scene.rounds(2)
    throttled = dict(scene.machine.quotas)
    assert throttled["a00000000"] == 250000
    scene.around.answers = dict.fromkeys("abc", EvictionResult.BLOCKED)
    scene.machine.memory["a00000000"] = 200
    scene.rounds(1)
    assert ("a", 30) in scene.around.evictions
    scene.machine.memory["a00000000"] = 0
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(3)
    assert scene.machine.quotas == throttled


def test_what_was_meant_twice_and_never_written_stays_ours() -> None:
    """An agent that dies twice between the disk and the cgroup: the quota that is there is still its own."""
    pod, ids = told("a"), {"c": "a00000000"}
    there = {"a00000000": Counters(0, 0.0, quota_us=100_000)}
    state = AgentState().with_intended(pod, ids, {"c": 100_000})
    for never_written in (80_000, 80_000, 60_000):
        state = state.with_settled(there).with_intended(pod, ids, {"c": never_written})
        assert state.not_throttled(there, {}) == set()
    assert state.not_throttled({"a00000000": Counters(0, 0.0, quota_us=90_000)}, {}) == {"a00000000"}


def test_what_has_all_again_is_not_ours_any_more_by_its_own_period() -> None:
    """A limit of two cores is 20000 in a period of 10 ms; a lesser quota is still a throttle."""
    pod, ids = told("a"), {"c": "a00000000"}
    for quota, is_over in ((20_000, True), (19_999, False), (-1, True)):
        state = AgentState().with_intended(pod, ids, {"c": quota})
        counters = {"a00000000": Counters(0, 0.0, quota_us=quota, period_us=10_000)}
        assert bool(state.not_throttled(counters, {"a00000000": 2 * 10**9})) is is_over


def test_a_container_that_nobody_tells_of_for_a_while_stays_ours() -> None:
    """A kubelet that restarts says for a moment that nothing runs; and nothing is guessed meanwhile."""
    scene = _busy(FAST)
    scene.rounds(2)
    pod = scene.around.all_pods[0]
    scene.around.all_pods[0] = msgspec.structs.replace(pod, containers=())
    scene.rounds(1)
    assert "a00000000" in scene.disk.content.throttled
    unknown = [one for one in scene.loop.restore_all() if one.result == "Unknown"]
    assert [(one.action.pod, one.detail) for one in unknown] == [
        ("d/a", "the CPU limit of container c is unknown: its pod was not found")
    ]
    assert scene.machine.quotas["a00000000"] == 250000  # not unlimited: its limit is not known to be none
    scene.around.all_pods[0] = pod
    scene.machine.wanted = dict.fromkeys(scene.machine.wanted, 0.1)
    scene.rounds(30)
    assert scene.machine.quotas["a00000000"] == 500000


class Stubborn(Machine):
    """One container's quota can't be written."""

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        if container.id == "a00000000":
            raise WorldFailed("cpu.cfs_quota_us: Input/output error")
        return super().set_quota(container, quota_us)


def test_a_throttle_that_failed_releases_nothing_and_one_that_worked_counts() -> None:
    """The next pod is throttled in the same round, and nobody beyond the gap."""
    asked = policies(QUICK, policy(rule("cpu_total_usage", 7600, "quick")))
    scene = _busy(asked, Stubborn())
    scene.add(told("e"), 1)
    _, done = scene.rounds(2)
    assert [(one.action.pod, one.result) for one in done.outcomes] == [
        ("d/a", "Failed"),
        ("d/b", "Done"),
        ("d/e", "Done"),
    ]
    assert scene.machine.quotas["c00000000"] == 200000


class Loaded(Machine):
    """A machine whose load average stays high for long."""

    def read_node(self) -> NodeCounters:
        seen = super().read_node()
        return NodeCounters(
            seen.cpu_nanos, seen.read_at, seen.cpus, seen.memory_total_bytes, seen.memory_used_bytes,
            {"cpu_load_1_min": "30", "cpu_pressure": "50"},
        )  # fmt: skip


@pytest.mark.parametrize(("metric", "seconds"), [("cpu_load_1_min", 60), ("cpu_pressure", 10)])
def test_a_mean_that_reaches_back_before_a_throttle_is_not_judged(metric: str, seconds: int) -> None:
    """Load and pressure are means of the kernel's own span: the next step waits until that has passed."""
    scene = _busy(policies(QUICK, policy(rule(metric, 20, "quick"))), Loaded())
    scene.rounds(1, seconds=2)  # one look says nothing about the CPU of pods
    scene.rounds(1, seconds=2)
    before = dict(scene.machine.quotas)
    assert before["a00000000"] == 250000
    scene.restart()  # nor by a successor
    waited = 2
    while scene.machine.quotas == before:
        (done,) = scene.rounds(1, seconds=2)
        waited += 2
        assert waited < 200, done.decision.reason.sentence
    assert seconds <= waited <= seconds + 4


@pytest.mark.parametrize("ahead_seconds", [600, -600], ids=["ahead", "behind"])
def test_a_grace_period_is_counted_on_our_own_clock(ahead_seconds: int) -> None:
    """The server's may be minutes away: nobody else goes before the pod's time, and its time does end."""
    scene = _busy(EVICT)
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30)]
    of_server = scene.around.clock_at - ahead_seconds
    scene.around.all_pods[0] = msgspec.structs.replace(
        scene.around.all_pods[0], deletion_at=of_server + 60, grace_seconds=60
    )
    scene.rounds(6)
    scene.around.clock_at += ahead_seconds  # nor does a jump matter
    scene.rounds(3)
    assert scene.around.evictions == [("a", 30)]
    scene.rounds(2)  # 60 s of grace and 30 s more have passed
    assert scene.around.evictions == [("a", 30), ("b", 30)]


def test_an_eviction_without_an_answer_is_not_waited_for_by_a_clock_that_was_set_back() -> None:
    """Thirty seconds are thirty seconds, and not the hour until that clock shows the same time again."""
    scene = _busy(EVICT)
    scene.around.answers["a"] = None
    scene.rounds(2)
    scene.around.clock_at -= 3600
    scene.rounds(3)
    assert scene.around.evictions == [("a", 30)]
    scene.rounds(2)
    assert scene.around.evictions == [("a", 30)] * 2


def test_a_pod_qos_that_nobody_understands_allows_nobody() -> None:
    """Leaving it out would allow everybody."""
    broken = pod_qos(allowedActions=["evict"])  # without a selector
    written = (EVICTION, broken, policy(rule("cpu_total_usage", 6000, "evict")))
    refs = [ObjectRef(one["apiVersion"], one["kind"], "", one["metadata"]["name"]) for one in written]
    asked, problems = read_objects(
        PolicyObject(ref, 1, "1", one["spec"], {}) for ref, one in zip(refs, written, strict=True)
    )
    assert len(problems) == 1
    scene = _busy(asked)
    assert [done.decision.reason.code for done in scene.rounds(2)] == ["BelowWaterlines", "NoEligiblePods"]
    assert scene.around.evictions == []


def test_two_agents_do_not_keep_one_file(tmp_path: Path) -> None:
    """The second says so at once, and nothing is changed."""
    first, second = (StateFile(tmp_path / "state.json", "boot") for _ in range(2))
    first.hold()
    with pytest.raises(WorldFailed, match="another agent of this node is running"):
        second.hold()


def test_rounds_are_kept_and_decide_to_the_same_again(tmp_path: Path) -> None:
    """What was done, held by a pause or only previewed; the same round after round is one record."""
    file = str(tmp_path / "journal.db")
    diary = AgentJournal(file)
    for is_enforced, paused in ((True, None), (True, "me"), (False, None)):
        scene = _busy(FAST)
        scene.is_enforced, scene.around.paused = is_enforced, paused
        scene.restart()
        for done in scene.rounds(4):
            diary.append(done)
    diary.close()
    with closing(open_reader(file)) as reader:
        records = list(reader.records(Query(), is_whole=True))
    answer = replay(records)
    assert (answer.different, answer.without_inputs) == ([], 0)
    codes = {one.decision.reason.code.value for one in records}
    assert codes == {"BelowWaterlines", "Throttle", "HeldByPause"}
    assert answer.same == len(records) < 12
