"""The production loop in the simulator: guards, the ledger, what is written and what is not."""

from itertools import pairwise
from typing import Any

import pytest

from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code
from equipoise.ports import CpuUsage
from equipoise.rotation.balancer import redecide
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.policy import RotationPolicyStatus
from tests.support.rotation.tenants import ENFORCE, Diary, Lease, Pauses, Policies, loop_in, reconnect
from tests.support.sim.scenes import SixPods, six_pods


def _evicted(scene: SixPods) -> list[str]:
    """The letters of the pods that have gone, in any order."""
    alive = {pod.name for pod in scene.world.cluster.pods("shop") if pod.deletion_at is None}
    return sorted(letter for name, letter in scene.letters.items() if name not in alive)


def _ledger(scene: SixPods) -> Ledger:
    return Ledger.from_data(scene.world.store.read(scene.workload.ref).data)


def test_a_preview_decides_and_touches_nothing() -> None:
    """What would be done is in the status; no pod, no ledger entry."""
    scene = six_pods(1)
    policies = Policies(ENFORCE | {"mode": "Preview"})
    report = loop_in(scene.world, policies).cycle(scene.world.now)
    (decision,) = report.decisions
    assert [scene.letters[action.pod] for action in decision.actions] == ["A"]
    assert [scene.letters[held.action.pod] for held in decision.held] == ["B", "F", "E"]
    assert decision.reason.code is Code.ROTATE
    assert report.outcomes == []
    assert _evicted(scene) == []
    assert _ledger(scene) == Ledger()
    assert policies.status()["lastDecision"]["reason"] == "Rotate"


def test_one_pod_goes_and_the_rest_wait() -> None:
    """At most one away: the hottest goes, its intent is settled, and the cooldown begins."""
    scene, policies, diary = six_pods(1), Policies(ENFORCE), Diary()
    loop = loop_in(scene.world, policies, journal=diary)
    report = loop.cycle(scene.world.now)
    assert [outcome.result for outcome in report.outcomes] == ["Accepted"]
    assert _evicted(scene) == ["A"]
    (entry,) = _ledger(scene).entries
    assert entry.state is EntryState.DONE
    scene.world.advance(60)
    (decision,) = loop.cycle(scene.world.now).decisions
    assert decision.actions == ()
    assert _evicted(scene) == ["A"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"windows": [{"schedule": "0 0 1 1 *", "duration": "1h"}]}, Code.HELD_BY_WINDOW),
        ({"maxUnavailable": 4}, Code.ROTATE),
    ],
    ids=["window", "more at once"],
)
def test_a_policy_sets_the_guards(changes: dict[str, Any], code: Code) -> None:
    """A closed window holds all; a larger wave still waits for the PDB."""
    scene = six_pods(1)
    (decision,) = loop_in(scene.world, Policies(ENFORCE | changes)).cycle(scene.world.now).decisions
    assert decision.reason.code is code
    assert len(_evicted(scene)) == (0 if code is Code.HELD_BY_WINDOW else 1)
    if code is Code.ROTATE:
        assert {held.reason for held in decision.held} == {Code.PDB_BLOCKED}


def test_a_pause_stops_everything_at_once() -> None:
    """Said between two cycles, it holds in the next."""
    scene, pauses = six_pods(1), Pauses()
    loop = loop_in(scene.world, Policies(ENFORCE), pauses=pauses)
    pauses.who = "namespace shop is paused (alice: incident)"
    (decision,) = loop.cycle(scene.world.now).decisions
    assert decision.reason.code is Code.HELD_BY_PAUSE
    assert "alice: incident" in decision.reason.sentence
    assert _evicted(scene) == []


def test_whoever_does_not_lead_does_nothing() -> None:
    """No decision, no status, no question to the metrics."""
    scene, policies = six_pods(1), Policies(ENFORCE)
    report = loop_in(scene.world, policies, leadership=Lease(None)).cycle(scene.world.now)
    assert (report.decisions, policies.writes) == ((), 0)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("step", "gone"), [("intent", []), ("deed", ["A"]), ("outcome", ["A"])])
