"""Levels that values are rounded up to."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core.quantity import Quantity
from equipoise.proportional.functions import levels_of, quantized
from equipoise.proportional.policy import Quantization
from tests.support.proportional.policies import MEMORY, policy, target


def _level(value: str, **levels: Any) -> str:
    written = Quantization.model_validate({"resource": "cpu"} | levels)
    level = quantized(levels_of(written), Fraction(Quantity.parse(value).nanos))
    assert level.denominator == 1
    return str(Quantity(int(level)))


@pytest.mark.parametrize(
    ("value", "level"),
    [("0", "0"), ("1m", "100m"), ("100m", "100m"), ("101m", "200m"), ("999m", "1"), ("1001m", "1100m")],
)
def test_a_base_alone_rounds_up_to_its_multiples(value: str, level: str) -> None:
    """The seed's text: always rounded up to the nearest 0.1 cores."""
    assert _level(value, base="100m") == level


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("0", "0"),
        ("1m", "10m"),
        ("11m", "30m"),
        ("31m", "70m"),
        ("630m", "630m"),
        ("631m", "1270m"),
        ("1271m", "2270m"),
        ("5", "5270m"),
    ],
)
def test_steps_double_up_to_their_maximum(value: str, level: str) -> None:
    """0, 10, 30, 70, 150, 310, 630, 1270, then every 1000."""
    assert _level(value, base=0, step="10m", stepRatio=2, maxStep="1000m") == level


def test_levels_start_at_the_base() -> None:
    """A smaller value becomes the base."""
    levels = {"base": "50m", "step": "20m"}
    assert [_level(value, **levels) for value in ("0", "50m", "51m", "70m", "71m")] == [
        "50m",
        "50m",
        "70m",
        "70m",
        "90m",
    ]


def test_a_level_of_a_broken_ratio_is_exact() -> None:
    """10, 25, 47.5, 81.25: no step is cut off on the way."""
    assert [_level(f"{value}u", step="10m", stepRatio=1.5) for value in (25_001, 47_500, 47_501)] == [
        "47500u",
        "47500u",
        "81250u",
    ]


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("0", "0"),
        ("950m", "1"),
        ("1", "1"),
        ("1001m", "1500m"),
        ("9600m", "10"),
        ("10", "10"),
        ("10001m", "11"),
    ],
)
def test_segments_may_say_the_distance_of_levels(value: str, level: str) -> None:
    """0.1 core below one core, half a core from there, a core from ten on; here nothing is slack."""
    segments = [{"at": 0, "every": "100m"}, {"at": 1, "every": "500m"}, {"at": 10, "every": 1}]
    assert _level(value, segments=segments) == level


def test_a_level_above_the_maximum_becomes_the_maximum() -> None:
    """And none is below the minimum."""
    asked = policy(
        {"input": "cores", "slope": "10m"},
        min="30m",
        max="250m",
        quantization={"resource": "cpu", "base": "100m"},
    )
    assert [target(asked, cores=size) for size in (0, 10, 11, 21, 50)] == [
        "100m",
        "100m",
        "200m",
        "250m",
        "250m",
    ]


def test_memory_has_levels_too() -> None:
    """107Mi becomes 128Mi."""
    asked = policy(
        {"input": "nodes", "base": "100Mi", "slope": "1Mi"},
        resource="memory",
        quantization=[{"resource": "memory", "base": "32Mi"}, {"resource": "cpu", "base": "1"}],
    )
    assert target(asked, MEMORY, nodes=7) == "128Mi"


@settings(max_examples=60, deadline=None)
@given(
    st.fractions(0, 10**12),
    st.integers(0, 10**9),
    st.integers(10**6, 10**10),
    st.sampled_from([1, 1.01, 1.5, 2, 10]),
    st.none() | st.integers(10**10, 10**11),
)
def test_a_level_is_the_first_at_or_above_the_value(
    value: Fraction, base: int, step: int, ratio: float, most: int | None
) -> None:
    """Against climbing level by level with fractions; and a level is its own level."""
    written = {"resource": "cpu", "base": f"{base}n", "step": f"{step}n", "stepRatio": ratio}
    levels = levels_of(Quantization.model_validate(written | ({"maxStep": f"{most}n"} if most else {})))
    level, distance, climbed = Fraction(base), Fraction(step), 0
    while level < value and climbed < 2_000:
        level, climbed = level + distance, climbed + 1
        distance = distance * Fraction(str(ratio))
        distance = min(distance, Fraction(most)) if most else distance
    if climbed < 2_000:
        assert quantized(levels, value) == level
    found = quantized(levels, value)
    assert found >= value
    assert quantized(levels, found) == found
