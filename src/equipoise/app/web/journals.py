"""Reading journals for the pages: a cheap look whether there is news, and reads that are bounded.

A journal that is not there yet, is replaced or is damaged is one line of trouble, and is tried again when its
files change.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from pathlib import Path

from equipoise.adapters.journal import Query, Reader, exactly, open_reader
from equipoise.model.decision import Record
from equipoise.model.errors import EquipoiseError

BALANCERS = ("rotation", "recommendation", "proportional", "qos", "pools")
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
class Reading:
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

    def newest(self) -> Reading:
        """Read each balancer's newest records, without their inputs."""

        def read(reader: Reader) -> Reading:
            parts = (reader.records(Query(balancer=name, limit=NEWEST_MAX)) for name in BALANCERS)
            return Reading(tuple(record for part in parts for record in part))

        return self._joined(read, NEWEST_MAX * len(BALANCERS))

    def of_balancer(self, balancer: str, subject: str = "") -> Reading:
        """Read a balancer's newest records whole, of all subjects or of one."""
        query = Query(balancer=balancer, subject=exactly(subject), limit=RECORDS_MAX + 1)

        def read(reader: Reader) -> Reading:
            records = tuple(_bounded(reader.records(query, is_whole=True), BYTES_MAX))
            return Reading(records, tuple(reader.subjects(balancer, SUBJECTS_MAX)))

        return self._joined(read, RECORDS_MAX)

    def listed(self, chosen: Filter) -> Reading:
        """Read one page of the list, without inputs."""
        query = Query(
            balancer=chosen.balancer,
            subject=chosen.subject,
            reason=chosen.reason,
            before=chosen.before or LATEST,
            limit=LISTED_MAX + 1,
        )
        return self._joined(lambda reader: Reading(tuple(reader.records(query))), LISTED_MAX)

    def _joined(self, read: Callable[[Reader], Reading], count: int) -> Reading:
        readings = [_attempt(path, read) for path in self.paths]
        merged = _once(merge(*(_sorted(one.records) for one in readings), key=_newness, reverse=True))
        records = tuple(islice(merged, count + 1))
        return Reading(
            records[:count],
            tuple(islice(dict.fromkeys(name for one in readings for name in one.subjects), SUBJECTS_MAX)),
            tuple(line for one in readings for line in one.troubles),
            is_cut=len(records) > count,
        )


def _attempt(path: Path, read: Callable[[Reader], Reading]) -> Reading:
    try:
        reader = open_reader(path)
        try:
            found = read(reader)
            return replace(found, troubles=(*found.troubles, *(f"{each}." for each in reader.damages.lines)))
        finally:
            reader.close()
    except (EquipoiseError, OSError) as error:
        return Reading(troubles=(f"{' '.join(str(error).split())}. It is read again when it changes.",))


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
    """Tell the files of a journal, its log and its older parts apart from what they were."""
    for part in (path, Path(f"{path}-wal"), *_older(path)):
        try:
            found = part.stat()
        except OSError:
            continue
        yield str(part), found.st_ino, found.st_size, found.st_mtime_ns


def _older(path: Path) -> Sequence[Path]:
    return (path.with_name(f"{path.name}.1"),) if path.suffix == ".jsonl" else ()
