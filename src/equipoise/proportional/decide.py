"""What a workload's containers should request in a cluster of this size, and whether to change it now. Pure.

targets    = the values of the policy's functions for these inputs     (functions.py)
smoothed   = whether each is followed now, later or not at all         (smoothing.py)
memory     = the input of the next decision: the window, its start, the last change

A decision has one sentence about all values, and the numbers from which it follows. `replay` decides for each
size of a recorded series in turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from equipoise.core.decision import Decided, Decision, SetResources
from equipoise.core.quantity import (
    NANO,
    Quantity,
    print_bytes,
    print_count,
    print_exact_cores,
    print_list,
    print_seconds,
)
from equipoise.core.reason import Code, Reason
from equipoise.crd.fields import read_amount
from equipoise.proportional.functions import CompiledPolicy, Inputs, Slot, values_by_container
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.smoothing import (
    INPUTS,
    SAMPLES_MAX,
    SAMPLES_MIN,
    Delay,
    ProportionalMemory,
    SmoothedValue,
    SmoothingInput,
    ValueChange,
    extend_window,
    smoothed_value,
)

STUCK = (Code.INFEASIBLE.value, Code.DEFERRED.value)
"""States of a resize that its node cannot allocate; the first is the worse."""
PRECEDENCE = (Code.SET, Code.HELD_BY_PERCENTILE, Code.HELD_BY_HYSTERESIS, Code.WARMING_UP, Code.UNCHANGED)
"""If the values have different reasons, the decision's is the first of these."""
SLOTS_NAMED_MAX = 6
"""Values named in a sentence."""


class Observation(msgspec.Struct, frozen=True):
    """The inputs of one policy. Amounts are quantities, so that they are exact in JSON."""

    subject: str
    at: float
    """Seconds since 1970."""
    inputs: Mapping[str, str]
    """Such as {"cores": "18", "memory": "64Gi"}."""
    current: Mapping[str, str] = {}
    """What is in force, by slot, such as {"kube-dns.requests.cpu": "250m"}; what is absent is unknown."""
    pods: int | None = None
    """How many pods the workload has; None where they were not listed."""
    pods_behind: int = 0
    """How many of them run and request something else than what is in force."""
    stuck: Mapping[str, str] = {}
    """What nodes can't give, by `Infeasible` and `Deferred`: a pod, and its node's message."""


def moment_of(seconds: float | Fraction) -> int:
    """Return a time in whole milliseconds, the unit of windows."""
    return round(Fraction(seconds) * 1000)


def read_inputs(inputs: Mapping[str, str]) -> dict[str, int]:
    """Return the cluster's size in billionths; ValueError names an invalid input."""
    found = {}
    for name, text in inputs.items():
        if name.lower() not in INPUTS:
            raise ValueError(f"{name}: expected one of {', '.join(INPUTS)}")
        amount = _amount(name, text)
        if name.lower() in found:
            raise ValueError(f"{name}: expected each input once")
        found[name.lower()] = amount
    return found


