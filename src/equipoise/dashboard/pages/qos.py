"""The qos page: a node's usage against its waterlines, and its pods in the order of actions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from equipoise.core.decision import Action, EvictPod, Record, RestorePod, ThrottlePod
from equipoise.core.errors import DECODE_ERRORS
from equipoise.dashboard.charts import Bar, Level, Line, Options, Point, bars, by_name, over_time
from equipoise.dashboard.page import Chart, Fact, Figures, Page, Table, numbers_of, page_of
from equipoise.dashboard.values import Json, amount, counted, figure, mebibytes, moment, text
from equipoise.qos.decide import allowed_actions
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

RULES_MAX = 12
LINES_MAX = 6
SAMPLES_MAX = 400
STEPS_MAX = 40
NANOS = 1e9
MILLI = 1000.0
PODS_MAX = 60
WATERLINE = Level("waterline", 100.0, "limit")
PAST: dict[type, str] = {EvictPod: "evicted", ThrottlePod: "throttled", RestorePod: "restored"}
DONE = frozenset({"Accepted", "Done"})
COLOURS = {"evicted": "bad", "throttled": "hot", "restored": "good"}
"""Words for what was done to a pod; a pod whose action was not done is `held`."""
VERBS: dict[type, str] = {EvictPod: "evict", ThrottlePod: "throttle", RestorePod: "restore"}


def page(records: Sequence[Record]) -> Page:
    """Return the page of the nodes with waterlines; records are newest first."""
    return page_of("Quality of service", "qos", "node", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    observed = [record for record in records if record.observation] or records[:1]
    # At rest there is no order of acting to be seen: what is shown is the last time that there was.
    acted = next((one for one in observed if one.decision.actions or one.decision.held), observed[0])
    numbers = numbers_of(records[0])
    rules, ordered = _rules_of(numbers), _sorted_pods(acted)
    return Figures(
        facts=_facts(numbers, Json(observed[0].observation)),
        charts=(_waterlines(rules), _over_time(records), _in_order(ordered, acted.at), *_gaps(records)),
        tables=(_rules(rules), _pods_table(ordered), _steps(records)),
    )


def _measured(metric: str, value: float | None) -> tuple[float | None, str]:
    known = METRICS.get(metric)
    if known is None or not known.is_quantifiable:
        return value, "%" if "pressure" in metric else "load"
    return (value, "%") if known.is_share else _released(metric, value)


def _released(metric: str, value: float | None) -> tuple[float | None, str]:
    """Return what an action releases, or the remaining gap: in cores or MiB."""
    known = METRICS.get(metric)
    if known is not None and known.resource is NodeResource.MEMORY:
        return mebibytes(value), "MiB"
    return (None if value is None else value / MILLI), "cores"


def _facts(numbers: Json, node: Json) -> Iterator[Fact]:
    cpu_nanos, memory = node["cpu_nanos"].number, node["memory_bytes"].number
    if cpu_nanos is not None:
        yield Fact("CPU", amount(cpu_nanos / NANOS, "cores"), "of the node")
    if memory is not None:
        yield Fact("Memory", amount(mebibytes(memory), "MiB"), "of the node")
    keys = ("pods", "eligible", "unknown", "budget")
    pods, eligible, unknown, budget = (numbers[key].count for key in keys)
    if pods is not None:
        yield Fact("Pods", f"{pods:,}", "" if eligible is None else f"{eligible:,} eligible for actions")
    if unknown and any(rule.is_crossed for rule in _rules_of(numbers)):
        yield Fact("Unknown", counted(unknown, "pod"), "whose usage could not be read")
    if budget is not None:
        yield Fact("Budget", counted(budget, "eviction"), "per cycle")
    if node["is_scheduling_disabled"].value is True:
        yield Fact("Scheduling", "disabled", "for new pods")


class Rule(NamedTuple):
    """The recorded state of one rule."""

    key: str
    metric: str
    usage: float | None
    waterline: float | None
    state: str
    action: str
    is_crossed: bool
    is_preview: bool

    @property
    def percent(self) -> float | None:
        """The usage in percent of the waterline, so that all rules share one scale."""
        if self.usage is None or not self.waterline or self.waterline < 0:
            return None
        return self.usage / self.waterline * 100


def _rules_of(numbers: Json) -> list[Rule]:
    found = [
        Rule(
            text(key),
            rule["metric"].text,
            rule["usage"].number,
            rule["waterline"].number,
            rule["state"].text,
            rule["action"].text,
            is_crossed=rule["state"].value == "Crossed",
            is_preview=rule["preview"].value is True,
        )
        for key, rule in numbers["rules"].items()
        if rule.items()
    ]
    return [rule for rule in found if rule.key][:RULES_MAX]


def _waterlines(rules: Sequence[Rule]) -> Chart | None:
    known = [rule for rule in rules if rule.percent is not None]
    if not known:
        return None
    values = []
    for rule in known:
        usage, unit = _measured(rule.metric, rule.usage)
        values.append(Bar(rule.key, rule.percent, "bad" if rule.is_crossed else "", amount(usage, unit)))
    series = [bars("usage", "actual", values, levels=[WATERLINE])]
    words = f"Crossed: {sum(rule.is_crossed for rule in known)} of {counted(len(known), 'waterline')}."
    options = by_name("% of the waterline", [rule.key for rule in known], series)
    return Chart("Usage against waterlines", options, words)


def _over_time(records: Sequence[Record]) -> Chart | None:
    """Return usage over time: one point per record, and one for the end of its streak."""
    keys = [rule.key for rule in _rules_of(numbers_of(records[0]))][:LINES_MAX]
    points: dict[str, list[Point]] = {key: [] for key in keys}
    for record in reversed(records[:SAMPLES_MAX]):
        samples = [(record.at, Json(record.decision.reason.numbers))]
        if record.streak is not None:
            samples.append((record.streak.until, numbers_of(record)))
        for at, numbers in samples:
            shares = {rule.key: rule.percent for rule in _rules_of(numbers)}
            for key in keys:
                points[key].append((at, shares.get(key)))
    known = [key for key in keys if sum(value is not None for _, value in points[key]) > 1]
    if not known:
        return None
    colours = ("actual", "target", "cold", "good", "muted", "hot")
    lines = [Line(key, colour, points[key]) for key, colour in zip(known, colours, strict=False)]
    words = f"Usage of {counted(len(known), 'metric')} in percent of its waterline, over time."
    return Chart("Usage over time", over_time("% of the waterline", lines, [WATERLINE]), words)


def _gaps(records: Sequence[Record]) -> Iterator[Chart]:
    """Return how the last throttles and evictions closed each metric's gap, step by step."""
    taking = EvictPod | ThrottlePod
    acted = next(
        (one for one in records if any(isinstance(each, taking) for each in one.decision.actions)), None
    )
    if acted is None:
        return
    done = [one.action for one in acted.outcomes if one.result in DONE]
    gaps = Json(acted.decision.reason.numbers)["gaps"]
    steps = (done if acted.outcomes else acted.decision.actions)[:STEPS_MAX]
    for side, kind in (("evict", EvictPod), ("throttleDown", ThrottlePod)):
        for metric, start in gaps[side].items()[:2]:
            own = [one for one in steps if isinstance(one, kind) and metric in (one.gap_after or {})]
            if own and start.number is not None:
                yield _closing(text(metric), start.number, own)


