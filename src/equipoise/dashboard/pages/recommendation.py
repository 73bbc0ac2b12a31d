"""The recommendation page: a week of usage, the forecast with its band, and the advised replicas."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from equipoise.core.decision import Record
from equipoise.dashboard.charts import Bar, Level, Line, Point, bars, by_name, over_time
from equipoise.dashboard.page import Chart, Fact, Figures, Page, Table, facts_of, numbers_of, page_of
from equipoise.dashboard.values import Json, amount, counted, figure, mebibytes, moment, text

WHOLE_LESS = 99.9
"""As in the reason: never 100% while samples are missing."""
POINTS_MAX = 500
CONTAINERS_MAX = 20
ADVICE_MAX = 20
REPLICAS_MAX = 1_000_000
CORES_FACTS = (
    ("Request", "request_cores", "of one pod"),
    ("95th percentile", "p95_cores", "of the workload, with the forecast if it is predictable"),
    ("Peak", "peak_cores", "of the workload in the past week"),
)
LEVELS = {
    "idlest hour": "lowest_median_cores",
    "busiest hour": "highest_median_cores",
    "95th percentile": "p95_cores",
    "peak": "peak_cores",
}


class HpaUsage(NamedTuple):
    """The advised settings of an HPA."""

    replicas_min: int
    replicas_max: int
    target_percent: int


class Course(NamedTuple):
    """The usage of the past week and of the coming day in cores, each mean at the middle of its span."""

    past: list[Point]
    ahead: list[Point]
    upper: list[Point]
    """The upper end of the forecast's band."""


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads with recommendations; records are newest first."""
    return page_of("Recommendation", "recommendation", "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    newest, course = records[0], _course(records[0])
    numbers, hpa = numbers_of(newest), _hpa(newest)
    return Figures(
        facts=_facts(numbers, hpa, Json(newest.decision.extra)["prediction"]),
        charts=(
            _usage(course) or _levels(numbers),
            _replicas(numbers, hpa, course),
            _containers_drawn(newest),
        ),
        tables=(_containers(newest), _history(records)),
    )


def _hpa(record: Record) -> HpaUsage | None:
    recommended = Json(record.decision.extra)["recommended"]
    keys = ("minReplicas", "maxReplicas", "targetUtilization")
    low, high, target = (recommended[key].count for key in keys)
    if low is None or high is None or not target or not low <= high <= REPLICAS_MAX:
        return None
    return HpaUsage(low, high, target)


def _facts(numbers: Json, hpa: HpaUsage | None, prediction: Json) -> Iterator[Fact]:
    if hpa is not None:
        replicas = f"{hpa.replicas_min:,} to {counted(hpa.replicas_max, 'replica')}"
        yield Fact("Recommended", replicas, f"at {hpa.target_percent}% of the CPU request")
    today = numbers["replicas"].count
    if today is not None:
        yield Fact("Now", counted(today, "replica"))
    yield from facts_of(numbers, "cores", CORES_FACTS)
    coverage = numbers["coverage"].number
    if coverage is not None:
        is_low = numbers["confidence"].value == "low"
        percent = coverage * 100 if coverage >= 1 else min(coverage * 100, WHOLE_LESS)
        yield Fact("Coverage", amount(percent, "%"), "low confidence" if is_low else "of a week's samples")
    if prediction.items():
        is_predictable = prediction["predictable"].value is True
        note = "predictable" if is_predictable else "not predictable"
        yield Fact("Forecast", prediction["model"].text or "none", note)


def _course(record: Record) -> Course:
    """Return the recorded usage; nothing where none was recorded."""
    picture = Json(record.observation)["picture"]
    until, step = picture["until"].number, picture["step_seconds"].number
    used = list(picture["used_cores"])[-POINTS_MAX:]
    if until is None or step is None or step <= 0 or not used:
        return Course([], [], [])
    ahead, upper = (list(picture[key])[:POINTS_MAX] for key in ("forecast_cores", "upper_cores"))
    begin = until - len(used) * step
    return Course(_points(used, begin, step), _points(ahead, until, step), _points(upper, until, step))


def _points(values: Iterable[Json], begin: float, step: float) -> list[Point]:
    return [(begin + (place + 0.5) * step, value.number) for place, value in enumerate(values)]


def _peak(points: Sequence[Point]) -> float | None:
    return max((value for _, value in points if value is not None), default=None)


def _usage(course: Course) -> Chart | None:
    past, ahead, upper = map(_peak, course)
    if past is None:
        return None
    lines = [Line("usage", "actual", course.past)]
    words = f"The busiest hour of the past week used {amount(past, 'cores')}"
    if ahead is not None:
        lines.append(Line("95% band", "band", course.upper, is_filled=True))
        lines.append(Line("forecast", "target", course.ahead))
        words += f"; the forecast of the next day's busiest hour is {amount(ahead, 'cores')}"
    if upper is not None:
        words += f", and 95% of samples are expected below {amount(upper, 'cores')}"
    return Chart("Usage and forecast, by the hour", over_time("cores", lines), f"{words}.")


def _levels(numbers: Json) -> Chart | None:
    """Return a chart of the reason's numbers, for a record without usage."""
    values = [Bar(name, numbers[key].number) for name, key in LEVELS.items()]
    words = ", ".join(f"{bar.name} {amount(bar.value, 'cores')}" for bar in values if bar.value is not None)
    if not words:
        return None
    options = by_name("cores", list(LEVELS), [bars("workload", "actual", values)])
    return Chart("Usage of the past week", options, f"CPU usage of the workload: {words}.")


