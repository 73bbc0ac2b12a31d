"""Damage to bytes, as disks, crashes and other programs do it: seeded, so that a find can be repeated.

`damages(sound, count, seed)` yields variants of a sound file or message. Some are damaged byte by byte
(flipped, cut, doubled, overwritten with zeros or noise), some value by value: a number, a text or a word is
replaced by one of `HOSTILE`, which stays within the syntax and so gets further into a reader.
"""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

DEPTH = 990
"""A depth that an API server stores and passes on, and that ends Python's stack in a decoder."""
DEEP = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
HOSTILE: tuple[bytes, ...] = (
    b"null", b"true", b"0", b"-1", b"0.5", b"1e999", b"-0.0", b"NaN", b"Infinity", b"2147483647",
    b"2147483648", b"-9223372036854775809", b"18446744073709551616", b"1" + b"0" * 400, b"9" * 5000,
    b'"9999-12-31T23:59:59-23:59"', b'"0001-01-01T00:00:00+23:59"', b'"0000-00-00T00:00:00Z"',
    b'"2026-06-30T23:59:60Z"', b'"2026-02-30T00:00:00Z"', b'"2026-01-01T00:00:00"', b'"1:30"',
    b'""', b'" "', b'"NaN"', b'"1e400"', b'"\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"a/b/c"',
    b'"\\u001b[31m[red]x[/red]"', b'"=1"', b"[]", b"{}", b"[[]]", b"[null]",
    b'[""]', b'{"":null}', b'{"a":{}}',
    b"[" * DEPTH + b"]" * DEPTH, DEEP, b"[" * 100_000,
)  # fmt: skip
"""JSON values (and some that are none) that a reader has to expect anywhere."""

_VALUES = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null')
"""Texts, numbers and words: in JSON they are the values and keys, in other formats they are close to it."""
_SPAN_MAX = 64

Damage = Callable[[bytearray, random.Random], None]


class Damaged(NamedTuple):
    """One damaged variant, and which one it is: `damages` with the same seed yields it again."""

    number: int
    data: bytes


def damages(sound: bytes, count: int, seed: int, *, keeps_length: bool = False) -> Iterator[Damaged]:
    """Yield `count` damaged variants of `sound`; a variant is never equal to it.

    With `keeps_length` every byte stays in its place, as on a disk: for files that are read page by page.
    """
    chance = random.Random(seed)
    for number in range(count):
        yield Damaged(number, damaged(sound, chance, keeps_length=keeps_length))


def damaged(sound: bytes, chance: random.Random, *, keeps_length: bool = False) -> bytes:
    """Return `sound` after one to three random damages."""
    while True:
        data = bytearray(sound)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            chance.choice(_IN_PLACE if keeps_length else _DAMAGES)(data, chance)
        if data != sound:
            return bytes(data)


def paths(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value of a document, however deep."""
    for key, part in document.items() if isinstance(document, dict) else enumerate(document):
        yield (*above, key)
        if isinstance(part, dict | list):
            yield from paths(part, (*above, key))


def _span(data: bytearray, chance: random.Random) -> slice:
    start = chance.randrange(len(data) + 1)
    return slice(start, start + chance.randint(1, _SPAN_MAX))


def _flip_bit(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _replace_byte(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.randrange(256)


def _insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randint(1, _SPAN_MAX))


def _overwrite(data: bytearray, chance: random.Random) -> None:
    span = _span(data, chance)
    data[span] = chance.randbytes(len(data[span]))


def _zero(data: bytearray, chance: random.Random) -> None:
    """Overwrite with zeros from a place on, as a crash of a file system does."""
    start = chance.randrange(len(data) + 1)
    end = chance.choice((start + chance.randint(1, 4096), len(data)))
    data[start:end] = bytes(len(data[start:end]))


def _remove(data: bytearray, chance: random.Random) -> None:
    del data[_span(data, chance)]


def _double(data: bytearray, chance: random.Random) -> None:
    span = _span(data, chance)
    data[span.start : span.start] = data[span]


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _replace_value(data: bytearray, chance: random.Random) -> None:
    found = list(_VALUES.finditer(data))
    if found:
        value = chance.choice(found)
        start, end = value.span()
        del value, found  # their views of the data forbid to resize it
        data[start:end] = chance.choice(HOSTILE)


_DAMAGES: tuple[Damage, ...] = (
    _flip_bit, _replace_byte, _insert, _overwrite, _zero, _remove, _double, _cut,
    _replace_value, _replace_value, _replace_value, _replace_value,
)  # fmt: skip
_IN_PLACE: tuple[Damage, ...] = (_flip_bit, _replace_byte, _overwrite, _zero)
