"""Evictions that are refused: others go meanwhile, no more than close the gap, and the asking gets rarer."""

from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.ports import EvictionResult
from equipoise.qos.execute import deviation
from equipoise.qos.loop import REFUSALS_MAX
from equipoise.qos.state import BACKOFF_MAX_SECONDS, AgentState, EvictionRefusal
from equipoise.runtime.agent.reporting import EventReporter
from tests.support.agent.api import Api, agent_of
from tests.support.agent.machines import Scene, policies, told
from tests.support.qos.worlds import policy, rule

EVICT = policies(policy(rule("cpu_total_usage", 6000, "evict")))
BLOCKED = EvictionResult.BLOCKED


def _scene(*cores: float) -> Scene:
    """Give pods a, b, c, … that use so much; a round may evict them all."""
    made = Scene()
    made.around.asked = EVICT.model_copy(update={"evictions_per_round": 100})
    for number, wanted in enumerate(cores):
        made.add(told(f"{number:02}"), wanted)
    return made


def _asked_at(scene: Scene, name: str, rounds: int) -> list[float]:
    """Do rounds, and tell after how many seconds the pod was asked for."""
    start, found = scene.around.clock_at, []
    for _ in range(rounds):
        before = len(scene.around.evictions)
        at = scene.around.clock_at
        scene.rounds(1)
        found += [at - start for one, _ in scene.around.evictions[before:] if one == name]
    return found


def test_a_budget_that_blocks_is_asked_ever_more_seldom() -> None:
    """Twice as long each time, at most ten minutes; a restart goes on from there."""
    scene = _scene(8)
    scene.around.answers["00"] = BLOCKED
    scene.rounds(1)
    assert _asked_at(scene, "00", 60) == [0, 30, 90, 210, 450]
    scene.restart()
    scene.rounds(1)  # one look says nothing about CPU
    assert _asked_at(scene, "00", 200) == [320, 920, 1520]


def test_what_blocks_is_said_in_the_decision() -> None:
    """Who stays, how often it was refused, when it is asked for again, and why."""
    scene = _scene(8)
    scene.around.answers["00"] = BLOCKED
    *_, done = scene.rounds(6)
    assert done.decision.reason.code == "NoEligiblePods"
    assert done.decision.reason.sentence.endswith(
        "d/00 is not evicted: its eviction was refused 2 times in a row and will be tried again at "
        "08:01:40Z. The answer was: said so."
    )
    assert done.decision.reason.numbers["refused"] == 1


def test_what_came_of_a_plan_that_was_refused_is_told(tmp_path: Path) -> None:
    """The plan names the pod that stayed; the events of the node and of the pod that went say so."""
    scene = _scene(5, 4)
    scene.around.answers["00"] = BLOCKED
    *_, done = scene.rounds(2)
    assert "Evicting d/00 releases" in done.decision.reason.sentence
    api = Api()
    with agent_of(api, tmp_path) as agent:
        EventReporter(agent.log, agent.actuator, agent.node_api).report(done)
    assert len(api.events) == 3
    for event in api.events:
        assert event["message"].endswith(" Results: d/00 Blocked, d/01 Accepted.")
    smooth = _scene(5, 4).rounds(2)[-1]
    assert deviation(smooth.decision, smooth.outcomes) == ""


def test_refusals_are_forgotten_with_their_pod_and_after_a_while() -> None:
    """And where the clock was set back: no wait is longer than the longest."""
    state = AgentState(refused={"u": EvictionRefusal(9, 0.0, "")}).with_refusal("u", 1000.0, "no")
    assert state.refused["u"].until == 1000 + BACKOFF_MAX_SECONDS
    assert state.with_recent_refusals({"u"}, 1000.0) == state
    assert state.with_recent_refusals({"u"}, 1000 + 2 * BACKOFF_MAX_SECONDS - 1) == state
    for pods, at in (({"u"}, 1000 + 2 * BACKOFF_MAX_SECONDS), (set[str](), 1000.0), ({"u"}, 999.0)):
        assert state.with_recent_refusals(pods, at).refused == {}


def test_a_round_gives_up_after_many_refusals_and_the_next_goes_on() -> None:
    """So that a node full of blocked pods does not beset the API server."""
    scene = _scene(*[1.0] * 30)
    scene.around.answers = {f"{number:02}": BLOCKED for number in range(25)}
    scene.rounds(1)
    for asked in (REFUSALS_MAX, 2 * REFUSALS_MAX):
        scene.rounds(1)
        assert len(scene.around.evictions) == asked
    scene.rounds(1)
    went = [name for name, _ in scene.around.evictions if name not in scene.around.answers]
    assert went == ["25", "26", "27", "28", "29"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=9))
def test_whoever_can_go_goes_in_order_until_the_gap_is_closed(pods: list[tuple[int, bool]]) -> None:
    """The shortest prefix of those that are not blocked, however many are; and nobody in later rounds."""
    ordered = sorted(pods, key=lambda one: -one[0])
    scene = _scene(*(tenths / 10 for tenths, _ in ordered))
    scene.around.answers = {f"{n:02}": BLOCKED for n, (_, blocked) in enumerate(ordered) if blocked}
    gap = sum(tenths for tenths, _ in ordered) - 60
    expected = []
    for number, (tenths, blocked) in enumerate(ordered):
        if gap > 0 and not blocked:
            expected.append(f"{number:02}")
            gap -= tenths
    scene.rounds(2)
    went = [name for name, _ in scene.around.evictions if name not in scene.around.answers]
    assert went == expected
    for place, pod in enumerate(scene.around.all_pods):
        if pod.name in went:  # they terminate for long
            leaving = msgspec.structs.replace(pod, deletion_at=scene.around.clock_at + 300)
            scene.around.all_pods[place] = leaving
    scene.rounds(6)
    assert [name for name, _ in scene.around.evictions if name not in scene.around.answers] == expected
