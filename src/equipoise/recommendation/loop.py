"""Analytics at work: one cycle finds what is due, reads one past for all of it, advises, and writes it down.

What is remembered is in the API server: when each Analytics was last answered and what each Recommendation
says. Advice is written whatever the mode; an HPA is applied in Enforce only, and a pause stops that and the
annotations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from equipoise.core.cluster import Workload
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.definition import Standing
from equipoise.crd.targets import Mode
from equipoise.engine.isolation import Isolation, failed_reason
from equipoise.engine.status import condition_of, write_status
from equipoise.ports import (
    Actuator,
    Applier,
    Cluster,
    CycleReport,
    FailedTurn,
    Journal,
    Leadership,
    NoHistory,
    Pauses,
    PolicyObject,
)
from equipoise.ports.state import Analyses
from equipoise.recommendation.advisor import AdviceBatch, Advised, DataSources, Lost, advise_all
from equipoise.recommendation.policy import AdviceType
from equipoise.recommendation.publish import Publisher
from equipoise.recommendation.record import BALANCER, AdviceRequest
from equipoise.recommendation.selection import (
    OLDER,
    READY,
    AnalyticsSelection,
    Precedence,
    Selected,
    Verdict,
    asker_of,
    is_due,
    precedence,
    select,
)
from equipoise.recommendation.status import Retries, refused

NOT_INSTALLED = (
    "Analytics and Recommendations are not installed, so nobody can ask for advice here: "
    "`equipoise crds apply` installs them"
)
LEFT_ALONE = (
    "the definitions of Analytics and Recommendation are somebody else's, so their objects are left alone: "
    "compat.crane: on takes over"
)
FOREIGN = Verdict(False, "ForeignController", LEFT_ALONE[0].upper() + LEFT_ALONE[1:] + ".")
UNKNOWN = "HistoryUnknown"
RARELY = "It is tried again ever more rarely, but at least every ten minutes."
FOREIGN_AGE_SECONDS = 15.0
"""How long the owner of a definition is given to answer an Analytics before we say that we do not."""


@dataclass(slots=True)
class RecommendationLoop:
    """All that one cycle needs of the world."""

    objects: Analyses
    cluster: Cluster
    world: Callable[[], DataSources]
    """Finds whatever remembers weeks of usage; it may not be there."""
    applier: Applier
    actuator: Actuator
    pauses: Pauses
    leadership: Leadership
    journal: Journal
    new_id: Callable[[float], str]
    interval_seconds: float = 30.0
    mode: Mode = Mode.PREVIEW
    takes_over: bool = False
    """Whether objects are served whose definition is somebody else's."""
    beat: Callable[[], object] = field(default=str)
    name: str = BALANCER
    _last: dict[str, Sequence[Decision]] = field(default_factory=dict)
    """What was decided last, by the UID of the Analytics."""
    _made: dict[str, tuple[float, PolicyObject]] = field(default_factory=dict)
    """Recommendations that the watch may not have told of yet, by UID, and when they were made."""
    _retries: Retries = field(init=False)
    _isolation: Isolation = field(default_factory=Isolation)

    def __post_init__(self) -> None:
        """Try again in the next cycle first."""
        self._retries = Retries(self.interval_seconds)

    def cycle(self, at: float) -> CycleReport:
        """Do one turn. Whoever does not lead does nothing, not even looks."""
        epoch = self.leadership.epoch()
        if epoch is None:
            self._last.clear()
            self._retries.keep(())
            return CycleReport((), ())
        self._isolation.begin(at, lambda: self.leadership.epoch() == epoch)
        standing, note = self.objects.standing()
        if standing is Standing.ABSENT:
            return CycleReport((), (), [f"{NOT_INSTALLED} ({note})"])
        if standing is Standing.FOREIGN and not self.takes_over:
            return CycleReport(
                (), (), [*self._leave_alone(at), f"{LEFT_ALONE}{f' ({note})' if note else ''}"]
            )
        return self._answer(at, epoch)

    def _leave_alone(self, at: float) -> Iterable[str]:
        """Say of every Analytics that nobody has answered that we do not; what another said stays."""
        for about in self.objects.analytics():
            said = self._isolation.attempt(str(about.ref), partial(_is_answered, about))
            if said is False and at - about.created_at >= FOREIGN_AGE_SECONDS:
                yield from self._refuse(about, FOREIGN, at)

    def _answer(self, at: float, epoch: int) -> CycleReport:
        asked = self.objects.analytics()
        self._retries.keep({about.ref.uid for about in asked})
        listed = self.cluster.workloads()
        asking = list(_asking(asked, listed, _by_asker(self._given(at)), self._isolation))
        first = precedence(asking, self._isolation)
        status_errors: list[str] = []
        unread = ""
        due, standing = [], []
        for about, found, own in asking:
            if isinstance(found, Verdict):
                status_errors += self._refuse(about, found, at)
            elif self._retries.waits(about, at):
                status_errors += self._retries.warnings(about)
                unread = unread or self._retries.unread(about)
                standing.append(about.ref.uid)
            elif self._is_due(found, own, first, at):
                due.append((found, own))
            else:
                standing.append(about.ref.uid)
        self._last = {uid: self._last[uid] for uid in standing if uid in self._last}
        carried = [decision for decisions in self._last.values() for decision in decisions]
        report = self._look(due, first, listed, at, epoch) if due else CycleReport((), (), failure=unread)
        return replace(
            report,
            carried=carried,
            warnings=[*status_errors, *report.warnings],
            failed_turns=self._isolation.failed,
        )

    def _is_due(self, found: Selected, own: Sequence[PolicyObject], first: Precedence, at: float) -> bool:
        """Whether it is time to look at an Analytics; one of which that can't be told is looked at."""
        slack, is_retried = self.interval_seconds / 2, self._is_retried(found.about, first)
        is_time = self._isolation.attempt(
            str(found.about.ref), lambda: is_due(found, own, at, slack, is_retried)
        )
        return self._retries.is_open(found.about) or is_time is not False

    def _is_retried(self, about: PolicyObject, first: Precedence) -> Callable[[PolicyObject, str], bool]:
        """Return whether what kept advice from being adopted has passed, without a look at the past."""

        def is_over(recommendation: PolicyObject, reason: str) -> bool:
            if reason == "HeldByPause":
                return not self._is_paused(about.ref.namespace)
            if reason == OLDER:
                return first.is_first(recommendation)
            return reason == "Preview" and self.mode is Mode.ENFORCE

        return is_over

    def _is_paused(self, namespace: str) -> bool:
        try:
            return self.pauses.pause_of(namespace) is not None
        except WorldFailed:
            return True

    def _given(self, at: float) -> list[PolicyObject]:
        """List the Recommendations, those included that were made just now."""
        told = {one.ref.uid: one for one in self.objects.recommendations()}
        young = self.interval_seconds + 60.0
        self._made = {
            uid: (made_at, one)
            for uid, (made_at, one) in self._made.items()
            if uid not in told and at - made_at < young
        }
        return [*told.values(), *(one for _, one in self._made.values())]

    def _refuse(
        self, about: PolicyObject, verdict: Verdict, at: float, *, is_steady: bool = True
    ) -> list[str]:
        """Return why an Analytics is not followed, when that is news; give what could not be said."""
        said = self._isolation.attempt(
            str(about.ref), lambda: self._refuse_one(about, verdict, at, is_steady=is_steady)
        )
        return [] if isinstance(said, FailedTurn) else said

    def _refuse_one(self, about: PolicyObject, verdict: Verdict, at: float, *, is_steady: bool) -> list[str]:
        status = refused(about, verdict, at, is_steady=is_steady)
        if status is None or self.leadership.epoch() is None:
            return []
        written = write_status(self.objects.write_status, about, status)
        if written.is_written:
            self.actuator.record_event(about.ref, verdict.reason, verdict.message, is_warning=True)
        return [written.error] if written.error else []

    def _look(
        self,
        due: Sequence[tuple[Selected, Sequence[PolicyObject]]],
        first: Precedence,
        listed: Sequence[Workload],
        at: float,
        epoch: int,
    ) -> CycleReport:
        warnings: list[str] = []
        try:
            advised = self._isolation.each(
                [selected for selected, _ in due],
                lambda some: self._advised(some, listed, at, epoch, warnings),
                lambda selected: str(selected.about.ref),
                (WorldFailed,),
            )
        except Lost:
            return CycleReport((), ())
        except WorldFailed as error:
            return self._unread([selected.about for selected, _ in due], error, at, warnings)
        self._retries.read()
        decisions: list[Decision] = []
        outcomes: list[Outcome] = []
        for (selected, own), found in zip(due, advised, strict=True):
            about = selected.about
            giving = Publisher(
                *(self.objects, self.applier, self.actuator, self.pauses, self.leadership, self.journal),
                *(self.new_id, self.mode, first, self.beat, epoch, at),
                isolation=self._isolation,
            )
            given = found if isinstance(found, FailedTurn) else self._given_to(selected, own, found, giving)
            wrong = [] if isinstance(given, FailedTurn) else given
            warnings += wrong
            if isinstance(given, FailedTurn):
                reason = failed_reason(given)
                verdict = Verdict(False, reason.code.value, f"{reason.sentence} {RARELY}")
                warnings += self._refuse(about, verdict, at, is_steady=False)
            is_held = any(one.reason.code is Code.METRICS_INCOMPLETE for one in giving.decisions)
            if giving.is_answered and not giving.failed and not is_held:
                self._retries.succeeded(about)
            else:
                self._retries.failed(about, at, wrong)
            self._made |= {one.ref.uid: (at, one) for one in giving.made}
            self._last[about.ref.uid] = giving.decisions
            decisions += giving.decisions
            outcomes += giving.outcomes
        return CycleReport(decisions, outcomes, warnings)

    def _given_to(
        self, selected: Selected, own: Sequence[PolicyObject], found: Sequence[Advised], giving: Publisher
    ) -> list[str] | FailedTurn:
        """Write the advice of one Analytics; return what could not be written, or how its turn failed."""
        return self._isolation.attempt(str(selected.about.ref), lambda: giving.give(selected, own, found))

    def _unread(
        self, due: Sequence[PolicyObject], error: WorldFailed, at: float, warnings: Sequence[str]
    ) -> CycleReport:
        """Say that there is no past to advise from; what failed is tried ever more rarely."""
        is_absent = isinstance(error, NoHistory)
        said, told = f"{str(error).rstrip('.')}.", f"no advice can be given: {error}"
        verdict = (
            Verdict(False, "NoHistory", said) if is_absent else Verdict(False, UNKNOWN, f"{said} {RARELY}")
        )
        status_errors = [one for about in due for one in self._refuse(about, verdict, at, is_steady=False)]
        if is_absent:
            return CycleReport((), (), [*warnings, *status_errors, told])
        for about in due:
            self._retries.failed(about, at, unread=told)
        return CycleReport((), (), [*warnings, *status_errors], self._retries.unread(due[0]))

    def _advised(
        self,
        due: Sequence[Selected],
        listed: Sequence[Workload],
        at: float,
        epoch: int,
        warnings: list[str],
    ) -> list[list[Advised]]:
        """Decide for all that is due, from one reading of the past."""

        def gets_on(_: int) -> None:
            self.beat()
            if self.leadership.epoch() != epoch:
                raise Lost("this process leads no more")

        jobs = [
            AdviceBatch(
                AdviceRequest(one.spec.settings, AdviceType(one.spec.type), one.spec.algorithm), one.workloads
            )
            for one in due
        ]
        world = replace(self.world(), warn=warnings.append, on_bytes=gets_on)
        found: list[list[Advised]] = [[] for _ in due]
        for advised in advise_all(jobs, listed, world, at, isolation=self._isolation):
            found[advised.job].append(advised)
        for each in found:
            each.sort(key=lambda one: (one.ref.name, one.ref.kind))
        return found


