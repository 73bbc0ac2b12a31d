"""Analytics and Recommendations: what they select, when they are due, who takes precedence, their statuses.

An Analytics selects workloads in its own namespace. Where several Analytics select the same workload, the
oldest takes precedence: a workload has one annotation for each type of advice, and one HPA, and Analytics
with different settings would overwrite them again and again. The statuses are in the seed's words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from equipoise.core.cluster import Workload, WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.documents import dump
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_moment
from equipoise.core.reason import Code, Reason
from equipoise.crd.status import ENTRIES_MAX
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import (
    RejectedPolicy,
    condition,
    condition_of,
    has_condition,
    keep_transition_time,
    parse_policy,
    timestamp,
)
from equipoise.ports import FailedTurn, PolicyObject
from equipoise.recommendation.adopt import ehpa_manifest
from equipoise.recommendation.explain import AdviceDetails, coverage_percent
from equipoise.recommendation.policy import GROUP, VERSION, AdoptionType, AnalyticsSpec, ResourceSelector
from equipoise.recommendation.settings import AdviceType

ADOPTED, READY, OLDER = "Adopted", "Ready", "OlderAnalytics"
LABELS = f"{GROUP}/analytics-"
INCOMPLETE = "MetricsIncomplete"
TRANSIENT_CODES = frozenset({"NoPods", "TooFewAvailablePods", "NoSamples", INCOMPLETE})
"""Reasons without advice that hold while a workload starts, and end without intervention."""
SETTLING_SECONDS = 900.0
"""For how long after an Analytics was created `TRANSIENT_CODES` are retried, even with `Once`."""
SETTLING_RETRY_SECONDS = 10.0
"""Interval of these retries."""


class ConditionValue(NamedTuple):
    """The status, reason and message of a condition."""

    is_true: bool
    reason: str
    message: str

    @classmethod
    def because(cls, reason: Reason) -> "ConditionValue":
        """Return the value of a condition that does not hold for this reason."""
        return cls(False, reason.code.value, reason.sentence)


class Selected(NamedTuple):
    """A valid Analytics and its workloads."""

    analytics: PolicyObject
    spec: AnalyticsSpec
    workloads: Sequence[Workload]


def select(analytics: PolicyObject, in_namespace: Sequence[Workload]) -> Selected | ConditionValue:
    """Return the workloads of an Analytics, or the condition why there are none."""
    spec = parse_policy(analytics, AnalyticsSpec.model_validate)
    if isinstance(spec, RejectedPolicy):
        return ConditionValue(False, spec.code, spec.sentence)
    chosen: dict[object, Workload] = {}
    for number, selector in enumerate(spec.resource_selectors):
        found = [workload for workload in in_namespace if _is_selected(selector, workload)]
        if not found:
            where = f"spec.resourceSelectors[{number}]"
            return ConditionValue(
                False, "FailedSelectResource", f"{where}: expected {_description(selector)}, found none"
            )
        chosen |= {workload.ref: workload for workload in found}
    assert chosen, "every selector found a workload"
    return Selected(analytics, spec, sorted(chosen.values(), key=lambda one: (one.ref.name, one.ref.kind)))


def _is_selected(selector: ResourceSelector, workload: Workload) -> bool:
    ref = workload.ref
    if ref.kind != selector.kind or selector.name not in {None, ref.name}:
        return False
    labels = selector.label_selector
    return labels is None or labels.selector.matches(dict(workload.labels))


def _description(selector: ResourceSelector) -> str:
    called = f" {selector.name}" if selector.name else ""
    labels = selector.label_selector
    labelled = " with these labels" if labels is not None and labels.selector.requirements else ""
    return f"a {selector.kind}{called}{labelled} in this namespace"


def is_due(
    selected: Selected,
    recommendations: Sequence[PolicyObject],
    at: float,
    slack_seconds: float,
    is_retried: Callable[[PolicyObject, str], bool],
) -> bool:
    """Return whether an Analytics is due: new, changed, failed, period over, settling, or to be adopted.

    `is_retried` takes a Recommendation and the reason that prevented adoption, and returns whether to retry.
    """
    status = selected.analytics.status
    if status.get("observedGeneration") != selected.analytics.generation:
        return True
    if condition_of(status, READY).get("status") != "True":
        return True
    last, period = _moment(status.get("lastUpdateTime")), selected.spec.completion_strategy.seconds
    if last is None or (period is not None and at - last >= period - min(slack_seconds, period / 2)):
        return True
    is_settling = (
        at - selected.analytics.created_at < SETTLING_SECONDS and at - last >= SETTLING_RETRY_SECONDS
    )
    reasons = [condition_of(one.status, READY).get("reason") for one in recommendations]
    if any(
        reason in {INCOMPLETE, Code.INTERNAL_ERROR.value} or (is_settling and reason in TRANSIENT_CODES)
        for reason in reasons
    ):
        return True  # missing workloads may be created later, even with `Once`
    return any(_is_adoption_due(one, is_retried) for one in recommendations)


def _is_adoption_due(recommendation: PolicyObject, is_retried: Callable[[PolicyObject, str], bool]) -> bool:
    status = recommendation.status
    if status and status.get("observedGeneration") != recommendation.generation:
        return True
    adopted = condition_of(status, ADOPTED)
    return adopted.get("status") == "False" and is_retried(recommendation, str(adopted.get("reason")))


def _moment(text: object) -> float | None:
    try:
        return parse_moment(text) if text else None
    except DECODE_ERRORS:
        return None  # unreadable: the Analytics is due, and the time is written again


APPLIED = "applied"
"""Key of the precedence for the HPA, beside the types of annotations."""


class AnalyticsSelection(NamedTuple):
    """An Analytics, its workloads or why it has none, and its Recommendations."""

    analytics: PolicyObject
    found: Selected | ConditionValue
    recommendations: Sequence[PolicyObject]


class Precedence(NamedTuple):
    """The Analytics that takes precedence for each workload: by type of annotation, and for the HPA."""

    first: Mapping[tuple[WorkloadRef, str], PolicyObject]

    def annotates_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics whose advice the workload is annotated with."""
        return self._before(recommendation, str(recommendation.spec.get("type")))

    def applies_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics whose advice is applied as the workload's HPA."""
        return self._before(recommendation, APPLIED)

    def _before(self, recommendation: PolicyObject, what: str) -> PolicyObject | None:
        first = self.first.get((target_of(recommendation), what))
        return None if first is None or first.ref.uid == analytics_uid(recommendation) else first

    def is_first(self, recommendation: PolicyObject) -> bool:
        """Return whether no older Analytics takes precedence where this advice is to be adopted."""
        is_hpa = recommendation.spec.get("type") == AdviceType.HPA.value
        if is_hpa and adoption_of(recommendation) is AdoptionType.AUTO:
            return self.applies_before(recommendation) is None
        return self.annotates_before(recommendation) is None


