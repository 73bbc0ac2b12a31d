"""The statuses of Analytics and Recommendations in the seed's words, and the backoff of failed Analytics.

Every attempt reads a week of usage, so an Analytics that failed backs off exponentially. The backoff is state
of this process only: a new leader retries at once. Failures to read the history end their backoff as soon as
the history can be read again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.backoff import Failure, KeyedBackoff
from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.documents import dump
from equipoise.core.reason import Code
from equipoise.crd.status import ENTRIES_MAX
from equipoise.engine.status import condition, condition_of, has_condition, keep_transition_time, timestamp
from equipoise.ports import PolicyObject
from equipoise.recommendation.adopt import ehpa_manifest
from equipoise.recommendation.analytics import GROUP, VERSION, AdoptionType
from equipoise.recommendation.explain import AdviceDetails, coverage_percent
from equipoise.recommendation.policy import AdviceType
from equipoise.recommendation.selection import ADOPTED, LABELS, READY, ConditionValue

LABEL_LENGTH_MAX = 63
SUCCESS = "Success"
ANALYTICS_READY = ConditionValue(True, "AnalyticsReady", "Analytics is ready")
RECOMMENDATION_READY = ConditionValue(True, "RecommendationReady", "Recommendation is ready")


def advice_text(subject: str, details: AdviceDetails, interval_seconds: float) -> str:
    """Return the advice as the seed prints it, in YAML; empty where there is none."""
    if details.containers is not None:
        containers = [{"containerName": each.name, "target": each.requests} for each in details.containers]
        return dump({"resourceRequest": {"containers": containers}}, sort_keys=True)
    manifest = ehpa_manifest(subject, details, interval_seconds)
    if manifest is None:
        return ""
    keys = ("minReplicas", "maxReplicas", "metrics", "behavior", "prediction")
    return dump({key: manifest["spec"][key] for key in keys if key in manifest["spec"]}, sort_keys=True)


def target_ref(ref: WorkloadRef) -> dict[str, str]:
    """Return a workload as an ObjectReference."""
    return {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "namespace": ref.namespace}


def new_recommendation(
    analytics: PolicyObject,
    type_: AdviceType,
    ref: WorkloadRef,
    labels: Mapping[str, str],
    adoption: AdoptionType,
) -> dict[str, Any]:
    """Return the manifest of a Recommendation for one workload of an Analytics; the server names it."""
    source = analytics.ref
    own = {f"{LABELS}name": source.name, f"{LABELS}type": type_.value, f"{LABELS}uid": source.uid}
    owner = {
        "apiVersion": source.api_version,
        "blockOwnerDeletion": False,
        "controller": False,
        "kind": source.kind,
        "name": source.name,
        "uid": source.uid,
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Recommendation",
        "metadata": {
            "generateName": f"{source.name}-{type_.value.lower()}-",
            "namespace": source.namespace,
            "labels": {
                **labels,
                **{key: value for key, value in own.items() if len(value) <= LABEL_LENGTH_MAX},
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "adoptionType": adoption.value,
            "completionStrategy": {"completionStrategyType": "Once"},
            "targetRef": target_ref(ref),
            "type": type_.value,
        },
    }


def ready_of(decision: Decision) -> ConditionValue:
    """Return the condition Ready: true where there is advice, else the decision's reason."""
    if decision.reason.code is Code.RECOMMEND:
        return RECOMMENDATION_READY
    return ConditionValue(False, decision.reason.code.value, decision.reason.sentence)


def next_recommendation(
    before: PolicyObject,
    decision: Decision,
    details: AdviceDetails,
    value: str,
    adopted: ConditionValue | None,
    at: float,
) -> dict[str, Any] | None:
    """Return the new status of a Recommendation, or None where the old one is still current.

    It changes with the advice, its reason and its adoption, not with every number in a message.
    """
    old, now = before.status, timestamp(at)
    ready, confidence = ready_of(decision), details.confidence
    conditions = [_condition(READY, ready, old, now)]
    if adopted is not None:
        conditions.append(_condition(ADOPTED, adopted, old, now))
    is_same = (
        _is_current(old, READY, ready)
        and _is_current(old, ADOPTED, adopted)
        and old.get("recommendedValue", "") == value
        and old.get("confidence", confidence) == confidence
        and old.get("observedGeneration") == before.generation
    )
    if is_same:
        return None
    status: dict[str, Any] = {
        "conditions": conditions,
        "lastUpdateTime": now,
        "observedGeneration": before.generation,
        "reason": decision.reason.code.value,
        "description": decision.reason.sentence,
        "confidence": confidence,
        "coveragePercent": coverage_percent(details.coverage),
    }
    return status | ({"recommendedValue": value} if value else {})


