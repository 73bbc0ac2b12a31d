"""The recommendation page: a week of usage, the forecast with its band, and the advised replicas."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.decision import Record
from equipoise.dashboard.charts import Bar, Level, Line, Options, Point, bars, by_name, over_time
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
    quantity,
    text,
)
from equipoise.dashboard.summary import Figures, numbers_of, page_of

BALANCER = "recommendation"
WHOLE_LESS = 99.9
"""As in the reason: never 100 % while samples are missing."""
POINTS_MAX = 500
CONTAINERS_MAX = 20
ADVICE_MAX = 20
REPLICAS_MAX = 1_000_000


class HpaUsage(NamedTuple):
    """The advised settings of an HPA."""

    replicas_min: int
    replicas_max: int
    target_percent: int


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads with advice; records are newest first."""
    return page_of("Recommendation", BALANCER, "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    newest = records[0]
    return Figures(
        facts=tuple(_facts(newest)),
        charts=(_usage(newest) or _levels(newest), _replicas(newest), _containers_drawn(newest)),
        tables=(_containers(newest), _history(records)),
    )


def _recommended(record: Record) -> Mapping[str, Any]:
    return mapping(mapping(record.decision.extra).get("recommended"))


def _hpa(record: Record) -> HpaUsage | None:
    recommended = _recommended(record)
    found = [count(recommended.get(name)) for name in ("minReplicas", "maxReplicas", "targetUtilization")]
    low, high, target = found
    if low is None or high is None or not target or not low <= high <= REPLICAS_MAX:
        return None
    return HpaUsage(low, high, target)


def _facts(newest: Record) -> Iterator[Fact]:
    numbers, hpa = numbers_of(newest), _hpa(newest)
    if hpa is not None:
        yield Fact(
            "Advice",
            f"{hpa.replicas_min:,} to {counted(hpa.replicas_max, 'replica')}",
            f"at {hpa.target_percent} % of the CPU request",
        )
    replicas = count(numbers.get("replicas"))
    if replicas is not None:
        yield Fact("Today", counted(replicas, "replica"))
    for name, key, note in (
        ("Request", "request_cores", "of one pod"),
        ("95th percentile", "p95_cores", "of the workload, coming week included where it is predictable"),
        ("Peak", "peak_cores", "of the workload in a week"),
    ):
        value = number(numbers.get(key))
        if value is not None:
            yield Fact(name, amount(value, "cores"), note)
    coverage = number(numbers.get("coverage"))
    if coverage is not None:
        is_low = numbers.get("confidence") == "low"
        percent = coverage * 100 if coverage >= 1 else min(coverage * 100, WHOLE_LESS)
        yield Fact("Coverage", amount(percent, "%"), "low confidence" if is_low else "of a week's samples")
    prediction = mapping(mapping(newest.decision.extra).get("prediction"))
    if prediction:
        yield Fact(
            "Forecast",
            text(prediction.get("model")) or "none",
            "predictable" if prediction.get("predictable") is True else "not predictable",
        )


def _picture(record: Record) -> tuple[Mapping[str, Any], float, float] | None:
    """Return the recorded usage with its time and step; None if none was recorded."""
    picture = mapping(record.observation.get("picture"))
    until, step = number(picture.get("until")), number(picture.get("step_seconds"))
    if until is None or step is None or step <= 0 or not items(picture.get("used_cores")):
        return None
    return picture, until, step


def _past(record: Record) -> list[Point]:
    """Return the usage of the past week, each mean at the middle of its span."""
    found = _picture(record)
    if found is None:
        return []
    picture, until, step = found
    values = items(picture.get("used_cores"))[-POINTS_MAX:]
    begin = until - len(values) * step
    return [(begin + (place + 0.5) * step, number(value)) for place, value in enumerate(values)]


def _ahead(record: Record, key: str) -> list[Point]:
    found = _picture(record)
    if found is None:
        return []
    picture, until, step = found
    values = items(picture.get(key))[:POINTS_MAX]
    return [(until + (place + 0.5) * step, number(value)) for place, value in enumerate(values)]


def _peak(points: Sequence[Point]) -> float | None:
    return max((value for _, value in points if value is not None), default=None)


def _usage(record: Record) -> Chart | None:
    past, ahead, upper = _past(record), _ahead(record, "forecast_cores"), _ahead(record, "upper_cores")
    if _peak(past) is None:
        return None
    lines = [Line("usage", "actual", past)]
    words = f"The busiest hour of the week used {amount(_peak(past), 'cores')}"
    if _peak(ahead) is not None:
        lines += [
            Line("95 % band", "band", upper, is_filled=True),
            Line("forecast", "target", ahead),
        ]
        words += f"; the coming day's is expected at {amount(_peak(ahead), 'cores')}"
    if _peak(upper) is not None:
        words += f", and below {amount(_peak(upper), 'cores')} in 95 of 100 samples"
    return Chart("Usage and forecast, by the hour", over_time("cores", lines), f"{words}.")


def _levels(record: Record) -> Chart | None:
    """Return a chart of the reason's numbers, for a record without usage."""
    numbers = numbers_of(record)
    names = {
        "idlest hour": "lowest_median_cores",
        "busiest hour": "highest_median_cores",
        "95th percentile": "p95_cores",
        "peak": "peak_cores",
    }
    values = [Bar(name, number(numbers.get(key))) for name, key in names.items()]
    if all(bar.value is None for bar in values):
        return None
    words = ", ".join(f"{bar.name} {amount(bar.value, 'cores')}" for bar in values if bar.value is not None)
    options = by_name("cores", list(names), [bars("workload", "actual", values)])
    return Chart("What decided", options, f"The workload's {words}.")


def _replicas(record: Record) -> Chart | None:
    """Return the advised HPA's replicas at each hour, without stabilisation and tolerance."""
    hpa = _hpa(record)
    request = number(numbers_of(record).get("request_cores"))
    if hpa is None or not request or request <= 0:
        return None
    past = [(at, _replicas_at_target(hpa, request, cores)) for at, cores in _past(record)]
    ahead = [(at, _replicas_at_target(hpa, request, cores)) for at, cores in _ahead(record, "forecast_cores")]
    if _peak(past) is None:
        return None
    today = number(numbers_of(record).get("replicas"))
    lines = [Line("advised", "actual", past, is_step=True)]
    if _peak(ahead) is not None:
        lines.append(Line("advised, on the forecast", "target", ahead, is_step=True, is_dashed=True))
    levels = [
        Level("today", today, "muted"),
        Level("least", float(hpa.replicas_min), "limit"),
        Level("most", float(hpa.replicas_max), "limit", is_reached=False),  # it would flatten all else
    ]
    options: Options = over_time("replicas", lines, levels=levels)
    top = _peak(past) or 0.0
    words = (
        f"The advice would have run up to {counted(round(top), 'replica')} in the past week; "
        f"{figure(today)} run today."
    )
    return Chart("Recommended replicas, by the hour", options, words)


def _replicas_at_target(hpa: HpaUsage, request: float, cores: float | None) -> float | None:
    """Return the replicas at which the pods' usage is at the HPA's target."""
    if cores is None or cores < 0:
        return None
    replicas = math.ceil(round(cores / (request * hpa.target_percent / 100), 9))
    return float(min(max(replicas, hpa.replicas_min), hpa.replicas_max))


def _parts(record: Record) -> list[tuple[str, float | None, float | None, float | None, float | None]]:
    """Return the containers with their usage and advised requests: cores, then MiB."""
    used = {
        text(mapping(part).get("name")): mapping(part) for part in items(record.observation.get("containers"))
    }
    found = []
    for part in items(_recommended(record).get("containers"))[:CONTAINERS_MAX]:
        name = text(mapping(part).get("name"))
        requests, was = mapping(mapping(part).get("requests")), used.get(name, {})
        found.append(
            (
                name,
                number(was.get("cpu_p99_cores")),
                quantity(requests.get("cpu")),
                mebibytes(number(was.get("memory_peak_bytes"))),
                mebibytes(quantity(requests.get("memory"))),
            )
        )
    return found


def _containers(record: Record) -> Table | None:
    rows = tuple(
        (name, figure(p99, "cores"), figure(cpu, "cores"), figure(peak, "MiB"), figure(memory, "MiB"))
        for name, p99, cpu, peak, memory in _parts(record)
    )
    figures = ("CPU used (p99), cores", "CPU advised, cores", "Memory peak, MiB", "Memory advised, MiB")
    return Table("Containers", ("Container", *figures), rows, figures) if rows else None


def _containers_drawn(record: Record) -> Chart | None:
    parts = [part for part in _parts(record) if part[2] is not None]
    if not parts:
        return None
    names = [part[0] for part in parts]
    series = [
        bars("used (p99)", "muted", [Bar(part[0], part[1]) for part in parts]),
        bars("advised", "actual", [Bar(part[0], part[2]) for part in parts]),
    ]
    words = "; ".join(f"{part[0]} should ask for {amount(part[2], 'cores')}" for part in parts[:6])
    return Chart("CPU by container", by_name("cores", names, series, trigger="axis"), f"{words}.")


def _history(records: Sequence[Record]) -> Table | None:
    """Return the changes of advice, and their outcomes."""
    rows = []
    for record in records[:ADVICE_MAX]:
        hpa = _hpa(record)
        advice = f"{hpa.replicas_min} to {hpa.replicas_max} at {hpa.target_percent} %" if hpa else "-"
        results = ", ".join(text(one.result) for one in record.outcomes) or "-"
        rows.append((moment(record.at), record.decision.reason.code.value, advice, results))
    return Table("Advice", ("When", "Reason", "Replicas", "Came of it"), tuple(rows))
