"""What a cluster of some size asks for."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.quantity import NANO, Quantity
from equipoise.proportional.functions import linear_function, linear_value, rounded_input, slots
from equipoise.proportional.functions import target as units
from equipoise.proportional.policy import Function
from tests.support.proportional.policies import MEMORY, policy, target

SEED = {
    "input": "cores",
    "base": "100m",
    "slope": "10m",
    "segments": [{"at": 0, "every": 1}, {"at": 16, "every": 4}],
}


@pytest.mark.parametrize(
    ("cores", "written"),
    [
        (0, "100m"),
        (1, "110m"),
        ("1500m", "120m"),
        (15, "250m"),
        (16, "260m"),
        ("16.0001", "260m"),
        (17, "300m"),
        (18, "300m"),
        (20, "300m"),
        (21, "340m"),
        (1000, "10100m"),
    ],
)
def test_the_seeds_segments_give_its_values(cores: Any, written: str) -> None:
    """18 cores are rounded up to 20, and give 300m; the flap is between 20 and 21."""
    assert target(policy(SEED), cores=cores) == written


@pytest.mark.parametrize(
    ("cores", "rounded"),
    [("20.004", 20), ("20.0041", 24), (20, 20), ("19.99", 20), ("16.004", 16), ("0.001", 0), ("0.0011", 1)],
)
def test_a_thousandth_of_the_distance_is_slack(cores: str, rounded: int) -> None:
    """0.1 % of `every`, inclusive, and not a billionth more."""
    function = Function.model_validate(SEED)
    assert rounded_input(function.cuts, Quantity.parse(str(cores)).nanos) == rounded * NANO


def test_multiples_are_counted_from_0_and_not_from_the_segment() -> None:
    """At 10, every 4: 11 becomes 12, not 14."""
    function = Function.model_validate(
        {"input": "nodes", "slope": 1, "segments": [{"at": 10, "every": 4}, {"at": 0, "every": 2}]}
    )
    assert [rounded_input(function.cuts, size * NANO) // NANO for size in (9, 10, 11, 12, 13)] == [
        10,
        12,
        12,
        12,
        16,
    ]


def test_below_the_first_segment_the_input_is_not_rounded() -> None:
    """Fractions stay fractions."""
    asked = policy({"input": "cores", "slope": "10m", "segments": {"at": 10, "every": 5}})
    assert [target(asked, cores=size) for size in ("9.5", 10, "10.5")] == ["95m", "100m", "150m"]


def test_segments_of_bytes_and_mixed_units() -> None:
    """A cluster's memory in Gi, a slope in Mi per Gi, one segment in decimal units."""
    asked = policy(
        {
            "input": "Memory",
            "base": "64Mi",
            "slope": "2Mi",
            "per": "1Gi",
            "segments": [
                {"at": "0", "every": "16Gi"},
                {"at": "512Gi", "every": "64Gi"},
                {"at": "4T", "every": "1Ti"},
            ],
        },
        resource="memory",
    )
    sizes = ("10Gi", "16Gi", "16.016Gi", "16.1Gi", "600Gi", "4.1T")
    assert [target(asked, MEMORY, memory=size) for size in sizes] == [
        "96Mi",
        "96Mi",
        "96Mi",
        "128Mi",
        "1344Mi",
        "8256Mi",
    ]


def test_cpu_that_follows_memory_and_memory_that_follows_nodes() -> None:
    """Any input gives any resource; the format is the base's, else the slope's."""
    by_memory = policy({"input": "memory", "slope": "1m", "per": "512Mi"})
    assert target(by_memory, memory="10Gi") == "20m"
    by_nodes = policy({"input": "nodes", "slope": "1500k", "base": "1Mi"}, resource="memory")
    assert target(by_nodes, MEMORY, nodes=1) == "2548576"
    by_slope = policy({"input": "nodes", "base": 0, "slope": "1Mi"}, resource="memory")
    assert target(by_slope, MEMORY, nodes=3) == "3Mi"


def test_several_rules_add_up_before_the_bounds() -> None:
    """One for cores, one for nodes; min and max once."""
    asked = policy(
        {"input": "cores", "base": "100m", "slope": "10m"},
        {"input": "nodes", "slope": "5m"},
        min="150m",
        max="1",
    )
    assert [target(asked, cores=c, nodes=n) for c, n in ((1, 1), (10, 4), (100, 50))] == ["150m", "220m", "1"]


def test_results_are_rounded_up_to_a_millicore_and_a_byte() -> None:
    """A third of a core is 334m; and nothing is ever below zero."""
    assert target(policy({"input": "cores", "slope": 1, "per": 3}), cores=1) == "334m"
    assert target(policy({"input": "cores", "slope": "100u"}), cores=11) == "2m"
    by_nodes = policy({"input": "nodes", "slope": "1", "per": 3}, resource="memory")
    assert target(by_nodes, MEMORY, nodes=4) == "2"
    falling = policy({"input": "cores", "base": "100m", "slope": "-10m"})
    assert [target(falling, cores=size) for size in (5, 10, 20)] == ["50m", "0", "0"]


def test_a_maximum_between_two_millicores_is_never_passed() -> None:
    """100.5m allows 100m."""
    asked = policy({"input": "cores", "slope": "1"}, max="100500u")
    assert target(asked, cores=5) == "100m"


def test_numbers_with_fractions_are_read_as_they_are_written() -> None:
    """0.1 is a tenth, not the nearest float."""
    asked = policy({"input": "cores", "base": 0.1, "slope": 0.01, "per": 0.5})
    assert target(asked, cores=0.3) == "106m"


_AMOUNTS = st.integers(0, 10**13)
_SEGMENTS = st.lists(st.integers(1, 4), max_size=4).map(
    lambda powers: [{"at": number * 16, "every": 2 ** min(number, 4)} for number, _ in enumerate(powers)]
)


@given(_AMOUNTS, _AMOUNTS, st.integers(1, 10**12), _AMOUNTS, _SEGMENTS)
def test_a_function_is_exactly_what_fractions_say(
    base: int, slope: int, per: int, size: int, segments: list[dict[str, int]]
) -> None:
    """No drift, whatever the sizes."""
    written = {
        "base": f"{base}n",
        "slope": f"{slope}n",
        "per": f"{per}n",
        "input": "cores",
        "segments": segments,
    }
    function = Function.model_validate(written)
    value, cores = Fraction(size, NANO), Fraction(size, NANO)
    for segment in segments:
        if segment["at"] <= value:
            steps = value / segment["every"] - Fraction(1, 1000)
            cores = Fraction(-(-steps.numerator // steps.denominator)) * segment["every"]
    expected = Fraction(base, NANO) + Fraction(slope, NANO) * cores / Fraction(per, NANO)
    assert linear_value(linear_function(function), {"cores": size}) == expected * NANO


@given(_AMOUNTS, _AMOUNTS, _SEGMENTS, st.lists(_AMOUNTS, min_size=2, max_size=8))
def test_a_growing_input_never_lowers_the_target(
    base: int, slope: int, segments: list[dict[str, int]], sizes: list[int]
) -> None:
    """Monotone for slopes of 0 or more, levels and bounds included."""
    asked = policy(
        {"base": f"{base}n", "slope": f"{slope}n", "input": "cores", "segments": segments},
        min="10m",
        max="5000",
        quantization={"resource": "cpu", "base": "7m", "step": "3m", "stepRatio": 1.5, "maxStep": "1"},
    )
    (slot,) = slots(asked)
    targets = [units(slot, {"cores": size}) for size in sorted(sizes)]
    assert targets == sorted(targets)
    assert all(10 <= value <= 5_000_000 for value in targets)
