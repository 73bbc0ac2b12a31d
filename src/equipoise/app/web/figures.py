"""Numbers and names on a page: read from anything that JSON can hold, and written one way everywhere.

Cores have three decimals (a millicore), loads two, MiB and percent one, counts none, whatever their size, so
that columns of them stand in line. What is unknown is a dash, never a zero.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.quantity import Quantity

UNKNOWN = "-"
NAME_MAX = 80
SENTENCE_MAX = 600
MIB = 1024.0**2
NUMBER_MAX = 1e15
"""Beyond this a number is a mistake; browsers count no further either."""
DECIMALS = {"cores": 3, "load": 2, "MiB": 1, "%": 1}
DIGITS = 6
"""As many as a picture can show."""
_MANY = (list, tuple)


def number(value: object) -> float | None:
    """Read a number; anything else, and what nobody can draw, is unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -NUMBER_MAX <= value <= NUMBER_MAX else None


def count(value: object) -> int | None:
    """Read a whole number of things."""
    found = number(value)
    return None if found is None or found < 0 else int(found)


def quantity(value: object) -> float | None:
    """Read a Kubernetes quantity as a plain number: cores, bytes, nodes."""
    if not isinstance(value, str):
        return number(value)
    try:
        return number(float(Quantity.parse(value)))
    except DECODE_ERRORS:
        return None


def mapping(value: object) -> Mapping[str, Any]:
    """Read a mapping; anything else is an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """Read a list; anything else is an empty one."""
    return value if isinstance(value, _MANY) else ()


def text(value: object, length_max: int = NAME_MAX) -> str:
    """Read a name or a sentence: one line that can be shown, and not longer than a page can bear."""
    if not isinstance(value, str):
        return ""
    line = "".join(letter if letter.isprintable() else " " for letter in value[: 4 * length_max])
    line = " ".join(line.split())
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def figure(value: float | None, unit: str = "") -> str:
    """Write a number with as many decimals as its unit has, for a column that names the unit."""
    if value is None:
        return UNKNOWN
    decimals = DECIMALS.get(unit, 0)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # nothing has no sign


def amount(value: float | None, unit: str) -> str:
    """Write a number with its unit."""
    return UNKNOWN if value is None else f"{figure(value, unit)} {unit}"


def counted(value: int, noun: str) -> str:
    """Write how many there are: `1 pod`, `3 pods`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def drawn(value: float | None) -> float | None:
    """Give a number as a picture needs it, without digits that nobody sees; None leaves a hole."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def mebibytes(value: float | None) -> float | None:
    """Give bytes as MiB."""
    return None if value is None else value / MIB


def moment(at: float | None) -> str:
    """Write a time as the journal does."""
    try:
        return UNKNOWN if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def milliseconds(at: float) -> int | None:
    """Give a time as ECharts counts it; None where there is no such time."""
    return None if moment(at) == UNKNOWN else round(at * 1000)
