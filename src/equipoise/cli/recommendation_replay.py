"""Replays the past week with today's HPA settings and with the advised ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta, Struct, structs

from equipoise.cli.documents import Amount, AtLeastOne, Count, codes, either
from equipoise.cli.recommendation_documents import ADVICE
from equipoise.cli.recommendation_table import print_reasons
from equipoise.core.decision import Decision
from equipoise.recommendation.observe import Observation
from equipoise.sim.hpa import milli
from equipoise.sim.hpa_fleet import Fleet, FleetRun, by_minute, fixed, is_above, replay
from equipoise.stats.ranks import Floats, Whole

if TYPE_CHECKING:
    from rich.table import Table


BATCH = 512
NAMES = ("minReplicas", "maxReplicas", "targetUtilization")


class HpaBounds(NamedTuple):
    """An HPA's settings."""

    replicas_min: int
    replicas_max: int
    target_percent: int

    @classmethod
    def of(cls, hpa: Mapping[str, Any]) -> "HpaBounds":
        """Return the settings of advice, or of an HPA of today."""
        return cls(*(hpa[name] for name in NAMES))

    def document(self) -> dict[str, int]:
        """Return the settings by their names in a manifest."""
        return dict(zip(NAMES, self, strict=True))

    def __str__(self) -> str:
        return f"{self.replicas_min} to {self.replicas_max} at {self.target_percent} %"


class _FixedReplicas(Struct):
    replicas: Count


class _HpaSettings(Struct, rename="camel"):
    min_replicas: AtLeastOne
    max_replicas: AtLeastOne
    target_utilization: AtLeastOne


class ReplayCosts(Struct):
    """What a week took of all workloads that have advice."""

    replica_hours: Amount
    minutes_above_request: Count
    scalings: Count


class ReplayedRun(Struct):
    """One workload's week under one setting."""

    settings: Annotated[dict[str, int], either(_FixedReplicas, _HpaSettings)]
    replica_hours: Amount
    minutes_above_request: Count | None
    """None: there is no request."""
    scalings: Count
    replicas_highest: Count


class ReplayedWorkload(Struct):
    """One workload under both settings; without advice, only under today's."""

    subject: str
    reason: Annotated[str, codes(*ADVICE)]
    sentence: str
    minutes_known: Count
    current: ReplayedRun
    recommended: ReplayedRun | None


class ReplayTotal(Struct):
    """The workloads that have advice added up; the others would be in one sum only."""

    workloads: Count
    advised: Count
    current: ReplayCosts
    recommended: ReplayCosts


class ReplayReport(Struct):
    """What the simulation prints."""

    interval_seconds: Annotated[float, Meta(gt=0)]
    minutes: Count
    workloads: list[ReplayedWorkload]
    total: ReplayTotal


class Replayed(NamedTuple):
    """One workload under both settings; without advice, only under today's."""

    decision: Decision
    minutes: int
    minutes_known: int
    current: ReplayedRun
    recommended: ReplayedRun | None


def advised(decision: Decision) -> HpaBounds | None:
    found = decision.extra["recommended"]
    return None if found is None else HpaBounds.of(found)


def replayed(
    observation: Observation, decisions: Sequence[Decision], today: HpaBounds | None
) -> Iterator[Replayed]:
    """Return the replay of every workload; without an HPA today, its replicas are constant."""
    for start in range(0, len(decisions), BATCH):
        part = slice(start, start + BATCH)
        yield from _batch(observation.rows(part), decisions[part], today)


def past_week(observation: Observation) -> Floats:
    return observation.history[:, max(0, observation.history.shape[1] - observation.week_samples) :]


def week_by_minute(observation: Observation) -> Floats:
    return by_minute(past_week(observation), observation.interval_seconds)


def course_of(
    observation: Observation, cores: Floats, rows: Whole, settings: Sequence[HpaBounds]
) -> FleetRun:
    """Return the replay of an HPA for each of these rows, whose pods must have a request."""
    assert len(rows) == len(settings), "one HPA for each row"
    low, high, target = np.array(settings, np.intp).reshape(-1, 3).T
    requests = [milli(request) for request in observation.request_cores[rows].tolist()]
    return replay(
        Fleet(np.array(requests, np.intp), low, high, target, observation.replicas[rows]), cores[rows]
    )


def _batch(
    observation: Observation, decisions: Sequence[Decision], today: HpaBounds | None
) -> Iterator[Replayed]:
    cores = week_by_minute(observation)
    everyone = np.arange(len(decisions))
    has_request = observation.request_cores > 0
    now: dict[int, ReplayedRun] = {}
    scaled = everyone[has_request if today is not None else everyone < 0]
    if today is not None and len(scaled):
        settings = [today] * len(scaled)
        course = course_of(observation, cores, scaled, settings)
        now |= _runs(observation, cores, scaled, course, [each.document() for each in settings])
    still = np.setdiff1d(everyone, scaled)
    as_found = [{"replicas": count} for count in observation.replicas[still].tolist()]
    now |= _runs(observation, cores, still, fixed(observation.replicas[still], cores.shape[1]), as_found)
    wanted = {row: hpa for row, each in enumerate(decisions) if (hpa := advised(each)) is not None}
    then: dict[int, ReplayedRun] = {}
    if wanted:
        rows = np.array(list(wanted), np.intp)
        course = course_of(observation, cores, rows, list(wanted.values()))
        then = _runs(observation, cores, rows, course, [hpa.document() for hpa in wanted.values()])
    known = np.count_nonzero(~np.isnan(cores), axis=1).tolist()
    assert len(now) == len(decisions), "every workload is replayed once as it is set today"
    assert cores.shape[0] == len(decisions), "one row of usage for each decision"
    for row, decision in enumerate(decisions):
        yield Replayed(decision, cores.shape[1], known[row], now[row], then.get(row))


