"""Spans of time as people write them (`90`, `90s`, `5m`, `1h30m`, `250ms`), and moments as RFC 3339 does."""

import math
import re
from datetime import datetime, tzinfo

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
MOMENT_MIN, MOMENT_MAX = -62_135_510_400.0, 253_402_214_399.0
"""In seconds since 1970, what is within the years 1 to 9999 in every time zone."""


def parse_seconds(value: str | float) -> float:
    """Read a span as seconds; raise ValueError on anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    try:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        else:
            seconds = float(value)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    return seconds


def parse_moment(text: object, zone: tzinfo | None = None) -> float:
    """Return an RFC 3339 time as Unix seconds; raise ValueError for one that no calendar has in every zone.

    All times that come from outside are read here: one of the year 9999 with an offset is of another year in
    UTC, and cannot be printed there. A time without a zone is refused, unless `zone` says which one is meant.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a time such as 2026-01-31T08:00:00Z, got {type(text).__name__}")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"expected a time with a zone, got {text!r}")
        moment = moment.replace(tzinfo=zone)
    return check_moment(moment.timestamp())


def check_moment(at: float) -> float:
    """Return these Unix seconds; raise ValueError where they are of no year from 1 to 9999."""
    if not MOMENT_MIN <= at <= MOMENT_MAX:
        raise ValueError(f"expected seconds since 1970, of the years 1 to 9999, got {at:g}")
    return at


def print_seconds(seconds: float) -> str:
    """Write a span in its largest units, as PromQL reads it: 300 is `5m`, 5400 is `1h30m`."""
    rest, parts = round(seconds * 1000), ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, round(_UNITS[unit] * 1000))
        if count:
            parts += f"{count}{unit}"
    return parts or "0s"
