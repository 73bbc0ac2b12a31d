"""Which policies can be followed, their status, and which pods belong to their workloads.

A policy that cannot be parsed is not followed, and its status has the reason; the others are followed. Which
of two policies with the same target is followed, each balancer decides: the first by name (rotation), neither
(proportional), the oldest (recommendation).

Every write of a status is sent to all watchers of the object, so it is written only when its content is new.
The transition time of a condition is the time at which its status, not its reason, last changed; it is taken
from the present status.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from equipoise.core.cluster import ObjectRef, Pod, Selector, Workload, WorkloadRef
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.engine.isolation import Isolation, failed_reason
from equipoise.ports import FailedTurn, PolicyObject, StoreConflict

S = TypeVar("S")
T = TypeVar("T")


class RejectedPolicy(NamedTuple):
    """The reason and message of the condition of a policy that is not followed, or not in full."""

    code: str
    sentence: str

    @classmethod
    def of_failure(cls, failed: FailedTurn) -> "RejectedPolicy":
        """Return the rejection that reports an error in the policy's share of a cycle."""
        reason = failed_reason(failed)
        return cls(reason.code.value, reason.sentence)


def parse_policy(policy: PolicyObject, parse: Callable[[Mapping[str, Any]], S]) -> S | RejectedPolicy:
    """Return what a policy's spec parses to, or why it cannot be followed.

    `parse` may raise what a pydantic model raises, or BadInput with the whole sentence.
    """
    if policy.unreadable:
        return RejectedPolicy("Unreadable", f"The object cannot be read: {policy.unreadable}")
    try:
        return parse(policy.spec)
    except BadInput as error:
        return RejectedPolicy("InvalidSpec", str(error))
    except DECODE_ERRORS as error:
        return RejectedPolicy("InvalidSpec", f"spec.{explain(error)}")


def assign_each(
    policies: Iterable[PolicyObject],
    assign_one: Callable[[PolicyObject], T | RejectedPolicy],
    isolation: Isolation,
) -> tuple[dict[ObjectRef, T], dict[ObjectRef, RejectedPolicy]]:
    """Return the assignment of each policy, in order, and the rejected ones; an error rejects one policy."""
    found: dict[ObjectRef, T] = {}
    rejected: dict[ObjectRef, RejectedPolicy] = {}
    for policy in policies:
        assigned = isolation.attempt(str(policy.ref), partial(assign_one, policy))
        if isinstance(assigned, FailedTurn):
            rejected[policy.ref] = RejectedPolicy.of_failure(assigned)
        elif isinstance(assigned, RejectedPolicy):
            rejected[policy.ref] = assigned
        else:
            found[policy.ref] = assigned
    assert found.keys().isdisjoint(rejected), "a policy is followed or rejected"
    return found, rejected


def timestamp(at: float) -> str:
    """Return a time as the API server prints it: RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def condition(
    kind: str, reason: str, message: str, *, is_true: bool, generation: int | None = None
) -> dict[str, Any]:
    """Return a condition without its transition time."""
    observed = {} if generation is None else {"observedGeneration": generation}
    return {"type": kind, "status": str(is_true), "reason": reason, "message": message} | observed


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a status' condition of this type; empty if it has none."""
    conditions: Iterable[Any] = status.get("conditions") or ()
    found = (each for each in conditions if isinstance(each, Mapping) and each.get("type") == kind)
    return next(found, {})


def keep_transition_time(new: Mapping[str, Any], old: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a condition with its transition time: the present status' unless `status` changes."""
    assert new["status"] in {"True", "False"}, f"{new['status']} is no status of a condition"
    before = condition_of(old, new["type"])
    since = before.get("lastTransitionTime") if before.get("status") == new["status"] else None
    return {**new, "lastTransitionTime": since or now}


def has_condition(
    old: Mapping[str, Any], new: Mapping[str, Any], fields: Sequence[str] = ("status", "reason")
) -> bool:
    """Return whether a status already has this condition with the same values of these fields."""
    before = condition_of(old, new["type"])
    return all(before.get(field) == new[field] for field in fields)


class StatusWrite(NamedTuple):
    """Whether a status was written, and the error if that failed."""

    is_written: bool
    error: str = ""


def write_status(
    write: Callable[[PolicyObject, Mapping[str, Any]], object],
    policy: PolicyObject,
    status: Mapping[str, Any],
) -> StatusWrite:
    """Replace a status. A conflict is no error: the next cycle reads the other's change and tries again."""
    try:
        write(policy, status)
    except StoreConflict:
        return StatusWrite(False)
    except WorldFailed as error:
        return StatusWrite(False, f"the status of {policy.ref} could not be written: {error}")
    return StatusWrite(True)


def status_error(isolation: Isolation, policy: PolicyObject, write: Callable[[], str]) -> str:
    """Write a status and return why it could not be written; any other error becomes a failed turn."""
    error = isolation.attempt(str(policy.ref), write)
    return "" if isinstance(error, FailedTurn) else error


Labels = tuple[tuple[str, str], ...]


def pods_by_workload(
    workloads: Iterable[Workload],
    pods: Iterable[Pod],
    isolation: Isolation | None = None,
    owns: Callable[[Workload, Pod], bool] | None = None,
) -> Mapping[WorkloadRef, Sequence[Pod]]:
    """Return the pods of each workload: those that its selector matches in its namespace, as for its HPA.

    With `owns`, only those that it owns: selectors may overlap, and anyone can write labels. A workload
    whose selector fails is left out: its pods are unknown.
    """
    isolation = isolation or Isolation()
    alike: dict[tuple[str, Labels], list[Pod]] = defaultdict(list)
    for pod in pods:
        alike[pod.namespace, pod.labels].append(pod)
    # An index by the rarest label makes the cost independent of other workloads' pods.
    by_label: dict[tuple[str, str, str], list[Labels]] = defaultdict(list)
    for namespace, labels in alike:
        for key, value in labels:
            by_label[namespace, key, value].append(labels)
    found: dict[WorkloadRef, Sequence[Pod]] = {}

    def matched(workload: Workload) -> list[Pod]:
        namespace = workload.ref.namespace
        return [
            pod
            for labels in _label_sets(workload.selector, namespace, alike, by_label)
            if workload.selector.matches(dict(labels))
            for pod in alike[namespace, labels]
            if owns is None or owns(workload, pod)
        ]

    for workload in workloads:
        own = isolation.attempt(workload.ref.subject, partial(matched, workload))
        if not isinstance(own, FailedTurn):
            found[workload.ref] = own
    return found


def _label_sets(
    selector: Selector,
    namespace: str,
    alike: Mapping[tuple[str, Labels], object],
    by_label: Mapping[tuple[str, str, str], Sequence[Labels]],
) -> Sequence[Labels]:
    """Return the fewest label sets that the selector may match; an empty selector matches nothing."""
    if not selector.requirements:
        return []
    exact = [
        by_label.get((namespace, term.key, term.values[0]), ())
        for term in selector.requirements
        if term.operator == "In" and len(term.values) == 1
    ]
    return min(exact, key=len) if exact else [labels for place, labels in alike if place == namespace]
