"""Columns of text to numbers, times and names, all rows at once.

Only odd ones (NaN, 1e-5, 250m) are read one by one.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_bytes, parse_typed_cores
from equipoise.stats.samples import NAME_LENGTH_MAX, is_name

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.float64]

WIDTH_MAX = 24
"""Longer numbers are read one by one."""
_ISO = "dddd-dd-dd.dd:dd:dd"


class Field(NamedTuple):
    """One column of a block of text: where each row's field starts and ends."""

    text: Bytes
    start: Places
    end: Places

    def word(self, row: int) -> str:
        return bytes(self.text[self.start[row] : self.end[row]]).decode("utf-8", "replace").strip()


class UnreadableField(ValueError):  # noqa: N818 - reads as a fact
    """A field that can't be read, and in which row of the block it is."""

    def __init__(self, row: int, word: str) -> None:
        super().__init__(word)
        self.row = row
        self.word = word


def numbers(field: Field) -> Numbers:
    """Return decimal numbers; an empty field is unknown."""
    return completed(field, *decimals(field), read_number)


def completed(
    field: Field, found: Numbers, is_odd: npt.NDArray[np.bool_], read: Callable[[str], float]
) -> Numbers:
    for row in np.flatnonzero(is_odd).tolist():
        try:
            found[row] = read(field.word(row))
        except DECODE_ERRORS:
            raise UnreadableField(row, field.word(row)) from None
    return found


def decimals(field: Field) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return what is digits with at most one point as numbers; mark the rows that are something else."""
    widths = field.end - field.start
    columns = _columns_of(field, min(int(widths.max(initial=1)), WIDTH_MAX))
    points, is_odd = np.zeros(len(widths), np.int8), widths > WIDTH_MAX
    for place, letters in enumerate(columns):
        is_point = letters == ord(".")
        points += is_point
        is_odd |= ((letters - np.uint8(ord("0"))) > 9) & ~is_point & (place < widths)  # noqa: PLR2004 - no digit
    is_odd |= (points > 1) | (points >= widths)  # a point alone is how some write that nothing is known
    columns[:, is_odd] = ord("0")
    return _words(columns).astype(np.float64), is_odd


def _columns_of(field: Field, width: int) -> Bytes:
    """Return the first letter of every row's field, the second, and so on; zeros after its end."""
    widths, last = field.end - field.start, len(field.text) - 1
    columns = np.zeros((width, len(widths)), np.uint8)
    for place in range(width):
        columns[place] = np.where(place < widths, field.text[np.minimum(field.start + place, last)], 0)
    return columns


def _words(columns: Bytes) -> npt.NDArray[np.bytes_]:
    return np.ascontiguousarray(columns.T).view(f"S{len(columns)}")[:, 0]


def read_number(word: str) -> float:
    """Read one number of any form: NaN, 1e-5, 250m. Raises ValueError."""
    if not word:
        return math.nan
    if "_" in word:  # Python would read 1_5 as 15
        raise ValueError(word)
    with suppress(ValueError):
        return float(word)
    # One below nothing is read, and dropped like any other such sample.
    return -parse_typed_cores(word[1:]) if word.startswith("-") else parse_typed_cores(word)


def moments(field: Field) -> Numbers:
    """Read times: Unix seconds, or ISO 8601, which is UTC where it names no zone."""
    if not len(field.start):
        return np.zeros(0)
    found, is_odd = _iso(field) if _is_calendar(field.word(0)) else decimals(field)
    return completed(field, found, is_odd, _moment)


def _moment(word: str) -> float:
    if _is_calendar(word):
        return read_moment(word)
    found = math.nan if word[-1:].isalpha() else read_number(word)
    if not math.isfinite(found):
        raise ValueError(word)
    return found


def _is_calendar(word: str) -> bool:
    """Whether it looks like a day, and not like a number."""
    return "-" in word.removeprefix("-") and "e-" not in word.lower()


def _iso(field: Field) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return `2026-01-31T12:00:00Z`, the form that nearly all files have, in seconds; mark other rows."""
    columns = _columns_of(field, len(_ISO) + 1)
    widths = field.end - field.start
    is_odd = (widths != len(_ISO)) & ((widths != len(_ISO) + 1) | (columns[-1] != ord("Z")))
    for letters, form in zip(columns, _ISO, strict=False):
        if form == "d":
            is_odd |= (letters - np.uint8(ord("0"))) > 9  # noqa: PLR2004 - a digit
        else:
            is_odd |= ~np.isin(letters, list(b"Tt " if form == "." else form.encode()))
    columns[_ISO.index(".")] = ord("T")
    columns[: len(_ISO), is_odd] = np.frombuffer(b"1970-01-01T00:00:00", np.uint8)[:, None]
    try:
        return _words(columns[: len(_ISO)]).astype("datetime64[s]").astype(np.float64), is_odd
    except ValueError:  # a day or an hour that there is not: read one by one, it is found and named
        return np.zeros(len(widths)), np.ones(len(widths), np.bool_)


def read_moment(word: str) -> float:
    """Read one time of any form of ISO 8601. Raises one of `DECODE_ERRORS`."""
    moment = datetime.fromisoformat(word)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def read_memory(word: str) -> float:
    """Return bytes; a sample below 0 is read, and dropped like any other such sample."""
    try:
        return read_number(word)
    except ValueError:
        return parse_bytes(word)


_MIX = np.uint64(0x9E3779B97F4A7C15)


def distinct(field: Field, *, is_needed: bool) -> tuple[Places, list[str]]:
    """Return each row's number among the distinct texts of a field, and those texts, which must be names.

    It takes time in proportion to the bytes of the field: shorter rows are left out as soon as they end.
    """
    widths = field.end - field.start
    width_max = int(widths.max(initial=0))
    if width_max > NAME_LENGTH_MAX:
        row = int(widths.argmax())
        raise UnreadableField(row, field.word(row))
    marks = widths.astype(np.uint64)
    order = np.argsort(widths, kind="stable")
    firsts = np.searchsorted(widths[order], np.arange(width_max), side="right").tolist()
    with np.errstate(over="ignore"):
        for place, first in enumerate(firsts):
            rows = order[first:] if first else slice(None)
            letter = field.text[field.start[rows] + place].astype(np.uint64) + np.uint64(1)
            mark = marks[rows]
            marks[rows] = (mark ^ letter) * _MIX ^ (mark >> np.uint64(29))
    _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
    words = [field.word(row) for row in first.tolist()]
    for row, word in zip(first.tolist(), words, strict=True):
        if not is_name(word, is_needed=is_needed):
            raise UnreadableField(row, word)
    return inverse.astype(np.intp), words
