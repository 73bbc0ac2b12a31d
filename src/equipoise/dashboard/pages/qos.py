"""The qos page: a node's usage against its waterlines, and its pods in the order of actions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from equipoise.core.decision import Action, EvictPod, Record, RestorePod, ThrottlePod
from equipoise.core.errors import DECODE_ERRORS
from equipoise.dashboard.charts import Bar, Level, Line, Options, bars, by_name, over_time
from equipoise.dashboard.page import (
    Chart,
    Fact,
    Page,
    Table,
    amount,
    count,
    counted,
    figure,
    items,
    mapping,
    mebibytes,
    moment,
    number,
    text,
)
from equipoise.dashboard.summary import Figures, numbers_of, page_of
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

BALANCER = "qos"
RULES_MAX = 12
LINES_MAX = 6
LOOKS_MAX = 400
STEPS_MAX = 40
NANOS = 1e9
MILLI = 1000.0
PODS_MAX = 60
PAST: dict[type, str] = {EvictPod: "evicted", ThrottlePod: "throttled", RestorePod: "restored"}
DONE = frozenset({"Accepted", "Done"})
COLOURS = {"evicted": "bad", "throttled": "hot", "restored": "good"}
"""Words for what was done to a pod; a pod whose action was not done is `held`."""
VERBS: dict[type, str] = {EvictPod: "evict", ThrottlePod: "throttle", RestorePod: "restore"}


def page(records: Sequence[Record]) -> Page:
    """Return the page of the nodes with waterlines; records are newest first."""
    return page_of("Quality of service", BALANCER, "node", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    observed = [record for record in records if record.observation] or records[:1]
    # At rest there is no order of acting to be seen: what is shown is the last time that there was.
    acted = next(
        (record for record in observed if record.decision.actions or record.decision.held), observed[0]
    )
    return Figures(
        facts=tuple(_facts(records[0], observed[0])),
        charts=(_waterlines(records[0]), _over_time(records), _in_order(acted), *_gaps(records)),
        tables=(_rules(records[0]), _pods_table(acted), _steps(records)),
    )


def measured(metric: str, value: float | None) -> tuple[float | None, str]:
    """Return a value of a metric, or of its gap, in its display unit."""
    known = METRICS.get(metric)
    if known is None or not known.is_quantifiable:
        return value, "%" if "pressure" in metric else "load"
    if known.is_share:
        return value, "%"
    return released(metric, value)


def released(metric: str, value: float | None) -> tuple[float | None, str]:
    """Return what an action releases, or the remaining gap: in cores or MiB."""
    known = METRICS.get(metric)
    if known is not None and known.resource is NodeResource.MEMORY:
        return mebibytes(value), "MiB"
    return (None if value is None else value / MILLI), "cores"


def _facts(newest: Record, observed: Record) -> Iterator[Fact]:
    numbers, node = numbers_of(newest), observed.observation
    size = number(node.get("cpu_nanos"))
    if size is not None:
        yield Fact("CPU", amount(size / NANOS, "cores"), "of the node")
    memory = number(node.get("memory_bytes"))
    if memory is not None:
        yield Fact("Memory", amount(mebibytes(memory), "MiB"), "of the node")
    pods, eligible = count(numbers.get("pods")), count(numbers.get("eligible"))
    if pods is not None:
        yield Fact("Pods", f"{pods:,}", "" if eligible is None else f"{eligible:,} may be acted on now")
    unknown = count(numbers.get("unknown"))
    if unknown and any(rule.get("state") == "Crossed" for _, rule in _rules_of(numbers)):
        yield Fact("Unknown", counted(unknown, "pod"), "whose usage could not be read")
    budget = count(numbers.get("budget"))
    if budget is not None:
        yield Fact("Budget", counted(budget, "eviction"), "in one round")
    if node.get("is_scheduling_disabled") is True:
        yield Fact("Scheduling", "disabled", "no new pod may come")


def _rules_of(numbers: Mapping[str, object]) -> list[tuple[str, Mapping[str, Any]]]:
    found = [(text(key), mapping(rule)) for key, rule in mapping(numbers.get("rules")).items()]
    return [(key, rule) for key, rule in found if key and rule][:RULES_MAX]


def _share(rule: Mapping[str, Any]) -> float | None:
    """Return usage in percent of its waterline."""
    usage, waterline = number(rule.get("usage")), number(rule.get("waterline"))
    return None if usage is None or not waterline or waterline < 0 else usage / waterline * 100


def _waterlines(newest: Record) -> Chart | None:
    """Return each rule's usage in percent of its waterline, so that all share one scale."""
    rules = [(key, rule) for key, rule in _rules_of(numbers_of(newest)) if _share(rule) is not None]
    if not rules:
        return None
    values = [
        Bar(key, _share(rule), "bad" if rule.get("state") == "Crossed" else "", _label(rule))
        for key, rule in rules
    ]
    series = [bars("usage", "actual", values, levels=[Level("waterline", 100.0, "limit")])]
    crossed = sum(rule.get("state") == "Crossed" for _, rule in rules)
    words = f"Crossed: {crossed} of {counted(len(rules), 'waterline')}."
    options = by_name("% of the waterline", [key for key, _ in rules], series)
    return Chart("Usage against waterlines", options, words)


