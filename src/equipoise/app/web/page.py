"""What a page shows, as data: the pages are made without a browser, and drawn by one function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Page:
    """One balancer's page."""

    title: str
    summary: str
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = field(default=())
