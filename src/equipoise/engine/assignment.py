"""Which policies can be followed, and why the others cannot, for every balancer that has policies.

A policy that cannot be parsed is not followed, and its status has the reason; the others are followed. Which
of two policies with the same target is followed, each balancer decides: the first by name (rotation), neither
(proportional), the oldest (recommendation).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from equipoise.core.cluster import ObjectRef
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.engine.isolation import Isolation, failed_reason
from equipoise.ports import FailedTurn, PolicyObject

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
