"""Runs readers on damaged input: seeded, bounded, and each find can be repeated by its number.

A reader is right where it reads, or refuses with a sentence of its own (an `EquipoiseError`, on one line).
Any other exception is a find, and so is an input that takes too long. Of an object that an API server could
store (it is JSON, and has a name), a healthy neighbour in the same list must have been read as well.
"""

import json
import math
import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from equipoise.core.errors import EquipoiseError
from tests.support.damage import HOSTILE, damaged

INPUT_SECONDS_MAX = 10.0
"""No input of these sizes may take more of the processor; 6 MB of brackets take 3 s."""
STORED_BYTES_MAX = 1_500_000
"""What etcd takes, by default."""
SHOWN_MAX = 600
SENTENCE_MAX = 4100
FINDS_MAX = 5
NO_JSON = frozenset({b"NaN", b"Infinity", b"[" * 100_000, b'"\xff\xfe"'})
"""What no API server passes on as a value."""
STORED = tuple(value for value in HOSTILE if value not in NO_JSON)
KEYS = ("", " ", "a", "name", "0", "\u202e", "x" * 5000, "\x00", "__class__", "$ref")


class Input(NamedTuple):
    """What a reader is given."""

    data: bytes
    is_stored: bool = False
    """Whether it is an object that an API server could have stored."""


class NeighbourLost(AssertionError):  # noqa: N818 - reads as a fact
    """A damaged object cost more than itself."""


class Reader(NamedTuple):
    """One entry point for foreign data."""

    name: str
    sound: tuple[bytes, ...]
    read: Callable[[Input], object]
    """Reads; an `EquipoiseError` refuses the input. What it leaves behind is its own."""
    objects: tuple[bytes, ...] = ()
    """Objects of an API server, which are damaged as one could have stored them, and byte by byte."""
    is_slow: bool = False
    """Whether an input takes milliseconds: it gets a tenth of the inputs."""
    keeps_length: bool = False
    refuses: bool = False
    """Whether it refuses its sound inputs too: it reads refusals."""


@dataclass
class Figures:
    """What came of the inputs of one reader."""

    name: str
    inputs: int = 0
    refused: int = 0
    read: int = 0
    slowest_seconds: float = 0.0
    slowest: int = 0
    """The number of the input that took longest."""
    finds: dict[str, str] = field(default_factory=dict)
    """The first input of each kind of uncaught error, by where it was raised."""

    @property
    def row(self) -> str:
        """Return the row of the table."""
        slowest = f"{self.slowest_seconds * 1000:.0f} ms"
        return (
            f"| {self.name} | {self.inputs} | {self.refused} | {self.read} | {slowest} | {len(self.finds)} |"
        )


def inputs(reader: Reader, seed: int) -> Iterator[Input]:
    """Yield the sound inputs, then damaged ones without end; the same seed yields the same."""
    chance = random.Random(f"{seed} {reader.name}")
    yield from (Input(one, is_stored=True) for one in reader.objects)
    yield from map(Input, reader.sound)
    while True:
        if reader.objects and chance.random() < 0.6:
            data = stored(json.loads(chance.choice(reader.objects)), chance)
            yield Input(data, is_stored=len(data) <= STORED_BYTES_MAX)
        else:
            sound = chance.choice(reader.sound or reader.objects)
            yield Input(damaged(sound, chance, keeps_length=reader.keeps_length))


def run(
    readers: Iterable[Reader], seed: int, *, count: int | None = None, seconds: float | None = None
) -> list[Figures]:
    """Give every reader so many inputs, or its share of so much time."""
    listed = list(readers)
    share = math.inf if seconds is None else seconds / len(listed)
    return [_run_one(reader, seed, count, share) for reader in listed]