def precedence(selections: Iterable[AnalyticsSelection], isolation: Isolation) -> Precedence:
    """Return which Analytics takes precedence: by age, then by name."""
    first: dict[tuple[WorkloadRef, str], PolicyObject] = {}
    for one in sorted(selections, key=lambda each: (each.analytics.created_at, each.analytics.ref.name)):
        adoptions = isolation.attempt(str(one.analytics.ref), partial(_adoptions, one))
        for ref, type_, adoption in () if isinstance(adoptions, FailedTurn) else adoptions:
            if adoption is not AdoptionType.STATUS:
                first.setdefault((ref, type_), one.analytics)
            if adoption is AdoptionType.AUTO and type_ == AdviceType.HPA.value:
                first.setdefault((ref, APPLIED), one.analytics)
    return Precedence(first)


def _adoptions(selection: AnalyticsSelection) -> list[tuple[WorkloadRef, str, AdoptionType]]:
    """Return the adoption of each of its workloads; while its selection fails, of its Recommendations."""
    existing = {target_of(one): one for one in selection.recommendations}
    if isinstance(selection.found, ConditionValue):
        return [(ref, str(one.spec.get("type")), adoption_of(one)) for ref, one in existing.items()]
    spec, found = selection.found.spec, []
    for workload in selection.found.workloads:
        before = existing.get(workload.ref)
        adoption = AdoptionType.STATUS_AND_ANNOTATION if before is None else adoption_of(before)
        found.append((workload.ref, AdviceType(spec.type).value, spec.adoption or adoption))
    return found


def analytics_uid(recommendation: PolicyObject) -> str:
    return recommendation.labels.get(f"{LABELS}uid", "")


def target_of(recommendation: PolicyObject) -> WorkloadRef:
    target = recommendation.spec.get("targetRef")
    target = target if isinstance(target, Mapping) else {}
    words = (target.get(key, "") for key in ("apiVersion", "kind", "namespace", "name"))
    return WorkloadRef(*map(str, words)).canonical


def adoption_of(recommendation: PolicyObject) -> AdoptionType:
    try:
        return AdoptionType(str(recommendation.spec.get("adoptionType")))
    except ValueError:
        return AdoptionType.STATUS_AND_ANNOTATION


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
    valid = {key: value for key, value in own.items() if len(value) <= LABEL_LENGTH_MAX}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Recommendation",
        "metadata": {
            "generateName": f"{source.name}-{type_.value.lower()}-",
            "namespace": source.namespace,
            "labels": {**labels, **valid},
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
    return ConditionValue.because(decision.reason)


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
