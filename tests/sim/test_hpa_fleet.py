"""Many HPAs over recorded usage do what the HPA of the simulator does, sync by sync."""

import math

import numpy as np
import pytest

from equipoise.core.cluster import HpaMetric
from equipoise.sim import hpa_fleet
from equipoise.sim.hpa import HpaController, HpaMemory, HpaPod, SimulatedHpaSpec, milli
from equipoise.sim.hpa_fleet import Fleet, by_minute, fixed, is_above, replay
from equipoise.stats.ranks import Floats
from tests.support.sim.autoscalers import recommend

NAN = math.nan
MINUTES = 180
WAYS = pytest.mark.parametrize("few", [0, 1000], ids=["side by side", "one by one"])


def _fleet(rows: list[tuple[int, int, int, int, int]]) -> Fleet:
    return Fleet(*np.array(rows, np.intp).T)


def _slowly(fleet: Fleet, row: int, cores: Floats) -> tuple[list[int], float, int, int]:
    """Run one of them pod by pod through the controller's whole algorithm."""
    request, low, high, target, current = (int(column[row]) for column in fleet)
    spec = SimulatedHpaSpec((HpaMetric("Resource", "cpu", "Utilization", target),), low, high)
    memory, served, paid, scalings, most = HpaMemory(), [], 0, 0, current
    for minute in range(len(cores)):
        served.append(current)
        seen = cores[minute - 1] if minute else NAN
        for turn in range(4):
            at = minute * 60 + turn * 15
            usage = None if math.isnan(seen) or not current else milli(seen / current)
            pods = [HpaPod(usage, request, started_at=-1e6, ready_changed_at=-1e6)] * current
            advice = recommend(
                spec, [pods], current=current, memory=memory, at=at, controller=HpaController()
            )
            memory = advice.memory
            scalings += advice.replicas != current
            current = advice.replicas
            most = max(most, current)
            paid += current
    return served, paid / 240, scalings, most


def _usage(seed: int, rows: int) -> Floats:
    """Give waves, noise, steps and holes."""
    chance = np.random.default_rng(seed)
    minutes = np.arange(MINUTES)
    wave = 4 + 3 * np.sin(minutes / chance.uniform(5, 60, (rows, 1)))
    steps = np.repeat(chance.uniform(0.05, 6, (rows, MINUTES // 12)), 12, axis=1)
    cores = wave * steps * chance.gamma(20, 1 / 20, (rows, MINUTES))
    cores[chance.random(cores.shape) < 0.03] = NAN
    cores[0, 40:60] = NAN
    cores[1] = np.round(cores[1])
    return np.asarray(cores)


@WAYS
@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_does_what_the_controller_does(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas of every minute, replica-hours, scalings and the highest: exactly."""
    monkeypatch.setattr(hpa_fleet, "FEW", few)
    monkeypatch.setattr(hpa_fleet, "SIDE_BY_SIDE", 4)
    fleet = _fleet(
        [
            (1000, 2, 40, 60, 12),
            (250, 1, 100, 75, 1),
            (333, 5, 12, 30, 50),
            (2000, 3, 9, 50, 2),
            (500, 1, 30, 110, 7),
            (500, 1, 30, 50, 0),
        ]
    )
    cores = _usage(seed, len(fleet.replicas))
    course = replay(fleet, cores)
    for row, usage in enumerate(cores):
        served, hours, scalings, most = _slowly(fleet, row, usage)
        assert course.replicas[row].tolist() == served
        assert course.replica_hours[row] == pytest.approx(hours, rel=1e-12)
        assert (course.scalings[row], course.replicas_highest[row]) == (scalings, most)


@WAYS
def test_a_rise_is_answered_within_two_minutes(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen a minute later, and what is added serves the minute after that."""
    monkeypatch.setattr(hpa_fleet, "FEW", few)
    cores = np.array([[1.0] * 10 + [4.0] * 10])
    course = replay(_fleet([(1000, 2, 10, 50, 2)]), cores)
    assert course.replicas[0].tolist() == [2] * 12 + [8] * 8
    assert np.flatnonzero(is_above(course, cores, np.array([1.0]))[0]).tolist() == [10, 11]


def test_what_is_fixed_stays() -> None:
    """And a pod that uses exactly its request is not above it."""
    course = fixed(np.array([3]), 120)
    cores = np.full((1, 120), 0.3)
    cores[0, 5:8] = NAN, 0.31, 99
    assert (course.replica_hours[0], course.scalings[0], course.replicas_highest[0]) == (6, 0, 3)
    assert is_above(course, cores, np.array([0.1]))[0].sum() == 2


@pytest.mark.parametrize(
    ("interval", "values", "minutes"),
    [
        (60, [1, 2, NAN], [1, 2, NAN]),
        (120, [1, NAN, 3], [1, 1, NAN, NAN, 3, 3]),
        (15, [1, 2, 3, 4, 5, NAN, 7, NAN, NAN, NAN, NAN, NAN], [2.5, 6, NAN]),
        (90, [1, 2], [1, 2, 2]),
        (60, [], []),
        (15, [], []),
    ],
)
def test_samples_become_minutes(interval: float, values: list[float], minutes: list[float]) -> None:
    """Long intervals are held, short ones averaged, and what is unknown stays so."""
    found = by_minute(np.array([values], np.float64), interval)
    np.testing.assert_array_equal(found, np.array([minutes], np.float64))
