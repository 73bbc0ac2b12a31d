"""Advice becomes an HPA in the simulator: what is in the way holds it, and says so."""

from typing import Any

import pytest

from equipoise.core.decision import ApplyHpa, Decided, Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.ports import ApplyAnswer, ApplyResult
from equipoise.recommendation.adopt import Adopted, HpaAdopter, by_subject, proposed
from equipoise.recommendation.explain import AdviceDetails, RecommendedHpa
from equipoise.sim import World
from equipoise.sim.faults import FaultKind
from equipoise.sim.load import Constant

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
}


HELMS = "HorizontalPodAutoscaler shop/web belongs to Helm"


def advice(subject: str = "shop/web", replicas_max: int = 6) -> Decided[AdviceDetails]:
    """Give a recommendation."""
    details = AdviceDetails("Deployment", hpa=RecommendedHpa(2, replicas_max, 60, [CPU], None))
    reason = Reason(Code.RECOMMEND, f"2 to {replicas_max} replicas.", {"replicas": 3})
    return Decided(Decision(subject, reason, extra=details.document), details)


@pytest.fixture
def world() -> World:
    """A cluster with web, which is busy, and nobody who scales it."""
    made = World(7)
    made.add_node("node-1")
    made.add_workload("shop", "web", replicas=3, shape=Constant(3.0))
    made.advance(60)
    return made


def adopting(world: World, **options: Any) -> HpaAdopter:
    return HpaAdopter(world.applier, world.pauses, by_subject(world.cluster.workloads()), **options)


def test_an_adopted_hpa_scales_the_workload_from_then_on(world: World) -> None:
    """It is told once; the same advice again changes nothing, another one does."""
    told: list[tuple[str, str]] = []
    adopter = adopting(
        world, on_applied=lambda workload, _, outcome: told.append((workload.uid, outcome.result))
    )
    (web,) = world.state.workloads.values()
    results = []
    for replicas_max in (6, 6, 5):
        done = adopter.adopt(*advice(replicas_max=replicas_max))
        assert done.outcome is not None
        assert done.decision.actions == (done.outcome.action,)
        results.append(done.outcome.result)
    assert results == ["Created", "Unchanged", "Changed"]
    assert told == [(web.uid, "Created"), (web.uid, "Changed")]
    world.advance(900)
    assert web.replicas == 5, "3 cores at 60 % of half a core ask for more than the maximum"


def test_a_dry_run_asks_the_same_and_changes_nothing(world: World) -> None:
    """Nobody is told of what did not happen."""
    done = adopting(world, is_dry_run=True, on_applied=lambda *_: pytest.fail("it told")).adopt(*advice())
    assert done.outcome is not None
    assert done.outcome.result == "Created"
    assert world.cluster.hpas() == []


def test_a_refusal_has_no_action(world: World) -> None:
    """There is nothing to adopt, and nobody is asked about pauses."""
    world.faults.add(FaultKind.API_UNAVAILABLE, seconds=60, starts_at=world.now)
    refused = Decision("shop/web", Reason(Code.LOW_USAGE, "Too little."))
    adopter = HpaAdopter(world.applier, world.pauses, {})
    assert adopter.adopt(refused, AdviceDetails("Deployment")) == Adopted(refused)


def test_an_action_has_the_whole_hpa() -> None:
    """So that a record of it can be read, and applied, without anything else."""
    (action,) = proposed(*advice()).actions
    assert isinstance(action, ApplyHpa)
    assert (action.namespace, action.workload) == ("shop", "web")
    assert action.manifest["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 6,
        "metrics": [CPU],
    }
    requests = AdviceDetails("Deployment", containers=[])
    decision = advice().decision
    assert proposed(decision, requests) == decision, "requests are no HPA"


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ((("equipoise.dev/recommend", "false"),), "equipoise.dev/recommend=false"),
        ((("equipoise.dev/do-not-disrupt", "true"),), "equipoise.dev/do-not-disrupt=true"),
        ((("equipoise.dev/do-not-disrupt", "true"), ("equipoise.dev/recommend", " True ")), ""),
        ((("equipoise.dev/rotate", "false"),), ""),
        ((("equipoise.dev/do-not-disrupt", "false"),), ""),
    ],
)
def test_a_workload_can_opt_out(world: World, annotations: tuple[tuple[str, str], ...], words: str) -> None:
    """By its own annotation, or by the one that asks to be left alone; what is about evictions is not."""
    world.add_workload("shop", "api", replicas=1, annotations=annotations)
    done = adopting(world).adopt(*advice("shop/api")).decision
    if words:
        assert done.reason.code is Code.OPTED_OUT
        assert words in done.reason.sentence
        assert ([held.reason for held in done.held], done.actions) == ([Code.OPTED_OUT], ())
    else:
        assert (done.reason.code, len(done.actions)) == (Code.RECOMMEND, 1)


def test_a_pause_holds_and_so_does_not_knowing(world: World) -> None:
    """Stop means stop; the pause is asked about right before each workload."""
    adopter = adopting(world)
    world.pauses.pause("shop", "a freeze")
    held = adopter.adopt(*advice())
    assert (held.decision.reason.code, held.outcome) == (Code.HELD_BY_PAUSE, None)
    assert "a freeze" in held.decision.reason.sentence
    world.pauses.resume("shop")
    assert adopter.adopt(*advice()).decision.reason.code is Code.RECOMMEND
    world.faults.add(FaultKind.API_UNAVAILABLE, seconds=60, starts_at=world.now)
    unknown = adopter.adopt(*advice()).decision
    assert unknown.reason.code is Code.HELD_BY_PAUSE
    assert "unknown" in unknown.reason.sentence