def test_a_successor_does_nothing_twice_wherever_the_leader_dies(step: str, gone: list[str]) -> None:
    """Killed after the intent, after the action, before the record: cooldown and budget are kept."""
    scene = six_pods(1)

    def die(passed: str) -> None:
        if passed == step:
            raise Killed

    with pytest.raises(Killed):
        loop_in(scene.world, Policies(ENFORCE), on_step=die).cycle(scene.world.now)
    assert _evicted(scene) == gone
    successor = loop_in(scene.world, Policies(ENFORCE), leadership=Lease(2))
    for _ in range(4):
        (decision,) = successor.cycle(scene.world.now).decisions
        assert decision.actions == ()
        scene.world.advance(30)
    assert _evicted(scene) == gone
    assert _ledger(scene).rounds_since(0, "rotation") == 1


def test_an_intent_that_never_happened_is_given_back() -> None:
    """The leader died before the deed: two minutes later the pod still runs, so the budget is whole again."""
    scene = six_pods(1)

    def die(passed: str) -> None:
        raise Killed(passed)

    with pytest.raises(Killed):
        loop_in(scene.world, Policies(ENFORCE), on_step=die).cycle(scene.world.now)
    scene.world.advance(150)
    successor = loop_in(scene.world, Policies(ENFORCE), leadership=Lease(2))
    assert [outcome.result for outcome in successor.cycle(scene.world.now).outcomes] == ["Accepted"]


def test_an_old_leader_that_wakes_up_does_nothing() -> None:
    """The lease was lost between guard and action, and somebody else has acted since."""
    scene, old = six_pods(1), Lease(1)

    def take_over(passed: str) -> None:
        if passed == "intent" and old.held is not None:
            old.held = None

    report = loop_in(scene.world, Policies(ENFORCE), leadership=old, on_step=take_over).cycle(scene.world.now)
    assert [outcome.result for outcome in report.outcomes] == ["Fenced"]
    assert _evicted(scene) == []


def test_an_hour_has_as_many_rotations_as_asked_and_each_rests_as_long_as_asked() -> None:
    """Over two hours of futile rotation: ten minutes of rest, two in an hour."""
    scene = six_pods(3)
    changes = {"cooldown": "10m", "rotationsPerHour": 2, "topK": 1, "minimumImprovementPercent": 5}
    loop = loop_in(scene.world, Policies(ENFORCE | changes))
    for _ in range(240):
        loop.cycle(scene.world.now)
        scene.world.advance(30)
    rounds: dict[str, list[float]] = {}
    for entry in _ledger(scene).entries:
        rounds.setdefault(entry.round, []).append(entry.at)
    assert len(rounds) >= 3
    assert all(later[0] - earlier[-1] >= 600 for earlier, later in pairwise(rounds.values()))
    begins = [times[0] for times in rounds.values()]
    assert all(sum(at - 3600 < other <= at for other in begins) <= 2 for at in begins)


def test_the_status_is_quiet_at_rest() -> None:
    """A hundred cycles of the same reason are one write."""
    scene, policies = six_pods(1), Policies(ENFORCE | {"mode": "Preview"})
    loop = loop_in(scene.world, policies)
    for _ in range(100):
        loop.cycle(scene.world.now)
        scene.world.advance(30)
    assert policies.writes == 1
    RotationPolicyStatus.model_validate(policies.status())


