"""Whether samples cover a window: counters with holes, as a server answers for them, against the truth."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from random import Random
from urllib.parse import quote_plus

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.promql import STEPS_PER_WINDOW, Extent
from equipoise.adapters.prometheus.transport import Direct
from equipoise.stats.grid import LATE, LEFT_OUT_MAX, early_seconds, is_covered
from tests.support.prometheus.server import Model, serving
from tests.support.prometheus.usage import container, metrics

WINDOW_MS = 300_000
AT_MS = 10_000_000
BEGAN_MS = AT_MS - WINDOW_MS


def answered(times_ms: list[int]) -> tuple[float, float, float] | None:
    """Give span, number and age as the queries do: the first sample as seen in steps of the first half."""
    inside = [time for time in times_ms if BEGAN_MS <= time <= AT_MS]
    step = WINDOW_MS // STEPS_PER_WINDOW
    seen = []
    for at in range(-(-BEGAN_MS // step) * step, AT_MS - WINDOW_MS // 2 + 1, step):
        before = bisect_right(times_ms, at) - 1
        seen += [times_ms[before]] if before >= 0 and times_ms[before] >= BEGAN_MS else []
    if not inside or not seen:
        return None
    return (inside[-1] - min(seen)) / 1000, len(inside), (AT_MS - inside[-1]) / 1000


def is_known(times_ms: list[int]) -> bool:
    found = answered(times_ms)
    if found is None:
        return False
    span, count, age = (np.array([each]) for each in found)
    return bool(is_covered(WINDOW_MS / 1000, span, count, age)[0])


def is_known_cheaply(times_ms: list[int]) -> bool:
    """What a number and one look near the window's beginning tell."""
    inside = np.array([time for time in times_ms if BEGAN_MS <= time <= AT_MS]) / 1000
    if not len(inside):
        return False
    within = early_seconds(WINDOW_MS / 1000, np.array([float(len(inside))]))
    begun = inside[inside <= BEGAN_MS / 1000 + within]
    seen = np.array([begun[-1] if len(begun) else np.nan])
    count, age = np.array([float(len(inside))]), AT_MS / 1000 - inside[-1:]
    return bool(is_covered(WINDOW_MS / 1000, inside[-1:] - seen, count, age)[0])


def rate_of(times_ms: list[int], totals: list[float]) -> float:
    """The rate that Prometheus gives at the window's end: the rise, stretched to edges that are near."""
    inside = [i for i, time in enumerate(times_ms) if BEGAN_MS <= time <= AT_MS]
    first, last = inside[0], inside[-1]
    span = times_ms[last] - times_ms[first]
    usual = span / (len(inside) - 1)
    reached = float(span)
    for edge in (times_ms[first] - BEGAN_MS, AT_MS - times_ms[last]):
        reached += edge if edge < 1.1 * usual else usual / 2
    return (totals[last] - totals[first]) * reached / span / (WINDOW_MS / 1000)


def scrapes(interval_ms: int, phase_ms: int, began_ms: int = BEGAN_MS - 300_000) -> list[int]:
    return list(range(began_ms + phase_ms % interval_ms, AT_MS + 1, interval_ms))


