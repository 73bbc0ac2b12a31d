"""Writes the advice of one Analytics: a Recommendation for each workload, its annotation, and its HPA."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from equipoise.core.cluster import Workload
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.cycle import ignore
from equipoise.engine.guards import held_by_pause
from equipoise.engine.isolation import Isolation, failed_decision
from equipoise.engine.recording import failed_record
from equipoise.engine.status import condition_of
from equipoise.ports.actions import Actuator, Applier, ApplyResult
from equipoise.ports.state import (
    Analyses,
    FailedTurn,
    Journal,
    Leadership,
    Pauses,
    PolicyObject,
    StoreConflict,
)
from equipoise.recommendation.adopt import DONE, UNKNOWN, Adopted, HpaAdopter, by_subject, proposed
from equipoise.recommendation.advisor import STEP_SECONDS, Advised, LeadershipLost
from equipoise.recommendation.analytics import (
    ADOPTED,
    OLDER,
    READY,
    ConditionValue,
    Precedence,
    Selected,
    adoption_of,
    advice_text,
    answered_status,
    mission,
    new_recommendation,
    next_recommendation,
    ready_of,
    target_of,
)
from equipoise.recommendation.explain import BALANCER, named_for, record
from equipoise.recommendation.policy import GROUP, AdoptionType

ANNOTATED = ConditionValue(True, "Annotated", "The workload carries the advice as an annotation")
PREVIEWED = ConditionValue(
    False, "Preview", "compat.mode is Preview: the HPA would be applied where it is Enforce."
)
STATUS_ONLY = ConditionValue(
    False,
    "StatusOnly",
    "The advice is told here only: the operator has no right to annotate workloads of this namespace, which "
    "the chart gives with recommendation.annotate.",
)
APPLIED_ONLY = "AppliedOnly"
"""Reason of the condition where the HPA was applied and the annotation was not."""
ANNOTATED_REASONS = frozenset({"Annotated", "Applied"})
"""Reasons with which the workload has the annotation."""
REASONS_OF_SETTINGS = frozenset({PREVIEWED.reason, STATUS_ONLY.reason})
"""Reasons that follow from a setting of the operator, and are no failures."""

CHANGING_RESULTS = frozenset({ApplyResult.CREATED.value, ApplyResult.CHANGED.value, UNKNOWN})
"""Outcomes after which the cluster has changed, or may have."""


@dataclass(slots=True, kw_only=True)
class AdvicePorts:
    """What the advice is written with."""

    objects: Analyses
    applier: Applier
    actuator: Actuator
    pauses: Pauses
    leadership: Leadership
    journal: Journal
    new_id: Callable[[float], str]
    mode: Mode = Mode.PREVIEW
    heartbeat: Callable[[], object] = ignore


@dataclass(slots=True)
class Publisher:
    """Writes the advice of one Analytics while this replica leads."""

    ports: AdvicePorts
    selected: Selected
    precedence: Precedence
    epoch: int
    at: float
    isolation: Isolation
    decisions: list[Decision] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    created: list[PolicyObject] = field(default_factory=list)
    is_answered: bool = False
    """Whether everything was written, including the status of the Analytics."""
    failed: list[FailedTurn] = field(default_factory=list)
    """The errors of single workloads."""
    _applied: list[Outcome] = field(default_factory=list)
    """The outcome of the current workload's HPA, recorded even where a later write fails."""

    def publish(self, existing: Sequence[PolicyObject], advised: Sequence[Advised]) -> list[str]:
        """Write all advice, then the status of the Analytics; return the errors, which are retried."""
        analytics = self.selected.analytics
        oldest_first = sorted(existing, key=lambda each: (each.created_at, each.ref.name))
        by_target = {target_of(one): one for one in reversed(oldest_first)}
        duplicates = [one for one in oldest_first if by_target[target_of(one)] is not one]
        workloads = {workload.ref: workload for workload in self.selected.workloads}
        assert {one.ref for one in advised} <= workloads.keys(), "advice for others"
        missions, unanswered = [], []
        try:
            for one in advised:
                before = by_target.pop(one.ref, None)
                written = self._attempt(workloads[one.ref], before, one)
                if isinstance(written, FailedTurn):
                    self.failed.append(written)
                    unanswered += [] if written.is_bug else [written.error]
                    if before is not None:
                        missions.append(mission(before, one.ref, failed_decision(written), self.at))
                else:
                    missions.append(mission(written, one.ref, one.decision, self.at))
                if one.decision.reason.code is Code.INTERNAL_ERROR:
                    self.failed.append(FailedTurn(one.ref.subject, one.decision.reason.sentence))
            for left in (*duplicates, *by_target.values()):
                self._check_leadership()
                self.ports.objects.delete(left)
            self._check_leadership()
            if not unanswered:
                self.ports.objects.write_status(analytics, answered_status(analytics, missions, self.at))
                self.is_answered = True
        except (StoreConflict, LeadershipLost):
            return []  # the new leader retries
        except WorldFailed as error:
            unanswered.append(str(error))
        name = f"{analytics.ref.namespace}/{analytics.ref.name}"
        return [f"Analytics {name} was not answered in full: {error}" for error in unanswered]

    def _attempt(
        self, workload: Workload, before: PolicyObject | None, one: Advised
    ) -> PolicyObject | FailedTurn:
        """Return the Recommendation of one workload; an error is recorded with the outcomes so far."""
        self._applied.clear()
        written = self.isolation.turn(
            one.ref.subject, lambda: self._publish_one(workload, before, one), (StoreConflict, LeadershipLost)
        )
        if isinstance(written, FailedTurn):
            done = tuple(self._applied)
            decision = named_for(failed_decision(written, done), self.selected.analytics.ref.name)
            decision = structs.replace(decision, extra=one.decision.extra)
            failed = failed_record(BALANCER, decision, self.at, self.ports.new_id(self.at), done)
            self.isolation.attempt(one.ref.subject, lambda: self.ports.journal.append(failed))
            self.decisions.append(decision)
            self.outcomes += done
        return written

    def _check_leadership(self) -> None:
        self.ports.heartbeat()
        if self.ports.leadership.epoch() != self.epoch:
            raise LeadershipLost("this process leads no more")

    def _publish_one(self, workload: Workload, before: PolicyObject | None, one: Advised) -> PolicyObject:
        """Create or update one Recommendation, adopt its advice, and record the decision."""
        self._check_leadership()
        asked = self.selected.spec.adoption
        recommendation = before or self._make(workload)
        if asked is not None and recommendation.spec.get("adoptionType") != asked.value:
            recommendation = self.ports.objects.set_adoption(recommendation, asked.value)
        value = advice_text(one.decision.subject, one.details, STEP_SECONDS)
        adoption = asked or adoption_of(recommendation)
        condition, adopted = self._adopt(recommendation, workload, one, value, adoption)
        status = next_recommendation(recommendation, one.decision, one.details, value, condition, self.at)
        if status is not None:
            self._check_leadership()
            self.ports.objects.write_status(recommendation, status)
            if before is not None:
                self._report_changes(before, workload, one.decision, condition)
        self._record(one, adopted)
        return recommendation

    def _record(self, one: Advised, adopted: Adopted) -> None:
        """Record the decision, with its outcome where that changed anything."""
        done, asker, name = _done(adopted), self.selected.analytics.ref.name, self.ports.new_id(self.at)
        decision = named_for(adopted.decision, asker)
        if one.facts is None:
            written = failed_record(BALANCER, decision, self.at, name, done)
        else:
            request = self.selected.spec.request
            written = record(request, one.facts, decision, self.at, name, asker=asker, outcomes=done)
        self.ports.journal.append(written)
        self.decisions.append(decision)
        self.outcomes += done

    def _make(self, workload: Workload) -> PolicyObject:
        spec, labels = self.selected.spec, dict(workload.labels)
        adoption = spec.adoption or AdoptionType.STATUS_AND_ANNOTATION
        manifest = new_recommendation(self.selected.analytics, spec.type, workload.ref, labels, adoption)
        created = self.ports.objects.create(manifest)
        self.created.append(created)
        return created

    def _adopt(
        self,
        recommendation: PolicyObject,
        workload: Workload,
        one: Advised,
        value: str,
        adoption: AdoptionType,
    ) -> tuple[ConditionValue | None, Adopted]:
        """Annotate the workload and apply its HPA as the adoption type says; return the condition, if any."""
        if adoption is AdoptionType.STATUS or not value:
            return None, Adopted(one.decision)
        annotated = self._annotate(recommendation, workload, one, value)
        if adoption is not AdoptionType.AUTO or one.details.hpa is None:
            return annotated, Adopted(one.decision)
        older = self.precedence.applies_before(recommendation)
        if older is not None:
            return _left_to(older, "HPA"), Adopted(one.decision)
        planned = proposed(one.decision, one.details)
        assert planned.actions, "an HPA is advised"
        if self.ports.mode is not Mode.ENFORCE:
            return PREVIEWED, Adopted(planned)
        adopter = HpaAdopter(
            self.ports.applier,
            self.ports.pauses,
            by_subject([workload]),
            on_applied=self._report_applied,
            check_leadership=self._check_leadership,
        )
        self._applied[:] = [Outcome(planned.actions[0], UNKNOWN, "an error ended it")]
        adopted = adopter.adopt(one.decision, one.details)
        self._applied[:] = _done(adopted)
        reason, outcome = adopted.decision.reason, adopted.outcome
        if outcome is None or outcome.result not in DONE:
            return ConditionValue.because(reason), adopted
        return _applied(workload.ref.name, annotated), adopted

    def _annotate(
        self,
        recommendation: PolicyObject,
        workload: Workload,
        one: Advised,
        value: str,
        *,
        is_retry: bool = False,
    ) -> ConditionValue:
        """Annotate the workload, unless it has this advice or an older Analytics', or is paused."""
        older = self.precedence.annotates_before(recommendation)
        if older is not None:
            return _left_to(older, "annotation")
        was = condition_of(recommendation.status, ADOPTED)
        is_annotated = was.get("status") == "True" and was.get("reason") in ANNOTATED_REASONS
        if is_annotated and recommendation.status.get("recommendedValue") == value:
            return ANNOTATED
        held = held_by_pause(self.ports.pauses, workload.ref.namespace)
        if held is not None:
            return ConditionValue.because(held)
        kind = "hpa" if one.details.containers is None else "resource"
        self._check_leadership()
        try:
            answer = self.ports.applier.annotate(workload.ref, {f"{GROUP}/{kind}-recommendation": value})
        except WorldFailed as error:
            sentence = f"Whether the workload was annotated is unknown: {error}"
            return ConditionValue.because(Reason(Code.NOT_APPLIED, sentence))
        if answer.result in DONE:
            return ANNOTATED
        if answer.result is ApplyResult.LATE and not is_retry:
            return self._annotate(recommendation, workload, one, value, is_retry=True)
        if answer.result is ApplyResult.FORBIDDEN:
            return STATUS_ONLY
        code = Code.NOT_OURS if answer.result is ApplyResult.NOT_OURS else Code.NOT_APPLIED
        sentence = f"The workload was not annotated ({answer.result}): {answer.detail}"
        return ConditionValue.because(Reason(code, sentence))

    def _report_applied(self, workload: Workload, decision: Decision, outcome: Outcome) -> None:
        sentence = (
            f"HorizontalPodAutoscaler {workload.ref.name}: {outcome.result}. {decision.reason.sentence}"
        )
        self.ports.actuator.record_event(workload.object_ref, decision.reason.code.value, sentence)

    def _report_changes(
        self, before: PolicyObject, workload: Workload, decision: Decision, adopted: ConditionValue | None
    ) -> None:
        """Record an event when the reason changed, or when adoption began to fail."""
        ready, old = ready_of(decision), condition_of(before.status, READY)
        if old and old.get("reason") != ready.reason:
            reason = decision.reason
            self.ports.actuator.record_event(workload.object_ref, reason.code.value, reason.sentence)
        if adopted is not None and not adopted.is_true and adopted.reason not in REASONS_OF_SETTINGS:
            was = condition_of(before.status, ADOPTED)
            if was.get("reason") != adopted.reason:
                self.ports.actuator.record_event(
                    workload.object_ref, adopted.reason, adopted.message, is_warning=True
                )


def _done(adopted: Adopted) -> tuple[Outcome, ...]:
    """Return the outcome, where the cluster has changed after it, or may have."""
    outcome = adopted.outcome
    return () if outcome is None or outcome.result not in CHANGING_RESULTS else (outcome,)


def _left_to(older: PolicyObject, what: str) -> ConditionValue:
    """Return the condition that an older Analytics takes precedence."""
    return ConditionValue(
        False,
        OLDER,
        f"The workload's {what} is left to Analytics {older.ref.name}: it is older and asks for it.",
    )


def _applied(name: str, annotated: ConditionValue) -> ConditionValue:
    """Return the condition of an applied HPA; a failed annotation takes precedence."""
    done = f"HorizontalPodAutoscaler {name} is as advised"
    if annotated.is_true:
        return ConditionValue(True, "Applied", done)
    if annotated.reason in {OLDER, STATUS_ONLY.reason}:
        return ConditionValue(
            True, APPLIED_ONLY, f"{done}; the workload is not annotated ({annotated.reason})"
        )
    return annotated