def _runs(
    observation: Observation, cores: Floats, rows: Whole, course: FleetRun, settings: Sequence[dict[str, int]]
) -> dict[int, ReplayedRun]:
    requests = observation.request_cores[rows]
    above = np.count_nonzero(is_above(course, cores[rows], requests), axis=1)
    minutes_above = [int(count) if cores > 0 else None for count, cores in zip(above, requests, strict=True)]
    hours, scalings, highest = course.replica_hours, course.scalings, course.replicas_highest
    runs = map(ReplayedRun, settings, hours.tolist(), minutes_above, scalings.tolist(), highest.tolist())
    return dict(zip(rows.tolist(), runs, strict=True))


WIDTH_FOR_WORDS = 110
"""On a narrower terminal, headings are short and explained below."""
SHORT = ("HOURS", "ABOVE", "SCALINGS", "MOST")
LONG = ("REPLICA-HOURS", "MINUTES ABOVE REQUEST", "SCALINGS", "HIGHEST")


def report(found: Sequence[Replayed], interval_seconds: float) -> ReplayReport:
    workloads = [
        ReplayedWorkload(
            each.decision.subject,
            each.decision.reason.code.value,
            each.decision.reason.sentence,
            each.minutes_known,
            _rounded(each.current),
            None if each.recommended is None else _rounded(each.recommended),
        )
        for each in found
    ]
    interval = int(interval_seconds) if interval_seconds.is_integer() else interval_seconds
    return ReplayReport(interval, max((each.minutes for each in found), default=0), workloads, _total(found))


def _rounded(run: ReplayedRun) -> ReplayedRun:
    return structs.replace(run, replica_hours=round(run.replica_hours, 4))


def _total(found: Sequence[Replayed]) -> ReplayTotal:
    pairs = [(each.current, each.recommended) for each in found if each.recommended is not None]
    current, recommended = _sum(one for one, _ in pairs), _sum(other for _, other in pairs)
    return ReplayTotal(len(found), len(pairs), current, recommended)


def _sum(runs: Iterable[ReplayedRun]) -> ReplayCosts:
    known = list(runs)
    hours = round(sum(run.replica_hours for run in known), 4)
    minutes = sum(run.minutes_above_request or 0 for run in known)
    return ReplayCosts(hours, minutes, sum(run.scalings for run in known))


def print_table(found: Sequence[Replayed]) -> None:
    """Print two rows per workload, and the totals."""
    from equipoise.runtime.console import Console

    console = Console()
    if not found:
        console.print("There is nothing to replay.")
        return
    is_wide = console.width >= WIDTH_FOR_WORDS
    console.print(_table(found, is_wide=is_wide))
    console.print()
    if not is_wide:
        console.print(
            "HOURS: replica-hours. ABOVE: minutes in which a pod used more than its request. "
            "MOST: the highest number of replicas."
        )
    print_reasons(console, [each.decision for each in found if each.recommended is None])
    console.print(_summary(found))


def _summary(found: Sequence[Replayed]) -> str:
    total = _total(found)
    before, after = total.current, total.recommended
    hours = max(each.minutes for each in found) / 60
    looked = f"{len(found)} replayed over {hours:.4g} hours, advice for {total.advised}"
    if not total.advised:
        return f"{looked}. Nothing was changed."
    return (
        f"{looked}: {before.replica_hours:,.0f} → {after.replica_hours:,.0f} replica-hours "
        f"({_change(before.replica_hours, after.replica_hours)}), "
        f"{before.minutes_above_request:,} → {after.minutes_above_request:,} minutes above the request, "
        f"{before.scalings:,} → {after.scalings:,} scalings. Nothing was changed."
    )


def _change(before: float, after: float) -> str:
    return f"{(after / before - 1) * 100:+.0f}\N{NO-BREAK SPACE}%" if before else "-"


def _table(found: Sequence[Replayed], *, is_wide: bool) -> "Table":
    from rich.text import Text

    from equipoise.runtime.console import table

    hours, *others = LONG if is_wide else SHORT
    numbers = (hours, *(["CHANGE"] if is_wide else []), *others)
    laid_out = table("WORKLOAD", "SETTINGS", *numbers, right=numbers, folded=("WORKLOAD",))
    laid_out.columns[0].min_width = 12
    for each in found:
        subject = Text(each.decision.subject)
        laid_out.add_row(subject, *_cells("now", each.current, [""] if is_wide else []), style="dim")
        if each.recommended is None:
            laid_out.add_row("", Text(each.decision.reason.code.value, style="yellow"))
            continue
        change = _change(each.current.replica_hours, each.recommended.replica_hours)
        laid_out.add_row("", *_cells("advice", each.recommended, [change] if is_wide else []))
    return laid_out


def _cells(name: str, run: ReplayedRun, change: list[str]) -> list[str]:
    above = run.minutes_above_request
    return [
        f"{name:<6} {_settings(run.settings)}",
        f"{run.replica_hours:,.0f}",
        *change,
        "-" if above is None else f"{above:,}",
        f"{run.scalings:,}",
        f"{run.replicas_highest:,}",
    ]


def _settings(settings: dict[str, int]) -> str:
    if "replicas" in settings:
        return f"{settings['replicas']} fixed"
    low, high, target = settings.values()
    return f"{low}-{high} at {target} %"
