"""One Analytics is answered: a Recommendation for each workload, and what becomes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from equipoise.core.cluster import Workload, WorkloadRef
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.guards import held_by_pause
from equipoise.engine.isolation import Isolation, failed_decision, failed_record
from equipoise.engine.status import condition_of
from equipoise.ports import (
    Actuator,
    Applier,
    ApplyResult,
    FailedTurn,
    Journal,
    Leadership,
    Pauses,
    PolicyObject,
    StoreConflict,
)
from equipoise.ports.state import Analyses
from equipoise.recommendation.adopt import DONE, UNKNOWN, Adopted, Adopting, by_subject, proposed
from equipoise.recommendation.advisor import STEP_SECONDS, Advised, Lost
from equipoise.recommendation.analytics import GROUP, AdoptionType
from equipoise.recommendation.policy import AdviceType
from equipoise.recommendation.record import BALANCER, AdviceRequest, record, told_for
from equipoise.recommendation.selection import (
    ADOPTED,
    OLDER,
    READY,
    Precedence,
    Selected,
    Verdict,
    adoption_of,
    target_of,
)
from equipoise.recommendation.status import (
    advice_text,
    answered,
    mission,
    new_recommendation,
    next_recommendation,
    ready_of,
)

ANNOTATED = Verdict(True, "Annotated", "The workload carries the advice as an annotation")
PREVIEWED = Verdict(False, "Preview", "compat.mode is Preview: the HPA would be applied where it is Enforce.")
STATUS_ONLY = Verdict(
    False,
    "StatusOnly",
    "The advice is told here only: the operator has no right to annotate workloads of this namespace, which "
    "the chart gives with recommendation.annotate.",
)
ALONE = "AppliedOnly"
"""There is an HPA, and no annotation."""
CARRIED = frozenset({"Annotated", "Applied"})
"""Reasons that say that the workload has the annotation."""
EXPECTED = frozenset({PREVIEWED.reason, STATUS_ONLY.reason})
"""What a setting of the operator keeps from being done, which is no failure."""

DEEDS = frozenset({ApplyResult.CREATED.value, ApplyResult.CHANGED.value, UNKNOWN})
"""Outcomes after which something is different, or may be."""


@dataclass(slots=True)
class Publisher:
    """Writes the advice of one Analytics, for as long as we lead."""

    objects: Analyses
    applier: Applier
    actuator: Actuator
    pauses: Pauses
    leadership: Leadership
    journal: Journal
    new_id: Callable[[float], str]
    mode: Mode
    precedence: Precedence
    beat: Callable[[], object]
    epoch: int
    at: float
    isolation: Isolation
    decisions: list[Decision] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    made: list[PolicyObject] = field(default_factory=list)
    is_answered: bool = False
    """Whether all was given, and the Analytics says so."""
    failed: list[FailedTurn] = field(default_factory=list)
    """What an error kept from single workloads."""
    _applied: list[Outcome] = field(default_factory=list)
    """What comes of the HPA of the workload whose turn it is, as far as it is known."""

    def give(
        self, selected: Selected, given: Sequence[PolicyObject], advised: Sequence[Advised]
    ) -> list[str]:
        """Return all advice, then say that it was given; tell what went wrong, which is tried again."""
        about = selected.about
        by_target, spare = _by_target(given)
        workloads = {workload.ref: workload for workload in selected.workloads}
        missions = []
        unanswered = []
        try:
            for one in advised:
                before = by_target.pop(one.ref, None)
                told = self._attempt(selected, workloads[one.ref], before, one)
                if isinstance(told, FailedTurn):
                    self.failed.append(told)
                    unanswered += [] if told.is_bug else [told.error]
                    if before is not None:
                        missions.append(mission(before, one.ref, failed_decision(told), self.at))
                else:
                    missions.append(mission(told, one.ref, one.decision, self.at))
                if one.decision.reason.code is Code.INTERNAL_ERROR:
                    self.failed.append(FailedTurn(one.ref.subject, one.decision.reason.sentence))
            for left in (*spare, *by_target.values()):
                self._go_on()
                self.objects.delete(left)
            self._go_on()
            if not unanswered:
                self.objects.write_status(about, answered(about, missions, self.at))
                self.is_answered = True
        except (StoreConflict, Lost):
            return []  # whoever leads tries again
        except WorldFailed as error:
            unanswered.append(str(error))
        name = f"{about.ref.namespace}/{about.ref.name}"
        return [f"Analytics {name} was not answered in full: {error}" for error in unanswered]

    def _attempt(
        self, selected: Selected, workload: Workload, before: PolicyObject | None, one: Advised
    ) -> PolicyObject | FailedTurn:
        """Return the Recommendation of one workload; an error ends its turn, which keeps what was sent."""
        self._applied.clear()
        told = self.isolation.turn(
            one.ref.subject,
            lambda: self._one(selected, workload, before, one),
            (StoreConflict, Lost),
        )
        if isinstance(told, FailedTurn):
            done = tuple(self._applied)
            decision = told_for(failed_decision(told, done), selected.about.ref.name)
            decision = structs.replace(decision, extra=one.decision.extra)
            written = failed_record(BALANCER, decision, self.at, self.new_id(self.at), done)
            self.isolation.attempt(one.ref.subject, lambda: self.journal.append(written))
            self.decisions.append(decision)
            self.outcomes += done
        return told

    def _go_on(self) -> None:
        self.beat()
        if self.leadership.epoch() != self.epoch:
            raise Lost("this process leads no more")

    def _one(
        self, selected: Selected, workload: Workload, before: PolicyObject | None, one: Advised
    ) -> PolicyObject:
        """Make or bring up to date one Recommendation, adopt its advice, and write it all down."""
        self._go_on()
        spec = selected.spec
        recommendation = before or self._make(selected, workload)
        said = recommendation.spec.get("adoptionType")
        if spec.adoption is not None and said != spec.adoption.value:
            recommendation = self.objects.set_adoption(recommendation, spec.adoption.value)
        adoption = spec.adoption or adoption_of(recommendation)
        value = advice_text(one.decision, STEP_SECONDS)
        verdict, adopted = self._adopt(recommendation, workload, one, value, adoption)
        status = next_recommendation(recommendation, one.decision, value, verdict, self.at)
        if status is not None:
            self._go_on()
            self.objects.write_status(recommendation, status)
            if before is not None:
                self._tell_changes(before, workload, one.decision, verdict)
        self._note(selected, one, adopted)
        return recommendation

    def _note(self, selected: Selected, one: Advised, adopted: Adopted) -> None:
        """Keep what was decided and done; what was right already or left to its owner is no deed."""
        spec, done = selected.spec, _done(adopted)
        asker = selected.about.ref.name
        decision = told_for(adopted.decision, asker)
        question = AdviceRequest(spec.settings, AdviceType(spec.type), spec.algorithm)
        name = self.new_id(self.at)
        if one.facts is None:
            written = failed_record(BALANCER, decision, self.at, name, done)
        else:
            written = record(question, one.facts, decision, self.at, name, asker=asker, outcomes=done)
        self.journal.append(written)
        self.decisions.append(decision)
        self.outcomes += done

    def _make(self, selected: Selected, workload: Workload) -> PolicyObject:
        adoption = selected.spec.adoption or AdoptionType.STATUS_AND_ANNOTATION
        manifest = new_recommendation(
            selected.about, AdviceType(selected.spec.type), workload.ref, dict(workload.labels), adoption
        )
        made = self.objects.create(manifest)
        self.made.append(made)
        return made

    def _adopt(
        self,
        recommendation: PolicyObject,
        workload: Workload,
        one: Advised,
        value: str,
        adoption: AdoptionType,
    ) -> tuple[Verdict | None, Adopted]:
        """Do with advice what was asked; say what became of it where anything was."""
        if adoption is AdoptionType.STATUS or not value:
            return None, Adopted(one.decision)
        annotated = self._annotate(recommendation, workload, one, value)
        if adoption is not AdoptionType.AUTO or proposed(one.decision) is one.decision:
            return annotated, Adopted(one.decision)
        older = self.precedence.applies_before(recommendation)
        if older is not None:
            return _left_to(older, "HPA"), Adopted(one.decision)
        if self.mode is not Mode.ENFORCE:
            return PREVIEWED, Adopted(proposed(one.decision))
        adopting = Adopting(
            self.applier,
            self.pauses,
            by_subject([workload]),
            tell=self._tell_applied,
            go_on=self._go_on,
        )
        self._applied[:] = [Outcome(proposed(one.decision).actions[0], UNKNOWN, "an error ended it")]
        adopted = adopting.adopt(one.decision)
        self._applied[:] = _done(adopted)
        reason, outcome = adopted.decision.reason, adopted.outcome
        if outcome is None or outcome.result not in DONE:
            return Verdict(False, reason.code.value, reason.sentence), adopted
        return _applied(workload.ref.name, annotated), adopted

    def _annotate(
        self,
        recommendation: PolicyObject,
        workload: Workload,
        one: Advised,
        value: str,
        *,
        is_again: bool = False,
    ) -> Verdict:
        """Write the advice to the workload, unless it is there, another's is, or somebody said stop."""
        older = self.precedence.annotates_before(recommendation)
        if older is not None:
            return _left_to(older, "annotation")
        was = condition_of(recommendation.status, ADOPTED)
        is_there = was.get("status") == "True" and was.get("reason") in CARRIED
        if is_there and recommendation.status.get("recommendedValue") == value:
            return ANNOTATED
        held = held_by_pause(self.pauses, workload.ref.namespace)
        if held is not None:
            return Verdict(False, held.code.value, held.sentence)
        kind = "resource" if "containers" in one.decision.extra["recommended"] else "hpa"
        self._go_on()
        try:
            answer = self.applier.annotate(workload.ref, {f"{GROUP}/{kind}-recommendation": value})
        except WorldFailed as error:
            return Verdict(
                False, Code.NOT_APPLIED.value, f"Whether the workload was annotated is unknown: {error}"
            )
        if answer.result in DONE:
            return ANNOTATED
        if answer.result is ApplyResult.LATE and not is_again:
            return self._annotate(recommendation, workload, one, value, is_again=True)
        if answer.result is ApplyResult.FORBIDDEN:
            return STATUS_ONLY
        code = Code.NOT_OURS if answer.result is ApplyResult.NOT_OURS else Code.NOT_APPLIED
        return Verdict(
            False, code.value, f"The workload was not annotated ({answer.result}): {answer.detail}"
        )

    def _tell_applied(self, workload: Workload, decision: Decision, outcome: Outcome) -> None:
        sentence = (
            f"HorizontalPodAutoscaler {workload.ref.name}: {outcome.result}. {decision.reason.sentence}"
        )
        self.actuator.record_event(workload.object_ref, decision.reason.code.value, sentence)

    def _tell_changes(
        self, before: PolicyObject, workload: Workload, decision: Decision, adopted: Verdict | None
    ) -> None:
        """Tell the workload when its reason changed, or when its advice can be adopted no more."""
        ready, old = ready_of(decision), condition_of(before.status, READY)
        if old and old.get("reason") != ready.reason:
            reason = decision.reason
            self.actuator.record_event(workload.object_ref, reason.code.value, reason.sentence)
        if adopted is not None and not adopted.is_true and adopted.reason not in EXPECTED:
            was = condition_of(before.status, ADOPTED)
            if was.get("reason") != adopted.reason:
                self.actuator.record_event(
                    workload.object_ref, adopted.reason, adopted.message, is_warning=True
                )