@st.composite
def counters(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """A counter of changing usage whose scrapes jitter, and of which any stretches were lost."""
    interval = draw(st.integers(1_000, 280_000))
    times = scrapes(interval, draw(st.integers(0, interval)))
    jitter = draw(st.integers(0, interval // 4))
    chance = Random(draw(st.integers(0, 10**6)))
    times = [time + chance.randint(-jitter, jitter) for time in times]
    for _ in range(draw(st.integers(0, 2))):
        lost = draw(st.integers(BEGAN_MS - 400_000, AT_MS))
        until = lost + draw(st.integers(0, 400_000))
        times = [time for time in times if not lost <= time < until]
    times = sorted({time for time in times if time <= AT_MS})
    total, totals = 1e6, []
    for before, after in pairwise([times[0] if times else 0, *times]):
        total += (after - before) / 1000 * chance.choice([0.2, 1.0, 1.0, 3.0])
        totals.append(total)
    return times, totals


@settings(deadline=None, max_examples=300)
@given(counters())
def test_what_is_known_is_never_far_below_the_truth(counter: tuple[list[int], list[float]]) -> None:
    """Whatever was lost: a rate is unknown, or what the samples tell, less a tenth or two late scrapes."""
    times, totals = counter
    assume(is_known(times) or is_known_cheaply(times))
    inside = [i for i, time in enumerate(times) if BEGAN_MS <= time <= AT_MS]
    seconds = (times[inside[-1]] - times[inside[0]]) / 1000
    truth = (totals[inside[-1]] - totals[inside[0]]) / seconds
    usual = seconds / (len(inside) - 1) / (WINDOW_MS / 1000)
    left_out_max = max(LEFT_OUT_MAX, 2 * (LATE - 0.5) * usual)
    assert truth * (1 - left_out_max) - 1e-9 <= rate_of(times, totals) <= truth + 1e-9


@settings(deadline=None, max_examples=300)
@given(counters())
def test_a_look_that_finds_a_later_sample_than_the_first_never_says_more(
    counter: tuple[list[int], list[float]],
) -> None:
    """Nor does one that finds none: what either takes for covered is, by all samples."""
    times, _ = counter
    inside = np.array([time for time in times if BEGAN_MS <= time <= AT_MS]) / 1000
    if is_known(times) or is_known_cheaply(times):
        span, count, age = inside[-1:] - inside[0], np.array([float(len(inside))]), AT_MS / 1000 - inside[-1:]
        assert is_covered(WINDOW_MS / 1000, span, count, age).tolist() == [True]


@pytest.mark.parametrize("jitter", [0, 50])
@pytest.mark.parametrize("interval", [1_000, 10_000, 15_000, 30_000, 60_000])
def test_the_cheap_look_is_enough_for_regular_scrapes(interval: int, jitter: int) -> None:
    """At any phase: the close one is for the rest."""
    chance = Random(interval)
    for phase in range(0, interval, max(interval // 60, 1)):
        late = [time + chance.randint(0, interval * jitter // 1000) for time in scrapes(interval, phase)]
        assert is_known_cheaply([time for time in late if time <= AT_MS])


@settings(deadline=None, max_examples=300)
@given(st.integers(1_000, 140_000), st.integers(0, 10**6), st.integers(0, 100))
def test_regular_scrapes_cover_every_window(interval: int, phase: int, jitter: int) -> None:
    """From one a second to two in a window, at any phase, a tenth early or late."""
    chance, late_max = Random(phase), interval * jitter // 1000
    times = [time + chance.randint(0, late_max) for time in scrapes(interval, phase)]
    times = [time for time in times if time <= AT_MS]
    assert is_known(times)


@settings(deadline=None, max_examples=200)
@given(st.integers(1_000, 15_000), st.integers(0, 10**6), st.data())
def test_one_missed_scrape_makes_nobody_unknown(interval: int, phase: int, data: st.DataObject) -> None:
    """Wherever in the window, when it holds twenty scrapes."""
    times = scrapes(interval, phase)
    times.pop(data.draw(st.integers(0, len(times) - 1)))
    assert is_known(times)


@pytest.mark.parametrize("interval", [1_000, 15_000, 30_000, 60_000])
def test_an_empty_store_is_unknown_until_it_covers_the_window(interval: int) -> None:
    """A Prometheus that starts anew: never a low number in between."""
    known = []
    for since in range(0, WINDOW_MS + 2 * interval, 5_000):
        times = scrapes(interval, 0, AT_MS - since)
        totals = [1e6 + time / 1000 for time in times]
        known.append(is_known(times))
        if known[-1]:
            assert rate_of(times, totals) >= 0.8
    assert not any(known[: round(0.65 * WINDOW_MS / 5_000)])
    assert all(known[round(WINDOW_MS / 5_000) :])


def test_a_hole_in_the_middle_takes_nothing_away() -> None:
    """Two samples of a counter tell what was used between them."""
    times = [time for time in scrapes(15_000, 0) if not AT_MS - 200_000 < time < AT_MS - 40_000]
    assert is_known(times)
    assert rate_of(times, [1e6 + time / 1000 for time in times]) == pytest.approx(1.0)


def test_what_nobody_told_is_not_covered() -> None:
    """Nor is a single sample, or no time at all."""
    told = (285.0, 20.0, 10.0)
    assert is_covered(300.0, *(np.array([each]) for each in told)).tolist() == [True]
    for missing in range(3):
        parts = [np.array([np.nan if i == missing else each]) for i, each in enumerate(told)]
        assert is_covered(300.0, *parts).tolist() == [False]
    assert is_covered(300.0, np.array([0.0]), np.array([1.0]), np.array([1.0])).tolist() == [False]


@pytest.mark.parametrize(
    ("span", "count", "age", "expected"),
    [(285, 20, 10, True), (255, 18, 30, True), (240, 17, 45, False), (240, 17, 5, False), (240, 5, 30, True)],
    ids=["whole", "one missed at the end", "two missed", "begun late", "a minute between scrapes"],
)
def test_a_window_is_covered_to_its_edges(span: float, count: float, age: float, expected: bool) -> None:
    """300 seconds."""
    assert is_covered(300.0, np.array([span]), np.array([count]), np.array([age]) * 1.0).tolist() == [
        expected
    ]


@pytest.mark.parametrize(("span_ms", "count"), [(0, 1), (285_000, 20), (604_800_000, 604_801), (1, 2)])
def test_two_numbers_travel_in_one(span_ms: int, count: int) -> None:
    """Through the shortest text that a float has."""
    packed = float(repr(span_ms + count / 2**20))
    extent = Extent.unpack(np.array([packed, np.nan]))
    assert (extent.spans[0], extent.counts[0]) == (span_ms / 1000, count)
    assert np.isnan(extent.spans[1])


def test_a_rate_over_a_part_of_the_window_is_marked() -> None:
    """It still comes: whoever knows that the pod is younger than the window may use it."""
    pods = ["web-1", "web-2"]
    for reach, expected in (((285, 20), True), ((150, 11), False)):
        with serving(Model([(container("shop", pod), 0.5) for pod in pods], reach=reach)) as server:
            usage = metrics(server.url).cpu_usage({"shop": pods}, 1000.0, 300.0)
            closely = [r for r in server.asked if "min_over_time(" in r.fields["query"]]
        assert usage.is_covered is not None
        assert usage.is_covered.tolist() == [expected] * 2
        assert usage.cores.tolist() == [0.5] * 2
        assert (len(server.asked), len(closely)) == ((4, 0) if expected else (5, 1))


def test_only_pods_in_doubt_are_asked_for_closely() -> None:
    """One of 300 is scraped by two jobs: only a close look tells whether one of its series is whole."""
    pods = [f"web-{i:03}" for i in range(300)]
    series = [(container("shop", pod), 0.5) for pod in pods]
    series.append((container("shop", "web-007", job="second"), 0.4))
    with serving(Model(series)) as server:
        usage = metrics(server.url).cpu_usage({"shop": pods}, 1000.0, 300.0)
        (closely,) = [q for r in server.asked if "min_over_time(" in (q := r.fields["query"])]
    assert usage.is_covered is not None
    assert usage.is_covered.all()
    assert 'pod="web-007"' in closely
    assert len(server.asked) == 1 + 4 + 1


def test_no_query_is_longer_than_the_way_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question about coverage names the pods three times, and is cut before it is too long."""
    # Different in their first letters, or one regular expression of a beginning would be enough for all.
    pods = [f"{i:04}{'-a-long-name' * 2}" for i in range(256)]
    model = Model([(container("shop", pod), 0.5) for pod in pods])
    with serving(model) as server:
        source = metrics(server.url)
        monkeypatch.setattr(Direct, "query_max_bytes", 16 * 1024)
        usage = source.cpu_usage({"shop": pods}, 1000.0, 300.0)
        lengths = [len(quote_plus(request.fields["query"])) for request in server.asked]
    assert usage.is_covered is not None
    assert usage.is_covered.tolist() == [True] * 256
    assert max(lengths) <= 16 * 1024
    assert len(lengths) == 2 + 2
