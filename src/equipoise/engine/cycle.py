"""What the cycles of all balancers call at their ends.

These are functions, and no loop that is to be filled in: the middle of the five cycles differs.
"""

from collections.abc import Callable, Sequence

from equipoise.core.decision import Decision, Outcome
from equipoise.engine.isolation import Isolation, failed_decision
from equipoise.engine.recording import failed_record
from equipoise.ports import FailedTurn, Journal, PolicyObject


def ignore(*_: object) -> None:
    """Do nothing: the default of callbacks."""


def record_failure(
    failed: FailedTurn,
    balancer: str,
    journal: Journal,
    isolation: Isolation,
    *,
    at: float,
    record_id: str,
    outcomes: Sequence[Outcome] = (),
) -> Decision:
    """Record a turn that failed, with what was sent before; return the decision that stands for it."""
    decision = failed_decision(failed, outcomes)
    written = failed_record(balancer, decision, at, record_id, outcomes)
    isolation.attempt(failed.subject, lambda: journal.append(written))
    return decision


def status_error(isolation: Isolation, policy: PolicyObject, write: Callable[[], str]) -> str:
    """Write a status, and return what `write` could not write; any other error is the policy's own."""
    error = isolation.attempt(str(policy.ref), write)
    return "" if isinstance(error, FailedTurn) else error