def _gap_after(action: Action, metric: str) -> float | None:
    return Json(getattr(action, "gap_after", None))[metric].number


def _closing(metric: str, begin: float, steps: Sequence[Action]) -> Chart:
    gaps: list[tuple[str, str, float | None]] = [("before", "before", begin)]
    for position, action in enumerate(steps, 1):
        verb = f"{position}. {VERBS[type(action)]}"
        gaps.append((verb, f"{verb} {text(action.pod)}", _gap_after(action, metric)))
    unit = _released(metric, None)[1]
    values = []
    for _, name, gap in gaps:
        colour = "" if gap is None else "bad" if gap > 0 else "good"
        values.append(Bar(name, _released(metric, gap)[0], colour))
    series = [bars("gap", "muted", values, levels=[Level("closed", 0.0, "target")])]
    begin_text, end_text = amount(values[0].value, unit), amount(values[-1].value, unit)
    words = f"The gap of {metric} goes from {begin_text} to {end_text} in {counted(len(steps), 'step')}."
    options = by_name(unit, [verb for verb, _, _ in gaps], series)
    return Chart(f"Gap of {metric} after each step", options, words)


def _rules(rules: Sequence[Rule]) -> Table:
    rows = []
    for rule in rules:
        usage, unit = _measured(rule.metric, rule.usage)
        line, _ = _measured(rule.metric, rule.waterline)
        key = f"{rule.key} (preview)" if rule.is_preview else rule.key
        amounts = (unit, figure(usage, unit), figure(line, unit))
        rows.append((key, rule.metric, *amounts, rule.state, rule.action))
    columns = ("Rule", "Metric", "Unit", "Usage", "Waterline", "State", "Action")
    return Table("Waterlines", columns, tuple(rows), ("Usage", "Waterline"))


