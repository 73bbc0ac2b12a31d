"""What a workload's containers should request in a cluster of this size, and whether to change it now. Pure.

targets    = the values of the policy's functions for these inputs     (functions.py)
judged     = whether each is followed now, later or never              (smoothing.py)
memory     = what the next decision needs: the window, since when, the last change

A decision has one sentence about all values, and the numbers that it can be checked by.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from equipoise.core.decision import Decision, SetResources
from equipoise.core.quantity import NANO, Quantity, print_seconds
from equipoise.core.quantity import Format as Notation
from equipoise.core.reason import Code, Reason
from equipoise.crd.fields import read_amount
from equipoise.proportional.functions import CompiledPolicy, Inputs, Slot
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.smoothing import (
    INPUTS,
    SIGHTS_MIN,
    Change,
    Delay,
    Judged,
    ProportionalMemory,
    Shown,
    Smoothing,
    at_once,
    by_delay,
    by_percentile,
    remembered,
)

STUCK = (Code.INFEASIBLE.value, Code.DEFERRED.value)
"""What a node says to a change that it can't carry out; the first is the worse."""
SLOTS_SAID_MAX = 6
"""A sentence about more is no sentence."""
_BYTES = NANO * 1024


class Observation(msgspec.Struct, frozen=True):
    """One look at the cluster, for one policy. Amounts are quantities, so that JSON keeps them exactly."""

    subject: str
    at: float
    """Seconds since 1970."""
    inputs: Mapping[str, str]
    """Such as {"cores": "18", "memory": "64Gi"}."""
    current: Mapping[str, str] = {}
    """What is in force, by slot, such as {"kube-dns.requests.cpu": "250m"}; what is absent is unknown."""
    pods: int | None = None
    """How many pods the workload has, where it was looked at."""
    pods_behind: int = 0
    """How many of them run and ask for something else than what is in force."""
    stuck: Mapping[str, str] = {}
    """What nodes can't give, by `Infeasible` and `Deferred`: a pod, and its node's words."""


def moment_of(seconds: float | Fraction) -> int:
    """Return a time in whole milliseconds: what windows are counted in."""
    return round(Fraction(seconds) * 1000)