def _label(rule: Mapping[str, Any]) -> str:
    return amount(*measured(text(rule.get("metric")), number(rule.get("usage"))))


def _over_time(records: Sequence[Record]) -> Chart | None:
    """Return usage over time: one point per record, and one for the end of its streak."""
    keys = [key for key, _ in _rules_of(numbers_of(records[0]))][:LINES_MAX]
    points: dict[str, list[tuple[float, float | None]]] = {key: [] for key in keys}
    for record in reversed(records[:LOOKS_MAX]):
        samples = [(record.at, record.decision.reason.numbers)]
        if record.streak is not None:
            samples.append((record.streak.until, record.streak.reason.numbers))
        for at, numbers in samples:
            shares = {key: _share(rule) for key, rule in _rules_of(mapping(numbers))}
            for key in keys:
                points[key].append((at, shares.get(key)))
    known = [key for key in keys if sum(value is not None for _, value in points[key]) > 1]
    if not known:
        return None
    colours = ("actual", "target", "cold", "good", "muted", "hot")
    lines = [Line(key, colour, points[key]) for key, colour in zip(known, colours, strict=False)]
    levels = [Level("waterline", 100.0, "limit")]
    words = f"Usage of {counted(len(known), 'metric')} in percent of its waterline, look by look."
    return Chart("Usage over time", over_time("% of the waterline", lines, levels=levels), words)


def _gaps(records: Sequence[Record]) -> Iterator[Chart]:
    """Return how the last throttles and evictions closed each metric's gap, step by step."""
    acted = next((record for record in records if any(map(_is_taking, record.decision.actions))), None)
    if acted is None:
        return
    done = [one.action for one in acted.outcomes if one.result in DONE]
    numbers = mapping(mapping(acted.decision.reason.numbers).get("gaps"))
    steps = (done if acted.outcomes else acted.decision.actions)[:STEPS_MAX]
    for side, kind in (("evict", EvictPod), ("throttleDown", ThrottlePod)):
        for metric, start in list(mapping(numbers.get(side)).items())[:2]:
            own = [action for action in steps if isinstance(action, kind) and metric in _after(action)]
            begin = number(start)
            if own and begin is not None:
                yield _closing(text(metric), begin, own)


def _is_taking(action: Action) -> bool:
    return isinstance(action, EvictPod | ThrottlePod)


def _after(action: Action) -> Mapping[str, Any]:
    return mapping(getattr(action, "gap_after", None))


def _closing(metric: str, begin: float, steps: Sequence[Action]) -> Chart:
    gaps: list[tuple[str, float | None]] = [("before", begin)]
    for position, action in enumerate(steps, 1):
        gap = number(_after(action).get(metric))
        gaps.append((f"{position}. {VERBS[type(action)]} {text(action.pod)}", gap))
    unit = released(metric, None)[1]
    values = [Bar(name, released(metric, gap)[0], _closed(gap)) for name, gap in gaps]
    series = [bars("gap", "muted", values, levels=[Level("closed", 0.0, "target")])]
    words = (
        f"The gap of {metric} goes from {amount(values[0].value, unit)} to "
        f"{amount(values[-1].value, unit)} in {counted(len(steps), 'step')}."
    )
    options = by_name(unit, [name.rpartition(" ")[0] or name for name, _ in gaps], series)
    return Chart(f"Gap of {metric} after each step", options, words)


def _closed(gap: float | None) -> str:
    return "" if gap is None else "bad" if gap > 0 else "good"


def _rules(newest: Record) -> Table | None:
    rows = []
    for key, rule in _rules_of(numbers_of(newest)):
        metric = text(rule.get("metric"))
        usage, unit = measured(metric, number(rule.get("usage")))
        line, _ = measured(metric, number(rule.get("waterline")))
        is_preview = " (preview)" if rule.get("preview") is True else ""
        rows.append(
            (
                f"{key}{is_preview}",
                metric,
                unit,
                figure(usage, unit),
                figure(line, unit),
                text(rule.get("state")),
                text(rule.get("action")),
            )
        )
    columns = ("Rule", "Metric", "Unit", "Usage", "Waterline", "State", "Action")
    return Table("Waterlines", columns, tuple(rows), ("Usage", "Waterline")) if rows else None


def _steps(records: Sequence[Record]) -> Table | None:
    """Return the actions step by step, newest round first."""
    rows = []
    for record in records:
        for position, one in enumerate(record.outcomes, 1):
            action = one.action
            metric = text(getattr(action, "metric", ""))
            freed, unit = released(metric, number(getattr(action, "release", None)))
            left, _ = released(metric, number(_after(action).get(metric)))
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
    columns = ("When", "Step", "Action", "Pod", "Metric", "Unit", "Releases", "Gap after", "Came of it")
    figures = ("Step", "Releases", "Gap after")
    return Table("What was done", columns, tuple(rows[:STEPS_MAX]), figures) if rows else None


