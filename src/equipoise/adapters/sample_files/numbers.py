"""Columns of text to numbers, all rows at once; only odd ones (NaN, 1e-5, 250m) are read one by one."""

import math
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.quantity import parse_typed_cores

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.float64]

WIDTH_MAX = 32
DIGITS_MAX = 18
"""So many digits fit a 64-bit integer."""
_TENS = np.power(np.longdouble(10), np.arange(DIGITS_MAX + 1))
_ISO = "dddd-dd-dd.dd:dd:dd"


class Field(NamedTuple):
    """One column of a block of text: where each row's field starts and ends."""

    text: Bytes
    start: Places
    end: Places

    def word(self, row: int) -> str:
        """Give one field as text."""
        return bytes(self.text[self.start[row] : self.end[row]]).decode("utf-8", "replace").strip()


class Unreadable(ValueError):  # noqa: N818 - reads as a fact
    """A field that can't be read, and in which row of the block it is."""

    def __init__(self, row: int, word: str) -> None:
        super().__init__(word)
        self.row = row
        self.word = word


def numbers(field: Field) -> Numbers:
    """Read decimal numbers; an empty field is unknown."""
    found, is_odd = _decimals(field)
    for row in np.flatnonzero(is_odd).tolist():
        found[row] = read_number(row, field.word(row))
    return found


def _decimals(field: Field) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Read what is digits with at most one point; tell which rows are something else."""
    widths = field.end - field.start
    mantissa = np.zeros(len(widths), np.uint64)
    digits, decimals = np.zeros(len(widths), np.int16), np.zeros(len(widths), np.int16)
    has_point, has_digit = np.zeros(len(widths), np.bool_), np.zeros(len(widths), np.bool_)
    is_odd = (widths == 0) | (widths > WIDTH_MAX)
    last = len(field.text) - 1
    for place in range(min(int(widths.max(initial=0)), WIDTH_MAX)):
        is_here = place < widths
        figure = field.text[np.minimum(field.start + place, last)] - np.uint8(ord("0"))
        is_digit = (figure <= 9) & is_here  # noqa: PLR2004 - what is below "0" wraps around
        is_point = (figure == np.uint8(ord(".") - ord("0") & 0xFF)) & is_here & ~has_point
        is_odd |= is_here & ~is_digit & ~is_point
        mantissa = np.where(is_digit, mantissa * np.uint64(10) + figure, mantissa)
        digits += is_digit & (mantissa > 0)
        decimals += is_digit & has_point
        has_point |= is_point
        has_digit |= is_digit
    is_odd |= ~has_digit  # a point alone is how some write that nothing is known, and no 0
    is_odd |= (digits > DIGITS_MAX) | (decimals > DIGITS_MAX)
    found = mantissa.astype(np.longdouble) / _TENS[np.minimum(decimals, DIGITS_MAX)]
    return found.astype(np.float64), is_odd


def read_number(row: int, word: str) -> float:
    """Read one number of any form: NaN, 1e-5, 250m."""
    if not word:
        return math.nan
    if "_" in word:  # Python would read 1_5 as 15
        raise Unreadable(row, word)
    try:
        return float(word)
    except ValueError:
        pass
    try:
        # One below nothing is read, and dropped like any other such sample.
        return -parse_typed_cores(word[1:]) if word.startswith("-") else parse_typed_cores(word)
    except ValueError:
        raise Unreadable(row, word) from None


def moments(field: Field) -> Numbers:
    """Read times: Unix seconds, or ISO 8601, which is UTC where it names no zone."""
    if not len(field.start):
        return np.zeros(0)
    found, is_odd = _iso(field) if _is_calendar(field.word(0)) else _decimals(field)
    for row in np.flatnonzero(is_odd).tolist():
        word = field.word(row)
        found[row] = read_moment(row, word) if _is_calendar(word) else _seconds(row, word)
    return found


def _seconds(row: int, word: str) -> float:
    found = math.nan if word[-1:].isalpha() else read_number(row, word)
    if not math.isfinite(found):
        raise Unreadable(row, word)
    return found


def _is_calendar(word: str) -> bool:
    """Whether it looks like a day, and not like a number."""
    return "-" in word.removeprefix("-") and "e-" not in word.lower()


def _iso(field: Field) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Read `2026-01-31T12:00:00Z`, the form that nearly all files have."""
    widths = field.end - field.start
    last = len(field.text) - 1
    length = len(_ISO)
    is_odd = (widths != length) & (widths != length + 1)
    table = field.text[np.minimum(field.start[:, None] + np.arange(length + 1), last)]
    is_odd |= (widths == length + 1) & (table[:, length] != ord("Z"))
    figures = table[:, :length].astype(np.int64) - ord("0")
    for place, form in enumerate(_ISO):
        if form == "d":
            is_odd |= (figures[:, place] < 0) | (figures[:, place] > 9)  # noqa: PLR2004 - a digit
        elif form != ".":
            is_odd |= table[:, place] != ord(form)
    is_odd |= ~np.isin(table[:, 10], [ord("T"), ord(" "), ord("t")])

    def number(start: int, count: int) -> npt.NDArray[np.int64]:
        powers = 10 ** np.arange(count - 1, -1, -1)
        return np.asarray(figures[:, start : start + count] @ powers)

    months = (number(0, 4) - 1970) * 12 + number(5, 2) - 1
    is_odd |= (number(5, 2) < 1) | (number(5, 2) > 12) | (number(8, 2) < 1)  # noqa: PLR2004 - months
    days = np.where(is_odd, 0, months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    next_month = (
        np.where(is_odd, 1, months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    )
    is_odd |= number(8, 2) > next_month - days
    seconds = number(11, 2) * 3600 + number(14, 2) * 60 + number(17, 2)
    is_odd |= (number(11, 2) > 23) | (number(14, 2) > 59) | (number(17, 2) > 59)  # noqa: PLR2004 - a clock
    return ((days + number(8, 2) - 1) * 86400 + seconds).astype(np.float64), is_odd


def read_moment(row: int, word: str) -> float:
    """Read one time of any form of ISO 8601."""
    try:
        moment = datetime.fromisoformat(word)
    except DECODE_ERRORS:
        raise Unreadable(row, word) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
