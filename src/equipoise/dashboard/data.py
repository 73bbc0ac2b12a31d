"""Reading journals for the pages: a cheap look whether there is news, and reads that are bounded.

A journal that is not there yet, is replaced or is damaged is one line of trouble, and is tried again when its
files change.

One look at the journals for all viewers, and one read for those who see the same.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from equipoise.adapters.journal import JournalReader, Query, exactly, open_reader
from equipoise.core.decision import Record
from equipoise.core.errors import EquipoiseError
from equipoise.engine.balancer import BALANCERS

RECORDS_MAX = 400
"""As many of a balancer's newest records as a page is made from."""
BYTES_MAX = 32 << 20
"""As much of them, inputs included, as is held for a page."""
NEWEST_MAX = 100
"""As many of each balancer's newest records as the overview is made from."""
SUBJECTS_MAX = 1000
LISTED_MAX = 50
LATEST = "~"
"""Above every id: the list begins with the newest."""
YOUNG_SECONDS = 2.0
"""A file changed so lately may change again without a newer time."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What the list of the journal is narrowed by."""

    balancer: str = ""
    subject: str = ""
    reason: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What was read, the newest first, and one line for each journal that could not be."""

    records: tuple[Record, ...] = ()
    subjects: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    is_cut: bool = False
    """Whether there are older ones."""


@dataclass
class Journals:
    """Some journals, read as one."""

    paths: tuple[Path, ...]
    _stamp: tuple[object, ...] | None = field(default=None, init=False)
    _is_young: bool = field(default=True, init=False)

    def has_news(self, now: Callable[[], float] = time.time) -> bool:
        """Look at the files' times and sizes only: whether anything may have been written since."""
        found = tuple(part for path in self.paths for part in _stamps(path))
        was_young, before = self._is_young, self._stamp
        youngest = max((stamp[3] for stamp in found), default=0)
        self._stamp = found
        self._is_young = now() - youngest / 1e9 < YOUNG_SECONDS
        return found != before or was_young

    def newest(self) -> JournalReading:
        """Read each balancer's newest records, without their inputs."""

        def read(reader: JournalReader) -> JournalReading:
            parts = (reader.records(Query(balancer=name, limit=NEWEST_MAX)) for name in BALANCERS)
            return JournalReading(tuple(record for part in parts for record in part))

        return self._joined(read, NEWEST_MAX * len(BALANCERS))

    def of_balancer(self, balancer: str, subject: str = "") -> JournalReading:
        """Read a balancer's newest records whole, of all subjects or of one."""
        query = Query(balancer=balancer, subject=exactly(subject), limit=RECORDS_MAX + 1)

        def read(reader: JournalReader) -> JournalReading:
            records = tuple(_bounded(reader.records(query, is_whole=True), BYTES_MAX))
            return JournalReading(records, tuple(reader.subjects(balancer, SUBJECTS_MAX)))

        return self._joined(read, RECORDS_MAX)

    def listed(self, chosen: Filter) -> JournalReading:
        """Read one page of the list, without inputs."""
        query = Query(
            balancer=chosen.balancer,
            subject=chosen.subject,
            reason=chosen.reason,
            before=chosen.before or LATEST,
            limit=LISTED_MAX + 1,
        )
        return self._joined(lambda reader: JournalReading(tuple(reader.records(query))), LISTED_MAX)

    def _joined(self, read: Callable[[JournalReader], JournalReading], count: int) -> JournalReading:
        readings = [_attempt(path, read) for path in self.paths]
        merged = _once(merge(*(_sorted(one.records) for one in readings), key=_newness, reverse=True))
        records = tuple(islice(merged, count + 1))
        return JournalReading(
            records[:count],
            tuple(islice(dict.fromkeys(name for one in readings for name in one.subjects), SUBJECTS_MAX)),
            tuple(line for one in readings for line in one.troubles),
            is_cut=len(records) > count,
        )


def _attempt(path: Path, read: Callable[[JournalReader], JournalReading]) -> JournalReading:
    try:
        reader = open_reader(path)
        try:
            found = read(reader)
            return replace(found, troubles=(*found.troubles, *(f"{each}." for each in reader.damages.lines)))
        finally:
            reader.close()
    except (EquipoiseError, OSError) as error:
        return JournalReading(
            troubles=(f"{' '.join(str(error).split())}. It is read again when it changes.",)
        )


def _sorted(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=_newness, reverse=True)


def _newness(record: Record) -> tuple[str, float]:
    return record.id, record.at


def _once(records: Iterable[Record]) -> Iterator[Record]:
    """Leave out what two journals both have."""
    last = ""
    for record in records:
        if record.id != last:
            yield record
        last = record.id


def _bounded(records: Iterable[Record], bytes_max: int) -> Iterator[Record]:
    """Keep inputs while they fit; the rest goes on without them."""
    left = bytes_max
    for record in records:
        left -= len(record.to_json())
        yield record if left > 0 else record.without_inputs()


def _stamps(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield the files of a journal, its log and its older parts apart from what they were."""
    for part in (path, Path(f"{path}-wal"), *_older(path)):
        try:
            found = part.stat()
        except OSError:
            continue
        yield str(part), found.st_ino, found.st_size, found.st_mtime_ns


def _older(path: Path) -> Sequence[Path]:
    return (path.with_name(f"{path.name}.1"),) if path.suffix == ".jsonl" else ()


LOOK_SECONDS = 1.0
PATIENCE = 5.0
"""A journal that takes long to read is looked at after this many times as long: reading is not all we do."""
KEPT_MAX = 16
"""As many readings as are kept for the next viewer."""

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Live:
    """Counts the generations of what the journals say, and reads each wish once in each."""

    def __init__(self, journals: Journals) -> None:
        self.journals = journals
        self.generation = 0
        """Rises whenever there may be something new."""
        self._read_seconds = 0.0
        self._readings: dict[tuple[int, Hashable], asyncio.Task[Any]] = {}

    async def watch(self) -> None:
        """Look for news until cancelled; a look that fails is made again."""
        while True:
            try:
                has_news = await asyncio.to_thread(self.journals.has_news)
            except Exception:  # noqa: BLE001 - whatever it is, the pages stay, and the next look may do better
                _LOG.exception("a look at the journals failed")
                has_news = True
            self.generation += has_news
            await asyncio.sleep(max(LOOK_SECONDS, PATIENCE * self._read_seconds))

    async def read(self, wish: Hashable, how: Callable[[Journals], T]) -> T:
        """Read, or give what somebody else has just read."""
        key = (self.generation, wish)
        task = self._readings.get(key)
        if task is None:
            self._forget()
            task = self._readings[key] = asyncio.create_task(self._timed(how))
        made: T = await asyncio.shield(task)
        return made

    def _forget(self) -> None:
        """Drop what is out of date, and the oldest where there is too much."""
        for old in [key for key in self._readings if key[0] != self.generation]:
            del self._readings[old]
        while len(self._readings) >= KEPT_MAX:
            del self._readings[next(iter(self._readings))]

    async def _timed(self, how: Callable[[Journals], T]) -> T:
        began = time.monotonic()
        try:
            return await asyncio.to_thread(how, self.journals)
        finally:
            self._read_seconds = time.monotonic() - began
