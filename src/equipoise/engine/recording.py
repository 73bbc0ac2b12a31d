"""A decision as a record, and the guards' effect on a recorded decision; the same for every balancer.

A record must equal its copy from the journal, so its inputs are stored in the form in which JSON returns
them. Guards depend on the cluster, the clock and other processes, which no record has: a replay decides again
from the inputs, and takes from the record what the guards held.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Outcome, Record, hash_inputs
from equipoise.core.reason import Code, Reason
from equipoise.engine.isolation import Isolation, failed_decision
from equipoise.ports import FailedTurn, Journal

Guard = Callable[[Mapping[str, Any]], Reason | None]
"""Returns the reason to wait from the numbers of the recorded reason."""


def as_json(value: object) -> dict[str, Any]:
    """Return a value as JSON returns it: lists for tuples."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def record(
    balancer: str,
    policy: dict[str, Any],
    observation: object,
    memory: Mapping[str, Any],
    decision: Decision,
    at: float,
    record_id: str,
    outcomes: Sequence[Outcome] = (),
    *,
    has_readings: bool = True,
) -> Record:
    """Return the record of a decision: its inputs and outcomes; `policy` was made by `as_json`.

    `has_readings` is False where nothing could be read of what the decision is about.
    """
    assert record_id, "a record is found by its id"
    inputs = policy, as_json(observation), as_json(memory)
    hashed = hash_inputs(*inputs)
    return Record(
        record_id,
        balancer,
        at,
        *inputs,
        decision,
        tuple(outcomes),
        hashed,
        __version__,
        has_readings=has_readings,
    )


def replay_holds(
    recorded: Record, decision: Decision, guards: Mapping[Code, Guard] | None = None
) -> Decision:
    """Return a repeated decision without the actions that guards held of the recorded one.

    `guards` are those that can be evaluated again, by the code of their reason.
    """
    final, actions = recorded.decision.reason, len(decision.actions)
    own = {name: value for name, value in final.numbers.items() if name not in decision.reason.numbers}
    # What `decide` itself held comes last. Of the rest, the last entries were held first: each guard keeps
    # the actions at the front.
    held = recorded.decision.held
    by_guards = held[: max(0, len(held) - len(decision.held))]
    for (code, sentence), group in groupby(reversed(by_guards), key=attrgetter("reason", "sentence")):
        reason: Reason | None = Reason(code, sentence, own if code is final.code else {})
        if guards and code in guards:
            reason = guards[code](final.numbers)
        if reason is not None:
            decision = decision.hold(reason, max(0, len(decision.actions) - len(list(group))))
    assert len(decision.actions) <= actions, "guards only reduce"
    return decision


def failed_record(
    balancer: str, decision: Decision, at: float, record_id: str, outcomes: Sequence[Outcome] = ()
) -> Record:
    """Return the record of a failed turn. It has no inputs: they may be what cannot be encoded."""
    return Record(record_id, balancer, at, {}, {}, {}, decision, tuple(outcomes), version=__version__)


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