def _steps(records: Sequence[Record]) -> Table:
    rows = []
    for record in records:
        for position, one in enumerate(record.outcomes, 1):
            action = one.action
            metric = text(getattr(action, "metric", ""))
            freed, unit = _released(metric, Json(getattr(action, "release", None)).number)
            left, _ = _released(metric, _gap_after(action, metric))
            rows.append(
                (
                    moment(record.at),
                    str(position),
                    type(action).__name__,
                    text(action.pod) or "the node",
                    metric or "-",
                    unit if metric else "-",
                    figure(freed, unit),
                    figure(left, unit),
                    text(one.result),
                )
            )
        if len(rows) >= STEPS_MAX:
            break
    columns = ("Time", "Step", "Action", "Pod", "Metric", "Unit", "Releases", "Gap after", "Result")
    return Table("Actions", columns, tuple(rows[:STEPS_MAX]), ("Step", "Releases", "Gap after"))


class SortedPods(NamedTuple):
    """The pods for one metric, in the order of actions; protected pods are last."""

    metric: Metric
    pods: Sequence[ObservedPod]
    outcomes: Mapping[str, str]
    """The result by pod: `evicted`, `held`, `planned`, or the server's answer."""

    def outcome_of(self, pod: ObservedPod) -> str:
        """Return the result for a pod; empty if it had no action."""
        return self.outcomes.get(text(pod.key), "")

    def used_by(self, pod: ObservedPod) -> float | None:
        """Return the pod's usage of the metric's resource, in cores or MiB."""
        return _memory(pod) if self.metric.resource is NodeResource.MEMORY else _cores(pod)


def _cores(pod: ObservedPod) -> float | None:
    nanos = Json(pod.cpu_nanos).number
    return None if nanos is None else nanos / NANOS


def _memory(pod: ObservedPod) -> float | None:
    return mebibytes(Json(pod.memory_bytes).number)


def _in_order(found: SortedPods | None, at: float) -> Chart | None:
    if found is None or not found.pods:
        return None
    shown = found.pods[:PODS_MAX]
    unit = "MiB" if found.metric.resource is NodeResource.MEMORY else "cores"
    names = [f"{position}." for position in range(1, len(shown) + 1)]
    done = sum(found.outcome_of(pod) in COLOURS for pod in found.pods)
    more = f" The first {PODS_MAX} are shown." if len(found.pods) > PODS_MAX else ""
    first = shown[0]
    words = (
        f"{counted(len(found.pods), 'pod')} in the order of actions for {found.metric.name} at {moment(at)}; "
        f"the first, {text(first.key)}, uses {amount(found.used_by(first), unit)}; "
        f"{counted(done, 'pod')} acted on.{more}"
    )
    return Chart("Pods in the order of actions", by_name(unit, names, list(_rows(found, shown))), words)