def _is_answered(about: PolicyObject) -> bool:
    return bool(condition_of(about.status, READY))


def _asking(
    asked: Sequence[PolicyObject],
    listed: Sequence[Workload],
    given: Mapping[tuple[str, str], Sequence[PolicyObject]],
    isolation: Isolation,
) -> Iterable[AnalyticsSelection]:
    by_namespace: dict[str, list[Workload]] = {}
    for workload in listed:
        by_namespace.setdefault(workload.ref.namespace, []).append(workload)
    for about in sorted(asked, key=lambda one: (one.ref.namespace, one.ref.name)):
        own = given.get((about.ref.namespace, about.ref.uid), ())
        near = by_namespace.get(about.ref.namespace, ())
        found = isolation.attempt(str(about.ref), partial(select, about, near))
        if isinstance(found, FailedTurn):
            reason = failed_reason(found)
            found = Verdict(False, reason.code.value, reason.sentence)
        yield AnalyticsSelection(about, found, own)


def _by_asker(given: Iterable[PolicyObject]) -> dict[tuple[str, str], list[PolicyObject]]:
    """Sort Recommendations by the namespace and the UID of the Analytics that they were made for."""
    found: dict[tuple[str, str], list[PolicyObject]] = {}
    for one in given:
        found.setdefault((one.ref.namespace, asker_of(one)), []).append(one)
    return found
