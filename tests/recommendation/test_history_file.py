"""From samples in a file to an observation, and to advice with a future."""

import numpy as np
import pytest

from equipoise.core.errors import BadInput
from equipoise.core.reason import Code
from equipoise.recommendation.files import FileDefaults, chosen, observe
from equipoise.recommendation.observe import Observation, offsets, summarise
from equipoise.stats.predict import Algorithm, predict
from equipoise.stats.ranks import percentiles
from equipoise.stats.samples import Samples
from tests.support.recommendation.history_files import OPEN, START, many
from tests.support.recommendation.worlds import decisions, policy
from tests.support.stats.usage_profiles import MINUTES, daily


def one(values: np.ndarray, step: float = 60.0) -> Samples:
    """Give the samples of one workload."""
    times = np.asarray(START + np.arange(len(values)) * step, np.float64)
    return Samples(times, np.asarray(values, np.float64), {}, {})


def seen(values: np.ndarray, **said: float) -> Observation:
    """Observe one workload of 10 replicas."""
    return observe(one(values), FileDefaults("file", replicas=10, request_cores=1.0, **said), "web")  # type: ignore[arg-type]


def test_the_numbers_are_those_of_the_seed_for_a_week_of_minutes() -> None:
    """Checked by a plain sort and a plain median, hour by hour."""
    random = np.random.default_rng(2)
    values = random.gamma(3, 4, 7 * MINUTES) * np.repeat(np.tile(np.linspace(1, 3, 24), 7), 60)
    (decision,) = decisions(OPEN, seen(values), None)
    ordered = np.sort(values)
    hourly = [np.median(values.reshape(7, 24, 60)[:, hour]) for hour in range(24)]
    numbers = dict(decision.reason.numbers)
    assert numbers.pop("confidence") == "high"
    assert numbers == pytest.approx(
        {
            "pod_p99_cores": ordered[9979] / 10,
            "lowest_median_cores": min(hourly),
            "highest_median_cores": max(hourly),
            "p95_cores": ordered[9575],
            "p95_past_cores": ordered[9575],
            "peak_cores": ordered[-1],
            "fluctuation": max(hourly) / min(hourly),
            "coverage": 1.0,
            "replicas": 10,
            "pods": 10,
            "pods_available": 10,
            "request_cores": 1.0,
            "samples": 10080,
        },
        rel=1e-11,
    )


def test_only_the_past_seven_days_count() -> None:
    """A longer file helps the forecast, and changes nothing else."""
    values = np.concatenate([np.full(3 * MINUTES, 1000.0), daily(7)])
    (decision,) = decisions(OPEN, seen(values), None)
    assert decision.reason.numbers["peak_cores"] < 10
    assert decision.reason.numbers["samples"] == 10080


def test_the_forecast_joins_the_p95_without_its_margin() -> None:
    """Past and future weeks are one pool; only where the future is predictable."""
    values = daily(7)
    values[-MINUTES:] *= 1.25
    (with_future,) = decisions(OPEN, seen(values))
    (without,) = decisions(OPEN, seen(values), None)
    assert with_future.extra["prediction"]["predictable"]
    future = predict(values[None], 60.0, 7 * 86400.0)
    pool = np.concatenate([values.astype(float), (future.values[0] / future.margin[0]).astype(float)])
    expected = percentiles(pool[None], (0.95,))[0, 0]
    assert with_future.reason.numbers["p95_cores"] == pytest.approx(expected, rel=1e-5)
    assert with_future.reason.numbers["p95_past_cores"] == without.reason.numbers["p95_cores"]
    assert with_future.reason.numbers["p95_cores"] > without.reason.numbers["p95_cores"]


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_what_is_not_predictable_is_advised_from_the_past(algorithm: Algorithm) -> None:
    """Noise has no future."""
    values = np.random.default_rng(8).gamma(2, 5, 7 * MINUTES)
    (decision,) = decisions(OPEN, seen(values), algorithm)
    assert decision.extra["prediction"]["predictable"] is False
    assert decision.extra["prediction"]["period_seconds"] is None
    assert decision.reason.numbers["p95_cores"] == decision.reason.numbers["p95_past_cores"]


def test_bad_samples_are_dropped_and_lower_the_coverage() -> None:
    """NaN, infinite, negative."""
    values = np.asarray(daily(7), np.float64)
    values[:100], values[100:200], values[200:300] = np.nan, np.inf, -5
    (decision,) = decisions(OPEN, seen(values), None)
    assert decision.reason.numbers["samples"] == 10080 - 300
    assert decision.reason.numbers["coverage"] == pytest.approx(1 - 300 / 10080)
    assert decision.reason.numbers["peak_cores"] < 10


