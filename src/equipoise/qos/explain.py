"""The sentence of each decision, and the details that its numbers are derived from."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from equipoise.core.decision import Action
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code
from equipoise.qos.observation import METRICS, Metric, Resource
from equipoise.qos.waterlines import QosMemory, State, Waterline

if TYPE_CHECKING:
    from equipoise.qos.decide import Round
    from equipoise.qos.selection import Gaps

PlainGaps = dict[str, float | None]
"""By metric, in millicores or bytes; None where it can't be told."""


class GapDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The gaps of each kind of action, when the decision began."""

    evict: PlainGaps
    throttle_down: PlainGaps
    throttle_up: PlainGaps


class RemainingGapDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What is left of them after all actions."""

    evict: PlainGaps
    throttle_down: PlainGaps


class RuleDetails(msgspec.Struct, frozen=True):
    """How one rule stands."""

    metric: str
    usage: float | None
    waterline: float
    action: str
    state: str
    breaches: int
    clear: int
    triggered: bool
    preview: bool


class QosDetails(msgspec.Struct, frozen=True):
    """What one decision was made from, in the order in which its numbers are shown."""

    gaps: GapDetails
    left: RemainingGapDetails
    budget: int
    cut_by_budget: int
    pods: int
    eligible: int
    unknown: int
    terminating: int
    refused: int
    rules: dict[str, RuleDetails]


NAMES_SAID_MAX = 4
_STEPS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_KILO = 1024


def plain(value: Fraction | None) -> float | None:
    """Return a number as JSON has it: whole where it is whole."""
    return None if value is None else _number(value)


