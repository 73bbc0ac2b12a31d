"""The sentence of each decision, and the details that its numbers are derived from."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from equipoise.core.decision import Action
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code
from equipoise.qos.observation import METRICS, Metric, NodeResource
from equipoise.qos.waterlines import ZERO, QosMemory, Waterline, WaterlineState

if TYPE_CHECKING:
    from equipoise.qos.decide import NodePlan
    from equipoise.qos.selection import Gaps, PodAction

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


NAMES_MAX = 4
_UNITS = (" bytes", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_KILO = 1024


def plain(value: Fraction | None) -> float | None:
    """Return a number as JSON has it: whole where it is whole."""
    return None if value is None else _number(value)


def _number(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


def amount(resource: NodeResource, value: Fraction) -> str:
    """Return millicores or bytes with a unit, such as 1500m or 2Gi."""
    if resource is NodeResource.CPU:
        return f"{float(value):.6g}m"
    number = float(value)
    for unit in _UNITS[:-1]:
        if abs(number) < _KILO:
            return f"{number:.4g}{unit}"
        number /= _KILO
    return f"{number:.4g}{_UNITS[-1]}"


def value_of(metric: Metric, value: Fraction) -> str:
    if metric.is_share:
        return f"{float(value):.4g} %"
    return amount(metric.resource, value) if metric.is_quantifiable else f"{float(value):.4g}"


def plain_gaps(gaps: Mapping[str, Fraction | None]) -> PlainGaps:
    return {name: plain(gap) for name, gap in gaps.items()}


def details(plan: "NodePlan") -> QosDetails:
    pods, left = plan.observation.pods, plan.gaps_left
    assert left[0].keys() == plan.evict.gaps.keys(), "each gap is reduced, and none is dropped"
    return QosDetails(
        gaps=GapDetails(*(plain_gaps(one.gaps) for one in (plan.evict, plan.throttle, plan.restore))),
        left=RemainingGapDetails(*map(plain_gaps, left)),
        budget=plan.budget,
        cut_by_budget=len(plan.over_budget),
        pods=len(pods),
        eligible=sum(bool(plan.evict.lines_for(pod) or plan.throttle.lines_for(pod)) for pod in pods),
        unknown=sum(pod.cpu_nanos is None or pod.memory_bytes is None for pod in pods),
        terminating=sum(pod.is_terminating for pod in pods),
        refused=sum(bool(pod.refusal) for pod in pods),
        rules={line.key: _rule(line) for line in plan.lines},
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


def over_budget(budget: int) -> str:
    return f"No more than {budget} {_pods(budget)} may be evicted in one round."


def cooldown(lines: Iterable[Waterline], memory: QosMemory, at: float) -> str:
    """Return how long restoring is held, in words; empty if it is not. A clock set back prolongs nothing."""
    last = memory.last_trigger
    waits = (
        (min(last[line.action_name] - at, 0) + line.action.cooldown_seconds, line.action_name)
        for line in lines
        if line.action_name in last
    )
    left, name = max(waits, default=(0.0, ""))
    if left <= 0:
        return ""
    return f"The cool-down of {name} lasts another {print_seconds(max(1, round(left)))}."


def rules_waiting(plan: "NodePlan") -> list[Waterline]:
    """Return the rules that have not been crossed, or clear, often enough in a row."""
    crossed, clear = WaterlineState.CROSSED, WaterlineState.CLEAR
    return [
        *(line for line in plan.lines if line.state is crossed and line.breaches < line.breaches_min),
        *(line for line in _restore_rules(plan) if line.state is clear and line.clear < line.clear_min),
    ]


def _restore_rules(plan: "NodePlan") -> list[Waterline]:
    """Return the rules that must be clear before anything is restored; none if nothing is to be."""
    has_throttled = any(pod.is_throttled for pod in plan.observation.pods)
    return [
        line
        for line in plan.lines
        if (has_throttled and line.throttles(NodeResource.CPU))
        or (plan.observation.is_scheduling_disabled and line.action.disables_scheduling)
    ]


def sentence(code: Code, plan: "NodePlan", actions: Sequence[Action]) -> str:
    match code:
        case Code.EVICT | Code.THROTTLE | Code.THROTTLE_AND_EVICT:
            return f"{_crossed(plan)}: {_reducing(plan)}.{_cut(plan)}"
        case Code.HELD_BY_BUDGET:
            return f"{_crossed(plan)}, and the budget allows no eviction.{_cut(plan)}"
        case Code.DISABLE_SCHEDULING:
            done = "no new pod may come" if actions else "no new pod may come already"
            return f"{_crossed(plan)}: {done} to {plan.observation.node}."
        case Code.RESTORE:
            return f"{_restoring(plan, actions)}."
        case Code.HELD_BY_COOLDOWN:
            wait = plan.cooldown[:1].lower() + plan.cooldown[1:]
            return f"The waterlines are clear, and nothing is restored yet: {wait}"
        case Code.HELD_BY_THRESHOLD:
            return f"{_counting(rules_waiting(plan)[0])}."
        case Code.NO_ELIGIBLE_PODS:
            return f"{_crossed(plan)}, and {_no_candidate(plan)}."
    return f"{_below(plan)}."


def _crossed(plan: "NodePlan") -> str:
    lines = [line for line in plan.lines if line.is_triggered]
    rest = len(lines) - NAMES_MAX
    more = [f"{rest} more {'waterline is' if rest == 1 else 'waterlines are'} crossed"] if rest > 0 else []
    return _joined([*map(_above, lines[:NAMES_MAX]), *more])


def _above(line: Waterline) -> str:
    used, value = value_of(line.metric, line.used or ZERO), value_of(line.metric, line.value)
    return f"{line.metric.name} {used} is above the waterline of {value} ({line.key})"


def _reducing(plan: "NodePlan") -> str:
    parts = []
    for verb, planned, action_plan in (
        ("evicting", plan.evicted, plan.evict),
        ("throttling", plan.throttled, plan.throttle),
    ):
        if not planned:
            continue
        named = _named([one.pod.key for one in planned])
        if action_plan.is_precise:
            parts.append(f"{verb} {named} {_releases(planned, action_plan.gaps)}")
        elif METRICS[action_plan.unknown].is_quantifiable:
            parts.append(f"{verb} {named}, since {action_plan.unknown} could not be read afresh")
        else:
            parts.append(f"{verb} {named}, since what a pod adds to {action_plan.unknown} can't be told")
    left = [
        f"{amount(METRICS[name].resource, gap)} of {name}"
        for gaps in plan.gaps_left
        for name, gap in gaps.items()
        if gap is not None and gap > 0
    ]
    rest = f"; {_joined(sorted(set(left)))} is left over{_refused(plan)}" if left else ""
    return "; ".join(parts) + rest


def _refused(plan: "NodePlan") -> str:
    """Return why the first pod that refuses its eviction stays, and how many others do."""
    refused = [pod for pod in plan.evict.sorted_pods() if pod.refusal] if plan.evict.lines else []
    if not refused:
        return ""
    others = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"; {refused[0].key}{others} stays, since {refused[0].refusal}"


def _releases(planned: "Sequence[PodAction]", gaps: "Gaps") -> str:
    words = {NodeResource.CPU: "CPU", NodeResource.MEMORY: "memory"}
    parts = []
    for resource in dict.fromkeys(METRICS[name].resource for name in gaps):
        released = sum((one.released.get(resource, ZERO) for one in planned), ZERO)
        parts.append(f"{amount(resource, released)} of {words[resource]}")
    return f"releases {_joined(parts)}"


def _cut(plan: "NodePlan") -> str:
    count = len(plan.over_budget)
    evictions = "eviction" if count == 1 else "evictions"
    return f" The budget of {plan.budget} per round cut {count} more {evictions}." if count else ""


def _restoring(plan: "NodePlan", actions: Sequence[Action]) -> str:
    keys = [action.pod for action in actions if action.pod]
    named, whom = _named(keys), "it" if len(keys) == 1 else "them"
    parts = []
    if named:
        is_orphan = not any(one.metric for one in plan.restored)
        why = f"no policy throttles {whom} any more" if is_orphan else "the waterlines are clear"
        parts.append(f"{named} may use more again: {why}")
    if any(not action.pod for action in actions):
        parts.append(f"pods may come to {plan.observation.node} again: the waterlines are clear")
    return "; ".join(parts)


def _counting(line: Waterline) -> str:
    if line.state is WaterlineState.CROSSED:
        return f"{_above(line)} in {line.breaches} of {line.breaches_min} rounds in a row"
    rounds = f"{line.clear} of {line.clear_min} rounds in a row"
    return f"{line.key} is clear in {rounds}, and nothing is restored before"


def _no_candidate(plan: "NodePlan") -> str:
    action_plans = [one for one in (plan.evict, plan.throttle) if one.lines]
    eligible = {pod.key for one in action_plans for pod in one.sorted_pods()}
    count = len(plan.observation.pods)
    if not eligible:
        return f"none of the node's {count} {_pods(count)} may be acted on"
    pods = f"the {len(eligible)} eligible {_pods(len(eligible))}"
    return f"acting on {pods} would release nothing that is known{_refused(plan)}"


def _below(plan: "NodePlan") -> str:
    lines = plan.lines
    if not lines:
        return f"No policy has a waterline for {plan.observation.node}"
    unknown = sorted({line.metric.name for line in lines if line.state is WaterlineState.UNKNOWN})
    also = f"; {_joined(unknown)} could not be read" if unknown else ""
    if any(line.state is WaterlineState.UNKNOWN for line in _restore_rules(plan)):
        also += ", so nothing is restored"
    over = [line for line in lines if line.state is WaterlineState.RELEASED]
    preview = [line.key for line in lines if line.is_preview and line.state is WaterlineState.CROSSED]
    if over:
        count = sum(pod.is_terminating for pod in plan.observation.pods)
        cause = f"what {count} terminating {_pods(count)} still {'uses' if count == 1 else 'use'}"
        if not count:
            cause = "what pods used that have ended or were throttled since"
        return f"{over[0].metric.name} is above the waterline only by {cause}{also}"
    if preview:
        return f"{_joined(preview)} {'is' if len(preview) == 1 else 'are'} crossed, and only previewed{also}"
    if any(line.is_triggered for line in lines):
        return f"{_crossed(plan)}, but not when read again just before acting{also}"
    if len(unknown) == len({line.metric.name for line in lines}):
        return f"No waterline is known to be crossed{also}"
    return f"No waterline is crossed{also}"


def _named(keys: Sequence[str]) -> str:
    rest = len(keys) - NAMES_MAX
    return _joined([*keys[:NAMES_MAX], *([f"{rest} more"] if rest > 0 else [])])


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _pods(count: int) -> str:
    return "pod" if count == 1 else "pods"