def time_of(milliseconds: int) -> datetime:
    """Return a time as status and sentences have it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def read_inputs(inputs: Mapping[str, str]) -> dict[str, int]:
    """Read what was counted; a ValueError names what does not fit."""
    found = {}
    for name, text in inputs.items():
        if name.lower() not in INPUTS:
            raise ValueError(f"{name}: expected one of {', '.join(INPUTS)}")
        amount = _amount(name, text)
        if name.lower() in found:
            raise ValueError(f"{name}: expected each input once")
        found[name.lower()] = amount
    return found


def read_current(slots: tuple[Slot, ...], current: Mapping[str, str]) -> dict[str, int]:
    """Read what is in force, in each slot's units; a ValueError names what does not fit."""
    known = {slot.key: slot for slot in slots}
    found = {}
    for key, text in current.items():
        if key not in known:
            names = ", ".join(known) or "nothing, since the policy sets nothing"
            raise ValueError(f"{key}: expected one of {names}")
        found[key] = -(-_amount(key, text) // known[key].unit_nanos)
    return found


def _amount(name: str, text: str) -> int:
    try:
        amount = read_amount(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if amount.nanos < 0:
        raise ValueError(f"{name}: expected an amount of 0 or more, got {text!r}")
    return amount.nanos


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
    """Return how large the cluster is, in what the policy follows: `18 cores and 64Gi of memory`."""
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


NOTHING: Mapping[str, Any] = MappingProxyType({})
FIRST_OF = (Code.SET, Code.HELD_BY_PERCENTILE, Code.HELD_BY_HYSTERESIS, Code.WARMING_UP, Code.UNCHANGED)
"""Where slots differ, the decision's reason is the first of these."""


class Step(NamedTuple):
    """What one look at the cluster brings, slot by slot."""

    targets: Mapping[str, int]
    judged: Mapping[str, Judged]
    memory: ProportionalMemory

    @property
    def code(self) -> Code:
        """The reason for all slots together."""
        found = {judged.code for judged in self.judged.values()}
        return next((code for code in FIRST_OF if code in found), Code.UNCHANGED)

    @property
    def applied(self) -> dict[str, int]:
        """What is in force from now on, as far as it is known."""
        return {key: judged.applied for key, judged in self.judged.items() if judged.applied is not None}


def decide(policy: ScalingPolicySpec, seen: Observation, memory: Mapping[str, Any] = NOTHING) -> Decision:
    """Decide for one workload; a ValueError names an input or a value in force that can't be read."""
    return decide_asked(CompiledPolicy.of(policy), seen, memory)


def decide_asked(asked: CompiledPolicy, seen: Observation, memory: Mapping[str, Any] = NOTHING) -> Decision:
    """Decide the same for a policy that was taken apart before."""
    inputs, current = read_inputs(seen.inputs), read_current(asked.slots, seen.current)
    if missing := sorted(asked.policy.inputs - set(inputs)):
        raise ValueError(f"{missing[0]}: missing: the policy's functions use it")
    taken = step(asked, moment_of(seen.at), inputs, current, ProportionalMemory.from_data(memory))
    return decision_of(asked, seen, inputs, current, taken)


def step(
    asked: CompiledPolicy, at: int, inputs: Inputs, current: Mapping[str, int], memory: ProportionalMemory
) -> Step:
    """Judge every slot at one moment."""
    smoothing = asked.policy.smoothing
    memory = memory.under(asked.fingerprint)
    since = at if memory.since is None else memory.since
    is_windowed = _is_windowed(smoothing)
    targets, judged, windows, changes = {}, {}, {}, dict(memory.changes)
    for slot in asked.slots:
        wanted = asked.target(slot, inputs)
        if is_windowed:
            windows[slot.key] = remembered(memory.windows.get(slot.key, ()), at, wanted, smoothing)
        shown = Shown(
            at=at,
            target=wanted,
            current=current.get(slot.key),
            window=windows.get(slot.key, ()),
            since=since,
            shifted_down=_shifted(asked, slot, inputs, smoothing.delay_down, 1),
            shifted_up=_shifted(asked, slot, inputs, smoothing.delay_up, -1),
        )
        targets[slot.key], judged[slot.key] = wanted, _judge(smoothing, shown)
        if judged[slot.key].code is Code.SET:
            changes[slot.key] = Change(at, judged[slot.key].applied or 0, shown.current)
    kept = {slot.key: changes[slot.key] for slot in asked.slots if slot.key in changes}
    after = ProportionalMemory(asked.fingerprint, since if is_windowed else None, windows, kept)
    return Step(targets, judged, after)


def _is_windowed(smoothing: Smoothing) -> bool:
    """Return whether earlier targets matter at all."""
    delays = (smoothing.delay_down, smoothing.delay_up)
    return smoothing.percentile is not None or any(
        delay is not None and delay.delay_seconds is not None for delay in delays
    )


def _judge(smoothing: Smoothing, shown: Shown) -> Judged:
    if smoothing.percentile is not None:
        return by_percentile(smoothing.percentile, shown)
    if smoothing.delay_down is None and smoothing.delay_up is None:
        return at_once(shown)
    return by_delay(smoothing.delay_down, smoothing.delay_up, shown)


def _shifted(asked: CompiledPolicy, slot: Slot, inputs: Inputs, delay: Delay | None, sign: int) -> int | None:
    """Ask what a cluster would get that is larger or smaller by the delay's inputs."""
    if delay is None or not delay.inputs:
        return None
    return asked.target(slot, shifted_inputs(inputs, delay, sign))


def shifted_inputs(inputs: Inputs, delay: Delay, sign: int) -> dict[str, int]:
    """Return the inputs of a cluster that is larger or smaller by the delay's inputs; none is below 0."""
    shifts = {name: sign * amount.nanos for name, amount in delay.inputs.items()}
    return {name: max(0, size + shifts.get(name, 0)) for name, size in inputs.items()}


def decision_of(
    asked: CompiledPolicy, seen: Observation, inputs: Inputs, current: Mapping[str, int], taken: Step
) -> Decision:
    """Put a step into the shape that all balancers share."""
    said = sentence(asked.policy, asked.slots, inputs, current, taken.targets, taken.judged)
    changed = {key for key, judged in taken.judged.items() if judged.code is Code.SET}
    code = taken.code
    if seen.pods_behind and not changed and taken.applied:
        # Nothing new is wanted, but some pods do not have what is in force: born since, or changed by others.
        changed, code = set(taken.applied), Code.SET
        said = f"{said.removesuffix('.')}; {seen.pods_behind} of {seen.pods} pods get it."
    elif seen.stuck and not changed:
        state = min(seen.stuck, key=STUCK.index)
        code, said = Code(state), f"{said.removesuffix('.')}; its node can't give it to {seen.stuck[state]}."
    reason = Reason(code, said, _numbers(asked, seen, current, taken))
    actions: tuple[SetResources, ...] = ()
    if changed:
        to_set = containers_of(asked, {key: taken.applied[key] for key in changed}, is_whole=False)
        actions = (SetResources(seen.subject, to_set),)
    return Decision(
        seen.subject,
        reason,
        actions,
        memory=taken.memory.to_data(),
        extra={"containers": containers_of(asked, taken.applied)},
    )


def containers_of(
    asked: CompiledPolicy, values: Mapping[str, int], *, is_whole: bool = True
) -> list[dict[str, Any]]:
    """Return values as containers have them; only those with any, unless all are asked for."""
    found: list[dict[str, Any]] = []
    for container in asked.policy.containers:
        own: dict[str, Any] = {"requests": {}, "limits": {}}
        for slot in asked.slots:
            if slot.container == container.name and slot.key in values:
                own[slot.section][slot.resource.value] = slot.text(values[slot.key])
        if is_whole or own["requests"] or own["limits"]:
            found.append(
                {"name": container.name} | {key: part for key, part in own.items() if is_whole or part}
            )
    return found


def texts(asked: CompiledPolicy, values: Mapping[str, int]) -> dict[str, str | None]:
    """Write values by slot; null where nothing is known."""
    return {slot.key: slot.text(values[slot.key]) if slot.key in values else None for slot in asked.slots}


def _numbers(
    asked: CompiledPolicy, seen: Observation, current: Mapping[str, int], taken: Step
) -> dict[str, Any]:
    low = {key: part.low for key, part in taken.judged.items() if part.low is not None}
    high = {key: part.high for key, part in taken.judged.items() if part.high is not None}
    numbers: dict[str, Any] = {
        "inputs": {name.lower(): text for name, text in seen.inputs.items()},
        "current": texts(asked, current),
        "target": texts(asked, taken.targets),
        "scale_up_below": texts(asked, low),
        "scale_down_above": texts(asked, high),
        "reasons": {key: part.code.value for key, part in taken.judged.items()},
    }
    if taken.memory.windows:
        numbers["window"] = max(map(len, taken.memory.windows.values()))
    if seen.pods is not None:
        numbers |= {"pods": seen.pods, "pods_behind": seen.pods_behind}
    return numbers
