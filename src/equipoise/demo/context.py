"""What the scenes of the demo share: the simulated cluster, the journal, and charts in text.

A scene sets up its part of the cluster, runs a production loop in it, and checks that it reaches its expected
result.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.core.decision import Record
from equipoise.engine.isolation import ignore
from equipoise.runtime.console import Console, bar, table
from equipoise.sim.world import World

QUIET_SECONDS = 900.0
RECORDS_MAX = 2000
"""The maximum number of records per balancer for charts: more than a day of the demo has."""


class Notes:
    """A journal that also holds its newest records in memory; each is written to the file first."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal = journal
        self.on_change: Callable[[Record], object] = ignore
        """Called for each record with outcomes, and for each reason that is new for its subject."""
        self._records: dict[str, deque[Record]] = defaultdict(lambda: deque(maxlen=RECORDS_MAX))
        self._reason_at: dict[tuple[str, str, str], float] = {}
        self.counts: dict[str, Counts] = defaultdict(Counts)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        self.journal.append(*records, is_whole=is_whole)
        for record in records:
            self._records[record.balancer].append(record)
            counts = self.counts[record.balancer]
            counts.decisions += 1
            counts.actions += len(record.outcomes)
            counts.held += bool(record.decision.held)
            if self._is_change(record):
                self.on_change(record)

    def _is_change(self, record: Record) -> bool:
        """Return whether a record has outcomes, or a reason that its subject did not have for a while."""
        key = (record.balancer, record.decision.subject, record.decision.reason.code.value)
        last, self._reason_at[key] = self._reason_at.get(key), record.at
        return bool(record.outcomes) or last is None or record.at - last >= QUIET_SECONDS

    def of(self, balancer: str, subject: str = "") -> list[Record]:
        """Return the records of a balancer, oldest first."""
        found: Iterable[Record] = self._records[balancer]
        return [record for record in found if subject in {"", record.decision.subject}]


@dataclass(slots=True)
class Counts:
    """The number of decisions, actions and held decisions of one balancer."""

    decisions: int = 0
    actions: int = 0
    held: int = 0


MINUTE = 60.0
DAY_SECONDS = 80 * MINUTE
"""The length of a day of the demo; then all events repeat."""
LABEL = "pool"


@dataclass(frozen=True, slots=True)
class DemoContext:
    """The simulated cluster of all scenes, and the journal of all loops."""

    world: World
    notes: Notes
    ids: RecordIds
    redis: Callable[[], str]
    """Starts the embedded Redis and returns its URL; raises BadInput if it is not installed."""
    on_close: Callable[[Callable[[], object]], object]
    """Registers a function to call at the end of the demo."""

    def clock_time(self, at: float) -> str:
        """Return the time since the start of the demo, as minutes and seconds."""
        minutes, seconds = divmod(round(at - self.world.state.timeline.started_at), 60)
        return f"{minutes:02}:{seconds:02}"


ActionT = TypeVar("ActionT")


class Scene(ABC):
    """The scene of one balancer: its part of the cluster, and the production loop in it."""

    name: str
    title: str
    colour: str
    subject = ""
    """Only decisions about this are of the scene; all of the balancer are if it is empty."""

    def __init__(self, stage: DemoContext) -> None:
        self.stage, self.world = stage, stage.world
        self.began_at = self.world.now

    def begin(self, at: float) -> None:
        """Schedule the events of a day."""
        self.began_at = at

    def records(self) -> list[Record]:
        """Return the decisions of this day, oldest first."""
        found = self.stage.notes.of(self.name, self.subject)
        return [record for record in found if record.at >= self.began_at]

    def changes(self) -> list[Record]:
        """Return the decisions with outcomes."""
        return [record for record in self.records() if record.outcomes]

    def actions(self, kind: type[ActionT], *results: str) -> list[ActionT]:
        """Return the actions of one kind that ended with one of these results."""
        outcomes = (outcome for record in self.records() for outcome in record.outcomes)
        return [
            outcome.action
            for outcome in outcomes
            if isinstance(outcome.action, kind) and outcome.result in results
        ]

    @abstractmethod
    def watch(self) -> str:
        """Return an invariant that is broken, or ""; called after every tick."""

    @abstractmethod
    def problem(self) -> str:
        """Return why the day did not reach its expected result, or ""."""

    @abstractmethod
    def outcome(self) -> str:
        """Return the result in a few words."""

    @abstractmethod
    def pictures(self, width: int) -> Sequence[RenderableType]:
        """Return charts of the observations and the result."""

    @abstractmethod
    def highlights(self) -> Sequence[Record]:
        """Return the decisions to print, in any order."""


