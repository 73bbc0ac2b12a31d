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
"""By metric, in millicores or bytes; None where it is unknown."""


class GapDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The gaps of each kind of action, when the decision began."""

    evict: PlainGaps
    throttle_down: PlainGaps
    throttle_up: PlainGaps


class RemainingGapDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The gaps that remain after all actions."""

    evict: PlainGaps
    throttle_down: PlainGaps


class RuleDetails(msgspec.Struct, frozen=True):
    """The state of one rule."""

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
    """The inputs of one decision, in the order in which its numbers are shown."""

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

    @property
    def has_readings(self) -> bool:
        """Return whether the metric of a rule could be read, or there is no rule."""
        return not self.rules or any(rule.usage is not None for rule in self.rules.values())


NAMES_MAX = 4
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_KILO = 1024
_MILLI = 1000
_SMALLEST = Fraction(1, 2000)
"""Fewer cores than this would be rounded to 0."""


def plain(value: Fraction | None) -> float | None:
    """Return a number as JSON has it: an integer if it has no fraction."""
    return None if value is None else _number(value)


def _number(value: Fraction) -> float:
    return int(value) if value.denominator == 1 else float(value)


def amount(resource: NodeResource, value: Fraction) -> str:
    """Return millicores as cores and bytes with a binary unit, such as 1.5 cores and 2 GiB."""
    if resource is NodeResource.CPU:
        cores = value / _MILLI
        number = f"{float(cores):.1g}" if 0 < abs(cores) < _SMALLEST else f"{round(float(cores), 3):.10g}"
        return f"{number} {'core' if number == '1' else 'cores'}"
    size = float(value)
    for unit in _UNITS[:-1]:
        if abs(size) < _KILO:
            return f"{size:.4g} {unit}"
        size /= _KILO
    return f"{size:.4g} {_UNITS[-1]}"


def value_of(metric: Metric, value: Fraction) -> str:
    """Return a value of a metric with its unit; loads have none, and pressures are shares of the time."""
    if metric.is_quantifiable and not metric.is_share:
        return amount(metric.resource, value)
    return f"{float(value):.4g}" + ("" if "_load_" in metric.name else "%")


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
    return f"The budget allows {_evictions(budget)} per cycle."


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
    return f"The cool-down of action {name} ends in {print_seconds(max(1, round(left)))}."


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
        case Code.EVICT | Code.THROTTLE | Code.THROTTLE_AND_EVICT | Code.HELD_BY_BUDGET:
            parts = [_crossed(plan), *_reducing(plan), *_cut(plan)]
        case Code.DISABLE_SCHEDULING:
            done = "is disabled" if actions else "stays disabled"
            parts = [_crossed(plan), f"Scheduling of new pods to {plan.observation.node} {done}"]
        case Code.RESTORE:
            parts = _restoring(plan, actions)
        case Code.HELD_BY_COOLDOWN:
            parts = ["No waterline is crossed", "Nothing is restored yet", plan.cooldown.removesuffix(".")]
        case Code.HELD_BY_THRESHOLD:
            parts = [_counting(rules_waiting(plan)[0])]
        case Code.NO_ELIGIBLE_PODS:
            parts = [_crossed(plan), _no_candidate(plan)]
        case _:
            parts = _below(plan)
    return f"{'. '.join(parts)}."


def _crossed(plan: "NodePlan") -> str:
    lines = [line for line in plan.lines if line.is_triggered]
    by_metric: dict[str, list[Waterline]] = {}
    for line in lines[:NAMES_MAX]:
        by_metric.setdefault(line.metric.name, []).append(line)
    rest = len(lines) - NAMES_MAX
    more = [f"{rest} more {'waterline is' if rest == 1 else 'waterlines are'} crossed"] if rest > 0 else []
    return _joined([*(_above(*own) for own in by_metric.values()), *more])


def _above(*lines: Waterline) -> str:
    """Return that a metric is above these waterlines of it."""
    metric = lines[0].metric
    values = _joined([f"{value_of(metric, line.value)} ({line.key})" for line in lines])
    waterlines = "waterline" if len(lines) == 1 else "waterlines"
    return f"{metric.name} of {value_of(metric, lines[0].used or ZERO)} is above the {waterlines} of {values}"


def _reducing(plan: "NodePlan") -> list[str]:
    """Return a sentence for the evictions, one for the throttles, and one for the gaps that remain."""
    parts = []
    for verb, planned, action_plan in (
        ("Evicting", plan.evicted, plan.evict),
        ("Throttling", plan.throttled, plan.throttle),
    ):
        if not planned:
            continue
        named = _named([one.pod.key for one in planned])
        if action_plan.is_precise:
            parts.append(f"{verb} {named} releases {_released(planned, action_plan.gaps)}")
        elif METRICS[action_plan.unknown].is_quantifiable:
            parts.append(f"{verb} {named}, because {action_plan.unknown} could not be read a second time")
        else:
            why = f"how much one pod adds to {action_plan.unknown} is unknown"
            parts.append(f"{verb} {named}, because {why}")
    left = {
        f"{amount(METRICS[name].resource, gap)} of {name}"
        for gaps in plan.gaps_left
        for name, gap in gaps.items()
        if gap is not None and gap > 0
    }
    if parts and left:
        gap, remains = ("A gap", "remains") if len(left) == 1 else ("Gaps", "remain")
        parts += [f"{gap} of {_joined(sorted(left))} {remains}", *_refused(plan)]
    return parts


