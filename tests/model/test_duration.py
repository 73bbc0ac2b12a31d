"""Spans of time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.model.duration import parse_seconds, print_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("7d", 604800),
        (12, 12),
        ("1.5h", 5400),
    ],
)
def test_a_span_reads_as_seconds(text: str | float, seconds: float) -> None:
    """Numbers are seconds; units add up."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5x", "m", "-5m", "5 m", True, None, "nan", "inf", -1])
def test_anything_else_is_refused(text: object) -> None:
    """The message says what was expected."""
    with pytest.raises(ValueError, match="expected seconds or a span"):
        parse_seconds(text)  # type: ignore[arg-type]


@given(st.integers(0, 10**9))
def test_printing_a_span_loses_nothing(milliseconds: int) -> None:
    """What is printed reads back."""
    assert parse_seconds(print_seconds(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)