class SortedPods(NamedTuple):
    """The pods for one metric, in the order of actions; protected pods are last."""

    metric: Metric
    pods: Sequence[ObservedPod]
    outcomes: Mapping[str, str]
    """The result by pod: `evicted`, `held`, `planned`, or the server's answer."""


def _in_order(record: Record) -> Chart | None:
    """Return each pod's usage, in the order of actions."""
    found = _sorted_pods(record)
    if found is None or not found.pods:
        return None
    shown = found.pods[:PODS_MAX]
    unit = "MiB" if found.metric.resource is NodeResource.MEMORY else "cores"
    names = [f"{position}." for position in range(1, len(shown) + 1)]
    done = sum(_outcome_of(pod, found) in COLOURS for pod in found.pods)
    more = f" The first {PODS_MAX} are drawn." if len(found.pods) > PODS_MAX else ""
    first = shown[0]
    words = (
        f"{counted(len(found.pods), 'pod')} in the order of acting for {found.metric.name} at "
        f"{moment(record.at)}; the first, {text(first.key)}, uses "
        f"{amount(_used(first, found.metric), unit)}; {done} acted on.{more}"
    )
    return Chart("Pods in the order of acting", by_name(unit, names, list(_rows(found, shown))), words)


def _rows(found: SortedPods, pods: Sequence[ObservedPod]) -> Iterator[Options]:
    """Yield the bars by result, one stacked row per result."""
    became = [_outcome_of(pod, found) for pod in pods]
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


def _pods_table(record: Record) -> Table | None:
    """Return the pods as rows of a table."""
    found = _sorted_pods(record)
    if found is None or not found.pods:
        return None
    rows = tuple(
        (
            str(position),
            text(pod.key),
            text(pod.qos_class),
            figure(number(pod.priority)),
            figure(_cores(pod), "cores"),
            figure(mebibytes(number(pod.memory_bytes)), "MiB"),
            _outcome_of(pod, found) or text(pod.protection, 200) or "-",
        )
        for position, pod in enumerate(found.pods[:PODS_MAX], 1)
    )
    figures = ("Turn", "Priority", "CPU, cores", "Memory, MiB")
    columns = ("Turn", "Pod", "Class", "Priority", "CPU, cores", "Memory, MiB", "What")
    return Table("Pods in the order of acting", columns, rows, figures)


def _sorted_pods(record: Record) -> SortedPods | None:
    """Return the pods in the decision's order; None if the observation cannot be read."""
    try:
        observation = msgspec.convert(record.observation, Observation)
    except DECODE_ERRORS:
        return None
    metric, action = _metric(record)
    spec = mapping(mapping(record.policy.get("actions")).get(action))
    own = [name for name in items(spec.get("sortBy")) if isinstance(name, str) and name in COMPARATORS]
    order = sorted_by(own or metric.chain, observation.pods)
    may = _eligible(record, observation)
    return SortedPods(metric, sorted(order, key=lambda pod: not may[pod.key]), _outcomes_by_pod(record))


def _eligible(record: Record, observation: Observation) -> dict[str, bool]:
    """Return the pods that may be acted on; without a readable policy, all but the protected ones."""
    try:
        policy = QosPolicy.model_validate(record.policy)
    except DECODE_ERRORS:
        return {pod.key: not pod.protection for pod in observation.pods}
    found = {}
    for pod in observation.pods:
        allowed = allowed_actions(policy, pod)
        found[pod.key] = allowed is None or bool(allowed)
    return found


def _metric(record: Record) -> tuple[Metric, str]:
    """Return the metric that sorts the pods, and its action: the one acted on, else the nearest."""
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


def _outcomes_by_pod(record: Record) -> dict[str, str]:
    """Return the result of each pod; it differs from the plan if an action failed."""
    found = {text(held.action.pod): "held" for held in record.decision.held}
    found |= {text(action.pod): "planned" for action in record.decision.actions if type(action) in PAST}
    for one in record.outcomes:
        if type(one.action) in PAST:
            is_done = one.result in DONE
            found[text(one.action.pod)] = PAST[type(one.action)] if is_done else text(one.result)
    return found


def _outcome_of(pod: ObservedPod, found: SortedPods) -> str:
    return found.outcomes.get(text(pod.key), "")


def _cores(pod: ObservedPod) -> float | None:
    nanos = number(pod.cpu_nanos)
    return None if nanos is None else nanos / NANOS


def _used(pod: ObservedPod, metric: Metric) -> float | None:
    is_memory = metric.resource is NodeResource.MEMORY
    return mebibytes(number(pod.memory_bytes)) if is_memory else _cores(pod)
