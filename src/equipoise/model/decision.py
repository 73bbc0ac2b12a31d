"""What is to be done, as data; and the record of all that went into it."""

from typing import Any

import msgspec

from equipoise.model.reason import Code, Reason


class EvictPod(msgspec.Struct, frozen=True, tag_field="kind", tag="EvictPod", omit_defaults=True):
    """Ask the API server to evict one incarnation of a pod."""

    pod: str
    namespace: str = ""
    uid: str = ""


Action = EvictPod
"""One change. It becomes a tagged union as the balancers bring theirs."""


class Held(msgspec.Struct, frozen=True):
    """An action that a guard kept back, and which guard it was."""

    action: Action
    reason: Code


class Decision(msgspec.Struct, frozen=True):
    """What one balancer wants for one subject: the actions in order, why, and what to remember."""

    subject: str
    reason: Reason
    actions: tuple[Action, ...] = ()
    held: tuple[Held, ...] = ()
    memory: dict[str, Any] = {}

    def hold(self, reason: Reason, after: int = 0) -> "Decision":
        """Keep the actions back for this reason, but for the first few.

        When none is left, the guard's reason becomes the decision's; a decision without actions stays as
        it is.
        """
        if len(self.actions) <= after:
            return self
        kept, back = self.actions[:after], self.actions[after:]
        held = self.held + tuple(Held(action, reason.code) for action in back)
        numbers = self.reason.numbers | reason.numbers
        why = Reason(self.reason.code, f"{self.reason.sentence} {reason.sentence}", numbers)
        if not kept:
            why = Reason(reason.code, reason.sentence, numbers)
        return msgspec.structs.replace(self, reason=why, actions=kept, held=held)


class Outcome(msgspec.Struct, frozen=True):
    """What came of one action."""

    action: Action
    result: str
    detail: str = ""


class Record(msgspec.Struct, frozen=True):
    """Everything that went into a decision and what came of it, so that it can be decided again."""

    id: str
    balancer: str
    at: float
    policy: dict[str, Any]
    observation: dict[str, Any]
    memory: dict[str, Any]
    decision: Decision
    outcomes: tuple[Outcome, ...] = ()

    def to_json(self) -> bytes:
        """Give one line of JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, line: bytes | str) -> "Record":
        """Read what `to_json` gave."""
        return msgspec.json.decode(line, type=cls)


def plan_document(balancer: str, decisions: list[Decision]) -> dict[str, Any]:
    """Give the plan in the shape that scripts rely on."""
    return {"balancer": balancer, "decisions": [_decision_document(decision) for decision in decisions]}


def _decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "subject": decision.subject,
        "reason": decision.reason.code.value,
        "sentence": decision.reason.sentence,
        "actions": [msgspec.to_builtins(action) for action in decision.actions],
        "held": [msgspec.to_builtins(held.action) | {"reason": held.reason.value} for held in decision.held],
        "numbers": decision.reason.numbers,
    }
