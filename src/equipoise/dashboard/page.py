"""What a page shows, as data: the pages are made without a browser, and drawn by one function.

Whoever draws may rely on this:

- `Chart.options` are ECharts options that survive JSON: finite numbers, None, texts, lists, and mappings
  whose keys are ECharts' own words. A name from outside is never a key, so no key begins with a colon.
- Colours of series are words of `COLOURS`, wherever a key is `color`; `painted` puts the theme's in their
  places. Text, axes, grids and tooltips have none: they are the theme's.
- Texts are plain and one line each, but may hold anything else; they are to be shown as text, never as HTML.
- A page has at most `SECTIONS_MAX` sections; its summary says how many there were.

Numbers and names on a page: read from anything that JSON can hold, and written one way everywhere.

Cores have three decimals (a millicore), loads two, MiB and percent one, counts none, whatever their size, so
that columns of them stand in line. What is unknown is a dash, never a zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import Quantity

COLOURS = ("hot", "cold", "target", "limit", "band", "actual", "muted", "good", "bad", "held")
"""The names of colours, by meaning; `band` is translucent."""

STANDINGS = ("trouble", "acted", "held", "preview", "quiet")
"""The standings of a decision, most urgent first; `trouble` is drawn as `bad`, `acted` as `good`."""

SECTIONS_MAX = 12
"""The maximum number of sections: each has charts, and the browser should stay fast."""


def painted(options: Any, palette: Mapping[str, str]) -> Any:
    """Return options with the names of colours replaced by a theme's values; unknown names stay."""
    if isinstance(options, Mapping):
        return {
            key: palette.get(part, part)
            if key == "color" and isinstance(part, str)
            else painted(part, palette)
            for key, part in options.items()
        }
    if isinstance(options, list | tuple):
        return [painted(part, palette) for part in options]
    return options


@dataclass(frozen=True, slots=True)
class Fact:
    """One key figure: a name, a value and a note."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: ECharts options without the colours of text and lines, which the theme sets."""

    title: str
    options: Mapping[str, Any]
    description: str
    """The chart's content in words, for screen readers."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the columns named in `figures` are numbers, aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one subject: a workload, a node, a fleet of tiers."""

    subject: str
    reason: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    standing: str = "quiet"
    """One of `STANDINGS`."""
    at: float | None = None
    """The time of the last same decision, in seconds since 1970."""
    record: str = ""
    """The id of the newest record in the journal."""


@dataclass(frozen=True, slots=True)
class Page:
    """One balancer's page."""

    title: str
    summary: str
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = field(default=())


UNKNOWN = "-"
NAME_MAX = 80
SENTENCE_MAX = 600
MIB = 1024.0**2
NUMBER_MAX = 1e15
"""The largest plausible number, and the largest exact integer of JavaScript."""
DECIMALS = {"cores": 3, "load": 2, "MiB": 1, "%": 1}
DIGITS = 6
"""The maximum number of points in a chart."""
_MANY = (list, tuple)


def number(value: object) -> float | None:
    """Return a finite, plausible number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -NUMBER_MAX <= value <= NUMBER_MAX else None


def count(value: object) -> int | None:
    found = number(value)
    return None if found is None or found < 0 else int(found)


def quantity(value: object) -> float | None:
    """Return a Kubernetes quantity as a number of cores, bytes or nodes."""
    if not isinstance(value, str):
        return number(value)
    try:
        return number(float(Quantity.parse(value)))
    except DECODE_ERRORS:
        return None


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, _MANY) else ()


def text(value: object, length_max: int = NAME_MAX) -> str:
    """Return a name or a sentence as one printable line of bounded length."""
    if not isinstance(value, str):
        return ""
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
    """Return a number with its unit."""
    return UNKNOWN if value is None else f"{figure(value, unit)} {unit}"


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