def read_current(slots: Sequence[Slot], current: Mapping[str, str]) -> dict[str, int]:
    """Return the values in force, in each slot's units; ValueError names an invalid one."""
    by_key = {slot.key: slot for slot in slots}
    found = {}
    for key, text in current.items():
        if key not in by_key:
            names = ", ".join(by_key) or "nothing, since the policy sets nothing"
            raise ValueError(f"{key}: expected one of {names}")
        found[key] = -(-_amount(key, text) // by_key[key].unit_nanos)
    return found


def _amount(name: str, text: str) -> int:
    try:
        amount = read_amount(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if amount.nanos < 0:
        raise ValueError(f"{name}: expected an amount of 0 or more, got {text!r}")
    return amount.nanos


class Assessment(NamedTuple):
    """Every value of a policy at one moment: its target, the value in force, and whether it is replaced."""

    targets: Mapping[str, int]
    current: Mapping[str, int]
    """The values in force; an absent one is unknown."""
    smoothed: Mapping[str, SmoothedValue]
    memory: ProportionalMemory

    @property
    def code(self) -> Code:
        found = {smoothed.code for smoothed in self.smoothed.values()}
        return next((code for code in PRECEDENCE if code in found), Code.UNCHANGED)

    @property
    def is_new(self) -> bool:
        """Whether any value is replaced; otherwise values are only set in pods that lack them."""
        return any(smoothed.code is Code.SET for smoothed in self.smoothed.values())

    @property
    def applied(self) -> dict[str, int]:
        """The known values in force after this decision."""
        return {key: each.applied for key, each in self.smoothed.items() if each.applied is not None}


class AssessmentNumbers(msgspec.Struct, frozen=True):
    """An assessment as people check it: values by slot, null where unknown."""

    inputs: dict[str, str]
    current: dict[str, str | None]
    target: dict[str, str | None]
    scale_up_below: dict[str, str | None]
    scale_down_above: dict[str, str | None]
    reasons: dict[str, str]
    window: int | msgspec.UnsetType = msgspec.UNSET
    pods: int | msgspec.UnsetType = msgspec.UNSET
    pods_behind: int | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(
        cls, compiled: CompiledPolicy, observation: Observation, assessment: Assessment
    ) -> "AssessmentNumbers":
        """Return the numbers; those of a window or of the pods are absent if there are none."""
        smoothed, windows = assessment.smoothed, assessment.memory.windows
        low = {key: each.low for key, each in smoothed.items() if each.low is not None}
        high = {key: each.high for key, each in smoothed.items() if each.high is not None}
        return cls(
            inputs={name.lower(): text for name, text in observation.inputs.items()},
            current=texts(compiled, assessment.current),
            target=texts(compiled, assessment.targets),
            scale_up_below=texts(compiled, low),
            scale_down_above=texts(compiled, high),
            reasons={key: each.code.value for key, each in smoothed.items()},
            window=max(map(len, windows.values())) if windows else msgspec.UNSET,
            pods=observation.pods if observation.pods is not None else msgspec.UNSET,
            pods_behind=observation.pods_behind if observation.pods is not None else msgspec.UNSET,
        )


def decide(
    policy: ScalingPolicySpec, observation: Observation, memory: Mapping[str, Any] | None = None
) -> Decided[Assessment]:
    """Decide for one workload; ValueError names an invalid input or value in force."""
    return decide_compiled(CompiledPolicy.of(policy), observation, ProportionalMemory.from_data(memory or {}))


def decide_compiled(
    compiled: CompiledPolicy, observation: Observation, memory: ProportionalMemory
) -> Decided[Assessment]:
    """Decide for one workload, from a compiled policy and a decoded memory."""
    inputs, current = read_inputs(observation.inputs), read_current(compiled.slots, observation.current)
    if missing := sorted(compiled.spec.inputs - set(inputs)):
        raise ValueError(f"{missing[0]}: missing, but the policy's functions use it")
    assessment = assess(compiled, moment_of(observation.at), inputs, current, memory)
    return Decided(decision_of(compiled, observation, inputs, assessment), assessment)


def assess(
    compiled: CompiledPolicy, at: int, inputs: Inputs, current: Mapping[str, int], memory: ProportionalMemory
) -> Assessment:
    """Compute every value's target at one moment, and smooth it."""
    smoothing = compiled.spec.smoothing
    memory = memory.under(compiled.fingerprint)
    since = at if memory.since is None else memory.since
    targets, smoothed, windows, changes = {}, {}, {}, {}
    for slot in compiled.slots:
        key, target = slot.key, compiled.target(slot, inputs)
        if smoothing.is_windowed:
            windows[key] = extend_window(memory.windows.get(key, ()), at, target, smoothing)
        value_input = SmoothingInput(
            at=at,
            target=target,
            current=current.get(key),
            window=windows.get(key, ()),
            since=since,
            shifted_down=_shifted(compiled, slot, inputs, smoothing.delay_down, 1),
            shifted_up=_shifted(compiled, slot, inputs, smoothing.delay_up, -1),
        )
        targets[key], smoothed[key] = target, smoothed_value(smoothing, value_input)
        if smoothed[key].code is Code.SET:
            changes[key] = ValueChange(at, smoothed[key].applied or 0, value_input.current)
        elif key in memory.changes:
            changes[key] = memory.changes[key]
    after = ProportionalMemory(
        compiled.fingerprint, since if smoothing.is_windowed else None, windows, changes
    )
    assert all(len(window) <= SAMPLES_MAX for window in windows.values()), "the status stays small"
    return Assessment(targets, current, smoothed, after)


def _shifted(
    compiled: CompiledPolicy, slot: Slot, inputs: Inputs, delay: Delay | None, sign: int
) -> int | None:
    """Return the target in a cluster larger or smaller by the delay's inputs, but never below 0."""
    if delay is None or not delay.inputs:
        return None
    shifts = {name: sign * amount.nanos for name, amount in delay.inputs.items()}
    return compiled.target(slot, {name: max(0, size + shifts.get(name, 0)) for name, size in inputs.items()})


def decision_of(
    compiled: CompiledPolicy, observation: Observation, inputs: Inputs, assessment: Assessment
) -> Decision:
    """Return an assessment as a decision: an action for values that are replaced or that pods lack."""
    why = sentence(compiled, inputs, assessment)
    applied, code = assessment.applied, assessment.code
    changed = {key for key, smoothed in assessment.smoothed.items() if smoothed.code is Code.SET}
    if observation.pods_behind and not changed and applied:
        # No value is new, but some pods lack the values in force: created since, or changed by others.
        changed, code = set(applied), Code.SET
        why += f" {observation.pods_behind} of {observation.pods} pods do not have the values in force yet."
    elif observation.stuck and not changed:
        state = min(observation.stuck, key=STUCK.index)
        code = Code(state)
        why = f"{why} The node cannot allocate it to {observation.stuck[state]}."
    assert changed <= set(applied), "a value that is set is known"
    actions: tuple[SetResources, ...] = ()
    if changed:
        to_set = containers_of(compiled, {key: applied[key] for key in changed}, is_whole=False)
        actions = (SetResources(observation.subject, to_set),)
    return Decision(
        observation.subject,
        Reason.of(code, why, AssessmentNumbers.of(compiled, observation, assessment)),
        actions,
        memory=assessment.memory.to_data(),
        extra={"containers": containers_of(compiled, applied)},
    )


def containers_of(
    compiled: CompiledPolicy, values: Mapping[str, int], *, is_whole: bool = True
) -> list[dict[str, Any]]:
    """Return values in the form of containers; unless whole, only containers and sections with values."""
    found = values_by_container(compiled.slots, values)
    empty: dict[str, Any] = {"requests": {}, "limits": {}} if is_whole else {}
    names = [container.name for container in compiled.spec.containers]
    return [{"name": name} | empty | found.get(name, {}) for name in names if is_whole or name in found]


def texts(compiled: CompiledPolicy, values: Mapping[str, int]) -> dict[str, str | None]:
    """Return values by slot in the form of a manifest; None where unknown."""
    return {slot.key: slot.text(values[slot.key]) if slot.key in values else None for slot in compiled.slots}


def sentence(compiled: CompiledPolicy, inputs: Inputs, assessment: Assessment) -> str:
    """Return one sentence about all values, those that change first."""
    if not compiled.slots:
        return "The policy has no functions, so it sets no values."
    by_code = sorted(compiled.slots, key=lambda slot: PRECEDENCE.index(assessment.smoothed[slot.key].code))
    parts = [_clause(compiled.spec, slot, assessment) for slot in by_code[:SLOTS_NAMED_MAX]]
    if len(by_code) > SLOTS_NAMED_MAX:
        parts.append(f"the policy sets {print_count(len(by_code) - SLOTS_NAMED_MAX, 'more value')}")
    sizes = print_list(_size(name, inputs[name]) for name in INPUTS if name in compiled.spec.inputs)
    sentences = [f"the cluster has {sizes}", *parts] if sizes else parts
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _size(name: str, nanos: int) -> str:
    match name:
        case "memory":
            return f"{print_bytes(nanos / NANO)} of memory"
        case "cores":
            return print_exact_cores(nanos)
    return print_count(nanos // NANO, name.removesuffix("s"))


def _clause(policy: ScalingPolicySpec, slot: Slot, assessment: Assessment) -> str:
    smoothed, current = assessment.smoothed[slot.key], assessment.current.get(slot.key)
    target = slot.amount(assessment.targets[slot.key])
    match smoothed.code:
        case Code.SET:
            applied = slot.amount(smoothed.applied or 0)
            why = _why_set(policy, slot, smoothed, target, applied)
            if current is None:
                return f"{slot.words} is set to {applied}{why}"
            return f"{slot.words} changes from {slot.amount(current)} to {applied}{why}"
        case Code.UNCHANGED:
            return f"{slot.words} stays at {target}"
        case Code.WARMING_UP:
            stays = "is not set" if current is None else f"stays at {slot.amount(current)}"
            until = f"until the window has {SAMPLES_MIN} targets"
            return f"{slot.words} {stays} {until}; the present target is {target}"
    stays = f"{slot.words} stays at {slot.amount(current or 0)} although the target is {target}"
    is_lower = assessment.targets[slot.key] < (current or 0)
    return f"{stays}{_why_held(policy, slot, smoothed, is_lower=is_lower)}"


def _why_set(
    policy: ScalingPolicySpec, slot: Slot, smoothed: SmoothedValue, target: str, applied: str
) -> str:
    percentile = policy.smoothing.percentile
    if percentile is not None and smoothed.low is not None and smoothed.high is not None:
        between = f"{slot.amount(smoothed.low)} to {slot.amount(smoothed.high)}"
        share = f"{percentile.target * 100:g}% of the targets in the window"
        return f", which covers {share} (thresholds: {between})"
    return "" if target == applied else f", as far as the delay allows; the present target is {target}"


def _why_held(policy: ScalingPolicySpec, slot: Slot, smoothed: SmoothedValue, *, is_lower: bool) -> str:
    """Return what keeps the value, and when it changes, as the end of a sentence."""
    has_percentile = policy.smoothing.percentile is not None
    if has_percentile and smoothed.low is not None and smoothed.high is not None:
        between = f"{slot.amount(smoothed.low)} to {slot.amount(smoothed.high)}"
        return f": it is within the thresholds of the window, {between}"
    delay = policy.smoothing.delay_down if is_lower else policy.smoothing.delay_up
    edge = smoothed.high if is_lower else smoothed.low
    when = []
    if delay is not None and delay.inputs and edge is not None:
        shift = print_list(_size(name, amount.nanos) for name, amount in delay.inputs.items())
        more, beyond = ("more", "above") if is_lower else ("less", "below")
        when.append(f"it is {beyond} {slot.amount(edge)} (the target with {shift} {more})")
    if delay is not None and delay.delay_seconds is not None:
        side = "below" if is_lower else "above"
        when.append(f"the target has been {side} it for {print_seconds(delay.delay_seconds)}")
    return f". It is {'lowered' if is_lower else 'raised'} when {' or when '.join(when)}" if when else ""


class SizeRow(NamedTuple):
    """One line of a series: its time, as it was written and in milliseconds, and the cluster's size."""

    written: int | float | str
    at: int
    inputs: dict[str, int]


def replay(
    compiled: CompiledPolicy, subject: str, rows: Iterable[SizeRow], current: Mapping[str, str]
) -> Decision:
    """Return the decision for the last row, with the steps of all rows."""
    in_force = read_current(compiled.slots, current)
    memory, steps, last = ProportionalMemory(), [], None
    for row in rows:
        assessment = assess(compiled, row.at, row.inputs, in_force, memory)
        target, applied = texts(compiled, assessment.targets), texts(compiled, assessment.applied)
        code = assessment.code.value
        steps.append({"timestamp": row.written, "reason": code, "target": target, "applied": applied})
        last = row, assessment
        in_force, memory = assessment.applied, assessment.memory
    assert last is not None, "a file has at least one line"
    row, assessment = last
    sizes = {name: str(Quantity(nanos)) for name, nanos in row.inputs.items()}
    observation = Observation(subject, row.at / 1000, sizes)
    decision = decision_of(compiled, observation, row.inputs, assessment)
    return msgspec.structs.replace(decision, extra=decision.extra | {"steps": steps})
