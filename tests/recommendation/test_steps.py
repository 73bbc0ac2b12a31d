"""Workloads of one file that were measured at different steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision
from equipoise.core.errors import BadInput
from equipoise.recommendation.files import FileDefaults, observe_many
from equipoise.stats.predict import Algorithm
from equipoise.stats.samples import Samples, steps_of
from tests.support.recommendation.history_files import OPEN, many
from tests.support.recommendation.worlds import decisions

DAY = 86400
SAID = FileDefaults("file", request_cores=1.0)


def rows(
    name: str, step: float, days: float = 7.0, end: float = 7 * DAY
) -> list[tuple[float, str, str, str, float]]:
    """Give a workload that is busy by day, measured up to some moment."""
    times = np.arange(end, end - days * DAY, -step)[::-1]
    return [(at, "s", name, f"{name}-1", 10.0 + 5.0 * np.sin(at / DAY * 2 * np.pi)) for at in times.tolist()]


def decided(samples: Samples, *names: str, algorithm: Algorithm | None = None) -> dict[str, Decision]:
    return {
        decision.subject: decision
        for seen in observe_many(samples, SAID, names)
        for decision in decisions(OPEN, seen, algorithm)
    }


def test_each_workload_is_judged_by_its_own_step() -> None:
    """A week of hours beside weeks of minutes is known as well as they are, and as predictable."""
    samples = many([*rows("fast", 60), *rows("slow", 3600), *rows("quick", 60)])
    assert set(steps_of(samples)[0].tolist()) == {60.0, 3600.0}
    found = decided(samples, algorithm=Algorithm.PROFILE)
    assert sorted(found) == ["s/fast", "s/quick", "s/slow"]
    assert {one.reason.numbers["coverage"] for one in found.values()} == {1.0}
    assert {one.extra["prediction"]["predictable"] for one in found.values()} == {True}


def test_pods_of_one_name_are_those_of_their_own_workloads() -> None:
    """Each has its own step, whoever else is called so."""
    samples = many(
        [
            (at, space, work, "p", value)
            for step, space, work in ((60, "a", "web"), (3600, "b", "web"), (3600, "a", "api"))
            for at, *_, value in rows("w", step)
        ]
    )
    assert sorted(steps_of(samples)[0].tolist()) == [60.0, 3600.0, 3600.0]
    assert [seen.subjects for seen in observe_many(samples, SAID, ())] == [["a/web"], ["a/api", "b/web"]]


def test_a_few_scattered_samples_are_no_step() -> None:
    """Whoever was seen now and then is known for little of the week."""
    now_and_then = [(at * 1.0, "s", "rare", "rare-1", 5.0) for at in (0, 7200, 9000, 50000, 4 * DAY, 7 * DAY)]
    irregular = np.cumsum(np.random.default_rng(1).uniform(60, 7200, 100))
    odd = [(at, "s", "odd", "odd-1", 5.0) for at in irregular.tolist()]
    samples = many([*rows("fast", 60), *now_and_then, *odd])
    assert set(steps_of(samples)[0].tolist()) == {60.0}
    found = decided(samples)
    assert found["s/rare"].reason.numbers["coverage"] == pytest.approx(5 / 10080)


def test_a_step_with_gaps_is_still_that_step() -> None:
    """Half of the week is missing, and the other half is of minutes."""
    halves = [row for row in rows("half", 60) if row[0] % DAY < DAY / 2]
    samples = many([*rows("fast", 60), *halves])
    assert set(steps_of(samples)[0].tolist()) == {60.0}
    assert decided(samples)["s/half"].reason.numbers["coverage"] == pytest.approx(0.5, abs=0.001)


SHAPES = st.tuples(
    st.sampled_from([60.0, 300.0, 900.0, 3600.0]),
    st.sampled_from([1.0, 4.0, 9.0]),
    st.sampled_from([0, 3, 9]),
)


@given(shapes=st.lists(SHAPES, min_size=1, max_size=4))
def test_who_is_asked_for_changes_nothing_of_the_answer(shapes: list[tuple[float, float, int]]) -> None:
    """Whatever the others' steps and ends are."""
    samples = many(
        [
            row
            for number, (step, days, early) in enumerate(shapes)
            for row in rows(f"w{number}", step, min(days, 2.0) if step == 60 else days, (20 - early) * DAY)
        ]
    )
    together = decided(samples)
    for number in range(len(shapes)):
        assert decided(samples, f"w{number}") == {f"s/w{number}": together[f"s/w{number}"]}


def test_nobody_is_asked_for_who_is_not_there() -> None:
    """Whatever the step is; and a file without a row has no workload."""
    with pytest.raises(BadInput, match="file: expected the workload w9, and no row is of it"):
        decided(many(rows("w1", 3600)), "w9")
    assert decided(many([])) == {}
