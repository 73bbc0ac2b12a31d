"""Whose advice a workload carries where several Analytics ask for it: the oldest has it, whatever it advises.

A workload has one annotation for each type of advice, and one HPA. Analytics that differ would change them in
turns, with every look, for ever.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from equipoise.core.cluster import WorkloadRef
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn, PolicyObject
from equipoise.recommendation.analytics import AdoptionType
from equipoise.recommendation.policy import AdviceType
from equipoise.recommendation.selection import Selected, Verdict
from equipoise.recommendation.status import asker_of

OLDER = "OlderAnalytics"


class AnalyticsSelection(NamedTuple):
    """An Analytics, what it selects or why nothing, and the Recommendations that it has."""

    about: PolicyObject
    found: Selected | Verdict
    given: Sequence[PolicyObject]


class Precedence(NamedTuple):
    """Which Analytics comes first: for the annotations of one type, and for the HPA, of each workload."""

    annotating: Mapping[tuple[WorkloadRef, str], PolicyObject]
    applying: Mapping[WorkloadRef, PolicyObject]

    def annotates_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics whose advice the workload carries."""
        key = (target_of(recommendation), str(recommendation.spec.get("type")))
        return _other(self.annotating.get(key), recommendation)

    def applies_before(self, recommendation: PolicyObject) -> PolicyObject | None:
        """Return the older Analytics that the workload's HPA is for."""
        return _other(self.applying.get(target_of(recommendation)), recommendation)

    def is_first(self, recommendation: PolicyObject) -> bool:
        """Whether nobody older asks for what is to become of this advice."""
        is_hpa = recommendation.spec.get("type") == AdviceType.HPA.value
        if is_hpa and adoption_of(recommendation) is AdoptionType.AUTO:
            return self.applies_before(recommendation) is None
        return self.annotates_before(recommendation) is None


def precedence(asking: Iterable[AnalyticsSelection], isolation: Isolation | None = None) -> Precedence:
    """Find who comes first: by age, then by name."""
    isolation = isolation or Isolation()
    annotating: dict[tuple[WorkloadRef, str], PolicyObject] = {}
    applying: dict[WorkloadRef, PolicyObject] = {}
    for one in sorted(asking, key=lambda each: (each.about.created_at, each.about.ref.name)):
        wanted = isolation.attempt(str(one.about.ref), partial(_everything_wanted, one))
        for ref, type_, adoption in () if isinstance(wanted, FailedTurn) else wanted:
            if adoption is not AdoptionType.STATUS:
                annotating.setdefault((ref, type_), one.about)
            if adoption is AdoptionType.AUTO and type_ == AdviceType.HPA.value:
                applying.setdefault(ref, one.about)
    return Precedence(annotating, applying)


def _everything_wanted(asking: AnalyticsSelection) -> list[tuple[WorkloadRef, str, AdoptionType]]:
    return list(_wanted(asking))


def _wanted(asking: AnalyticsSelection) -> Iterator[tuple[WorkloadRef, str, AdoptionType]]:
    """Give what is to become of its advice; while a selector fails, of the advice that it has."""
    given = {target_of(one): one for one in asking.given}
    if isinstance(asking.found, Verdict):
        for ref, one in given.items():
            yield ref, str(one.spec.get("type")), adoption_of(one)
        return
    spec = asking.found.spec
    for workload in asking.found.workloads:
        before = given.get(workload.ref)
        adoption = AdoptionType.STATUS_AND_ANNOTATION if before is None else adoption_of(before)
        yield workload.ref, AdviceType(spec.type).value, spec.adoption or adoption


def target_of(recommendation: PolicyObject) -> WorkloadRef:
    """Return the workload that a Recommendation is about."""
    target = recommendation.spec.get("targetRef")
    target = target if isinstance(target, Mapping) else {}
    words = (target.get(key, "") for key in ("apiVersion", "kind", "namespace", "name"))
    return WorkloadRef(*map(str, words)).canonical


def adoption_of(recommendation: PolicyObject) -> AdoptionType:
    """Give what is to become of advice, by its own word."""
    try:
        return AdoptionType(str(recommendation.spec.get("adoptionType")))
    except ValueError:
        return AdoptionType.STATUS_AND_ANNOTATION


def _other(first: PolicyObject | None, recommendation: PolicyObject) -> PolicyObject | None:
    return None if first is None or first.ref.uid == asker_of(recommendation) else first
