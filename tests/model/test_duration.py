"""Spans of time, and moments."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.quantity import MOMENT_MAX, MOMENT_MIN, parse_moment, parse_seconds, print_seconds

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


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


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), st.timedeltas().map(lambda each: each % DAY))  # noqa: DTZ001
def test_every_moment_that_is_read_can_be_printed_in_every_zone(moment: datetime, offset: timedelta) -> None:
    """Whatever its own zone is."""
    zone = timezone(offset - DAY / 2)
    at = parse_moment(moment.replace(tzinfo=zone).isoformat())
    assert MOMENT_MIN <= at <= MOMENT_MAX
    for other in (UTC, timezone(DAY - MINUTE), timezone(MINUTE - DAY)):
        assert datetime.fromtimestamp(at, other).timestamp() == pytest.approx(at, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-01T24:00:01Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00+24:00",
        "soon",
        "",
        7,
        None,
        [],
    ],
)
def test_a_moment_off_the_calendar_is_refused_as_a_value(text: object) -> None:
    """The year 10000 of another zone, a leap second, no zone at all: one error for all of them."""
    with pytest.raises(ValueError, match=r"\S"):
        parse_moment(text)
