"""CSV to columns, block by block, with arrays instead of a loop over lines (docs/decisions/0003).

Columns of text to numbers, all rows at once; only odd ones (NaN, 1e-5, 250m) are read one by one.
"""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import parse_typed_cores
from equipoise.stats.samples import (
    COLUMNS,
    LABELS,
    NAME_LENGTH_MAX,
    NEEDED,
    ROWS_MAX,
    Samples,
    WordNumbers,
    expected,
    is_name,
    named,
)

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
    return _completed(field, *_decimals(field), read_number)


def _completed(
    field: Field, found: Numbers, is_odd: npt.NDArray[np.bool_], read: Callable[[str], float]
) -> Numbers:
    for row in np.flatnonzero(is_odd).tolist():
        try:
            found[row] = read(field.word(row))
        except DECODE_ERRORS:
            raise UnreadableField(row, field.word(row)) from None
    return found


def _decimals(field: Field) -> tuple[Numbers, npt.NDArray[np.bool_]]:
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
    found, is_odd = _iso(field) if _is_calendar(field.word(0)) else _decimals(field)
    return _completed(field, found, is_odd, _moment)


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


BLOCK_BYTES = 16 * 1024 * 1024
SIZE_MAX_BYTES = 8 * 1024**3
HEADER_BYTES_MAX = 4096
GZIP_MARK = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_COMMA, _NEWLINE, _RETURN = ord(","), ord("\n"), ord("\r")
_QUOTED, _AS_WRITTEN = str.maketrans(",\n\r", "\x01\x02\x03"), str.maketrans("\x01\x02\x03", ",\n\r")
"""What stands for a comma and a line's end between quotes: nothing that a name or a number may have."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def read_csv(path: str, on_bytes: Callable[[int], None] | None = None) -> Samples:
    """Read a file with a header of known columns; `-` is standard input."""
    try:
        if path == "-" and sys.stdin is None:
            raise BadInput("-: standard input is closed")
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            return _read(path, file, on_bytes or (lambda _: None))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def _read(path: str, file: IO[bytes], on_bytes: Callable[[int], None]) -> Samples:
    header = file.readline(HEADER_BYTES_MAX)
    columns = _columns(path, header)
    parts: list[dict[str, np.ndarray]] = []
    names: dict[str, WordNumbers] = {label: {} for label in LABELS if label in columns}
    line, rows = 2, 0
    for block in _blocks(path, file):
        fields, lines, count = _rows(path, block, len(columns), line)
        rows += len(lines)
        if rows > ROWS_MAX:
            raise BadInput(f"{path}: expected at most {ROWS_MAX:,} rows")
        parts.append(_parsed(path, dict(zip(columns, fields, strict=True)), names, lines))
        line += count
        on_bytes(len(block))
    return Samples.joined(parts, names, columns)


def _columns(path: str, header: bytes) -> list[str]:
    expected = "expected a header such as timestamp,value or timestamp,namespace,workload,pod,value"
    if header.startswith(UTF16_MARKS):
        raise BadInput(f"{path}: line 1: {expected} in UTF-8, got UTF-16")
    if header.startswith(GZIP_MARK):
        raise BadInput(f"{path}: line 1: {expected}, got gzip; unpack it, such as by zcat into --from -")
    text = header.decode("utf-8-sig", "replace").strip()
    if not text:
        raise BadInput(f"{path}: line 1: {expected}, got {'an empty line' if header else 'an empty file'}")
    columns = [COLUMNS.get(name.strip().strip('"').lower(), "") for name in text.split(",")]
    for name, column in zip(text.split(","), columns, strict=True):
        if not column:
            hint = "; columns are separated by commas" if {";", "\t"} & set(name) else ""
            got = f"got the column {name.strip()[:60]!r}{hint}"
            raise BadInput(f"{path}: line 1: {expected}, {got}")
        if columns.count(column) > 1:
            raise BadInput(f"{path}: line 1: {expected}, got {column} twice")
    for needed in ("timestamp", "value"):
        if needed not in columns:
            raise BadInput(f"{path}: line 1: {expected}, without {needed}")
    return columns


def _blocks(path: str, file: IO[bytes]) -> Iterator[bytes]:
    """Yield pieces that end with a line."""
    rest, size = b"", 0
    while block := file.read(BLOCK_BYTES):
        size += len(block)
        if size > SIZE_MAX_BYTES:
            raise BadInput(f"{path}: expected at most {SIZE_MAX_BYTES >> 30} GiB")
        whole, newline, rest_new = (rest + block).rpartition(b"\n")
        if newline:
            yield whole + newline
        rest = rest_new
        if len(rest) > BLOCK_BYTES:
            raise BadInput(f"{path}: expected lines, got {len(rest)} bytes without a line's end")
    if rest.strip():
        yield rest + b"\n"


def _rows(path: str, block: bytes, columns: int, line: int) -> tuple[list[Field], Places, int]:
    """Find every field of every row, give the rows' lines, and count all lines."""
    if b'"' in block:
        try:
            block = _unquoted(block)
        except csv.Error as error:
            raise BadInput(f"{path}: from line {line} on: expected quotes in pairs: {error}") from error
    text: Bytes = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    count = len(ends)
    ends = ends - ((ends > starts) & (text[np.maximum(ends - 1, 0)] == _RETURN))
    is_row = ends > starts
    lines = line + np.flatnonzero(is_row)
    starts, ends = starts[is_row], ends[is_row]
    commas = np.flatnonzero(text == _COMMA)
    found = np.searchsorted(commas, ends) - np.searchsorted(commas, starts)
    if (found != columns - 1).any():
        row = int(np.argmax(found != columns - 1))
        raise BadInput(f"{path}: line {lines[row]}: expected {columns} columns, got {found[row] + 1}")
    inner = commas.reshape(len(starts), columns - 1)
    first = np.concatenate([starts[:, None], inner + 1], axis=1)
    last = np.concatenate([inner, ends[:, None]], axis=1)
    return [Field(text, *_trimmed(text, first[:, n], last[:, n])) for n in range(columns)], lines, count


def _trimmed(text: Bytes, start: Places, end: Places) -> tuple[Places, Places]:
    """Leave out a blank before and after a field."""
    start = start + ((end > start) & (text[np.minimum(start, len(text) - 1)] == ord(" ")))
    return start, end - ((end > start) & (text[np.maximum(end - 1, 0)] == ord(" ")))


def _unquoted(block: bytes) -> bytes:
    """Take the quotes away; what was between them and would end a field is refused with the field."""
    rows = csv.reader(io.StringIO(block.decode("utf-8", "replace"), newline=""))
    return "".join(",".join(cell.translate(_QUOTED) for cell in row) + "\n" for row in rows).encode()


def _parsed(
    path: str, fields: dict[str, Field], names: dict[str, WordNumbers], lines: Places
) -> dict[str, np.ndarray]:
    parsed: dict[str, np.ndarray] = {}
    for column, field in fields.items():
        try:
            if column in names:
                parsed[column] = named(names[column], *_distinct(field, is_needed=column in NEEDED))
            else:
                parsed[column] = moments(field) if column == "timestamp" else numbers(field)
        except UnreadableField as error:
            what = expected(column, error.word.translate(_AS_WRITTEN))
            raise BadInput(f"{path}: line {lines[error.row]}: {column}: {what}") from error
    assert all(len(column) == len(lines) for column in parsed.values()), "a value for each row"
    return parsed


def _distinct(field: Field, *, is_needed: bool) -> tuple[Places, list[str]]:
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
