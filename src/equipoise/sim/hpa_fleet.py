"""Many HPAs, minute by minute: the algorithm of `hpa` for a target of CPU utilisation, without a behavior.

Usage is spread evenly over the pods. The controller syncs four times a minute and sees the minute before, and
the replicas with which a minute begins serve it; so a rise is answered two minutes later. A pod is paid from
the sync that made it. Nothing changes while usage is unknown.

All HPAs go through one minute at once, on arrays. A single one is computed alone, and a sync that changes
nothing is skipped: while usage and replicas stay, so does the proposal, and the highest recommendation of the
window stays until the newest one of that height is too old.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from equipoise.sim.hpa import NOISE_MILLI, HpaController
from equipoise.stats.ranks import Claims, Floats, Whole

SYNCS = 4
"""In a minute: the controller's 15 seconds."""
SYNC_SECONDS = 15.0


class FleetSettings(NamedTuple):
    """How an HPA is set, and how many replicas it begins with."""

    request_milli: int
    replicas_min: int
    replicas_max: int
    target_percent: int
    replicas: int


class SingleHpa(NamedTuple):
    """The result of one workload."""

    replicas: list[int]
    """Those that served each minute."""
    replica_syncs: int
    scalings: int
    replicas_highest: int


def window_syncs(controller: HpaController) -> int:
    """Count the syncs whose recommendations still hold a scale-down back, this one included."""
    return int(controller.down_window_seconds / SYNC_SECONDS) + 1


def run_alone(setting: FleetSettings, cores: Sequence[float], controller: HpaController) -> SingleHpa:
    """Run one HPA over minutes of usage, NaN where it is unknown."""
    low, high = setting.replicas_min, setting.replicas_max
    window = window_syncs(controller)
    now = most = setting.replicas
    recent = deque([(0, now)])  # of the window those that no later one reaches: falling from the left
    served: list[int] = []
    sync = paid = scalings = 0
    for usage_cores in [math.nan, *cores][: len(cores)]:
        served.append(now)
        left = SYNCS
        while left:
            syncs_done = left
            desired = now
            if now and not low <= now <= high:
                desired = min(max(now, low), high)
            elif now and not math.isnan(usage_cores):
                proposed = _proposed_alone(setting, usage_cores * 1000, now, controller.tolerance)
                while recent and recent[-1][1] <= proposed:
                    recent.pop()
                recent.append((sync, proposed))
                while recent[0][0] <= sync - window:
                    recent.popleft()
                first, stable = recent[0]
                desired = min(max(stable, low), high, max(2 * now, 4))
                if desired == now:
                    syncs_done = min(left, first + window - sync) if stable > proposed else left
                    recent[-1] = (sync + syncs_done - 1, proposed)
            if desired != now:
                syncs_done, scalings, now = 1, scalings + 1, desired
                most = max(most, now)
            paid += now * syncs_done
            sync += syncs_done
            left -= syncs_done
    return SingleHpa(served, paid, scalings, most)


def _proposed_alone(setting: FleetSettings, usage_milli: float, now: int, tolerance: float) -> int:
    percent = math.ceil(usage_milli / now - NOISE_MILLI) * 100 // setting.request_milli
    ratio = percent / setting.target_percent
    return now if 1 - tolerance <= ratio <= 1 + tolerance else math.ceil(ratio * now)


MINUTE_SECONDS = 60.0
MINUTES_PER_HOUR = 60
FEW = 80
"""Up to so many, one after the other is quicker than side by side."""
SIDE_BY_SIDE = 512
"""So many fit into a core's cache."""
ABOVE = 1 + 1e-9
"""A pod that uses its request exactly is not above it."""


class Fleet(NamedTuple):
    """The same as columns, with one entry for each workload."""

    request_milli: Whole
    replicas_min: Whole
    replicas_max: Whole
    target_percent: Whole
    replicas: Whole


class FleetRun(NamedTuple):
    """The results by workload."""

    replicas: Whole
    """(workload, minute): those that served it."""
    replica_hours: Floats
    scalings: Whole
    replicas_highest: Whole


def fixed(replicas: Whole, minutes: int) -> FleetRun:
    """Return the course of workloads that nothing scales."""
    return FleetRun(
        np.repeat(replicas[:, None], minutes, axis=1),
        replicas * (minutes / MINUTES_PER_HOUR),
        np.zeros(len(replicas), np.intp),
        replicas,
    )


