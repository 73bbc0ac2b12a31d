"""Which pods of a StatefulSet were scaled away, and which were there and not measured."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.ports.cluster import UsageHistory
from equipoise.recommendation.advisor import AdviceScope, DataSources
from equipoise.recommendation.files import FileDefaults, observe
from equipoise.recommendation.usage import HistoryReader, PodOwnership, by_ordinal
from equipoise.stats.grid import AWAY_SECONDS_MIN, scaled_away
from equipoise.stats.samples import Samples
from tests.support.recommendation.clusters import AT, END, TIMES, WEEK, FixedCluster, Histories, pod, workload
from tests.support.recommendation.worlds import decisions, plan, policy

DB = workload("db", "StatefulSet")
LEAST = 1 + int(AWAY_SECONDS_MIN / 60)
"""So many missing minutes are away."""
IS_DAY = (TIMES % 86400 < 4 * 3600) | (TIMES % 86400 >= 12 * 3600)
"""So that the week begins and ends with both pods."""
OPEN = policy(min_cpu_usage_threshold="0")


def _filed(usage: dict[str, Any], interval: float = 60.0, **said: Any) -> Any:
    """Observe a file that has a row for each sample that is known."""
    rows = [(name, np.flatnonzero(~np.isnan(values)), values) for name, values in usage.items()]
    samples = Samples(
        END + interval * np.concatenate([places for _, places, _ in rows]),
        np.concatenate([values[places] for _, places, values in rows]),
        {
            "workload": np.zeros(sum(len(places) for _, places, _ in rows), np.intp),
            "pod": np.repeat(np.arange(len(rows)), [len(places) for _, places, _ in rows]),
        },
        {"workload": ["db"], "pod": list(usage)},
    )
    return observe(samples, FileDefaults("file", **said), "")


def _lived(usage: dict[str, Any], *running: Any, kind: str = "StatefulSet", interval: float = 60.0) -> Any:
    """Give the totals of a lot with these series."""
    owner = workload("db", kind)
    values = np.array(list(usage.values()))
    columns = values.shape[1]
    times = np.asarray(END + interval * np.arange(columns), np.float64)
    nobody = [""] * len(usage)
    lot = UsageHistory("cpu", None, ["shop"] * len(usage), list(usage), nobody, times, values, 150.0, "")
    reader = HistoryReader(lot, PodOwnership([owner], running), [owner.ref])
    return reader.usage([owner.ref]).cores[0]


@pytest.mark.parametrize("is_live", [True, False])
def test_a_stateful_set_that_is_smaller_by_night_has_a_whole_week(is_live: bool) -> None:
    """Two pods of 2 cores by day and one of 1 core by night: 4 to 1, and nothing is unknown."""
    both = {"db-0": np.where(IS_DAY, 2.0, 1.0), "db-1": np.where(IS_DAY, 2.0, np.nan)}
    if is_live:
        series = {("shop", name, "app"): values for name, values in both.items()}
        cluster = FixedCluster([DB], [pod(DB, "db-0")])
        world = DataSources(cluster, Histories(series), cluster)
        (decision,) = plan(AdviceScope(policy=OPEN, algorithm=None), world, AT)
    else:
        (decision,) = decisions(OPEN, _filed(both, request_cores=2.0, kind="StatefulSet"), None)
    numbers = decision.reason.numbers
    assert (decision.reason.code.value, numbers["fluctuation"], numbers["coverage"]) == (
        "Recommend",
        4.0,
        1.0,
    )
    assert (numbers["lowest_median_cores"], numbers["highest_median_cores"]) == (1.0, 4.0)
    assert (numbers["samples"], numbers["pod_p99_cores"]) == (WEEK, 2.0)


HOUR = slice(30, 90)
SHORT = slice(30, 30 + LEAST - 1)
LONG = slice(30, 30 + LEAST)
WAYS: dict[str, tuple[dict[int, slice], bool]] = {
    "the upper end": ({3: HOUR}, True),
    "all above the first, at once": ({1: HOUR, 2: HOUR, 3: HOUR}, True),
    "one after the other, down and up": ({1: slice(50, 70), 2: slice(40, 80), 3: HOUR}, True),
    "just long enough": ({3: LONG}, True),
    "an update that begins at the upper end": ({3: SHORT}, False),
    "a node of a lower one": ({2: HOUR}, False),
    "the first alone": ({0: HOUR}, False),
    "an outage": ({0: HOUR, 1: HOUR, 2: HOUR, 3: HOUR}, False),
    "the first ones": ({0: HOUR, 1: HOUR}, False),
    "one between": ({1: HOUR, 3: HOUR}, False),
}


@pytest.mark.parametrize(("missing", "is_known"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("start", [0, 8])
def test_only_the_upper_end_is_scaled_away(missing: dict[int, slice], is_known: bool, start: int) -> None:
    """By ordinal and not by name (10 is above 9), wherever the ordinals start."""
    usage = {f"db-{start + number}": np.full(120, 2.0**number) for number in range(4)}
    for number, hole in missing.items():
        usage[f"db-{start + number}"][hole] = np.nan
    total = np.nansum(list(usage.values()), axis=0)
    if not is_known:
        total[np.isnan(list(usage.values())).any(axis=0)] = np.nan
    np.testing.assert_array_equal(_lived(usage), total)
    np.testing.assert_array_equal(_filed(usage).history[0], total)


def test_a_moment_in_a_night_stays_unknown() -> None:
    """While two are away a third is missing for a moment: only that is unknown."""
    usage = {f"db-{number}": np.full(120, 1.0) for number in range(3)}
    usage["db-2"][HOUR] = np.nan
    usage["db-1"][40:45] = np.nan
    assert np.flatnonzero(np.isnan(_lived(usage))).tolist() == list(range(40, 45))


def test_a_pod_that_runs_was_not_away_since_it_was_made() -> None:
    """The API server knows that it is there, so whoever measures it has a hole."""
    usage = {"db-0": np.full(120, 1.0), "db-1": np.full(120, 2.0)}
    usage["db-1"][HOUR] = np.nan
    old, young = (pod(DB, "db-1", created_at=END + seconds) for seconds in (-86400.0, 85 * 60.0))
    assert np.isnan(_lived(usage, old)[HOUR]).all()
    assert (_lived(usage, young)[HOUR] == 1.0).all()
    between = pod(DB, "db-1", created_at=END + 60 * 60.0)
    expected = 65  # two windows later
    found = _lived(usage, between)
    assert (found[30:expected] == 1.0).all()
    assert np.isnan(found[expected:90]).all()


def test_a_row_without_a_number_says_that_the_pod_was_there() -> None:
    """A file can say that something was not measured, and then it was not scaled away."""
    times = np.tile(END + 60.0 * np.arange(120), 2)
    values = np.ones(240)
    values[150:210] = np.nan
    labels = {"workload": np.zeros(240, np.intp), "pod": np.repeat([0, 1], 120)}
    samples = Samples(times, values, labels, {"workload": ["db"], "pod": ["db-0", "db-1"]})
    assert np.isnan(observe(samples, FileDefaults("file"), "").history[0, HOUR]).all()


def test_a_container_that_is_missing_alone_is_a_hole() -> None:
    """Its pod was there."""
    series: dict[tuple[str, str, str], Any] = {
        ("shop", f"db-{number}", name): np.ones(WEEK) for number in range(2) for name in ("app", "proxy")
    }
    series["shop", "db-1", "proxy"][HOUR] = np.nan
    cluster = FixedCluster([DB], [])
    settings_ = policy(min_cpu_usage_threshold="0", pod_available_ratio="0")

    def samples() -> int:
        world = DataSources(cluster, Histories(series), cluster)
        (decision,) = plan(AdviceScope(policy=settings_, algorithm=None), world, AT)
        return int(decision.reason.numbers["samples"])

    assert samples() == WEEK - 60
    series["shop", "db-1", "app"][HOUR] = np.nan
    assert samples() == WEEK


def test_other_kinds_are_never_scaled_away() -> None:
    """A ReplicaSet's pod may be called like a StatefulSet's, and does not come back."""
    usage = {"db-24567": np.ones(120), "db-45678": np.ones(120)}
    usage["db-45678"][HOUR] = np.nan
    assert np.isnan(_lived(usage, kind="ReplicaSet")[HOUR]).all()
    assert not np.isnan(_lived(usage)).any()


@pytest.mark.parametrize(("interval", "least"), [(15.0, 61), (60.0, 16), (300.0, 4), (3600.0, 2)])
def test_how_long_counts_in_time_and_a_single_sample_is_never_enough(interval: float, least: int) -> None:
    """From the first missing sample to the last."""
    for count, is_known in ((least - 1, False), (least, True)):
        usage = {"db-0": np.ones(200), "db-1": np.ones(200)}
        usage["db-1"][50 : 50 + count] = np.nan
        for found in (_lived(usage, interval=interval), _filed(usage, interval).history[0]):
            assert (not np.isnan(found).any()) is is_known


def test_names_tell_the_order() -> None:
    """All of them, of one set, however long the number is."""
    assert by_ordinal(["db-10", "db-9", "db-0"]) == [2, 1, 0]
    assert by_ordinal([f"db-{'9' * 5000}", "db-1"]) == [1, 0]
    for others in (["db-0"], ["db-0", "db-01"], ["db-0", "web-1"], ["db-0", "db"], ["db", "db-1"], []):
        assert by_ordinal(others) == []


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 5), st.randoms(use_true_random=False))
def test_runs_are_found_as_by_hand(pods: int, columns: int, least: int, random: Any) -> None:
    """Column by column, in the words of the rule."""
    are_seen = np.array([[random.random() < 0.5 for _ in range(columns)] for _ in range(pods)])
    is_upper_end = [
        [are_seen[:, c].any() and not are_seen[row:, c].any() for c in range(columns)] for row in range(pods)
    ]
    expected = np.zeros((pods, columns), bool)
    for row in range(pods):
        for start in range(columns - least + 1):
            if all(is_upper_end[row][start : start + least]):
                expected[row, start : start + least] = True
    np.testing.assert_array_equal(scaled_away(are_seen, least), expected)


@st.composite
def _weeks(draw: st.DrawFn) -> tuple[dict[str, Any], Any, bool]:
    """Give a StatefulSet that is scaled now and then, what of it was measured, and what it used in truth."""
    steps = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(LEAST + 4, 60)), min_size=1, max_size=5))
    margin = LEAST + 4
    ends = (max(size for size, _ in steps), margin)  # so that all holes are within lives
    steps = [ends, *steps, ends]
    sizes = np.repeat([size for size, _ in steps], [length for _, length in steps])
    start, count, most = draw(st.sampled_from([0, 1, 7])), len(sizes), int(sizes.max())
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    truth = np.where(np.arange(most)[:, None] < sizes, random.integers(1, 9, (most, count)), np.nan)
    measured = truth.copy()
    for _ in range(draw(st.integers(0, 3))):  # an outage
        begin = draw(st.integers(margin, count - margin - 1))
        measured[:, begin : min(begin + draw(st.integers(1, 40)), count - margin)] = np.nan
    for _ in range(draw(st.integers(0, 3))):  # one that has another above it
        row, begin = draw(st.integers(0, most - 1)), draw(st.integers(margin, count - margin - 1))
        hole = np.arange(begin, min(begin + draw(st.integers(1, 40)), count - margin))
        measured[row, hole[sizes[hole] > row + 1]] = np.nan
    edges = np.cumsum([length for _, length in steps])
    for end in edges[:-1][draw(st.lists(st.booleans(), min_size=len(edges) - 1, max_size=len(edges) - 1))]:
        # the upper end for a moment, and it was seen again before it was scaled
        measured[sizes[end - 1] - 1, end - 2 - draw(st.integers(1, LEAST - 1)) : end - 2] = np.nan
    is_whole = np.array_equal(measured, truth, equal_nan=True)
    usage = {f"db-{start + row}": measured[row] for row in range(most)}
    return usage, np.nansum(truth, axis=0), is_whole


@settings(max_examples=150)
@given(_weeks())
def test_a_total_is_the_truth_or_unknown(week: tuple[dict[str, Any], Any, bool]) -> None:
    """However it was scaled, with outages and holes of any other form; if all was measured, all is known."""
    usage, truth, is_whole = week
    live, filed = _lived(usage), _filed(usage).history[0]
    np.testing.assert_array_equal(live, filed)
    is_known = ~np.isnan(live)
    np.testing.assert_array_equal(live[is_known], truth[is_known])
    assert is_known.all() or not is_whole
