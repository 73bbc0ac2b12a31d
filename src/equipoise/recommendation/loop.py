"""One cycle of advice: find the Analytics that are due, read one history for all, advise, and publish.

State is in the API server: when each Analytics was last answered, and the advice in each Recommendation.
Advice is written in every mode; an HPA is applied in Enforce only. A pause suspends HPAs and annotations.

Every attempt reads a week of usage, so an Analytics that failed backs off exponentially. The backoff is state
of this process only: a new leader retries at once. Failures to read the history end their backoff as soon as
the history can be read again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from equipoise.core.cluster import Workload
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import Failure, KeyedBackoff, WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.definition import Standing
from equipoise.crd.targets import Mode
from equipoise.engine.isolation import Isolation, failed_reason
from equipoise.engine.status import condition_of, timestamp, write_status
from equipoise.ports.cluster import Cluster, NoHistory
from equipoise.ports.state import CycleReport, FailedTurn, PolicyObject
from equipoise.recommendation.advisor import AdviceBatch, Advised, DataSources, LeadershipLost, advise_all
from equipoise.recommendation.analytics import (
    OLDER,
    READY,
    AnalyticsSelection,
    ConditionValue,
    Precedence,
    Selected,
    analytics_uid,
    is_due,
    precedence,
    rejected_status,
    select,
)
from equipoise.recommendation.explain import BALANCER
from equipoise.recommendation.publish import AdvicePorts, Publisher

NOT_INSTALLED = (
    "Analytics and Recommendations are not installed, so nobody can ask for advice here: "
    "`equipoise crds apply` installs them"
)
LEFT_ALONE = (
    "the definitions of Analytics and Recommendation are somebody else's, so their objects are left alone: "
    "compat.crane: on takes over"
)
FOREIGN = ConditionValue(False, "ForeignController", LEFT_ALONE[0].upper() + LEFT_ALONE[1:] + ".")
UNKNOWN = "HistoryUnknown"
RARELY = "It is tried again ever more rarely, but at least every ten minutes."
FOREIGN_AGE_SECONDS = 15.0
"""How long another controller that owns the definition may take to answer, before we reject."""


BACKOFF_SECONDS_MAX = 600.0


class FailedTry(NamedTuple):
    """A failed attempt to answer an Analytics."""

    warnings: Sequence[str]
    """They are valid until the next attempt."""
    history_error: str = ""
    """Why the history could not be read; empty where something else failed."""


@dataclass(slots=True, kw_only=True)
class RecommendationLoop(AdvicePorts):
    """Runs the cycles, and holds the state of this process between them."""

    cluster: Cluster
    sources: Callable[[], DataSources]
    """Returns the sources of the usage history; raises NoHistory where there is none."""
    interval_seconds: float = 30.0
    takes_over: bool = False
    """Whether Analytics are served although another controller owns their definition."""
    name: str = BALANCER
    _last: dict[str, Sequence[Decision]] = field(default_factory=dict)
    """The last decisions, by the UID of the Analytics."""
    _created: dict[str, tuple[float, PolicyObject]] = field(default_factory=dict)
    """Recommendations that the watch may not have delivered yet, by UID, and their creation times."""
    _failures: KeyedBackoff[tuple[str, int], FailedTry] = field(init=False)
    """By the UID and the generation of the Analytics: a changed spec does not wait."""
    _isolation: Isolation = field(default_factory=Isolation)

    def __post_init__(self) -> None:
        self._failures = KeyedBackoff(self.interval_seconds, max(BACKOFF_SECONDS_MAX, self.interval_seconds))

    def cycle(self, at: float) -> CycleReport:
        """Run one cycle. Returns an empty report unless this replica leads."""
        epoch = self.leadership.epoch()
        if epoch is None:
            self._last.clear()
            self._failures.keep(())
            return CycleReport((), ())
        self._isolation.begin(at, self.leadership)
        owner, note = self.objects.definition_owner()
        if owner is Standing.ABSENT:
            return CycleReport((), (), [f"{NOT_INSTALLED} ({note})"])
        if owner is Standing.FOREIGN and not self.takes_over:
            foreign = f"{LEFT_ALONE}{f' ({note})' if note else ''}"
            return CycleReport((), (), [*self._reject_unanswered(at), foreign])
        return self._answer(at, epoch)

    def _reject_unanswered(self, at: float) -> Iterable[str]:
        """Reject Analytics that have no answer; a status from another controller is left unchanged."""
        for analytics in self.objects.analytics():
            ready = self._isolation.attempt(
                str(analytics.ref), partial(condition_of, analytics.status, READY)
            )
            if ready == {} and at - analytics.created_at >= FOREIGN_AGE_SECONDS:
                yield from self._reject(analytics, FOREIGN, at)

    def _answer(self, at: float, epoch: int) -> CycleReport:
        objects = self.objects.analytics()
        self._failures.keep({_key(each) for each in objects})
        listed = self.cluster.workloads()
        selections = list(_selections(objects, listed, self._recommendations(at), self._isolation))
        first = precedence(selections, self._isolation)
        status_errors: list[str] = []
        history_error = ""
        due, waiting = [], []
        for analytics, found, own in selections:
            if isinstance(found, ConditionValue):
                status_errors += self._reject(analytics, found, at)
            elif (failed := self._backing_off(analytics, at)) is not None:
                status_errors += failed.last.warnings
                history_error = history_error or _history_error(failed)
                waiting.append(analytics.ref.uid)
            elif self._is_due(found, own, first, at):
                due.append((found, own))
            else:
                waiting.append(analytics.ref.uid)
        self._last = {uid: self._last[uid] for uid in waiting if uid in self._last}
        carried = [decision for decisions in self._last.values() for decision in decisions]
        report = CycleReport((), (), failure=history_error)
        if due:
            report = self._advise(due, first, listed, at, epoch)
        return replace(
            report,
            carried=carried,
            warnings=[*status_errors, *report.warnings],
            failed_turns=self._isolation.failed,
        )

    def _is_due(self, found: Selected, own: Sequence[PolicyObject], first: Precedence, at: float) -> bool:
        """Return whether an Analytics is due; also where an error prevents the answer."""
        slack, is_retried = self.interval_seconds / 2, self._is_retried(found.analytics, first)
        is_time = self._isolation.attempt(
            str(found.analytics.ref), lambda: is_due(found, own, at, slack, is_retried)
        )
        has_failed = self._failures.failure(_key(found.analytics)) is not None
        return has_failed or is_time is not False

    def _backing_off(self, analytics: PolicyObject, at: float) -> Failure[FailedTry] | None:
        """Return the failure after which it is too early for the next attempt, within half of an interval."""
        failed = self._failures.failure(_key(analytics))
        is_early = failed is not None and at < failed.until - self.interval_seconds / 2
        return failed if is_early else None

    def _is_retried(self, analytics: PolicyObject, first: Precedence) -> Callable[[PolicyObject, str], bool]:
        """Return whether the reason that prevented adoption no longer holds; does not read the history."""

        def is_over(recommendation: PolicyObject, reason: str) -> bool:
            if reason == "HeldByPause":
                return not self._is_paused(analytics.ref.namespace)
            if reason == OLDER:
                return first.is_first(recommendation)
            return reason == "Preview" and self.mode is Mode.ENFORCE

        return is_over

    def _is_paused(self, namespace: str) -> bool:
        try:
            return self.pauses.pause_of(namespace) is not None
        except WorldFailed:
            return True

    def _recommendations(self, at: float) -> list[PolicyObject]:
        """Return all Recommendations, including new ones that the watch has not delivered yet."""
        listed = {one.ref.uid: one for one in self.objects.recommendations()}
        age_max = self.interval_seconds + 60.0
        self._created = {
            uid: (created_at, one)
            for uid, (created_at, one) in self._created.items()
            if uid not in listed and at - created_at < age_max
        }
        return [*listed.values(), *(one for _, one in self._created.values())]

    def _reject(
        self, analytics: PolicyObject, value: ConditionValue, at: float, *, is_steady: bool = True
    ) -> list[str]:
        """Write why an Analytics is rejected, unless its status has that already; return errors."""

        def reject() -> list[str]:
            status = rejected_status(analytics, value, at, is_steady=is_steady)
            if status is None or self.leadership.epoch() is None:
                return []
            written = write_status(self.objects.write_status, analytics, status)
            if written.is_written:
                self.actuator.record_event(analytics.ref, value.reason, value.message, is_warning=True)
            return [written.error] if written.error else []

        errors = self._isolation.attempt(str(analytics.ref), reject)
        return [] if isinstance(errors, FailedTurn) else errors

    def _advise(
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
                lambda selected: str(selected.analytics.ref),
                (WorldFailed,),
            )
        except LeadershipLost:
            return CycleReport((), ())
        except WorldFailed as error:
            return self._without_history([selected.analytics for selected, _ in due], error, at, warnings)
        self._failures.keep([key for key, failed in self._failures.items() if not failed.last.history_error])
        decisions: list[Decision] = []
        outcomes: list[Outcome] = []
        for (selected, own), found in zip(due, advised, strict=True):
            publisher = Publisher(self, selected, first, epoch, at, self._isolation)
            warnings += self._publish(publisher, own, found)
            self._created |= {one.ref.uid: (at, one) for one in publisher.created}
            self._last[selected.analytics.ref.uid] = publisher.decisions
            decisions += publisher.decisions
            outcomes += publisher.outcomes
        return CycleReport(decisions, outcomes, warnings)

    def _publish(
        self, publisher: Publisher, own: Sequence[PolicyObject], found: Sequence[Advised] | FailedTurn
    ) -> list[str]:
        """Publish the advice of one Analytics, back off where that failed, and return the warnings."""
        analytics, at = publisher.selected.analytics, publisher.at
        written: list[str] | FailedTurn
        if isinstance(found, FailedTurn):
            written = found
        else:
            publish = partial(publisher.publish, own, found)
            written = self._isolation.attempt(str(analytics.ref), publish)
        errors: list[str] = []
        warnings: list[str] = []
        if isinstance(written, FailedTurn):
            reason = failed_reason(written)
            value = ConditionValue(False, reason.code.value, f"{reason.sentence} {RARELY}")
            warnings += self._reject(analytics, value, at, is_steady=False)
        else:
            errors = written
        is_held = any(one.reason.code is Code.METRICS_INCOMPLETE for one in publisher.decisions)
        if publisher.is_answered and not publisher.failed and not is_held:
            self._failures.forget(_key(analytics))
        else:
            self._failures.fail(_key(analytics), at, FailedTry(errors))
        return errors + warnings

    def _without_history(
        self, due: Sequence[PolicyObject], error: WorldFailed, at: float, warnings: Sequence[str]
    ) -> CycleReport:
        """Reject what is due, since there is no history; where reading it failed, back off."""
        is_absent = isinstance(error, NoHistory)
        sentence, failure = f"{str(error).rstrip('.')}.", f"no advice can be given: {error}"
        value = ConditionValue(False, UNKNOWN, f"{sentence} {RARELY}")
        if is_absent:
            value = ConditionValue(False, "NoHistory", sentence)
        status_errors = [
            one for analytics in due for one in self._reject(analytics, value, at, is_steady=False)
        ]
        if is_absent:
            return CycleReport((), (), [*warnings, *status_errors, failure])
        for analytics in due:
            self._failures.fail(_key(analytics), at, FailedTry((), failure))
        failed = self._failures.failure(_key(due[0]))
        return CycleReport((), (), [*warnings, *status_errors], _history_error(failed) if failed else "")

    def _advised(
        self, due: Sequence[Selected], listed: Sequence[Workload], at: float, epoch: int, warnings: list[str]
    ) -> list[list[Advised]]:
        """Decide for all due Analytics, while the history is read once."""

        def on_bytes(_: int) -> None:
            self.heartbeat()
            if self.leadership.epoch() != epoch:
                raise LeadershipLost("this process leads no more")

        batches = [AdviceBatch(each.spec.request, each.workloads) for each in due]
        sources = replace(self.sources(), warn=warnings.append, on_bytes=on_bytes)
        found: list[list[Advised]] = [[] for _ in due]
        for advised in advise_all(batches, listed, sources, at, isolation=self._isolation):
            found[advised.batch].append(advised)
        for each in found:
            each.sort(key=lambda one: (one.ref.name, one.ref.kind))
        return found


def _key(analytics: PolicyObject) -> tuple[str, int]:
    return analytics.ref.uid, analytics.generation


def _history_error(failed: Failure[FailedTry]) -> str:
    """Return why the last attempt could not read the history, and when the next one is."""
    error = failed.last.history_error
    return f"{error}; the next try is at {timestamp(failed.until)}" if error else ""


def _selections(
    objects: Sequence[PolicyObject],
    listed: Sequence[Workload],
    recommendations: Iterable[PolicyObject],
    isolation: Isolation,
) -> Iterator[AnalyticsSelection]:
    by_namespace: dict[str, list[Workload]] = defaultdict(list)
    for workload in listed:
        by_namespace[workload.ref.namespace].append(workload)
    by_analytics: dict[tuple[str, str], list[PolicyObject]] = defaultdict(list)
    for one in recommendations:
        by_analytics[one.ref.namespace, analytics_uid(one)].append(one)
    for analytics in sorted(objects, key=lambda one: (one.ref.namespace, one.ref.name)):
        candidates = by_namespace[analytics.ref.namespace]
        found = isolation.attempt(str(analytics.ref), partial(select, analytics, candidates))
        if isinstance(found, FailedTurn):
            found = ConditionValue.because(failed_reason(found))
        yield AnalyticsSelection(analytics, found, by_analytics[analytics.ref.namespace, analytics.ref.uid])