def replay(fleet: Fleet, cores: Floats, controller: HpaController | None = None) -> FleetRun:
    """Run the HPAs over (workload, minute), NaN where usage is unknown."""
    controller = controller or HpaController()
    if len(cores) <= FEW:
        return _one_by_one(fleet, cores, controller)
    parts = [slice(start, start + SIDE_BY_SIDE) for start in range(0, len(cores), SIDE_BY_SIDE)]
    fleets = [Fleet(*(column[part] for column in fleet)) for part in parts]
    courses = [_side_by_side(some, cores[part], controller) for some, part in zip(fleets, parts, strict=True)]
    return FleetRun._make(np.concatenate(columns) for columns in zip(*courses, strict=True))


def is_above(course: FleetRun, cores: Floats, request_cores: Floats) -> Claims:
    """Return in which minutes the pods of a workload used more than they request."""
    with np.errstate(invalid="ignore"):
        return np.asarray(cores > course.replicas * request_cores[:, None] * ABOVE)


def by_minute(values: Floats, interval_seconds: float) -> Floats:
    """Return rows of samples minute by minute: long intervals are held, short ones averaged."""
    count = values.shape[1]
    minutes = max(1, round(count * interval_seconds / MINUTE_SECONDS)) if count else 0
    if interval_seconds >= MINUTE_SECONDS:
        places = ((np.arange(minutes) + 0.5) * MINUTE_SECONDS / interval_seconds).astype(np.intp)
        return values[:, np.minimum(places, count - 1)]
    if not count:
        return values
    places = ((np.arange(count) + 0.5) * interval_seconds / MINUTE_SECONDS).astype(np.intp)
    firsts = np.searchsorted(np.minimum(places, minutes - 1), np.arange(minutes))
    is_known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(is_known, values, 0), firsts, axis=1)
    known = np.add.reduceat(is_known, firsts, axis=1, dtype=np.intp)
    return np.where(known > 0, sums / np.maximum(known, 1), np.nan)


def _one_by_one(fleet: Fleet, cores: Floats, controller: HpaController) -> FleetRun:
    settings = map(FleetSettings, *(column.tolist() for column in fleet))
    rows = zip(settings, cores.astype(np.float64), strict=True)
    found = [run_alone(setting, row.tolist(), controller) for setting, row in rows]
    return FleetRun(
        np.array([one.replicas for one in found], np.intp).reshape(cores.shape),
        np.array([one.replica_syncs for one in found], np.float64) / (SYNCS * MINUTES_PER_HOUR),
        np.array([one.scalings for one in found], np.intp),
        np.array([one.replicas_highest for one in found], np.intp),
    )


def _side_by_side(fleet: Fleet, cores: Floats, controller: HpaController) -> FleetRun:
    """Run a sync of all at a time. Whole numbers are kept as floats, which saves turning them into such."""
    usage_cores = np.ascontiguousarray(np.roll(cores, 1, axis=1).T, np.float64) * 1000
    usage_cores[:1] = np.nan
    request, low, high, target, now = (column.astype(np.float64) for column in fleet)
    recent = np.zeros((window_syncs(controller), len(now)))
    served = np.empty(usage_cores.shape, np.intp)
    highest, scalings, replica_syncs = now, np.zeros_like(now), np.zeros_like(now)
    for sync in range(len(usage_cores) * SYNCS):
        minute, sync_of_minute = divmod(sync, SYNCS)
        if sync_of_minute == 0:
            served[minute] = now
            is_known = ~np.isnan(usage_cores[minute])
            usage = np.where(is_known, usage_cores[minute], 0)
        is_asked = is_known & (now >= low) & (now <= high)
        proposed = _proposed(usage, now, request, target, controller.tolerance) * is_asked
        # At first the replicas that were found count too, so that a start scales nothing down at once.
        recent[sync % len(recent)] = proposed if sync else np.maximum(proposed, now)
        limited = np.minimum(recent.max(axis=0), np.maximum(2 * now, 4))
        desired = np.where(is_asked, limited, now)
        desired = np.minimum(np.maximum(desired, low), high)
        desired *= now > 0  # without replicas an HPA is switched off
        scalings += desired != now
        replica_syncs += desired
        highest = np.maximum(highest, desired)
        now = desired
    hours = replica_syncs / (SYNCS * MINUTES_PER_HOUR)
    return FleetRun(served.T, hours, scalings.astype(np.intp), highest.astype(np.intp))


def _proposed(
    usage_milli: Floats, now: Floats, request_milli: Floats, target_percent: Floats, tolerance: float
) -> Floats:
    of_pod = np.ceil(usage_milli / np.maximum(now, 1) - NOISE_MILLI)
    ratio = np.floor(of_pod * 100 / request_milli) / target_percent
    is_near = (ratio >= 1 - tolerance) & (ratio <= 1 + tolerance)
    return np.where(is_near, now, np.ceil(ratio * now))
