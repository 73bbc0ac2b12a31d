"""Advice becomes an HPA: guards hold it back, then it is applied, one workload at a time.

Whatever is in the way is the answer: an HPA of somebody else, a ScaledObject, a missing right. Nothing is
taken over, and nothing is tried again by itself.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from msgspec import structs

from equipoise.guard.pause import held_by_pause
from equipoise.guard.protection import adoption_opted_out_by
from equipoise.model.cluster import Workload
from equipoise.model.decision import ApplyHpa, Decision, Outcome
from equipoise.model.errors import WorldFailed
from equipoise.model.reason import Code, Reason
from equipoise.ports import Applier, ApplyResult, Pauses
from equipoise.recommendation.manifests import hpa_manifest

UNKNOWN = "Unknown"
"""It was sent, and no answer came."""
SILENCES_MAX = 3
DONE = frozenset({ApplyResult.CREATED, ApplyResult.CHANGED, ApplyResult.UNCHANGED})
Refs = Mapping[tuple[str, str], Workload]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A decision, and what came of its action; what could not be done is held, and says why."""

    decision: Decision
    outcome: Outcome | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the world refused what should have been done."""
        return self.decision.reason.code is Code.NOT_APPLIED

    @property
    def is_not_ours(self) -> bool:
        """Whether somebody else has it: no failure, unless it is what was asked for."""
        return self.decision.reason.code is Code.NOT_OURS


def proposed(decision: Decision) -> Decision:
    """Give a recommendation the action that adopts it; any other decision stays as it is."""
    manifest = hpa_manifest(decision)
    if manifest is None:
        return decision
    namespace, _, name = decision.subject.rpartition("/")
    return structs.replace(decision, actions=(ApplyHpa(name, manifest, namespace),))


def by_subject(workloads: Iterable[Workload]) -> Refs:
    """Find workloads as decisions name them."""
    return {(workload.ref.subject, workload.ref.kind): workload for workload in workloads}


@dataclass(slots=True)
class Adopting:
    """Applies advice to the workloads of a cluster, as they were seen right before."""

    applier: Applier
    pauses: Pauses
    workloads: Refs
    namespaces_protected: Collection[str] = ()
    is_dry_run: bool = False
    tell: Callable[[Workload, Decision, Outcome], object] | None = None
    """Told of every HPA that was made or changed."""
    go_on: Callable[[], object] = lambda: None
    """Called right before every try; raises where this process is to do nothing more."""
    silences: int = 0
    """How often in a row the API server gave no answer."""

    def adopt(self, decision: Decision, *, is_again: bool = False) -> Adopted:
        """Propose, guard, apply; once the API server is silent, the rest is not tried.

        Where it took long to look at what is there, the guards are asked again, once.
        """
        wanted = proposed(decision)
        if self.silences >= SILENCES_MAX:
            sentence = f"It was not tried: the API server gave no answer {self.silences} times in a row."
            return Adopted(wanted.hold(Reason(Code.NOT_APPLIED, sentence)))
        wanted = self.guarded(wanted)
        for action in wanted.actions:
            assert isinstance(action, ApplyHpa)
            outcome = self._applied(wanted, action)
            if outcome.result == ApplyResult.LATE and not is_again:
                return self.adopt(decision, is_again=True)
            return Adopted(_explained(wanted, outcome), outcome)
        return Adopted(wanted)

    def guarded(self, decision: Decision) -> Decision:
        """Hold what must not be done now, for the first reason there is."""
        if not decision.actions:
            return decision
        namespace = decision.subject.rpartition("/")[0]
        workload = self.workloads.get((decision.subject, decision.extra["kind"]))
        reason = _left_alone(workload, namespace, self.namespaces_protected)
        # Asked again before every action: somebody may say stop while the others are applied.
        reason = reason or held_by_pause(self, namespace)
        return decision if reason is None else decision.hold(reason)

    def pause_of(self, namespace: str) -> str | None:
        """Say who paused a namespace, and count when nobody can say."""
        try:
            who = self.pauses.pause_of(namespace)
        except WorldFailed:
            self.silences += 1
            raise
        return who

    def _applied(self, decision: Decision, action: ApplyHpa) -> Outcome:
        self.go_on()
        try:
            answer = self.applier.apply_hpa(action.manifest, is_dry_run=self.is_dry_run)
        except WorldFailed as error:
            self.silences += 1
            return Outcome(action, UNKNOWN, str(error))
        self.silences = 0
        outcome = Outcome(action, answer.result.value, answer.detail)
        is_new = not self.is_dry_run and answer.result in {ApplyResult.CREATED, ApplyResult.CHANGED}
        if is_new and self.tell is not None:
            self.tell(self.workloads[decision.subject, decision.extra["kind"]], decision, outcome)
        return outcome


def _explained(decision: Decision, outcome: Outcome) -> Decision:
    """Hold what did not go: the actions of what was done are those that were carried out."""
    if outcome.result in DONE:
        return decision
    if outcome.result == ApplyResult.NOT_OURS:
        sentence = f"{_capital(outcome.detail)}: it is left alone. Change it there, or delete it first."
        return decision.hold(Reason(Code.NOT_OURS, sentence))
    is_unknown = outcome.result == UNKNOWN
    what = (
        "Whether the HPA was applied is unknown"
        if is_unknown
        else f"The HPA was not applied ({outcome.result})"
    )
    sentence = f"{what}: {outcome.detail.rstrip('.')}."
    return decision.hold(Reason(Code.NOT_APPLIED, sentence))


def _capital(clause: str) -> str:
    return clause if clause.startswith(".") else clause[:1].upper() + clause[1:]


def _left_alone(
    workload: Workload | None, namespace: str, namespaces_protected: Collection[str]
) -> Reason | None:
    if workload is None:
        return Reason(Code.OPTED_OUT, "The workload has gone since it was looked at.")
    if namespace in namespaces_protected:
        return Reason(Code.OPTED_OUT, f"Namespace {namespace} is left alone unless -n names it.")
    annotation = adoption_opted_out_by(workload.annotations)
    if annotation:
        return Reason(Code.OPTED_OUT, f"The workload is opted out by {annotation}.")
    return None