def _run_one(reader: Reader, seed: int, count: int | None, seconds: float) -> Figures:
    found = Figures(reader.name)
    sound = len(reader.sound) + len(reader.objects)
    most = math.inf if count is None else max(count // (10 if reader.is_slow else 1), sound + 4)
    ends_at = time.monotonic() + seconds
    for number, given in enumerate(inputs(reader, seed)):
        if number >= sound and (number >= most or time.monotonic() > ends_at):
            return found
        began_at = time.process_time()  # others keep the machine busy, too
        try:
            is_read = _is_read(reader, given)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            where = _place(error)
            if len(found.finds) < FINDS_MAX or where in found.finds:
                found.finds.setdefault(where, _told(reader, seed, number, given, error))
        else:
            found.read += is_read
            found.refused += not is_read
        spent = time.process_time() - began_at
        found.inputs += 1
        if spent > found.slowest_seconds:
            found.slowest_seconds, found.slowest = spent, number
        if spent > INPUT_SECONDS_MAX:
            found.finds.setdefault("slow", f"{reader.name}, seed {seed}, input {number}: {spent:.1f} s")
    raise AssertionError("inputs do not end")


def _is_read(reader: Reader, given: Input) -> bool:
    try:
        reader.read(given)
    except EquipoiseError as error:
        said = str(error)
        assert said.strip(), "a refusal says why"
        assert "\n" not in said, f"a refusal is one line, not {said[:SHOWN_MAX]!r}"
        assert len(said) <= SENTENCE_MAX, f"a refusal is short, not {len(said)} letters: {said[:200]!r}"
        assert said.encode(), "a refusal can be printed"
        return False
    return True


def _place(error: Exception) -> str:
    """Return which error it is and where in our code, by which finds are told apart."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "site-packages" not in one.filename]
    last = frames[-1]
    return f"{type(error).__name__} at {last.filename.rpartition('equipoise/')[2]}:{last.lineno}"


def _told(reader: Reader, seed: int, number: int, given: Input, error: Exception) -> str:
    frames = "".join(traceback.format_exception(error, limit=-12))[-3000:]
    return f"{reader.name}, seed {seed}, input {number}: {given.data[:SHOWN_MAX]!r}\n{frames}"


def stored(document: Any, chance: random.Random) -> bytes:
    """Return an object as JSON after one to three damages that leave it JSON with a name."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = [place for place in _places(document) if place not in _KEPT]
        if not places:
            break
        place = chance.choice(places)
        above: Any = document
        for key in place[:-1]:
            above = above[key]
        chance.choice(_CHANGES)(above, place[-1], chance)
    return _written(document)


class Raw(bytes):
    """JSON that is written as it is."""


class Twice(NamedTuple):
    """Two values for one key."""

    first: Any
    second: Any


_KEPT = {("metadata",), ("metadata", "name"), ("metadata", "resourceVersion")}
"""What every object has that a server passes on."""


def _places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    for key, part in parts:
        yield (*above, key)
        if isinstance(part, dict | list):
            yield from _places(part, (*above, key))


def _replace(above: Any, key: Any, chance: random.Random) -> None:
    above[key] = Raw(chance.choice(STORED))


def _remove(above: Any, key: Any, chance: random.Random) -> None:
    del above[key]


def _double(above: Any, key: Any, chance: random.Random) -> None:
    if isinstance(above, list):
        above[key:key] = [above[key]] * chance.choice((1, 1, 100))
    else:
        above[key] = Twice(above[key], Raw(chance.choice(STORED)))


def _rename(above: Any, key: Any, chance: random.Random) -> None:
    if isinstance(above, dict):
        value = above.pop(key)
        above.setdefault(chance.choice(KEYS), value)


def _lengthen(above: Any, key: Any, chance: random.Random) -> None:
    above[key] = chance.choice(("a", "9", "\u00e4", "1e", "a/", "{", "\\", " ")) * chance.choice(
        (300, 70_000)
    )


def _wrap(above: Any, key: Any, chance: random.Random) -> None:
    above[key] = [above[key]] if chance.random() < 0.5 else {"a": above[key]}


_CHANGES: Sequence[Callable[[Any, Any, random.Random], None]] = (
    _replace, _replace, _replace, _replace, _remove, _double, _rename, _lengthen, _wrap,
)  # fmt: skip


def _written(value: Any, key: str | None = None) -> bytes:
    """Return a value as JSON, after its key where it has one; a key that comes twice is written twice."""
    begin = b"" if key is None else json.dumps(key).encode() + b":"
    match value:
        case Twice():
            return _written(value.first, key) + b"," + _written(value.second, key)
        case bytes():
            return begin + value
        case dict():
            return begin + b"{" + b",".join(_written(part, name) for name, part in value.items()) + b"}"
        case list():
            return begin + b"[" + b",".join(_written(part) for part in value) + b"]"
    return begin + json.dumps(value).encode()
