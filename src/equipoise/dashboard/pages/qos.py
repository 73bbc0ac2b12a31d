"""Quality of service: a node's usage against its waterlines, and its pods in the order of acting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from equipoise.core.decision import Action, EvictPod, Record, RestorePod, ThrottlePod
from equipoise.dashboard.charts import Bar, Level, Line, bars, by_name, over_time
from equipoise.dashboard.page import (
    Chart,
    Fact,
    Page,
    Table,
    amount,
    count,
    counted,
    figure,
    mapping,
    mebibytes,
    moment,
    number,
    text,
)
from equipoise.dashboard.pages.qos_pods import DONE, in_order, pods_table
from equipoise.dashboard.summary import Figures, numbers_of, page_of
from equipoise.qos.observation import METRICS, NodeResource

BALANCER = "qos"
RULES_MAX = 12
LINES_MAX = 6
LOOKS_MAX = 400
STEPS_MAX = 40
NANOS = 1e9
MILLI = 1000.0
DEEDS: dict[type, str] = {EvictPod: "evict", ThrottlePod: "throttle", RestorePod: "restore"}


def page(records: Sequence[Record]) -> Page:
    """Show the nodes that are kept below their waterlines; the newest record comes first."""
    return page_of("Quality of service", BALANCER, "node", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    seen = [record for record in records if record.observation] or records[:1]
    # At rest there is no order of acting to be seen: what is shown is the last time that there was.
    acted = next((record for record in seen if record.decision.actions or record.decision.held), seen[0])
    return Figures(
        facts=tuple(_facts(records[0], seen[0])),
        charts=(_waterlines(records[0]), _over_time(records), in_order(acted), *_gaps(records)),
        tables=(_rules(records[0]), pods_table(acted), _steps(records)),
    )


def measured(metric: str, value: float | None) -> tuple[float | None, str]:
    """Return a value of a metric, or of its gap, in the unit that people read."""
    known = METRICS.get(metric)
    if known is None or not known.is_quantifiable:
        return value, "%" if "pressure" in metric else "load"
    if known.is_share:
        return value, "%"
    return released(metric, value)


def released(metric: str, value: float | None) -> tuple[float | None, str]:
    """Return what acting releases, or what is left to release: cores or MiB, whatever the metric."""
    known = METRICS.get(metric)
    if known is not None and known.resource is NodeResource.MEMORY:
        return mebibytes(value), "MiB"
    return (None if value is None else value / MILLI), "cores"


def _facts(newest: Record, seen: Record) -> Iterator[Fact]:
    numbers, node = numbers_of(newest), seen.observation
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
    """Draw each rule's usage in percent of its waterline, so that all have one scale."""
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
    """Draw the same over time: a record is one look, and the last of its streak another."""
    keys = [key for key, _ in _rules_of(numbers_of(records[0]))][:LINES_MAX]
    points: dict[str, list[tuple[float, float | None]]] = {key: [] for key in keys}
    for record in reversed(records[:LOOKS_MAX]):
        looks = [(record.at, record.decision.reason.numbers)]
        if record.streak is not None:
            looks.append((record.streak.until, record.streak.reason.numbers))
        for at, numbers in looks:
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
    """Draw how the gap of each metric closed when something was last taken away, step by step."""
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
    for turn, action in enumerate(steps, 1):
        gap = number(_after(action).get(metric))
        gaps.append((f"{turn}. {DEEDS[type(action)]} {text(action.pod)}", gap))
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
    columns = ("Rule", "Metric", "Unit", "Usage", "Waterline", "WaterlineState", "Action")
    return Table("Waterlines", columns, tuple(rows), ("Usage", "Waterline")) if rows else None


def _steps(records: Sequence[Record]) -> Table | None:
    """Return what was done, step by step, the newest round first."""
    rows = []
    for record in records:
        for turn, one in enumerate(record.outcomes, 1):
            action = one.action
            metric = text(getattr(action, "metric", ""))
            freed, unit = released(metric, number(getattr(action, "release", None)))
            left, _ = released(metric, number(_after(action).get(metric)))
            rows.append(
                (
                    moment(record.at),
                    str(turn),
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
