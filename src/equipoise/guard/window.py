"""Is it the hour for it? When any window is set, everything outside is closed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from equipoise.model.crd.windows import Window
from equipoise.model.reason import Code, Reason


def held_by_window(windows: Sequence[Window], at: float) -> Reason | None:
    """Hold outside all windows; no window at all is always open."""
    if not windows or any(_is_open(window, at) for window in windows):
        return None
    opens = min(_next_opening(window, at) for window in windows)
    return Reason(
        Code.HELD_BY_WINDOW,
        f"No maintenance window is open; the next one opens at {opens.isoformat(timespec='minutes')}.",
        {"opens_at": opens.timestamp()},
    )


def _is_open(window: Window, at: float) -> bool:
    """Whether an opening lies within the last `duration`: spans are real time, schedules are local time."""
    now = datetime.fromtimestamp(at, UTC)
    return _next_opening(window, at - window.duration_seconds) <= now


def _next_opening(window: Window, after: float) -> datetime:
    """Give the first opening later than a moment.

    In an hour that comes twice, cronsim knows only the first: asked in the second, it tells of what is past.
    """
    start = datetime.fromtimestamp(after, UTC)
    openings = CronSim(window.schedule, start.astimezone(ZoneInfo(window.time_zone)))
    return next(opening for each in openings if (opening := each.astimezone(UTC)) > start)
