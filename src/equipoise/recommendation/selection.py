"""Which workloads get advice, when, and which Analytics takes precedence.

An Analytics selects workloads in its own namespace; a command names them, or takes all. Where several
Analytics select the same workload, the oldest takes precedence: a workload has one annotation for each type
of advice, and one HPA, and Analytics with different settings would overwrite them again and again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from equipoise.core.cluster import Workload, WorkloadRef
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.core.quantity import parse_moment
from equipoise.core.reason import Code
from equipoise.engine.assignment import RejectedPolicy, parse_policy
from equipoise.engine.isolation import Isolation
from equipoise.engine.status import condition_of
from equipoise.ports import FailedTurn, PolicyObject
from equipoise.recommendation.analytics import GROUP, AdoptionType, AnalyticsSpec, ResourceSelector
from equipoise.recommendation.policy import AdviceType

ADOPTED, READY = "Adopted", "Ready"
LABELS = f"{GROUP}/analytics-"
INCOMPLETE = "MetricsIncomplete"
TRANSIENT_CODES = frozenset({"NoPods", "TooFewAvailablePods", "NoSamples", INCOMPLETE})
"""Reasons without advice that hold while a workload starts, and end without intervention."""
SETTLING_SECONDS = 900.0
"""For how long after an Analytics was created `PASSING` reasons are retried, even with `Once`."""
SETTLING_RETRY_SECONDS = 10.0
"""Interval of these retries."""


class ConditionValue(NamedTuple):
    """The status, reason and message of a condition."""

    is_true: bool
    reason: str
    message: str


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


SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs"}
"""kubectl's short names of the kinds."""
EXPECTED = "expected NAME, KIND/NAME or NAMESPACE/NAME, such as web or deploy/web"


def check_names(names: Collection[str]) -> None:
    """Raise BadInput for what cannot name a workload, before any request is sent."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: {EXPECTED}")


def choose(listed: Sequence[Workload], namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Return the named workloads, or all, sorted by name."""
    chosen = {workload.ref: workload for workload in ([] if names else listed)}
    for name in names:
        found = [workload for workload in listed if _is_named(workload.ref, name)]
        if not found:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}{_elsewhere(namespace, name)}")
        chosen |= {workload.ref: workload for workload in found}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def without_kind(text: str, kind: str | None, namespaces: Collection[str] = ()) -> str:
    """Return `web` for `deploy/web` where all are of this kind (None means any); refuse other kinds."""
    before, _, name = text.rpartition("/")
    if not name:
        raise BadInput(f"workload {text!r}: {EXPECTED}")
    if not before or before in namespaces:
        return text
    if kind is not None and _is_kind(before, kind):
        return name
    for other in SHORT_NAMES:
        if _is_kind(before, other):
            if kind is None:
                return name
            raise BadInput(f"workload {text}: expected --kind {other} beside it, got {kind}")
    return text


def _elsewhere(namespace: str | None, text: str) -> str:
    """Return a hint for a name that may begin with another namespace."""
    before = text.rpartition("/")[0]
    if namespace in {None, before} or not before or any(_is_kind(before, kind) for kind in SHORT_NAMES):
        return ""
    return f"; -n {before} or -A look there"


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Return whether the text names the workload: `web`, `deploy/web`, `deployments.apps/web`, `shop/web`."""
    before, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    return before in {"", ref.namespace} or _is_kind(before, ref.kind)


def _is_kind(word: str, kind: str) -> bool:
    """Return whether a word such as `deploy`, `Deployment` or `deployments.apps` names this kind."""
    return word.partition(".")[0].lower() in {kind.lower(), f"{kind.lower()}s", SHORT_NAMES.get(kind)}


OLDER = "OlderAnalytics"


class AnalyticsSelection(NamedTuple):
    """An Analytics, its workloads or why it has none, and its Recommendations."""

    analytics: PolicyObject
    found: Selected | ConditionValue
    recommendations: Sequence[PolicyObject]


class Precedence(NamedTuple):
    """The Analytics that takes precedence for each workload: by type of annotation, and for the HPA."""

    annotating: Mapping[tuple[WorkloadRef, str], PolicyObject]
    applying: Mapping[WorkloadRef, PolicyObject]

    def annotates_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics whose advice the workload is annotated with."""
        key = (target_of(recommendation), str(recommendation.spec.get("type")))
        return _unless_same(self.annotating.get(key), recommendation)

    def applies_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics whose advice is applied as the workload's HPA."""
        return _unless_same(self.applying.get(target_of(recommendation)), recommendation)

    def is_first(self, recommendation: PolicyObject) -> bool:
        """Return whether no older Analytics takes precedence where this advice is to be adopted."""
        is_hpa = recommendation.spec.get("type") == AdviceType.HPA.value
        if is_hpa and adoption_of(recommendation) is AdoptionType.AUTO:
            return self.applies_before(recommendation) is None
        return self.annotates_before(recommendation) is None


def precedence(selections: Iterable[AnalyticsSelection], isolation: Isolation | None = None) -> Precedence:
    """Return which Analytics takes precedence: by age, then by name."""
    isolation = isolation or Isolation()
    annotating: dict[tuple[WorkloadRef, str], PolicyObject] = {}
    applying: dict[WorkloadRef, PolicyObject] = {}
    for one in sorted(selections, key=lambda each: (each.analytics.created_at, each.analytics.ref.name)):
        adoptions = isolation.attempt(str(one.analytics.ref), partial(_adoptions, one))
        for ref, type_, adoption in () if isinstance(adoptions, FailedTurn) else adoptions:
            if adoption is not AdoptionType.STATUS:
                annotating.setdefault((ref, type_), one.analytics)
            if adoption is AdoptionType.AUTO and type_ == AdviceType.HPA.value:
                applying.setdefault(ref, one.analytics)
    return Precedence(annotating, applying)


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
    """Return the UID of the Analytics that a Recommendation was made for."""
    return recommendation.labels.get(f"{LABELS}uid", "")


def target_of(recommendation: PolicyObject) -> WorkloadRef:
    """Return the workload that a Recommendation is about."""
    target = recommendation.spec.get("targetRef")
    target = target if isinstance(target, Mapping) else {}
    words = (target.get(key, "") for key in ("apiVersion", "kind", "namespace", "name"))
    return WorkloadRef(*map(str, words)).canonical


def adoption_of(recommendation: PolicyObject) -> AdoptionType:
    """Return the adoption type in the spec of a Recommendation."""
    try:
        return AdoptionType(str(recommendation.spec.get("adoptionType")))
    except ValueError:
        return AdoptionType.STATUS_AND_ANNOTATION


def _unless_same(first: PolicyObject | None, recommendation: PolicyObject) -> PolicyObject | None:
    return None if first is None or first.ref.uid == analytics_uid(recommendation) else first