def test_a_protected_namespace_and_a_workload_that_is_gone_are_held(world: World) -> None:
    """Nobody means coredns by -A."""
    protected = adopting(world, namespaces_protected=("shop",)).adopt(*advice()).decision
    assert protected.reason.sentence == "Namespace shop is left alone unless -n names it."
    gone = adopting(world).adopt(*advice("shop/gone")).decision
    assert (gone.reason.code, gone.actions) == (Code.OPTED_OUT, ())
    assert world.cluster.hpas() == []


class Answering:
    """An applier with one answer, or none."""

    def __init__(self, answer: ApplyAnswer | WorldFailed) -> None:
        self._answer = answer

    def apply_hpa(self, manifest: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        del manifest, is_dry_run
        if isinstance(self._answer, WorldFailed):
            raise self._answer
        return self._answer

    def annotate(self, workload: Any, annotations: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        raise AssertionError("nothing is annotated here")


@pytest.mark.parametrize(
    ("answer", "code", "result", "sentence"),
    [
        (
            ApplyAnswer(ApplyResult.NOT_OURS, HELMS, "Helm"),
            Code.NOT_OURS,
            "NotOurs",
            f"{HELMS}: it is left alone. Change it there, or delete it first.",
        ),
        (
            ApplyAnswer(ApplyResult.FORBIDDEN, "you may not."),
            Code.NOT_APPLIED,
            "Forbidden",
            "The HPA was not applied (Forbidden): you may not.",
        ),
        (
            ApplyAnswer(ApplyResult.REFUSED, "a webhook says no"),
            Code.NOT_APPLIED,
            "Refused",
            "The HPA was not applied (Refused): a webhook says no.",
        ),
        (
            ApplyAnswer(ApplyResult.GONE, "no such namespace"),
            Code.NOT_APPLIED,
            "Gone",
            "The HPA was not applied (Gone): no such namespace.",
        ),
        (
            WorldFailed("no answer"),
            Code.NOT_APPLIED,
            "Unknown",
            "Whether the HPA was applied is unknown: no answer.",
        ),
    ],
    ids=lambda part: getattr(part, "result", None) or str(part)[:20],
)
def test_what_did_not_go_is_held_with_what_was_in_the_way(
    world: World, answer: Any, code: Code, result: str, sentence: str
) -> None:
    """The actions of what was done are those that were carried out."""
    adopter = HpaAdopter(Answering(answer), world.pauses, by_subject(world.cluster.workloads()))
    done = adopter.adopt(*advice())
    assert (done.decision.reason.code, done.decision.reason.sentence) == (code, sentence)
    assert (done.decision.actions, [held.reason for held in done.decision.held]) == ((), [code])
    assert isinstance(done.outcome, Outcome)
    assert done.outcome.result == result
    assert (done.has_failed, done.is_not_ours) == (code is Code.NOT_APPLIED, code is Code.NOT_OURS)
    assert done.decision.reason.numbers == {"replicas": 3}, "what was decided from stays"


class Slow(Answering):
    """An applier for which it takes long to look, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__(ApplyAnswer(ApplyResult.LATE, "nothing was sent"))
        self.left, self.tries = times, 0

    def apply_hpa(self, manifest: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        self.tries += 1
        self.left -= 1
        late = super().apply_hpa(manifest, is_dry_run=is_dry_run)
        return late if self.left >= 0 else ApplyAnswer(ApplyResult.CREATED)


@pytest.mark.parametrize(
    ("times", "code", "tries"), [(0, Code.RECOMMEND, 1), (1, Code.RECOMMEND, 2), (9, Code.NOT_APPLIED, 2)]
)
def test_after_a_long_look_it_is_tried_once_more(world: World, times: int, code: Code, tries: int) -> None:
    """Before each try it is asked whether anything may be done at all."""
    slow, asked = Slow(times), list[int]()
    adopter = HpaAdopter(
        slow, world.pauses, by_subject(world.cluster.workloads()), check_leadership=lambda: asked.append(1)
    )
    done = adopter.adopt(*advice())
    assert (done.decision.reason.code, slow.tries, len(asked)) == (code, tries, tries)
    if code is Code.NOT_APPLIED:
        assert done.decision.reason.sentence == "The HPA was not applied (Late): nothing was sent."


def test_whoever_says_stop_during_a_long_look_is_heard(world: World) -> None:
    """The second try asks for pauses anew."""
    slow = Slow(1)
    adopter = HpaAdopter(slow, world.pauses, by_subject(world.cluster.workloads()))
    adopter.check_leadership = lambda: world.pauses.pause("shop", "a person")
    assert adopter.adopt(*advice()).decision.reason.code is Code.HELD_BY_PAUSE
    assert slow.tries == 1


def test_a_silent_server_is_not_asked_for_ever(world: World) -> None:
    """After three times without an answer the rest is not tried, and says so; an answer ends the count."""
    adopter = HpaAdopter(
        Answering(WorldFailed("nobody there")), world.pauses, by_subject(world.cluster.workloads())
    )
    tried = [adopter.adopt(*advice()) for _ in range(5)]
    assert [done.outcome is None for done in tried] == [False, False, False, True, True]
    assert all(done.has_failed for done in tried)
    assert "not tried: the API server gave no answer 3 times" in tried[-1].decision.reason.sentence
    adopter.unanswered = 2
    adopter.applier = world.applier
    assert adopter.adopt(*advice()).decision.reason.code is Code.RECOMMEND
    assert adopter.unanswered == 0
    world.faults.add(FaultKind.API_UNAVAILABLE, seconds=60, starts_at=world.now)
    codes = [adopter.adopt(*advice()).decision.reason.code for _ in range(4)]
    assert codes == [Code.HELD_BY_PAUSE] * 3 + [Code.NOT_APPLIED]
