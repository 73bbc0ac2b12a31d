"""Which workloads an Analytics is for, in its own namespace, and whether it is time to look at them.

Which workloads a person means: by name, or all.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from equipoise.core.cluster import Workload, WorkloadRef
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.core.quantity import parse_moment
from equipoise.core.reason import Code
from equipoise.engine.status import condition_of
from equipoise.ports import PolicyObject
from equipoise.recommendation.analytics import AnalyticsSpec, ResourceSelector

ADOPTED, READY = "Adopted", "Ready"
INCOMPLETE = "MetricsIncomplete"
PASSING = frozenset({"NoPods", "TooFewAvailablePods", "NoSamples", INCOMPLETE})
"""What keeps a workload from getting advice while it starts, and passes by itself."""
SETTLING_SECONDS = 900.0
"""For so long after an Analytics was made, what passes is waited for, Once or not:"""
SETTLING_STEP_SECONDS = 10.0
"""it is looked at again so often."""


class Verdict(NamedTuple):
    """What a condition says."""

    is_true: bool
    reason: str
    message: str


class Selected(NamedTuple):
    """An Analytics that can be followed, and its workloads."""

    about: PolicyObject
    spec: AnalyticsSpec
    workloads: Sequence[Workload]


def select(about: PolicyObject, in_namespace: Sequence[Workload]) -> Selected | Verdict:
    """Find the workloads of an Analytics, or say by path why there are none; then nothing is changed."""
    if about.unreadable:
        return Verdict(False, "Unreadable", f"The object cannot be read: {about.unreadable}")
    try:
        spec = AnalyticsSpec.model_validate(about.spec)
    except DECODE_ERRORS as error:
        return Verdict(False, "InvalidSpec", f"spec.{explain(error)}")
    chosen: dict[object, Workload] = {}
    for number, selector in enumerate(spec.resource_selectors):
        found = [workload for workload in in_namespace if _is_meant(selector, workload)]
        if not found:
            where = f"spec.resourceSelectors[{number}]"
            return Verdict(
                False, "FailedSelectResource", f"{where}: expected {_wanted(selector)}, found none"
            )
        chosen |= {workload.ref: workload for workload in found}
    return Selected(about, spec, sorted(chosen.values(), key=lambda one: (one.ref.name, one.ref.kind)))


def _is_meant(selector: ResourceSelector, workload: Workload) -> bool:
    ref = workload.ref
    if ref.kind != selector.kind or selector.name not in {None, ref.name}:
        return False
    labels = selector.label_selector
    return labels is None or labels.selector.matches(dict(workload.labels))


def _wanted(selector: ResourceSelector) -> str:
    called = f" {selector.name}" if selector.name else ""
    labels = selector.label_selector
    labelled = " with these labels" if labels is not None and labels.selector.requirements else ""
    return f"a {selector.kind}{called}{labelled} in this namespace"


def is_due(
    selected: Selected,
    given: Sequence[PolicyObject],
    at: float,
    slack_seconds: float,
    is_retried: Callable[[PolicyObject, str], bool],
) -> bool:
    """Whether it is time to look: new, changed, not well, period over, settling, or advice to be adopted.

    `is_retried` tells of a Recommendation and the reason for which its advice was not adopted whether that
    has passed.
    """
    status = selected.about.status
    if status.get("observedGeneration") != selected.about.generation:
        return True
    if condition_of(status, READY).get("status") != "True":
        return True
    last, period = _moment(status.get("lastUpdateTime")), selected.spec.completion_strategy.seconds
    if last is None or (period is not None and at - last >= period - min(slack_seconds, period / 2)):
        return True
    is_settling = at - selected.about.created_at < SETTLING_SECONDS and at - last >= SETTLING_STEP_SECONDS
    reasons = [condition_of(one.status, READY).get("reason") for one in given]
    if any(
        reason in {INCOMPLETE, Code.INTERNAL_ERROR.value} or (is_settling and reason in PASSING)
        for reason in reasons
    ):
        return True  # what is missing now may be there later, Once or not
    return any(_wants_adoption(one, is_retried) for one in given)


def _wants_adoption(recommendation: PolicyObject, is_retried: Callable[[PolicyObject, str], bool]) -> bool:
    status = recommendation.status
    if status and status.get("observedGeneration") != recommendation.generation:
        return True
    adopted = condition_of(status, ADOPTED)
    return adopted.get("status") == "False" and is_retried(recommendation, str(adopted.get("reason")))


def _moment(text: object) -> float | None:
    try:
        return parse_moment(text) if text else None
    except DECODE_ERRORS:
        return None  # somebody wrote nonsense there: look again, and write it anew


SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs"}
"""How kubectl's users write the kinds."""
EXPECTED = "expected NAME, KIND/NAME or NAMESPACE/NAME, such as web or deploy/web"


def check_names(names: Collection[str]) -> None:
    """Refuse what cannot name a workload, before anything is asked."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: {EXPECTED}")


def choose(listed: Sequence[Workload], namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Return the named workloads, or all; in the order of their names."""
    chosen = {workload.ref: workload for workload in ([] if names else listed)}
    for name in names:
        found = [workload for workload in listed if _is_named(workload.ref, name)]
        if not found:
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}{_elsewhere(namespace, name)}")
        chosen |= {workload.ref: workload for workload in found}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def without_kind(text: str, kind: str | None, namespaces: Collection[str] = ()) -> str:
    """Return `web` for `deploy/web` where all are of this kind (None: of any); another kind is refused."""
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
    """Return where to look for a workload whose name may begin with another namespace."""
    before = text.rpartition("/")[0]
    if namespace in {None, before} or not before or any(_is_kind(before, kind) for kind in SHORT_NAMES):
        return ""
    return f"; -n {before} or -A look there"


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Whether `web`, `deployment/web`, `deploy/web`, `deployments.apps/web` or `shop/web` means this one."""
    before, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    return before in {"", ref.namespace} or _is_kind(before, ref.kind)


def _is_kind(word: str, kind: str) -> bool:
    """Whether `deploy`, `Deployment` or `deployments.apps` means this kind."""
    return word.partition(".")[0].lower() in {kind.lower(), f"{kind.lower()}s", SHORT_NAMES.get(kind)}
