"""Numbers and names on a page: read from anything that JSON can hold, and written one way everywhere.

Cores have three decimals (a millicore), loads two, MiB and percent one, counts none, whatever their size, so
that columns of them stand in line. What is unknown is a dash, never a zero.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import Quantity

UNKNOWN = "-"
NAME_MAX = 80
SENTENCE_MAX = 600
MIB = 1024.0**2
NUMBER_MAX = 1e15
"""The largest plausible number, and the largest exact integer of JavaScript."""
DECIMALS = {"cores": 3, "load": 2, "MiB": 1, "%": 1}
DIGITS = 6
"""Significant digits of a number in a chart."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value of any type. What is absent, of another type or implausible is None, or empty."""

    value: object

    def __getitem__(self, key: str) -> "Json":
        return Json(self.value.get(key) if isinstance(self.value, Mapping) else None)

    def __iter__(self) -> Iterator["Json"]:
        return map(Json, self.value if isinstance(self.value, list | tuple) else ())

    def items(self) -> list[tuple[str, "Json"]]:
        """Return the keys and values of an object."""
        return (
            [(key, Json(part)) for key, part in self.value.items()] if isinstance(self.value, Mapping) else []
        )

    @property
    def number(self) -> float | None:
        """The number, if it is finite and plausible."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            return None
        return float(self.value) if -NUMBER_MAX <= self.value <= NUMBER_MAX else None

    @property
    def count(self) -> int | None:
        """The whole part of a number that is not negative."""
        found = self.number
        return None if found is None or found < 0 else int(found)

    @property
    def quantity(self) -> float | None:
        """A number, or a Kubernetes quantity as a number of cores, bytes or nodes."""
        if not isinstance(self.value, str):
            return self.number
        try:
            return Json(float(Quantity.parse(self.value))).number
        except DECODE_ERRORS:
            return None

    @property
    def text(self) -> str:
        """A name as one printable line of bounded length."""
        return text(self.value) if isinstance(self.value, str) else ""


def text(value: str, length_max: int = NAME_MAX) -> str:
    """Return a name or a sentence as one printable line of bounded length."""
    line = "".join(letter if letter.isprintable() else " " for letter in value[: 4 * length_max])
    line = " ".join(line.split())
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def figure(value: float | None, unit: str = "") -> str:
    """Return a number with its unit's decimals, for a column that names the unit."""
    if value is None:
        return UNKNOWN
    decimals = DECIMALS.get(unit, 0)
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # avoids -0


def amount(value: float | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    return f"{figure(value, unit)}{'' if unit == '%' else ' '}{unit}"


def counted(value: int, noun: str) -> str:
    """Return a count with its noun: `1 pod`, `3 pods`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def drawn(value: float | None) -> float | None:
    """Return a number rounded for a chart; None leaves a gap."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def mebibytes(value: float | None) -> float | None:
    return None if value is None else value / MIB


def moment(at: float | None) -> str:
    """Return a time in the journal's format."""
    try:
        return UNKNOWN if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def milliseconds(at: float) -> int | None:
    """Return a time in milliseconds, as ECharts needs it; None if it is out of range."""
    return None if moment(at) == UNKNOWN else round(at * 1000)
