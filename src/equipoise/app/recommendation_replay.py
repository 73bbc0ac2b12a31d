"""The past week again: under today's settings, and under those that are advised."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from equipoise.model.decision import Decision
from equipoise.recommendation.observation import Observation
from equipoise.sim.hpa import milli
from equipoise.sim.hpa_fleet import Course, Fleet, by_minute, fixed, is_above, replay
from equipoise.stats.arrays import Floats, Whole

BATCH = 512


class Hpa(NamedTuple):
    """An HPA's settings."""

    replicas_min: int
    replicas_max: int
    target_percent: int

    def document(self) -> dict[str, int]:
        """Give them under their names in a manifest."""
        names = ("minReplicas", "maxReplicas", "targetUtilization")
        return dict(zip(names, self, strict=True))


class Run(NamedTuple):
    """One workload's week under one setting."""

    settings: dict[str, int]
    replica_hours: float
    minutes_above_request: int | None
    """None: there is no request."""
    scalings: int
    replicas_highest: int


class Replayed(NamedTuple):
    """One workload under both settings; without advice, only under today's."""

    decision: Decision
    minutes: int
    minutes_known: int
    current: Run
    recommended: Run | None


def advised(decision: Decision) -> Hpa | None:
    """Give the settings of an advice."""
    found: dict[str, Any] | None = decision.extra["recommended"]
    if found is None:
        return None
    return Hpa(found["minReplicas"], found["maxReplicas"], found["targetUtilization"])


def replayed(seen: Observation, decisions: Sequence[Decision], today: Hpa | None) -> Iterator[Replayed]:
    """Replay every workload; without settings of today, its replicas stay as they are."""
    for start in range(0, len(decisions), BATCH):
        part = slice(start, start + BATCH)
        yield from _batch(seen.rows(part), decisions[part], today)


def week_by_minute(seen: Observation) -> Floats:
    """Give the past week's usage, minute by minute."""
    past = seen.history[:, max(0, seen.history.shape[1] - seen.week_samples) :]
    return by_minute(past, seen.interval_seconds)


def course_of(seen: Observation, cores: Floats, rows: Whole, settings: Sequence[Hpa]) -> Course:
    """Run an HPA for each of these rows, whose pods must have a request."""
    low, high, target = np.array(settings, np.intp).reshape(-1, 3).T
    requests = [milli(request) for request in seen.request_cores[rows].tolist()]
    return replay(Fleet(np.array(requests, np.intp), low, high, target, seen.replicas[rows]), cores[rows])


def _batch(seen: Observation, decisions: Sequence[Decision], today: Hpa | None) -> Iterator[Replayed]:
    cores = week_by_minute(seen)
    everyone = np.arange(len(decisions))
    has_request = seen.request_cores > 0
    now: dict[int, Run] = {}
    scaled = everyone[has_request if today is not None else everyone < 0]
    if today is not None and len(scaled):
        settings = [today] * len(scaled)
        course = course_of(seen, cores, scaled, settings)
        now |= _runs(seen, cores, scaled, course, [each.document() for each in settings])
    still = np.setdiff1d(everyone, scaled)
    as_found = [{"replicas": count} for count in seen.replicas[still].tolist()]
    now |= _runs(seen, cores, still, fixed(seen.replicas[still], cores.shape[1]), as_found)
    wanted = {row: hpa for row, each in enumerate(decisions) if (hpa := advised(each)) is not None}
    then: dict[int, Run] = {}
    if wanted:
        rows = np.array(list(wanted), np.intp)
        course = course_of(seen, cores, rows, list(wanted.values()))
        then = _runs(seen, cores, rows, course, [hpa.document() for hpa in wanted.values()])
    known = np.count_nonzero(~np.isnan(cores), axis=1).tolist()
    for row, decision in enumerate(decisions):
        yield Replayed(decision, cores.shape[1], known[row], now[row], then.get(row))


def _runs(
    seen: Observation, cores: Floats, rows: Whole, course: Course, settings: Sequence[dict[str, int]]
) -> dict[int, Run]:
    requests = seen.request_cores[rows]
    above = np.count_nonzero(is_above(course, cores[rows], requests), axis=1)
    columns = zip(
        rows.tolist(),
        settings,
        course.replica_hours.tolist(),
        above.tolist(),
        (requests > 0).tolist(),
        course.scalings.tolist(),
        course.replicas_highest.tolist(),
        strict=True,
    )
    return {
        row: Run(setting, hours, minutes if has_request else None, scalings, highest)
        for row, setting, hours, minutes, has_request, scalings, highest in columns
    }