def _replicas(numbers: Json, hpa: HpaUsage | None, course: Course) -> Chart | None:
    """Return the advised HPA's replicas at each hour, without stabilisation and tolerance."""
    request, today = numbers["request_cores"].number, numbers["replicas"].number
    if hpa is None or not request or request <= 0:
        return None
    past = [(at, _replicas_at_target(hpa, request, cores)) for at, cores in course.past]
    ahead = [(at, _replicas_at_target(hpa, request, cores)) for at, cores in course.ahead]
    top = _peak(past)
    if top is None:
        return None
    lines = [Line("recommended", "actual", past, is_step=True)]
    if _peak(ahead) is not None:
        lines.append(Line("recommended, for the forecast", "target", ahead, is_step=True, is_dashed=True))
    levels = [
        Level("now", today, "muted"),
        Level("minimum", float(hpa.replicas_min), "limit"),
        Level("maximum", float(hpa.replicas_max), "limit", is_reached=False),  # it would flatten all else
    ]
    replicas = counted(round(top), "replica")
    words = (
        f"The recommended HPA would have run at most {replicas} in the past week; {figure(today)} run now."
    )
    return Chart("Recommended replicas, by the hour", over_time("replicas", lines, levels), words)


def _replicas_at_target(hpa: HpaUsage, request: float, cores: float | None) -> float | None:
    """Return the replicas at which the pods' usage is at the HPA's target."""
    if cores is None or cores < 0:
        return None
    replicas = math.ceil(round(cores / (request * hpa.target_percent / 100), 9))
    return float(min(max(replicas, hpa.replicas_min), hpa.replicas_max))


class Container(NamedTuple):
    """A container's usage and advised requests: cores, then MiB."""

    name: str
    cores_p99: float | None
    cores_advised: float | None
    memory_peak: float | None
    memory_advised: float | None


def _parts(record: Record) -> list[Container]:
    used = {part["name"].text: part for part in Json(record.observation)["containers"]}
    found = []
    for part in list(Json(record.decision.extra)["recommended"]["containers"])[:CONTAINERS_MAX]:
        name, requests = part["name"].text, part["requests"]
        was = used.get(name, Json(None))
        found.append(
            Container(
                name,
                was["cpu_p99_cores"].number,
                requests["cpu"].quantity,
                mebibytes(was["memory_peak_bytes"].number),
                mebibytes(requests["memory"].quantity),
            )
        )
    return found


def _containers(record: Record) -> Table:
    units = ("cores", "cores", "MiB", "MiB")
    rows = tuple((name, *map(figure, values, units)) for name, *values in _parts(record))
    figures = ("CPU used (P99), cores", "CPU request, cores", "Memory peak, MiB", "Memory request, MiB")
    return Table("Containers", ("Container", *figures), rows, figures)


def _containers_drawn(record: Record) -> Chart | None:
    parts = [part for part in _parts(record) if part.cores_advised is not None]
    if not parts:
        return None
    series = [
        bars("used (P99)", "muted", [Bar(part.name, part.cores_p99) for part in parts]),
        bars("recommended request", "actual", [Bar(part.name, part.cores_advised) for part in parts]),
    ]
    requests = "; ".join(f"{one.name} {amount(one.cores_advised, 'cores')}" for one in parts[:6])
    words = f"Recommended CPU requests: {requests}"
    options = by_name("cores", [part.name for part in parts], series, trigger="axis")
    return Chart("CPU by container", options, f"{words}.")


def _history(records: Sequence[Record]) -> Table:
    rows = []
    for record in records[:ADVICE_MAX]:
        hpa = _hpa(record)
        advice = f"{hpa.replicas_min} to {hpa.replicas_max} at {hpa.target_percent}%" if hpa else "-"
        results = ", ".join(text(one.result) for one in record.outcomes) or "-"
        rows.append((moment(record.at), record.decision.reason.code.value, advice, results))
    return Table("Recommendations", ("Time", "Reason", "Replicas", "Result"), tuple(rows))
