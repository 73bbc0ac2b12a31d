"""Windows in which a policy may act: they open on a schedule in the local time of a zone.

A policy without windows may always act; with windows, it holds its actions outside all of them. The agent
reads no windows, and does not load what they need.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Annotated
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from equipoise.core.reason import Code, Reason
from equipoise.crd.fields import SchemaPart, Span, Text

SCHEDULE = Text(
    r"^[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}$",
    "a cron schedule of five fields such as '0 2 * * 1-5'",
    100,
)
ZONE = Text(r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$", "an IANA time zone such as Europe/Berlin", 64)
WINDOW_SECONDS_MAX = 31 * 86400.0
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
"""Any day will do to see whether a schedule ever comes true."""


def _schedule(text: str) -> str:
    try:
        next(CronSim(text, _SOME_DAY))
    except StopIteration:
        raise ValueError(f"expected a schedule with at least one date, got {text!r}") from None
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, CronSimError) else ""
        raise ValueError(f"expected {SCHEDULE.expected}, got {text!r}{why}") from error
    return text


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """Return the zones of the tzdata package: the same on every machine, whatever its system knows."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


def _zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"expected {ZONE.expected}, got {name!r}")
    return name


class Window(SchemaPart):
    """A span of time that opens again and again."""

    schedule: Annotated[str, SCHEDULE, AfterValidator(_schedule)] = Field(
        description="When it opens: a cron schedule of five fields, such as 0 2 * * 1-5."
    )
    duration_seconds: Annotated[float, Span(60, WINDOW_SECONDS_MAX)] = Field(
        alias="duration", description="How long it stays open, such as 2h."
    )
    time_zone: Annotated[str, ZONE, AfterValidator(_zone)] = Field(
        "UTC",
        alias="timeZone",
        description="The IANA zone that the schedule is written in; daylight-saving changes are followed.",
    )


def held_by_window(windows: Sequence[Window], at: float) -> Reason | None:
    """Return the reason to hold outside all windows; a policy without windows may always act."""
    # A window is open where an opening lies within its last `duration`: spans are real time, schedules local.
    now = datetime.fromtimestamp(at, UTC)
    if not windows or any(_next_opening(one, at - one.duration_seconds) <= now for one in windows):
        return None
    opens = min(_next_opening(window, at) for window in windows)
    return Reason(
        Code.HELD_BY_WINDOW,
        f"No maintenance window is open; the next one opens at {opens.isoformat(timespec='minutes')}.",
        {"opens_at": opens.timestamp()},
    )


def _next_opening(window: Window, after: float) -> datetime:
    """Return the first opening later than a moment.

    In an hour that comes twice, cronsim knows only the first: asked in the second, it tells of what is past.
    """
    start = datetime.fromtimestamp(after, UTC)
    openings = CronSim(window.schedule, start.astimezone(ZoneInfo(window.time_zone)))
    return next(opening for each in openings if (opening := each.astimezone(UTC)) > start)
