"""Functions that the cycles of all balancers end with.

There is no common loop class: the five cycles differ in everything between observing and recording.
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
    at: float,
    record_id: str,
    outcomes: Sequence[Outcome] = (),
) -> Decision:
    """Record a failed turn with the actions sent before the error; return the decision that reports it."""
    decision = failed_decision(failed, outcomes)
    written = failed_record(balancer, decision, at, record_id, outcomes)
    isolation.attempt(failed.subject, lambda: journal.append(written))
    return decision


def status_error(isolation: Isolation, policy: PolicyObject, write: Callable[[], str]) -> str:
    """Write a status and return why it could not be written; any other error becomes a failed turn."""
    error = isolation.attempt(str(policy.ref), write)
    return "" if isinstance(error, FailedTurn) else error