def show(console: Console, scene: Scene, stage: DemoContext) -> None:
    console.print()
    console.rule(Text.assemble((scene.name, "bold"), f": {scene.title}"), align="left", style="bright_black")
    for part in scene.pictures(console.width):
        console.print(part)
    console.print()
    console.print(_decisions(stage, scene.highlights()))
    console.print(Text.assemble(("→ ", "bold green"), (scene.outcome(), "bold")))


def _decisions(stage: DemoContext, records: Sequence[Record]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for record in sorted({record.id: record for record in records}.values(), key=lambda record: record.at):
        decision = record.decision
        style = "bold yellow" if record.outcomes or decision.actions else "dim"
        table.add_row(
            Text(stage.clock_time(record.at), style="dim"),
            Text(decision.reason.code.value, style=style),
            Text(decision.reason.sentence),
        )
    return table


def summary(stage: DemoContext, scenes: Sequence[Scene]) -> Table:
    counted = ("DECIDED", "DONE", "HELD")
    laid_out = table("BALANCER", *counted, "RESULT", right=counted, folded=("RESULT",))
    for scene in scenes:
        counts = stage.notes.counts[scene.name]
        numbers = (counts.decisions, counts.actions, counts.held)
        laid_out.add_row(Text(scene.name, style="bold"), *map(str, numbers), Text(scene.outcome()))
    return laid_out


def utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")


LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▁▂▃▄▅▆▇█"


class PercentBar(NamedTuple):
    """One bar: its name, its value, and a note beside it."""

    name: str
    percent: float
    note: str = ""
    colour: str = "bright_black"


def bars(title: str, rows: Sequence[PercentBar], line: float, largest: float, width: int) -> RenderableType:
    """Return bars of percentages, with a line across them."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(
            Text(row.name),
            bar(row.percent, line, largest, width, row.colour),
            Text(f"{row.percent:.0f}%", justify="right"),
            Text(row.note, style=row.colour, no_wrap=True),
        )
    return Group(Text(title, style="dim"), table)


def resampled(values: Sequence[float], width: int) -> list[float]:
    """Return `width` values: the mean of each part, or repeated values if there are fewer."""
    edges = [place * len(values) // width for place in range(width + 1)] if values else []
    return [fmean(values[low : max(low + 1, high)]) for low, high in pairwise(edges)]


def line(values: Sequence[float], width: int, low: float, high: float) -> str:
    """Return values as one row of blocks: the higher, the larger the block."""
    span = (high - low) or 1.0
    places = [round((value - low) / span * (len(LEVELS) - 1)) for value in resampled(values, width)]
    return "".join(LEVELS[min(max(place, 0), len(LEVELS) - 1)] for place in places)


def columns(values: Sequence[float], width: int, height: int, largest: float, waterline: float) -> Text:
    """Return columns of several rows, with a waterline across; red above it."""
    drawn = resampled(values, width)
    at = min(int(waterline / largest * height), height - 1)
    text = Text()
    for row in range(height - 1, -1, -1):
        for value in drawn:
            eighths = min(max(round((value / largest * height - row) * 8), 0), 8)
            is_line = row == at and eighths == 0
            style = "yellow" if is_line else "red" if row >= at and value > waterline else "blue"
            text.append("─" if is_line else EIGHTHS[eighths], style=style)
        text.append("\n" if row else "")
    return text


def labelled(rows: Sequence[tuple[str, RenderableType, str]]) -> Table:
    """Return charts below each other, each with its name on the left and its numbers on the right."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for name, picture, numbers in rows:
        table.add_row(Text(name, style="dim", no_wrap=True), picture, Text(numbers, no_wrap=True))
    return table
