"""The sentence of each decision, with the numbers that a person would check."""

from collections.abc import Iterator, Mapping, Sequence

from equipoise.model.duration import print_seconds
from equipoise.model.quantity import NANO, Quantity
from equipoise.model.quantity import Format as Notation
from equipoise.model.reason import Code
from equipoise.proportional.functions import Inputs, Slot
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.smoothing import SIGHTS_MIN, Judged

SLOTS_SAID_MAX = 6
"""A sentence about more is no sentence."""
_BYTES = NANO * 1024


def sentence(
    policy: ScalingPolicySpec,
    slots: Sequence[Slot],
    inputs: Inputs,
    current: Mapping[str, int],
    targets: Mapping[str, int],
    judged: Mapping[str, Judged],
) -> str:
    """Say it in one sentence: those slots first that something happens to."""
    if not slots:
        return "The policy has no function, so there is nothing to set."
    order = (Code.SET, Code.HELD_BY_PERCENTILE, Code.HELD_BY_HYSTERESIS, Code.WARMING_UP, Code.UNCHANGED)
    sorted_ = sorted(slots, key=lambda slot: order.index(judged[slot.key].code))
    parts = [
        _about(policy, slot, current.get(slot.key), targets[slot.key], judged[slot.key])
        for slot in sorted_[:SLOTS_SAID_MAX]
    ]
    if len(slots) > SLOTS_SAID_MAX:
        parts.append(f"and {len(slots) - SLOTS_SAID_MAX} more")
    sizes = size_words(policy, inputs)
    return f"{f'At {sizes}: ' if sizes else ''}{'; '.join(parts)}."


def size_words(policy: ScalingPolicySpec, inputs: Inputs) -> str:
    """Say how large the cluster is, in what the policy follows: `18 cores and 64Gi of memory`."""
    words = [
        _size(name, inputs[name]) for name in ("cores", "memory", "nodes", "pods") if name in policy.inputs
    ]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _size(name: str, nanos: int) -> str:
    if name == "memory":
        is_round = nanos % _BYTES == 0
        return f"{Quantity(nanos, Notation.BINARY if is_round else Notation.DECIMAL)} of memory"
    one = {"cores": "core", "nodes": "node", "pods": "pod"}[name]
    return f"{Quantity(nanos)} {one if nanos == NANO else name}"


def _about(policy: ScalingPolicySpec, slot: Slot, current: int | None, target: int, judged: Judged) -> str:
    wanted = slot.text(target)
    match judged.code:
        case Code.SET:
            applied = slot.text(judged.applied or 0)
            before = "" if current is None else f" from {slot.text(current)}"
            return f"{slot.key} is set{before} to {applied}{_why_set(policy, slot, judged, wanted, applied)}"
        case Code.UNCHANGED:
            return f"{slot.key} stays at {wanted}"
        case Code.WARMING_UP:
            stays = "is not set" if current is None else f"stays at {slot.text(current)}"
            return f"{slot.key} {stays} until {SIGHTS_MIN} targets are in the window, and would be {wanted}"
    kept = f"{slot.key} stays at {slot.text(current or 0)}, though {wanted} is asked for"
    return f"{kept}: {'; '.join(_why_held(policy, slot, judged, is_lower=target < (current or 0)))}"


def _why_set(policy: ScalingPolicySpec, slot: Slot, judged: Judged, wanted: str, applied: str) -> str:
    rule = policy.smoothing.percentile
    if rule is not None and judged.low is not None and judged.high is not None:
        between = f"{slot.text(judged.low)} and {slot.text(judged.high)}"
        return f", which fits {rule.target:.3g} of the window (the thresholds are {between})"
    return "" if wanted == applied else f", the most cautious value of the delay; {wanted} is asked for"


def _why_held(policy: ScalingPolicySpec, slot: Slot, judged: Judged, *, is_lower: bool) -> Iterator[str]:
    rule = policy.smoothing.percentile
    if rule is not None and judged.low is not None and judged.high is not None:
        yield f"the window's thresholds are {slot.text(judged.low)} and {slot.text(judged.high)}"
        return
    delay = policy.smoothing.delay_down if is_lower else policy.smoothing.delay_up
    edge = judged.high if is_lower else judged.low
    if delay is not None and delay.inputs and edge is not None:
        shift = ", ".join(f"{amount} {name}" for name, amount in delay.inputs.items())
        more, side = ("more", "above") if is_lower else ("less", "below")
        yield f"with {shift} {more} it would be {slot.text(edge)}, and it is not {side} that"
    if delay is not None and delay.delay_seconds is not None:
        yield f"not long enough for the delay of {print_seconds(delay.delay_seconds)}"