@pytest.mark.parametrize(
    ("count", "hours", "share", "confidence"),
    [
        (2, 7 * 24, 1 / 7, "low"),
        (2, 84, 2 / 7, "low"),
        (7, 24, 1.0, "high"),
        (28, 6, 1.0, "high"),
        (336, 0.5, 1.0, "high"),
    ],
)
def test_samples_more_than_a_day_apart_are_gaps(
    count: int, hours: float, share: float, confidence: str
) -> None:
    """Two samples are no week that is known, however far they are apart."""
    told = FileDefaults("file", replicas=10, request_cores=1.0)
    (decision,) = decisions(OPEN, observe(one(np.full(count, 9.0), hours * 3600), told, "web"), None)
    assert decision.reason.numbers["coverage"] == pytest.approx(share)
    assert decision.reason.numbers["confidence"] == confidence


@pytest.mark.parametrize("values", [np.zeros(0), np.full(50, np.nan)])
def test_no_sample_is_a_refusal(values: np.ndarray) -> None:
    """Missing is never zero."""
    (decision,) = decisions(OPEN, seen(values))
    assert decision.reason.code is Code.NO_SAMPLES
    assert decision.reason.numbers["peak_cores"] is None


@pytest.mark.parametrize("nothing", [0.0, -0.0])
def test_zero_usage_is_not_missing_usage(nothing: float) -> None:
    """An idle workload gets the lowest target and the fewest replicas."""
    (decision,) = decisions(OPEN, seen(np.full(7 * MINUTES, nothing)))
    assert "uses 0 cores at P99; the workload uses 0 cores in its quietest hour" in decision.reason.sentence
    recommended = decision.extra["recommended"]
    assert (recommended["targetUtilization"], recommended["minReplicas"], recommended["maxReplicas"]) == (
        30,
        2,
        2,
    )


def test_single_pods_have_their_own_p99() -> None:
    """Over all samples of all pods, exactly, whatever their share of the total."""
    pods = Samples(
        np.tile(START + np.arange(100) * 60.0, 2),
        np.concatenate([np.arange(100) / 100, np.full(100, 0.5)]),
        {"pod": np.repeat([0, 1], 100)},
        {"pod": ["a", "b"]},
    )
    observed = observe(one(daily(7)), FileDefaults("file"), "web", pods)
    assert observed.pod_p99_cores is not None
    assert observed.pod_p99_cores[0] == 0.97  # the 198th of 200
    assert observed.replicas[0] == 2


def test_single_pods_are_those_of_one_workload() -> None:
    """Those of others would raise its P99."""
    total, said = one(np.full(60, 8.0)), FileDefaults("file", pods_source="pods.csv")
    own = many([(0.0, "shop", "web", "a", 3.0), (0.0, "shop", "web", "b", 5.0)])
    assert observe(total, said, "web", own).pod_p99_cores == np.array([5.0])
    for other in (("shop", "api"), ("park", "web")):
        pods = many([(0.0, "shop", "web", "a", 3.0), (0.0, *other, "b", 5.0)])
        with pytest.raises(BadInput, match=r"pods\.csv: expected the pods of one workload, got those of 2"):
            observe(total, said, "web", pods)


def test_a_file_of_many_has_a_row_per_workload() -> None:
    """Pods are added up, moment by moment; replicas are the pods that were seen."""
    rows = [(60.0 * t, "b", "api", f"api-{p}", 1.0 + p) for t in range(10) for p in range(2)]
    rows += [(60.0 * t, "a", "web", "web-0", 5.0) for t in range(10)]
    observed = observe(many(rows), FileDefaults("file", request_cores=2.0), "")
    assert observed.subjects == ["a/web", "b/api"]
    assert observed.replicas.tolist() == [1, 2]
    assert observed.history[:, -1].tolist() == [5.0, 3.0]
    assert observed.pod_p99_cores is not None
    assert observed.pod_p99_cores.tolist() == [5.0, 2.0]
    assert observed.request_cores.tolist() == [2.0, 2.0]


def test_a_total_is_unknown_while_a_pod_that_lives_has_no_sample() -> None:
    """Missing is never zero; a pod that has come or gone is no hole."""
    rows = [(60.0 * t, "a", "web", "web-0", 1.0) for t in range(6)]
    rows += [(60.0 * t, "a", "web", "web-1", 2.0 if t != 3 else np.nan) for t in range(2, 5)]
    observed = observe(many(rows), FileDefaults("file"), "")
    np.testing.assert_array_equal(observed.history[0], [1.0, 1.0, 3.0, np.nan, 3.0, 1.0])