def _refused(plan: "NodePlan") -> list[str]:
    """Return why the first pod that refuses its eviction stays, and how many others do."""
    refused = [pod for pod in plan.evict.sorted_pods() if pod.refusal] if plan.evict.lines else []
    if not refused:
        return []
    others = f" (and {_pods(len(refused) - 1, 'more ')})" if len(refused) > 1 else ""
    return [f"{refused[0].key}{others} is not evicted: {refused[0].refusal.removesuffix('.')}"]


def _released(planned: "Sequence[PodAction]", gaps: "Gaps") -> str:
    words = {NodeResource.CPU: "CPU", NodeResource.MEMORY: "memory"}
    parts = []
    for resource in dict.fromkeys(METRICS[name].resource for name in gaps):
        released = sum((one.released.get(resource, ZERO) for one in planned), ZERO)
        parts.append(f"{amount(resource, released)} of {words[resource]}")
    return _joined(parts)


def _cut(plan: "NodePlan") -> list[str]:
    count = len(plan.over_budget)
    if not count:
        return []
    evictions, more = _evictions(plan.budget), "more " if plan.budget else ""
    return [f"The budget of {evictions} per cycle holds {_evictions(count, more)}"]


def _restoring(plan: "NodePlan", actions: Sequence[Action]) -> list[str]:
    named = _named([action.pod for action in actions if action.pod])
    if named and not any(one.metric for one in plan.restored):
        parts = [f"No policy throttles {named} any more", "The CPU quota is restored to the CPU limit"]
    else:
        parts = ["No waterline is crossed", *([f"The CPU quota of {named} is raised"] if named else [])]
    if any(not action.pod for action in actions):
        parts.append(f"Scheduling of new pods to {plan.observation.node} is enabled")
    return parts


def _counting(line: Waterline) -> str:
    if line.state is WaterlineState.CROSSED:
        return f"{_above(line)} in {line.breaches} of {line.breaches_min} consecutive cycles"
    cycles = f"{line.clear} of {line.clear_min} consecutive cycles"
    return f"{line.key} is not crossed in {cycles}. Nothing is restored yet"


def _no_candidate(plan: "NodePlan") -> str:
    action_plans = [one for one in (plan.evict, plan.throttle) if one.lines]
    eligible = {pod.key for one in action_plans for pod in one.sorted_pods()}
    if not eligible:
        return f"No action is allowed on the node's {_pods(len(plan.observation.pods))}"
    none = f"Acting on the {_pods(len(eligible), 'eligible ')} releases nothing, as far as is known"
    return ". ".join([none, *_refused(plan)])


def _below(plan: "NodePlan") -> list[str]:
    lines = plan.lines
    if not lines:
        return [f"No policy has a waterline for {plan.observation.node}"]
    unknown = sorted({line.metric.name for line in lines if line.state is WaterlineState.UNKNOWN})
    holds = any(line.state is WaterlineState.UNKNOWN for line in _restore_rules(plan))
    then = ", so nothing is restored" if holds else ""
    also = [f"{_joined(unknown)} could not be read{then}"] if unknown else []
    over = [line for line in lines if line.state is WaterlineState.RELEASED]
    preview = [line.key for line in lines if line.is_preview and line.state is WaterlineState.CROSSED]
    if over:
        count = sum(pod.is_terminating for pod in plan.observation.pods)
        cause = f"{_pods(count, 'terminating ')}" if count else "pods that have since ended or been throttled"
        return [f"{over[0].metric.name} is above the waterline only because of {cause}", *also]
    if preview:
        are, its = ("is", "Its") if len(preview) == 1 else ("are", "Their")
        return [
            f"{_joined(preview)} {are} crossed",
            f"{its} strategy is Preview, so no action is taken",
            *also,
        ]
    if any(line.is_triggered for line in lines):
        return [f"{_crossed(plan)}, but no longer in the second reading just before acting", *also]
    if len(unknown) == len({line.metric.name for line in lines}):
        return ["Whether a waterline is crossed is unknown", *also]
    return ["No waterline is crossed", *also]


def _named(keys: Sequence[str]) -> str:
    rest = len(keys) - NAMES_MAX
    return _joined([*keys[:NAMES_MAX], *([f"{rest} more"] if rest > 0 else [])])


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _pods(count: int, which: str = "") -> str:
    return f"{count} {which}{'pod' if count == 1 else 'pods'}"


def _evictions(count: int, which: str = "") -> str:
    return f"{count} {which}{'eviction' if count == 1 else 'evictions'}"
