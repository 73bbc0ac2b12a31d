"""A node's pods in the order in which they are acted on, with what was done to them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from equipoise.core.decision import EvictPod, Record, RestorePod, ThrottlePod
from equipoise.core.errors import DECODE_ERRORS
from equipoise.dashboard.charts import Bar, Options, bars, by_name
from equipoise.dashboard.page import (
    Chart,
    Table,
    amount,
    counted,
    figure,
    items,
    mapping,
    mebibytes,
    moment,
    number,
    text,
)
from equipoise.qos.observation import (
    COMPARATORS,
    METRICS,
    ORDER,
    Metric,
    NodeResource,
    Observation,
    ObservedPod,
    sorted_by,
)
from equipoise.qos.policy import QosPolicy
from equipoise.qos.selection import allowed_actions

PODS_MAX = 60
NANOS = 1e9
WHAT: dict[type, str] = {EvictPod: "evicted", ThrottlePod: "throttled", RestorePod: "restored"}
DONE = frozenset({"Accepted", "Done"})
COLOURS = {"evicted": "bad", "throttled": "hot", "restored": "good"}
"""Of pods that something was done to; those that something was wanted of are `held`."""


class Sorted(NamedTuple):
    """The pods for one metric, the one to act on first at the front; those that must stay are last."""

    metric: Metric
    pods: Sequence[ObservedPod]
    deeds: Mapping[str, str]
    """What became of it, by pod: `evicted`, `held`, `planned`, or what the server said."""


def in_order(record: Record) -> Chart | None:
    """Draw what each pod uses, in the order of acting."""
    found = _sorted(record)
    if found is None or not found.pods:
        return None
    shown = found.pods[:PODS_MAX]
    unit = "MiB" if found.metric.resource is NodeResource.MEMORY else "cores"
    names = [f"{turn}." for turn in range(1, len(shown) + 1)]
    done = sum(_what(pod, found) in COLOURS for pod in found.pods)
    more = f" The first {PODS_MAX} are drawn." if len(found.pods) > PODS_MAX else ""
    first = shown[0]
    words = (
        f"{counted(len(found.pods), 'pod')} in the order of acting for {found.metric.name} at "
        f"{moment(record.at)}; the first, {text(first.key)}, uses "
        f"{amount(_used(first, found.metric), unit)}; {done} acted on.{more}"
    )
    return Chart("Pods in the order of acting", by_name(unit, names, list(_rows(found, shown))), words)


def _rows(found: Sorted, pods: Sequence[ObservedPod]) -> Iterator[Options]:
    """Yield the bars by what became of their pods, one row over the other at the same places."""
    became = [_what(pod, found) for pod in pods]
    kinds = [what if what in COLOURS else "waits" if what else "" for what in became]
    rows = {"": ("left alone", "muted"), "waits": ("held, planned or refused", "held")}
    rows |= {name: (name, colour) for name, colour in COLOURS.items()}
    for kind, (name, colour) in rows.items():
        if kind in kinds:
            values = [
                Bar(text(pod.key), _used(pod, found.metric) if own == kind else None)
                for pod, own in zip(pods, kinds, strict=True)
            ]
            yield bars(name, colour, values, stack="pods")


def pods_table(record: Record) -> Table | None:
    """Return the same as rows."""
    found = _sorted(record)
    if found is None or not found.pods:
        return None
    rows = tuple(
        (
            str(turn),
            text(pod.key),
            text(pod.qos_class),
            figure(number(pod.priority)),
            figure(_cores(pod), "cores"),
            figure(mebibytes(number(pod.memory_bytes)), "MiB"),
            _what(pod, found) or text(pod.protection, 200) or "-",
        )
        for turn, pod in enumerate(found.pods[:PODS_MAX], 1)
    )
    figures = ("Turn", "Priority", "CPU, cores", "Memory, MiB")
    columns = ("Turn", "Pod", "Class", "Priority", "CPU, cores", "Memory, MiB", "What")
    return Table("Pods in the order of acting", columns, rows, figures)


def _sorted(record: Record) -> Sorted | None:
    """Sort the pods as the decision did; None where what was seen can't be read."""
    try:
        seen = msgspec.convert(record.observation, Observation)
    except DECODE_ERRORS:
        return None
    metric, action = _metric(record)
    spec = mapping(mapping(record.policy.get("actions")).get(action))
    own = [name for name in items(spec.get("sortBy")) if isinstance(name, str) and name in COMPARATORS]
    order = sorted_by(own or metric.chain, seen.pods)
    may = _eligible(record, seen)
    return Sorted(metric, sorted(order, key=lambda pod: not may[pod.key]), _deeds(record))


def _eligible(record: Record, seen: Observation) -> dict[str, bool]:
    """Return who may be acted on at all; of a policy that can't be read only protection is known."""
    try:
        policy = QosPolicy.model_validate(record.policy)
    except DECODE_ERRORS:
        return {pod.key: not pod.protection for pod in seen.pods}
    found = {}
    for pod in seen.pods:
        allowed = allowed_actions(policy, pod)
        found[pod.key] = allowed is None or bool(allowed)
    return found


def _metric(record: Record) -> tuple[Metric, str]:
    """Return the metric that pods are sorted for, and its action: the one acted on, else the nearest."""
    rules = [mapping(rule) for rule in mapping(record.decision.reason.numbers.get("rules")).values()]
    known = [rule for rule in rules if text(rule.get("metric")) in METRICS]
    acted = [getattr(action, "metric", "") for action in record.decision.actions]
    asked = [text(rule.get("metric")) for rule in sorted(known, key=_urgency)]
    name = next((one for one in (*acted, *asked) if one in METRICS), "cpu_total_usage")
    action = next((text(rule.get("action")) for rule in known if rule.get("metric") == name), "")
    return METRICS[name], action


def _urgency(rule: Mapping[str, object]) -> tuple[bool, bool, int]:
    is_triggered, is_crossed = rule.get("triggered") is True, rule.get("state") == "Crossed"
    return not is_triggered, not is_crossed, ORDER[str(rule.get("metric"))]


def _deeds(record: Record) -> dict[str, str]:
    """Return what became of each pod: what was done may differ from the plan, where a pod could not go."""
    found = {text(held.action.pod): "held" for held in record.decision.held}
    found |= {text(action.pod): "planned" for action in record.decision.actions if type(action) in WHAT}
    for one in record.outcomes:
        if type(one.action) in WHAT:
            is_done = one.result in DONE
            found[text(one.action.pod)] = WHAT[type(one.action)] if is_done else text(one.result)
    return found


def _what(pod: ObservedPod, found: Sorted) -> str:
    return found.deeds.get(text(pod.key), "")


def _cores(pod: ObservedPod) -> float | None:
    nanos = number(pod.cpu_nanos)
    return None if nanos is None else nanos / NANOS


def _used(pod: ObservedPod, metric: Metric) -> float | None:
    is_memory = metric.resource is NodeResource.MEMORY
    return mebibytes(number(pod.memory_bytes)) if is_memory else _cores(pod)
