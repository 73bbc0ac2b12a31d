"""When to try again, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters.http import Backoff, TryAgain, parse_retry_after, with_retries
from tests.support.kubernetes.server import Time

BACKOFF = Backoff(
    attempts_max=4, first_seconds=1, delay_max_seconds=3, retry_after_max_seconds=20, total_max_seconds=25
)


@pytest.mark.parametrize(
    ("failures", "spent", "chance", "retry_after", "delay"),
    [
        (1, 0, 0.0, None, 0.1),
        (1, 0, 0.999_999_999, None, 1.0),
        (2, 0, 0.5, None, 1.1),
        (3, 0, 0.999_999_999, None, 3.0),  # capped
        (4, 0, 0.5, None, None),  # no attempt left
        (1, 24.5, 0.5, None, None),  # no time left
        (1, 0, 0.0, 7, 7.0),
        (1, 0, 0.5, 7, 7.5),  # a crowd that was told the same time spreads out
        (1, 0, 0.0, 3600, 20.0),  # the server's wish is capped
        (1, 10, 0.0, 3600, None),
        (1, 0, 0.0, 0, 0.0),
    ],
)
def test_the_delay_follows_the_table(
    failures: int, spent: float, chance: float, retry_after: float | None, delay: float | None
) -> None:
    """Exponential, jittered, bounded in number and in time."""
    assert BACKOFF.next_seconds(failures, spent, chance, retry_after) == (
        None if delay is None else pytest.approx(delay)
    )


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_nothing_and_never_too_long(failures: int, chance: float) -> None:
    """Whatever the number of failures, the wait stays within its bounds."""
    assert 0.09 <= BACKOFF.delay_seconds(failures, chance) <= BACKOFF.delay_max_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        (" 0 ", 0.0),
        ("1.5", 1.5),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms(text: str | None, seconds: float | None) -> None:
    """Seconds or a date; anything else counts as absent."""
    assert parse_retry_after(text, 1_700_000_000.0) == seconds


def test_a_call_is_repeated_until_it_works() -> None:
    """Two passing failures, then the answer."""
    time, left = Time(), [ValueError(), ValueError()]

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    answer = with_retries(
        attempt, lambda _: TryAgain(), BACKOFF, sleep=time.sleep, rng=lambda: 0.5, monotonic=time.read
    )
    assert answer == "done"
    assert time.slept == pytest.approx([0.55, 1.1])


@pytest.mark.parametrize("again", [TryAgain(), None])
def test_the_last_failure_is_raised_as_it_came(again: TryAgain | None) -> None:
    """Whether hope was given up at once or in the end."""
    time = Time()

    def attempt() -> str:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        with_retries(attempt, lambda _: again, BACKOFF, sleep=time.sleep, monotonic=time.read)
    assert len(time.slept) == (3 if again else 0)