def test_jitter_does_not_matter() -> None:
    """Samples go to the nearest moment of the grid."""
    random = np.random.default_rng(1)
    rows = [
        (60.0 * t + 7 * p + random.normal(0, 0.5), "a", "web", f"web-{p}", 1.0)
        for t in range(50)
        for p in range(3)
    ]
    observed = observe(many(rows), FileDefaults("file"), "")
    assert observed.interval_seconds == 60
    assert set(observed.history[0, 1:].tolist()) == {3.0}


@pytest.mark.parametrize("late", [15, 28, 30, 32, 45])
def test_pods_that_are_asked_one_after_the_other_are_added_up(late: float) -> None:
    """Wherever in the minute each has its turn, jitter makes no hole."""
    random = np.random.default_rng(2)
    rows = [
        (60.0 * t + (0, late, 5)[p] + random.uniform(-5, 5), "a", "web", f"web-{p}", 1.0)
        for t in range(200)
        for p in range(3)
    ]
    observed = observe(many(rows), FileDefaults("file"), "")
    assert set(observed.history[0, 1:-1].tolist()) == {3.0}


def test_a_time_that_comes_twice_counts_once() -> None:
    """The file's last word on it; what is no usage is no word."""
    once = one(daily(2))
    first = Samples(once.times, once.values * 3, {}, {})
    bad = Samples(once.times[:5], np.full(5, np.nan), {}, {})
    parts = (first, once, bad)
    times, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("times", "values"))
    alone, doubled = (
        decisions(OPEN, observe(samples, FileDefaults("file", request_cores=1.0), "web"), None)[0]
        for samples in (once, Samples(times, values, {}, {}))
    )
    assert doubled.reason.numbers["coverage"] == pytest.approx(2 / 7)
    assert doubled == alone
    pods = Samples(np.full(3, START), np.array([1.0, 5.0, 2.0]), {"pod": np.zeros(3, np.intp)}, {"pod": "a"})
    assert observe(once, FileDefaults("file"), "web", pods).pod_p99_cores == [2.0]


def test_some_workloads_can_be_picked() -> None:
    """By name, or with the namespace; one that is not there is an error."""
    rows = [(0.0, space, "web", f"{space}-0", 1.0) for space in ("a", "b")] + [
        (0.0, "a", "api", "api-0", 1.0)
    ]
    samples = many(rows)
    assert observe(samples.only(chosen(samples, ["web"], "f")), FileDefaults("f"), "").subjects == [
        "a/web",
        "b/web",
    ]
    assert observe(samples.only(chosen(samples, ["b/web", "api"], "f")), FileDefaults("f"), "").subjects == [
        "a/api",
        "b/web",
    ]
    with pytest.raises(BadInput, match="f: expected the workload b/api"):
        chosen(samples, ["b/api"], "f")


def test_hours_follow_the_time_zone_and_its_changes() -> None:
    """Berlin is one hour ahead in winter, two in summer."""
    times = np.array([1_700_000_000.0, 1_690_000_000.0])
    assert offsets(times, "Europe/Berlin").tolist() == [3600.0, 7200.0]
    assert offsets(times, "UTC").tolist() == [0.0, 0.0]
    values = np.tile(np.repeat(np.arange(1.0, 25.0), 60), 7)
    values += np.tile(np.repeat([0, 0.5], 30), 168)
    plain = summarise(OPEN, seen(values), None)
    shifted = summarise(policy(time_zone="Asia/Kolkata"), seen(values), None)
    assert plain.lowest_median_cores[0] == 1.25
    assert shifted.lowest_median_cores[0] == 1.75


def test_a_batch_gives_what_each_workload_gets_alone() -> None:
    """Also when it is larger than one part of the work, and in single precision."""
    random = np.random.default_rng(9)
    history = random.gamma(2, 8, (300, 500)).astype(np.float32)
    count = len(history)
    batch = Observation(
        subjects=[f"w{n}" for n in range(count)],
        kinds=["Deployment"] * count,
        replicas=np.full(count, 3),
        pods=np.full(count, 3),
        available=np.full(count, 3),
        request_cores=np.full(count, 2.0),
        history=history,
        interval_seconds=60.0,
        at=START,
    )
    together = decisions(OPEN, batch)
    for row in (0, 255, 256, 299):
        (alone,) = decisions(OPEN, batch.rows(slice(row, row + 1)))
        assert alone == together[row]
