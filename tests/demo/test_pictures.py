"""Pictures in text: what they show at any width."""

from hypothesis import given
from hypothesis import strategies as st

from equipoise.demo.context import columns, line, resampled

VALUES = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=200)


@given(VALUES, st.integers(1, 120))
def test_a_line_is_as_wide_as_it_is_told_and_stays_within_its_values(values: list[float], width: int) -> None:
    """Few values are drawn again, many become means."""
    found = resampled(values, width)
    assert len(found) == len(line(values, width, 0.0, 100.0)) == width
    assert min(values) - 1e-9 <= min(found) <= max(found) <= max(values) + 1e-9


def test_a_line_rises_and_falls_with_its_values() -> None:
    """From the lowest block to the highest; what is outside is cut."""
    assert line([0, 50, 100, 50, 0], 5, 0.0, 100.0) == "▁▅█▅▁"
    assert line([-10, 200], 2, 0.0, 100.0) == "▁█"
    assert line([3, 3], 2, 3.0, 3.0) == "▁▁"


def test_columns_cross_their_waterline() -> None:
    """The line is seen where nothing hides it, and what is above it is marked."""
    drawn = columns([2, 8, 5, 1], 4, 4, 8.0, 4.0)
    assert drawn.plain == " █  \n─█▄─\n ██ \n███▄"
    red = {drawn.plain[span.start : span.end] for span in drawn.spans if span.style == "red"}
    assert red - {" "} == {"█", "▄"}
