"""The rules of a node: assembled from objects, then crossed or clear in each cycle, so often in a row. Pure.

Waterlines, in two spellings, name the actions to take, and so do selections of pods. An object alone can be
valid and still name an action that does not exist, or that does nothing for its metric: this is checked here.

A metric that is above its waterline once may be below it in the next cycle. So rules count: an action is
triggered after enough cycles in a row, and undone after enough others. The counts, and when actions were last
triggered, are carried over as `QosMemory`.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel

from equipoise.core.errors import BadInput
from equipoise.core.quantity import NANO
from equipoise.qos.observation import (
    METRICS,
    NANOS_PER_MILLI,
    ORDER,
    Metric,
    NodeResource,
    Observation,
    with_shares,
)
from equipoise.qos.policy import (
    AvoidanceActionSpec,
    NodePolicy,
    NodeQOSEnsurancePolicySpec,
    NodeQOSSpec,
    ObjectiveEnsurance,
    PodQOSSpec,
    QosPolicy,
    RuleStrategy,
)

WaterlineSpec = NodeQOSEnsurancePolicySpec | NodeQOSSpec
"""The two spellings of waterlines."""


class QosObject(NamedTuple):
    """One object, and where it was found, for messages."""

    kind: str
    name: str
    spec: BaseModel
    where: str


def assemble(objects: Iterable[QosObject]) -> QosPolicy:
    """Return the objects as one policy; BadInput names the first that does not fit, by its path."""
    all_ = list(objects)
    actions = _actions(all_)
    seen: set[tuple[str, str]] = set()
    for one in all_:
        if (one.kind, one.name) in seen:
            where = f"{one.where}.metadata.name"
            raise BadInput(f"{where}: expected a unique name for each {one.kind}, got {one.name!r} twice")
        seen.add((one.kind, one.name))
    for one in all_:
        if (found := invalid_reference(one, actions)) is not None:
            raise BadInput(f"{one.where}.spec.{found}")
    return _combine(all_)


def assemble_valid(objects: Iterable[QosObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Return the valid objects as one policy, and what is wrong with the objects or parts left out."""
    all_ = list(objects)
    actions = _actions(all_)
    valid, problems = [], []
    for one in all_:
        invalid = invalid_reference(one, actions)
        if invalid is None:
            valid.append(one)
        if (problem := invalid or unknown_action(one, actions)) is not None:
            problems.append(f"{one.where}: spec.{problem}")
    return _combine(valid), tuple(problems)


def _actions(objects: Iterable[QosObject]) -> dict[str, AvoidanceActionSpec]:
    return {one.name: one.spec for one in objects if isinstance(one.spec, AvoidanceActionSpec)}


def _combine(all_: list[QosObject]) -> QosPolicy:
    pods = tuple(one.spec for one in all_ if isinstance(one.spec, PodQOSSpec))
    policies = tuple(
        NodePolicy(name=one.name, selector=one.spec.selector, rules=one.spec.rules)
        for one in all_
        if isinstance(one.spec, WaterlineSpec)
    )
    return QosPolicy(policies=policies, actions=_actions(all_), pods=pods or None)


def invalid_reference(one: QosObject, actions: dict[str, AvoidanceActionSpec]) -> str | None:
    """Return which action an object names that does not exist or fit: the path below its spec, and why."""
    field = "objectiveEnsurances" if isinstance(one.spec, NodeQOSEnsurancePolicySpec) else "rules"
    rules = one.spec.rules if isinstance(one.spec, WaterlineSpec) else ()
    for place, rule in enumerate(rules):
        if invalid := _invalid_action(rule, actions):
            return f"{field}[{place}].actionName: {invalid}"
    return None


def unknown_action(one: QosObject, actions: Collection[str]) -> str | None:
    """Return which action a PodQOS allows that does not exist (yet); its other actions hold."""
    names = one.spec.actions if isinstance(one.spec, PodQOSSpec) else ()
    for place, name in enumerate(names):
        if name not in actions:
            expected = f"expected the name of an AvoidanceAction, got {name!r}"
            return f"allowedActions[{place}]: {expected}; the entry has no effect"
    return None


def _invalid_action(rule: ObjectiveEnsurance, actions: dict[str, AvoidanceActionSpec]) -> str:
    action = actions.get(rule.action_name)
    if action is None:
        return f"expected the name of an AvoidanceAction, got {rule.action_name!r}"
    if action.throttle is None:
        return ""
    name, throttle = rule.metric_rule.name, action.throttle
    if METRICS[name].resource is NodeResource.CPU:
        return "" if throttle.cpu else f"expected an action with cpuThrottle, since {name} is a metric of CPU"
    if throttle.memory is None or not throttle.memory.is_reclaimed:
        return f"expected an action with memoryThrottle.forceGC, since {name} is a metric of memory"
    return ""


class QosMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The memory of one node. Rules are named `POLICY/RULE`."""

    breaches: dict[str, int] = {}
    """Rounds in a row in which a rule was crossed, this one not counted."""
    clear: dict[str, int] = {}
    """Rounds in a row in which it was not."""
    last_trigger: dict[str, float] = {}
    """When an action was last triggered, by its name."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "QosMemory":
        """Return the memory from plain data; raises ValueError for other data."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


NO_MEMORY = QosMemory()
COUNT_MAX = 10**6
"""Counts end here: no rule waits for more cycles."""

ZERO = Fraction(0)
Usage = Mapping[str, Fraction | None]


class WaterlineState(StrEnum):
    """The state of a metric beside its waterline."""

    CROSSED = "Crossed"
    RELEASED = "Released"
    """Above it, but for what terminating pods still use."""
    CLEAR = "Clear"
    UNKNOWN = "Unknown"


class Waterline(NamedTuple):
    """One rule in one round."""

    key: str
    metric: Metric
    value: Fraction
    """As it was written: millicores, bytes, percent or load."""
    used: Fraction | None
    action_name: str
    action: AvoidanceActionSpec
    state: WaterlineState
    breaches: int
    breaches_min: int
    clear: int
    clear_min: int
    is_preview: bool

    @property
    def is_triggered(self) -> bool:
        is_crossed = self.state is WaterlineState.CROSSED and self.breaches >= self.breaches_min
        return is_crossed and not self.is_preview

    @property
    def allows_restore(self) -> bool:
        return self.state is WaterlineState.CLEAR and self.clear >= self.clear_min

    def throttles(self, resource: NodeResource) -> bool:
        """Whether its action throttles this resource for it."""
        throttle = self.action.throttle
        if throttle is None or self.metric.resource is not resource:
            return False
        return (throttle.cpu if resource is NodeResource.CPU else throttle.memory) is not None


def usage_of(texts: Mapping[str, str | None], observation: Observation) -> dict[str, Fraction | None]:
    """Return usage as exact numbers, with the shares that follow from it."""
    values = {name: None if text is None else Fraction(text) for name, text in texts.items()}
    return with_shares(values, observation)


def pending_release(metric: Metric, observation: Observation) -> Fraction:
    """Return the usage that will be released: of terminating and ended pods, and of lowered quotas.

    Per container: those of a terminating pod end one after the other, and only the running ones count.
    """
    if metric.releases is None:
        return ZERO
    amounts = [
        metric.releases(msgspec.structs.replace(pod, containers=(part,)))
        for pod in observation.pods
        if pod.is_terminating
        for part in pod.containers
    ]
    ended_nanos = observation.released_cpu_nanos if metric.resource is NodeResource.CPU else 0
    return sum((amount for amount in amounts if amount is not None), Fraction(ended_nanos, NANOS_PER_MILLI))


def judge_rules(
    policy: QosPolicy, observation: Observation, memory: QosMemory = NO_MEMORY
) -> list[Waterline]:
    """Return every rule that is for this node with its state, in the order of acting."""
    usage = usage_of(observation.usage, observation)
    released: dict[str, Fraction] = {}
    found = []
    for node_policy in policy.policies:
        if not node_policy.selector.selector.matches(observation.labels):
            continue
        for rule in node_policy.rules:
            metric = METRICS[rule.metric_rule.name]
            if metric.name not in released:
                released[metric.name] = pending_release(metric, observation)
            value, used = Fraction(rule.metric_rule.value.nanos, NANO), usage.get(metric.name)
            state = _state(metric, used, value, released[metric.name], observation)
            key = f"{node_policy.name}/{rule.name}"
            unchanged = {WaterlineState.RELEASED, WaterlineState.UNKNOWN}
            before, clear = memory.breaches.get(key, 0), memory.clear.get(key, 0)
            found.append(
                Waterline(
                    key=key,
                    metric=metric,
                    value=value,
                    used=used,
                    action_name=rule.action_name,
                    action=policy.actions[rule.action_name],
                    state=state,
                    breaches=_counted(before, state, WaterlineState.CROSSED, unchanged),
                    breaches_min=rule.breaches_min,
                    clear=_counted(clear, state, WaterlineState.CLEAR, {WaterlineState.UNKNOWN}),
                    clear_min=rule.clear_min,
                    is_preview=rule.strategy is RuleStrategy.PREVIEW,
                )
            )
    return sorted(found, key=lambda line: ORDER[line.metric.name])


def _state(
    metric: Metric, used: Fraction | None, value: Fraction, released: Fraction, observation: Observation
) -> WaterlineState:
    """Return the state; exactly at the waterline is not above it."""
    if used is None:
        return WaterlineState.UNKNOWN
    if used <= value:
        return WaterlineState.CLEAR
    gap = metric.amount(used, observation) - metric.amount(value, observation)
    return WaterlineState.CROSSED if gap > released else WaterlineState.RELEASED


def _counted(
    before: int, state: WaterlineState, counted: WaterlineState, unchanged_in: set[WaterlineState]
) -> int:
    """Return the next count: one more in the counted state, the same in these others, else zero."""
    if state is counted:
        return min(before + 1, COUNT_MAX)
    return before if state in unchanged_in else 0


def next_memory(lines: Iterable[Waterline], memory: QosMemory, at: float) -> QosMemory:
    """Return the memory for the next cycle, without rules and actions that no longer exist."""
    all_ = list(lines)
    names = {line.action_name for line in all_}
    triggers = {name: moment for name, moment in memory.last_trigger.items() if name in names}
    triggers |= {line.action_name: at for line in all_ if line.is_triggered}
    return QosMemory(
        {line.key: line.breaches for line in all_ if line.breaches},
        {line.key: line.clear for line in all_ if line.clear},
        triggers,
    )


def memory_at_thresholds(policy: QosPolicy) -> QosMemory:
    """Return a memory in which every rule was crossed, and clear, for one cycle less than is needed."""
    rules = {f"{one.name}/{rule.name}": rule for one in policy.policies for rule in one.rules}
    breaches = {key: rule.breaches_min - 1 for key, rule in rules.items()}
    return QosMemory(breaches, {key: rule.clear_min - 1 for key, rule in rules.items()})


def lowest_by_metric(lines: Iterable[Waterline]) -> dict[str, Waterline]:
    """Return the lowest waterline of each metric, in the order of acting."""
    found: dict[str, Waterline] = {}
    for line in lines:
        lowest = found.get(line.metric.name)
        if lowest is None or line.value < lowest.value:
            found[line.metric.name] = line
    return found
