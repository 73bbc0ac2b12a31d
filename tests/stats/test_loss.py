"""The constant that costs least, beside a search."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.stats.profile import (
    Blocks,
    best_constant,
    day_weights,
    error,
    flat_lines,
    in_blocks,
    losses,
    profile,
    spread,
)

samples = st.lists(st.floats(0.1, 50), min_size=1, max_size=14)


def _cost(constant: float, values: np.ndarray, weights: np.ndarray) -> float:
    return float((losses(values, constant) * weights).sum())


@given(samples)
def test_no_other_constant_costs_less(values: list[float]) -> None:
    """The closed form beats every sample and every step of a fine search."""
    table = np.sort(np.array(values))
    best = float(best_constant(table[None])[0])
    weights = np.ones(len(table))
    cost = _cost(best, table, weights)
    for other in [*values, *np.linspace(0.05, 60, 200).tolist(), best * 1.001, best * 0.999]:
        assert cost <= _cost(other, table, weights) + 1e-9


@given(
    st.lists(
        st.tuples(st.floats(0.125, 50, width=32), st.floats(0.125, 4, width=32)), min_size=1, max_size=14
    )
)
def test_no_other_weighted_constant_costs_less(pairs: list[tuple[float, float]]) -> None:
    """The same with weights, for the profile of one block."""
    values = np.array([value for value, _ in pairs], np.float32)
    weights = np.array([weight for _, weight in pairs], np.float32)
    order = np.argsort(values)
    ordered = values[order][:, None, None]
    best = float(profile(Blocks(order[:, None, None], ordered, 1 / ordered), weights)[0, 0])
    cost = _cost(best, values.astype(float), weights.astype(float))
    for other in [*values.tolist(), best * 1.01, best * 0.99]:
        assert cost <= _cost(other, values.astype(float), weights.astype(float)) * (1 + 1e-5) + 1e-5


def test_a_day_that_must_not_be_seen_changes_nothing() -> None:
    """A weight of 0 is as good as not being there: the backtest sees the past only."""
    random = np.random.default_rng(5)
    days = random.gamma(2, 1, (3, 6, 24)).astype(np.float32)
    seen = profile(in_blocks(days[:, :4]), day_weights(4, 4, 1))
    days[:, 4:] = 1e6
    np.testing.assert_allclose(profile(in_blocks(days), day_weights(6, 4, 1)), seen, rtol=1e-5)


def test_the_same_weekday_weighs_most() -> None:
    """By a lag of seven days from the day that is forecast, whatever the horizon."""
    assert day_weights(14, 14, 1).argmax() == 7
    assert day_weights(14, 14, 3).argmax() == 9
    assert day_weights(14, 14, 8).argmax() == 7
    np.testing.assert_allclose(day_weights(3, 2, 1), [0.8, 1.0, 0.0])


def test_unknown_samples_do_not_move_the_flat_line() -> None:
    """Holes are left out, and a row of holes has no line."""
    row = np.array([[1.0, 2.0, 4.0, 8.0]])
    holes = np.array([[np.nan, 4.0, 2.0, np.nan, 8.0, 1.0], [np.nan] * 6])
    lines = flat_lines(holes)
    assert lines[0] == flat_lines(row)[0]
    assert math.isnan(lines[1])


def test_too_little_costs_more_than_too_much() -> None:
    """0.1 too little costs 0.472, half costs 3.106; too much costs what it is."""
    actual = np.ones((1, 4))
    for forecast, expected in ((0.9, 0.472), (0.5, 3.106), (1.1, 0.1), (1.0, 0.0)):
        np.testing.assert_allclose(error(actual, np.full((1, 4), forecast)), expected, atol=5e-4)


def test_the_error_is_in_cores_where_usage_is_next_to_nothing() -> None:
    """A ratio to 0 says nothing."""
    np.testing.assert_allclose(error(np.array([[0.0, 1.0]]), np.array([[0.5, 1.0]])), 0.25)


def test_nothing_forecast_from_nothing_is_no_error() -> None:
    """A flat line through zeros is raised for its ratios; its error is not a millionth of a core."""
    nothing = np.zeros((1, 5))
    assert error(nothing, flat_lines(nothing)[:, None]).tolist() == [0.0]


def test_blocks_are_joined_by_straight_lines() -> None:
    """Centres keep their values, and a line stays a line."""
    blocks = np.arange(480, dtype=np.float32)[None] * 3 + 1
    drawn = spread(blocks, 1440)
    np.testing.assert_allclose(drawn[0, 1:-1], np.arange(1, 1439, dtype=np.float32))
