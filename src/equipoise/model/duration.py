"""Spans of time as people write them: `90`, `90s`, `5m`, `1h30m`, `250ms`."""

import math
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_seconds(value: str | float) -> float:
    """Read a span as seconds; raise ValueError on anything that is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    return seconds


def print_seconds(seconds: float) -> str:
    """Write a span in its largest units, as PromQL reads it: 300 is `5m`, 5400 is `1h30m`."""
    rest, parts = round(seconds * 1000), ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, round(_UNITS[unit] * 1000))
        if count:
            parts += f"{count}{unit}"
    return parts or "0s"