def _number(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


def amount(resource: Resource, value: Fraction) -> str:
    """Write millicores or bytes for people."""
    if resource is Resource.CPU:
        return f"{float(value):.6g}m"
    number, step = float(value), 0
    while abs(number) >= _KILO and step + 1 < len(_STEPS):
        number, step = number / _KILO, step + 1
    return f"{number:.4g}{_STEPS[step]}" + ("" if step else " bytes")


def value_of(metric: Metric, value: Fraction) -> str:
    """Write a value of a metric for people."""
    if metric.is_share:
        return f"{float(value):.4g} %"
    return amount(metric.resource, value) if metric.is_quantifiable else f"{float(value):.4g}"


def plain_gaps(gaps: Mapping[str, Fraction | None]) -> PlainGaps:
    return {name: plain(gap) for name, gap in gaps.items()}


def details(planned: "Round", left: "tuple[Gaps, Gaps]") -> QosDetails:
    """Return the details of a decision; `left` are the gaps of evicting and of throttling after it."""
    pods = planned.seen.pods
    sides = (planned.evict, planned.throttle)
    return QosDetails(
        gaps=GapDetails(*(plain_gaps(side.gaps) for side in (*sides, planned.up))),
        left=RemainingGapDetails(*(plain_gaps(gaps) for gaps in left)),
        budget=planned.budget,
        cut_by_budget=len(planned.cut),
        pods=len(pods),
        eligible=sum(any(side.lines_for(pod) for side in sides) for pod in pods),
        unknown=sum(pod.cpu_nanos is None or pod.memory_bytes is None for pod in pods),
        terminating=sum(pod.is_terminating for pod in pods),
        refused=sum(bool(pod.refusal) for pod in pods),
        rules={line.key: _rule(line) for line in planned.lines},
    )


def _rule(line: Waterline) -> RuleDetails:
    return RuleDetails(
        metric=line.metric.name,
        usage=plain(line.used),
        waterline=_number(line.value),
        action=line.action_name,
        state=line.state.value,
        breaches=line.breaches,
        clear=line.clear,
        triggered=line.is_triggered,
        preview=line.is_preview,
    )


def cut(budget: int) -> str:
    """Return why an eviction waits."""
    return f"No more than {budget} {_pods(budget)} may be evicted in one round."


def cooling(lines: Iterable[Waterline], memory: QosMemory, at: float) -> str:
    """Say until when nothing is restored, or nothing; a clock that was set back holds for no longer."""
    left, name = max(
        (
            (
                min(memory.last_trigger[line.action_name] - at, 0) + line.action.cooldown_seconds,
                line.action_name,
            )
            for line in lines
            if line.action_name in memory.last_trigger
        ),
        default=(0.0, ""),
    )
    if left <= 0:
        return ""
    return f"The cool-down of {name} lasts another {print_seconds(max(1, round(left)))}."


def waiting(planned: "Round") -> list[Waterline]:
    """Return the rules that have not been crossed, or clear, often enough in a row."""
    rising = [
        line for line in planned.lines if line.state is State.CROSSED and line.breaches < line.breaches_min
    ]
    falling = [
        line for line in _keeping(planned) if line.state is State.CLEAR and line.clear < line.clear_min
    ]
    return [*rising, *falling]


def _keeping(planned: "Round") -> list[Waterline]:
    """Return the rules that must be clear before what was taken is given back; none where nothing was."""
    has_throttled = any(pod.is_throttled for pod in planned.seen.pods)
    return [
        line
        for line in planned.lines
        if (has_throttled and line.throttles(Resource.CPU))
        or (planned.seen.is_scheduling_disabled and line.action.is_scheduling)
    ]


def sentence(code: Code, planned: "Round", actions: Sequence[Action]) -> str:
    """Say it in one sentence."""
    match code:
        case Code.EVICT | Code.THROTTLE | Code.THROTTLE_AND_EVICT:
            return f"{_crossed(planned)}: {_doing(planned)}.{_cut(planned)}"
        case Code.HELD_BY_BUDGET:
            return f"{_crossed(planned)}, and the budget allows no eviction.{_cut(planned)}"
        case Code.DISABLE_SCHEDULING:
            done = "no new pod may come" if actions else "no new pod may come already"
            return f"{_crossed(planned)}: {done} to {planned.seen.node}."
        case Code.RESTORE:
            return f"{_restoring(planned, actions)}."
        case Code.HELD_BY_COOLDOWN:
            return f"The waterlines are clear, and nothing is restored yet: {_lower(planned.cooling)}"
        case Code.HELD_BY_THRESHOLD:
            return f"{_waits(waiting(planned)[0])}."
        case Code.NO_ELIGIBLE_PODS:
            return f"{_crossed(planned)}, and {_nobody(planned)}."
    return f"{_below(planned)}."


def _crossed(planned: "Round") -> str:
    lines = [line for line in planned.lines if line.is_triggered]
    parts = [
        f"{line.metric.name} {value_of(line.metric, line.used or Fraction(0))} is above the waterline of "
        f"{value_of(line.metric, line.value)} ({line.key})"
        for line in lines[:NAMES_SAID_MAX]
    ]
    if len(lines) > NAMES_SAID_MAX:
        rest = len(lines) - NAMES_SAID_MAX
        parts.append(f"{rest} more {'waterline is' if rest == 1 else 'waterlines are'} crossed")
    return _listed(parts)


def _doing(planned: "Round") -> str:
    parts = []
    for verb, deeds, side in (
        ("evicting", planned.evicted, planned.evict),
        ("throttling", planned.throttled, planned.throttle),
    ):
        if not deeds:
            continue
        named = _named([deed.pod.key for deed in deeds])
        if side.is_precise:
            parts.append(f"{verb} {named} {_releases(deeds, side.gaps)}")
        else:
            parts.append(f"{verb} {named}, since {_why_all(side.unknown)}")
    left = [
        f"{amount(METRICS[name].resource, gap)} of {name}"
        for gaps in planned.left
        for name, gap in gaps.items()
        if gap is not None and gap > 0
    ]
    rest = f"; {_listed(sorted(set(left)))} is left over{_stays(planned)}" if left else ""
    return "; ".join(parts) + rest


def _stays(planned: "Round") -> str:
    """Say of one pod why it can't be evicted for now, and of how many others that is true."""
    refused = [pod for pod in planned.evict.sorted_pods() if pod.refusal] if planned.evict.lines else []
    if not refused:
        return ""
    others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"; {refused[0].key}{others} stays, since {refused[0].refusal}"


def _releases(deeds: Sequence[Any], gaps: dict[str, Fraction | None]) -> str:
    resources = list(dict.fromkeys(METRICS[name].resource for name in gaps))
    sums = [
        amount(resource, sum((deed.released.get(resource, Fraction(0)) for deed in deeds), Fraction(0)))
        for resource in resources
    ]
    words = {Resource.CPU: "CPU", Resource.MEMORY: "memory"}
    return "releases " + _listed(
        [f"{text} of {words[part]}" for text, part in zip(sums, resources, strict=True)]
    )


def _why_all(metric: str) -> str:
    if METRICS[metric].is_quantifiable:
        return f"{metric} could not be read afresh"
    return f"what a pod adds to {metric} can't be told"


def _cut(planned: "Round") -> str:
    if not planned.cut:
        return ""
    count = len(planned.cut)
    evictions = "eviction" if count == 1 else "evictions"
    return f" The budget of {planned.budget} per round cut {count} more {evictions}."


def _restoring(planned: "Round", actions: Sequence[Action]) -> str:
    keys = [action.pod for action in actions if action.pod]
    named, whom = _named(keys), "it" if len(keys) == 1 else "them"
    parts = []
    if named:
        is_orphan = not any(one.metric for one in planned.raised)
        why = f"no policy throttles {whom} any more" if is_orphan else "the waterlines are clear"
        parts.append(f"{named} may use more again: {why}")
    if any(not action.pod for action in actions):
        parts.append(f"pods may come to {planned.seen.node} again: the waterlines are clear")
    return "; ".join(parts)


def _waits(line: Waterline) -> str:
    if line.state is State.CROSSED:
        return (
            f"{line.metric.name} {value_of(line.metric, line.used or Fraction(0))} is above the waterline of "
            f"{value_of(line.metric, line.value)} ({line.key}) in {line.breaches} of {line.breaches_min} "
            "rounds in a row"
        )
    return (
        f"{line.key} is clear in {line.clear} of {line.clear_min} rounds in a row, "
        "and nothing is restored before"
    )


def _nobody(planned: "Round") -> str:
    sides = [side for side in (planned.evict, planned.throttle) if side.lines]
    eligible = {pod.key for side in sides for pod in side.sorted_pods()}
    count = len(planned.seen.pods)
    if not eligible:
        return f"none of the node's {count} {_pods(count)} may be acted on"
    return (
        f"acting on the {len(eligible)} eligible {_pods(len(eligible))} would release nothing that is known"
        f"{_stays(planned)}"
    )


def _below(planned: "Round") -> str:
    lines = planned.lines
    if not lines:
        return f"No policy has a waterline for {planned.seen.node}"
    unknown = sorted({line.metric.name for line in lines if line.state is State.UNKNOWN})
    also = f"; {_listed(unknown)} could not be read" if unknown else ""
    if any(line.state is State.UNKNOWN for line in _keeping(planned)):
        also += ", so nothing is restored"
    over = [line for line in lines if line.state is State.RELEASED]
    preview = [line.key for line in lines if line.is_preview and line.state is State.CROSSED]
    if over:
        count = sum(pod.is_terminating for pod in planned.seen.pods)
        whose = f"what {count} terminating {_pods(count)} still {'uses' if count == 1 else 'use'}"
        if not count:
            whose = "what pods used that have ended or were throttled since"
        return f"{over[0].metric.name} is above the waterline only by {whose}{also}"
    if preview:
        return f"{_listed(preview)} {'is' if len(preview) == 1 else 'are'} crossed, and only previewed{also}"
    if any(line.is_triggered for line in lines):
        return f"{_crossed(planned)}, but not when read again just before acting{also}"
    if len(unknown) == len({line.metric.name for line in lines}):
        return f"No waterline is known to be crossed{also}"
    return f"No waterline is crossed{also}"


def _named(keys: Sequence[str]) -> str:
    rest = len(keys) - NAMES_SAID_MAX
    return _listed([*keys[:NAMES_SAID_MAX], *([f"{rest} more"] if rest > 0 else [])])


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _pods(count: int) -> str:
    return "pod" if count == 1 else "pods"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
