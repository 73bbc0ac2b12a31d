"""A decision as a record, and what the guards did to a recorded decision; the same for every balancer.

A record has to equal its copy from the journal, so its inputs are kept as they come back from JSON. Guards
ask the cluster, the clock and other processes, which no record has: a replay decides anew from the inputs,
and takes what the guards held from the record.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Outcome, Record, hash_inputs
from equipoise.core.reason import Code, Reason

Guard = Callable[[Mapping[str, Any]], Reason | None]
"""Answers from the numbers that it left in the record."""


def as_json(value: object) -> dict[str, Any]:
    """Return a value as it comes back from JSON, lists for tuples."""
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
) -> Record:
    """Return everything that went into a decision, and what came of it; `policy` is `as_json`'s."""
    assert record_id, "a record is found by its id"
    observed, memory_data = as_json(observation), as_json(memory)
    return Record(
        id=record_id,
        balancer=balancer,
        at=at,
        policy=policy,
        observation=observed,
        memory=memory_data,
        decision=decision,
        outcomes=tuple(outcomes),
        inputs_hash=hash_inputs(policy, observed, memory_data),
        version=__version__,
    )


def replay_holds(
    recorded: Record, decision: Decision, guards: Mapping[Code, Guard] | None = None
) -> Decision:
    """Hold of a decision that was made again what the guards held of the recorded one.

    `guards` are those that can be asked again, by their reason.
    """
    final, actions = recorded.decision.reason, len(decision.actions)
    own = {name: value for name, value in final.numbers.items() if name not in decision.reason.numbers}
    # What deciding itself holds comes last. The last of the rest was held first: each guard leaves the
    # actions at the front.
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
    """Return the record of a turn that failed. It has no inputs: they may be what can't be written down."""
    return Record(
        id=record_id,
        balancer=balancer,
        at=at,
        policy={},
        observation={},
        memory={},
        decision=decision,
        outcomes=tuple(outcomes),
        version=__version__,
    )
