"""What keeps a decision from being carried out: a pause of a namespace, and a preview. Pure."""

from collections.abc import Callable

import msgspec

from equipoise.model.decision import Action, Decision, Held
from equipoise.model.reason import Reason

PREVIEW = "Preview: "


def guarded(decision: Decision, pause_of: Callable[[str], Reason | None]) -> Decision:
    """Hold what somebody has paused, giving back included; what is done to the node has no namespace."""
    kept: list[Action] = []
    held: list[Held] = []
    reasons: dict[str, Reason | None] = {}
    for action in decision.actions:
        namespace = namespace_of(action)
        if namespace not in reasons:
            reasons[namespace] = pause_of(namespace)
        reason = reasons[namespace]
        if reason is None:
            kept.append(action)
        else:
            held.append(Held(action, reason.code, reason.sentence))
    if not held:
        return decision
    why = decision.reason
    if not kept:
        why = Reason(held[0].reason, held[0].sentence, decision.reason.numbers)
    return msgspec.structs.replace(decision, reason=why, actions=tuple(kept), held=(*held, *decision.held))


def namespace_of(action: Action) -> str:
    """Give the namespace of the pod that is acted on; empty for the node itself."""
    return action.pod.partition("/")[0]


def previewed(decision: Decision) -> Decision:
    """Say what would be done, and do nothing."""
    sentence = f"{PREVIEW}{decision.reason.sentence}"
    return msgspec.structs.replace(
        decision, reason=Reason(decision.reason.code, sentence, decision.reason.numbers)
    )