def test_bad_and_conflicting_policies_say_so_and_change_nothing() -> None:
    """The first by name has the workload; a bad spec names its field."""
    scene = six_pods(1)
    policies = Policies(
        ENFORCE | {"mode": "Preview"},
        {"selector": {}},
        {"targetRef": {"kind": "Deployment", "name": "web"}, "topK": 0},
    )
    report = loop_in(scene.world, policies).cycle(scene.world.now)
    assert len(report.decisions) == 1
    conditions = [policies.status(number)["conditions"][0] for number in range(3)]
    assert [condition["reason"] for condition in conditions] == ["Accepted", "Conflict", "InvalidSpec"]
    assert conditions[2]["message"].startswith("spec.topK: expected")
    assert conditions[1]["status"] == "False"


def test_a_policy_acts_in_its_own_namespace_only() -> None:
    """The same name elsewhere is somebody else's."""
    scene = six_pods(1)
    policies = Policies(ENFORCE, namespace="other")
    assert loop_in(scene.world, policies).cycle(scene.world.now).decisions == []
    assert policies.status()["workloads"] == 0
    (condition,) = policies.status()["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoWorkload")
    assert condition["message"].startswith("spec.targetRef: expected a workload")


def test_a_kind_of_another_group_is_another_kind() -> None:
    """A Deployment of somebody's own API is not the one of apps."""
    scene = six_pods(1)
    target = {"apiVersion": "example.com/v1", "kind": "Deployment", "name": "web"}
    policies = Policies({"targetRef": target})
    assert loop_in(scene.world, policies).cycle(scene.world.now).decisions == []


def test_every_record_of_a_cycle_decides_the_same_again() -> None:
    """Rotated, held in part, held whole: replay gives the same decision."""
    scene, diary, pauses = six_pods(1), Diary(), Pauses()
    loop: RotationLoop = loop_in(scene.world, Policies(ENFORCE), journal=diary, pauses=pauses)
    for who in (None, "bob", None, None):
        pauses.who = who
        loop.cycle(scene.world.now)
        scene.world.advance(200)
    assert len(diary.records) == 4
    for kept in diary.records:
        assert redecide(Record.from_json(kept.to_json())) == kept.decision


class Silent:
    """A source of metrics that does not answer."""

    def cpu_usage(self, *_: object) -> CpuUsage:
        raise WorldFailed("no answer")

    def scalar(self, *_: object) -> float | None:
        raise WorldFailed("no answer")


def test_a_silent_source_of_metrics_means_unknown_and_is_said() -> None:
    """The cycle goes on, every decision says what is missing, and the workload is told when it changes."""
    scene, policies = six_pods(1), Policies(ENFORCE | {"mode": "Preview"})
    beats: list[int] = []
    loop = loop_in(scene.world, policies, heartbeat=lambda: beats.append(1))
    loop.cycle(scene.world.now)
    assert scene.world.actuator.events == []
    reconnect(loop, metrics=Silent())
    report = loop.cycle(scene.world.now)
    (decision,) = report.decisions
    assert decision.reason.code is Code.METRICS_INCOMPLETE
    assert decision.reason.numbers["pods_unknown"] == 6
    assert decision.reason.sentence == (
        "The source of the CPU usage returned incomplete data (no answer), so nothing is decided."
    )
    assert report.failure == "the CPU usage over 5m is unknown: no answer"
    assert policies.status()["lastDecision"]["reason"] == "MetricsIncomplete"
    assert [event.reason for event in scene.world.actuator.events] == ["MetricsIncomplete"]
    assert len(beats) >= 4


def test_a_pod_that_became_unready_since_the_look_stops_the_deed() -> None:
    """The caches are old: the last look asks the server itself, and the wave is full."""
    scene = six_pods(1)
    others = [pod for pod in scene.workload.pods.values() if scene.letters[pod.name] == "C"]

    def break_one(passed: str) -> None:
        if passed == "intent":
            scene.world.kubelet.crash(others[0])

    report = loop_in(scene.world, Policies(ENFORCE), on_step=break_one).cycle(scene.world.now)
    (outcome,) = report.outcomes
    assert outcome.result == "Outdated"
    assert "1 other pod of the workload became unavailable" in outcome.detail
    assert _evicted(scene) == []
