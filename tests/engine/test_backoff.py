"""Waits double up to a bound, and the first success begins anew."""

import pytest

from equipoise.core.errors import KeyedBackoff, delay_seconds


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 300.0), (2, 600.0), (4, 2400.0), (5, 3600.0), (10_000, 3600.0)]
)
def test_every_wait_is_twice_as_long_up_to_the_bound(failures: int, seconds: float) -> None:
    """Also after so many failures that no float could hold the product."""
    assert delay_seconds(failures, 300.0, 3600.0) == seconds


def test_who_has_not_failed_does_not_wait() -> None:
    """To ask is a bug of ours."""
    with pytest.raises(AssertionError):
        delay_seconds(0, 300.0, 3600.0)


def test_each_key_has_a_wait_of_its_own() -> None:
    """With what is known of its last failure."""
    backoff: KeyedBackoff[str, str] = KeyedBackoff(30.0, 100.0)
    for at in (0.0, 30.0, 90.0):
        backoff.fail("web", at, f"refused at {at:.0f}")
    backoff.fail("db", 90.0, "forbidden")
    assert backoff.failure("web") == (3, 190.0, "refused at 90")
    assert backoff.failure("db") == (1, 120.0, "forbidden")
    assert backoff.failure("cache") is None


def test_a_success_begins_anew_and_who_is_gone_is_forgotten() -> None:
    """Neither costs the others their waits."""
    backoff: KeyedBackoff[str, str] = KeyedBackoff(30.0, 100.0)
    for key in ("web", "web", "db", "cache"):
        backoff.fail(key, 0.0, "")
    backoff.forget("web")
    backoff.forget("never seen")
    backoff.keep({"db", "web"})
    assert [key for key, _ in backoff.items()] == ["db"]
    backoff.fail("web", 5.0, "")
    assert backoff.failure("web") == (1, 35.0, "")