def _done(adopted: Adopted) -> tuple[Outcome, ...]:
    """Return the outcome, where something is different after it, or may be."""
    outcome = adopted.outcome
    return () if outcome is None or outcome.result not in DEEDS else (outcome,)


def _by_target(
    given: Sequence[PolicyObject],
) -> tuple[dict[WorkloadRef, PolicyObject], list[PolicyObject]]:
    """Return the Recommendation of each workload, the oldest; and those that are one too many."""
    found: dict[WorkloadRef, PolicyObject] = {}
    spare = []
    for one in sorted(given, key=lambda each: (each.created_at, each.ref.name)):
        ref = target_of(one)
        if ref in found:
            spare.append(one)
        else:
            found[ref] = one
    return found, spare


def _left_to(older: PolicyObject, what: str) -> Verdict:
    """Say that somebody else's advice is followed."""
    return Verdict(
        False,
        OLDER,
        f"The workload's {what} is left to Analytics {older.ref.name}: it is older and asks for it.",
    )


def _applied(name: str, annotated: Verdict) -> Verdict:
    """Say that there is an HPA, and what there is not; an annotation that failed is the worse news."""
    done = f"HorizontalPodAutoscaler {name} is as advised"
    if annotated.is_true:
        return Verdict(True, "Applied", done)
    if annotated.reason in {OLDER, STATUS_ONLY.reason}:
        return Verdict(True, ALONE, f"{done}; the workload is not annotated ({annotated.reason})")
    return annotated
