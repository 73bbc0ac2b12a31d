"""What a page shows, as data: the pages are made without a browser, and drawn by one function.

Whoever draws may rely on this:

- `Chart.options` are ECharts options that survive JSON: finite numbers, None, texts, lists, and mappings
  whose keys are ECharts' own words. A name from outside is never a key, so no key begins with a colon.
- Colours of series are words of `COLOURS`, wherever a key is `color`; `painted` puts the theme's in their
  places. Text, axes, grids and tooltips have none: they are the theme's.
- Texts are plain and one line each, but may hold anything else; they are to be shown as text, never as HTML.
- A page has at most `SECTIONS_MAX` sections; its summary says how many there were.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

COLOURS = ("hot", "cold", "target", "limit", "band", "actual", "muted", "good", "bad", "held")
"""What a colour means. `hot`, `bad` and `limit` warn, `band` is translucent, `muted` stays behind."""

STANDINGS = ("trouble", "acted", "held", "preview", "quiet")
"""How a decision stands, what wants a look first; `trouble` is drawn as `bad`, `acted` as `good`."""

SECTIONS_MAX = 12
"""Each has some pictures, and a browser should stay quick."""


def painted(options: Any, palette: Mapping[str, str]) -> Any:
    """Put a theme's colours in the places of the words; what the palette lacks stays as it is."""
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
    """One figure that is read at a glance."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: the options of ECharts without colours of text and lines, which the theme gives."""

    title: str
    options: Mapping[str, Any]
    description: str
    """The same in words, for those who can't see it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the columns named in `figures` are numbers and stand to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """All about one subject: a workload, a node, a fleet of tiers."""

    subject: str
    reason: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    standing: str = "quiet"
    """One of `STANDINGS`."""
    at: float | None = None
    """When the decision was made, or last made again: seconds since 1970."""
    record: str = ""
    """The id of the newest record, which the journal has."""


@dataclass(frozen=True, slots=True)
class Page:
    """One balancer's page."""

    title: str
    summary: str
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = field(default=())
