"""What the status of an Analytics and of a Recommendation says: the seed's words, and our reasons.

How long an Analytics that could not be answered is left alone: each look reads a week, so ever longer.

It is remembered in this process only: whoever leads next begins with a try of its own. Where the past could
not be read, nobody has to wait any longer once somebody could.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.backoff import Failure, KeyedBackoff
from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.documents import dump
from equipoise.core.reason import Code
from equipoise.crd.status import ENTRIES_MAX
from equipoise.engine.status import condition, condition_of, keep_transition_time, timestamp
from equipoise.ports import PolicyObject
from equipoise.recommendation.adopt import ehpa_manifest
from equipoise.recommendation.analytics import GROUP, VERSION, AdoptionType
from equipoise.recommendation.explain import known_percent
from equipoise.recommendation.policy import AdviceType
from equipoise.recommendation.selection import ADOPTED, LABELS, READY, Verdict

LABEL_LENGTH_MAX = 63
SUCCESS = "Success"
ANALYTICS_READY = Verdict(True, "AnalyticsReady", "Analytics is ready")
RECOMMENDATION_READY = Verdict(True, "RecommendationReady", "Recommendation is ready")


def advice_text(decision: Decision, interval_seconds: float) -> str:
    """Return the advice as the seed prints it, in YAML; nothing where there is none."""
    recommended = decision.extra.get("recommended")
    if not recommended:
        return ""
    if "containers" in recommended:
        containers = [
            {"containerName": each["name"], "target": each["requests"]} for each in recommended["containers"]
        ]
        return dump({"resourceRequest": {"containers": containers}}, sort_keys=True)
    manifest = ehpa_manifest(decision, interval_seconds)
    assert manifest is not None, "advice of type HPA can be written as one"
    told = ("minReplicas", "maxReplicas", "metrics", "behavior", "prediction")
    return dump({key: manifest["spec"][key] for key in told if key in manifest["spec"]}, sort_keys=True)


def target_ref(ref: WorkloadRef) -> dict[str, str]:
    """Name a workload as the core API does."""
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "name": ref.name,
        "namespace": ref.namespace,
    }


def new_recommendation(
    about: PolicyObject,
    type_: AdviceType,
    ref: WorkloadRef,
    labels: Mapping[str, str],
    adoption: AdoptionType,
) -> dict[str, Any]:
    """Return a Recommendation that the server is to name, for one workload of an Analytics."""
    source = about.ref
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


def ready_of(decision: Decision) -> Verdict:
    """Return whether there is advice, or which check failed, with both numbers."""
    if decision.reason.code is Code.RECOMMEND:
        return RECOMMENDATION_READY
    return Verdict(False, decision.reason.code.value, decision.reason.sentence)


def next_recommendation(
    before: PolicyObject, decision: Decision, value: str, adopted: Verdict | None, at: float
) -> dict[str, Any] | None:
    """Return the new status of a Recommendation, or None when the old one still says the same.

    Numbers that merely moved are no news: the advice, its reason and what became of it are.
    """
    old, now = before.status, timestamp(at)
    ready, numbers = ready_of(decision), decision.reason.numbers
    conditions = [_condition(READY, ready, old, now)]
    if adopted is not None:
        conditions.append(_condition(ADOPTED, adopted, old, now))
    confidence = decision.extra.get("confidence")
    is_same = (
        _says(old, READY, ready)
        and _says(old, ADOPTED, adopted)
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
        "coveragePercent": known_percent(numbers.get("coverage", 0.0)),
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


def answered(about: PolicyObject, missions: Sequence[Mapping[str, Any]], at: float) -> dict[str, Any]:
    """Return the status of an Analytics whose workloads have all been looked at."""
    now = timestamp(at)
    return {
        "conditions": [_condition(READY, ANALYTICS_READY, about.status, now)],
        "lastUpdateTime": now,
        "observedGeneration": about.generation,
        "recommendations": [dict(each) for each in missions[:ENTRIES_MAX]],
        "recommendationsTotal": len(missions),
        "recommendedTotal": sum(each["message"] == SUCCESS for each in missions),
    }


def refused(about: PolicyObject, verdict: Verdict, at: float, *, is_steady: bool) -> dict[str, Any] | None:
    """Return the status of an Analytics that cannot be followed now, or None when it says so already.

    A message that is not steady, such as an error with a duration in it, is no news by itself.
    """
    old = condition_of(about.status, READY)
    is_same = (old.get("status"), old.get("reason")) == ("False", verdict.reason)
    if is_same and (not is_steady or old.get("message") == verdict.message):
        return None
    others = [each for each in about.status.get("conditions") or () if each.get("type") != READY]
    return {**about.status, "conditions": [_condition(READY, verdict, about.status, timestamp(at)), *others]}


def _says(old: Mapping[str, Any], type_: str, verdict: Verdict | None) -> bool:
    found = condition_of(old, type_)
    if verdict is None:
        return not found
    return (found.get("status"), found.get("reason")) == (str(verdict.is_true), verdict.reason)


def _condition(kind: str, verdict: Verdict, old: Mapping[str, Any], now: str) -> dict[str, Any]:
    new = condition(kind, verdict.reason, verdict.message, is_true=verdict.is_true)
    return keep_transition_time(new, old, now)


LONGEST_SECONDS = 600.0


class _FailedTry(NamedTuple):
    generation: int
    """Whoever asks for something else is not made to wait."""
    warnings: Sequence[str]
    unread: str
    """What of the past could not be read; nothing where it was something else."""


class Retries:
    """Which Analytics failed, how often in a row, and until when they wait."""

    def __init__(self, first_seconds: float) -> None:
        self._backoff: KeyedBackoff[str, _FailedTry] = KeyedBackoff(
            first_seconds, max(LONGEST_SECONDS, first_seconds)
        )

    def waits(self, about: PolicyObject, at: float) -> bool:
        """Return whether it is too early for the next try; half a first wait does not matter."""
        failure = self._failure(about)
        return failure is not None and at < failure.until - self._backoff.first_seconds / 2

    def is_open(self, about: PolicyObject) -> bool:
        """Return whether the last try failed, so that there is another, whatever the status says."""
        return self._failure(about) is not None

    def warnings(self, about: PolicyObject) -> Sequence[str]:
        """Return what went wrong at the last try: it is wrong for as long as nobody tried again."""
        failure = self._failure(about)
        return () if failure is None else failure.last.warnings

    def unread(self, about: PolicyObject) -> str:
        """Return what of the past could not be read at the last try, and when the next is."""
        failure = self._failure(about)
        if failure is None or not failure.last.unread:
            return ""
        return f"{failure.last.unread}; the next try is at {timestamp(failure.until)}"

    def failed(self, about: PolicyObject, at: float, warnings: Sequence[str] = (), unread: str = "") -> None:
        """Wait twice as long as before, up to a bound."""
        if self._failure(about) is None:
            self.succeeded(about)
        self._backoff.fail(about.ref.uid, at, _FailedTry(about.generation, warnings, unread))

    def succeeded(self, about: PolicyObject) -> None:
        """Forget what failed before."""
        self._backoff.forget(about.ref.uid)

    def read(self) -> None:
        """Let those try again for whom the past could not be read: it was read now."""
        self._backoff.keep([uid for uid, failure in self._backoff.items() if not failure.last.unread])

    def keep(self, uids: Collection[str]) -> None:
        """Forget the Analytics that are gone."""
        self._backoff.keep(uids)

    def _failure(self, about: PolicyObject) -> Failure[_FailedTry] | None:
        found = self._backoff.failure(about.ref.uid)
        return None if found is None or found.last.generation != about.generation else found