def mission(recommendation: PolicyObject, ref: WorkloadRef, decision: Decision, at: float) -> dict[str, Any]:
    """Return the entry of one workload in the status of its Analytics."""
    is_advised = decision.reason.code is Code.RECOMMEND
    return {
        "lastStartTime": timestamp(at),
        "message": SUCCESS if is_advised else decision.reason.sentence,
        "name": recommendation.ref.name,
        "namespace": recommendation.ref.namespace,
        "targetRef": target_ref(ref),
        "uid": recommendation.ref.uid,
    }


def answered_status(
    analytics: PolicyObject, missions: Sequence[Mapping[str, Any]], at: float
) -> dict[str, Any]:
    """Return the status of an Analytics whose workloads all have their advice."""
    now = timestamp(at)
    return {
        "conditions": [_condition(READY, ANALYTICS_READY, analytics.status, now)],
        "lastUpdateTime": now,
        "observedGeneration": analytics.generation,
        "recommendations": [dict(each) for each in missions[:ENTRIES_MAX]],
        "recommendationsTotal": len(missions),
        "recommendedTotal": sum(each["message"] == SUCCESS for each in missions),
    }


def rejected_status(
    analytics: PolicyObject, value: ConditionValue, at: float, *, is_steady: bool
) -> dict[str, Any] | None:
    """Return the status of an Analytics that is rejected for now, or None where it is current.

    A message that is not steady, such as an error with a duration in it, makes no new status by itself.
    """
    assert not value.is_true, "what is rejected is not ready"
    fields = ("status", "reason", "message") if is_steady else ("status", "reason")
    if has_condition(analytics.status, _untimed(READY, value), fields):
        return None
    others = [each for each in analytics.status.get("conditions") or () if each.get("type") != READY]
    ready = _condition(READY, value, analytics.status, timestamp(at))
    return {**analytics.status, "conditions": [ready, *others]}


def _is_current(old: Mapping[str, Any], kind: str, value: ConditionValue | None) -> bool:
    if value is None:
        return not condition_of(old, kind)
    return has_condition(old, _untimed(kind, value))


def _untimed(kind: str, value: ConditionValue) -> dict[str, Any]:
    return condition(kind, value.reason, value.message, is_true=value.is_true)


def _condition(kind: str, value: ConditionValue, old: Mapping[str, Any], now: str) -> dict[str, Any]:
    return keep_transition_time(_untimed(kind, value), old, now)


LONGEST_SECONDS = 600.0


class _FailedTry(NamedTuple):
    generation: int
    """Generation of the spec that failed; a changed spec does not wait."""
    warnings: Sequence[str]
    history_error: str
    """Why the history could not be read; empty where something else failed."""


class AnalyticsBackoff:
    """The backoff of each Analytics that failed: its consecutive failures and its next attempt."""

    def __init__(self, first_seconds: float) -> None:
        self._backoff: KeyedBackoff[str, _FailedTry] = KeyedBackoff(
            first_seconds, max(LONGEST_SECONDS, first_seconds)
        )

    def is_backing_off(self, analytics: PolicyObject, at: float) -> bool:
        """Return whether it is too early for the next attempt, within half of the first wait."""
        failure = self._failure(analytics)
        return failure is not None and at < failure.until - self._backoff.first_seconds / 2

    def has_failed(self, analytics: PolicyObject) -> bool:
        """Return whether the last attempt failed, so that the Analytics is due regardless of its status."""
        return self._failure(analytics) is not None

    def warnings(self, analytics: PolicyObject) -> Sequence[str]:
        """Return the warnings of the last attempt, which are valid until the next."""
        failure = self._failure(analytics)
        return () if failure is None else failure.last.warnings

    def history_error(self, analytics: PolicyObject) -> str:
        """Return why the last attempt could not read the history, and when the next one is."""
        failure = self._failure(analytics)
        if failure is None or not failure.last.history_error:
            return ""
        return f"{failure.last.history_error}; the next try is at {timestamp(failure.until)}"

    def fail(
        self, analytics: PolicyObject, at: float, warnings: Sequence[str] = (), history_error: str = ""
    ) -> None:
        """Double the wait, up to a bound."""
        if self._failure(analytics) is None:
            self.succeed(analytics)
        self._backoff.fail(analytics.ref.uid, at, _FailedTry(analytics.generation, warnings, history_error))

    def succeed(self, analytics: PolicyObject) -> None:
        self._backoff.forget(analytics.ref.uid)

    def history_read(self) -> None:
        """End the backoff of those that could not read the history, since it was read now."""
        self._backoff.keep([uid for uid, failure in self._backoff.items() if not failure.last.history_error])

    def keep(self, uids: Collection[str]) -> None:
        """Drop entries whose Analytics no longer exists."""
        self._backoff.keep(uids)

    def _failure(self, analytics: PolicyObject) -> Failure[_FailedTry] | None:
        found = self._backoff.failure(analytics.ref.uid)
        return None if found is None or found.last.generation != analytics.generation else found