def _rows(found: SortedPods, pods: Sequence[ObservedPod]) -> Iterator[Options]:
    """Yield the bars by result, one stacked row per result."""
    results = [found.outcome_of(pod) for pod in pods]
    kinds = [what if what in COLOURS else "waits" if what else "" for what in results]
    rows = {"": ("no action", "muted"), "waits": ("held, planned or refused", "held")}
    rows |= {name: (name, colour) for name, colour in COLOURS.items()}
    for kind, (name, colour) in rows.items():
        if kind in kinds:
            values = [
                Bar(text(pod.key), found.used_by(pod) if own == kind else None)
                for pod, own in zip(pods, kinds, strict=True)
            ]
            yield bars(name, colour, values, stack="pods")


def _pods_table(found: SortedPods | None) -> Table:
    pods = () if found is None else found.pods[:PODS_MAX]
    rows = tuple(
        (
            str(position),
            text(pod.key),
            text(pod.qos_class),
            figure(Json(pod.priority).number),
            figure(_cores(pod), "cores"),
            figure(_memory(pod), "MiB"),
            (found.outcome_of(pod) if found else "") or text(pod.protection, 200) or "-",
        )
        for position, pod in enumerate(pods, 1)
    )
    figures = ("Order", "Priority", "CPU, cores", "Memory, MiB")
    columns = ("Order", "Pod", "Class", "Priority", "CPU, cores", "Memory, MiB", "Result")
    return Table("Pods in the order of actions", columns, rows, figures)


def _sorted_pods(record: Record) -> SortedPods | None:
    """Return the pods in the decision's order; None if the observation cannot be read."""
    try:
        observation = msgspec.convert(record.observation, Observation)
    except DECODE_ERRORS:
        return None
    metric, action = _metric(record)
    asked = [part.value for part in Json(record.policy)["actions"][action]["sortBy"]]
    own = [name for name in asked if isinstance(name, str) and name in COMPARATORS]
    order = sorted_by(own or metric.chain, observation.pods)
    may = _eligible(record, observation)
    return SortedPods(metric, sorted(order, key=lambda pod: not may[pod.key]), _outcomes_by_pod(record))


def _eligible(record: Record, observation: Observation) -> dict[str, bool]:
    """Return the pods that may be acted on; without a readable policy, all but the protected ones."""
    try:
        policy = QosPolicy.model_validate(record.policy)
    except DECODE_ERRORS:
        return {pod.key: not pod.protection for pod in observation.pods}
    allowed = {pod.key: allowed_actions(policy, pod) for pod in observation.pods}
    return {key: names is None or bool(names) for key, names in allowed.items()}


def _metric(record: Record) -> tuple[Metric, str]:
    """Return the metric that sorts the pods, and its action: the one acted on, else the nearest."""
    rules = [rule for _, rule in Json(record.decision.reason.numbers)["rules"].items()]
    known = [rule for rule in rules if rule["metric"].text in METRICS]
    acted = [getattr(action, "metric", "") for action in record.decision.actions]
    asked = [rule["metric"].text for rule in sorted(known, key=_urgency)]
    name = next((one for one in (*acted, *asked) if one in METRICS), "cpu_total_usage")
    action = next((rule["action"].text for rule in known if rule["metric"].value == name), "")
    return METRICS[name], action


def _urgency(rule: Json) -> tuple[bool, bool, int]:
    """Sort triggered rules first, then crossed ones, then by the order of acting."""
    is_triggered, is_crossed = rule["triggered"].value is True, rule["state"].value == "Crossed"
    return not is_triggered, not is_crossed, ORDER[rule["metric"].text]


def _outcomes_by_pod(record: Record) -> dict[str, str]:
    """Return the result of each pod; it differs from the plan if an action failed."""
    found = {text(held.action.pod): "held" for held in record.decision.held}
    found |= {text(action.pod): "planned" for action in record.decision.actions if type(action) in PAST}
    for one in record.outcomes:
        if type(one.action) in PAST:
            is_done = one.result in DONE
            found[text(one.action.pod)] = PAST[type(one.action)] if is_done else text(one.result)
    return found
