"""CSV to columns, block by block, with arrays instead of a loop over lines."""

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import numpy as np

from equipoise.adapters.sample_files.numbers import Bytes, Field, Places, Unreadable, moments, numbers
from equipoise.model.errors import BadInput
from equipoise.recommendation.samples import (
    COLUMNS,
    LABELS,
    NAME_LENGTH_MAX,
    NEEDED,
    ROWS_MAX,
    Names,
    Samples,
    expected,
    is_name,
    named,
)

BLOCK_BYTES = 16 * 1024 * 1024
SIZE_MAX_BYTES = 8 * 1024**3
HEADER_BYTES_MAX = 4096
GZIP_MARK = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_COMMA, _NEWLINE, _RETURN = ord(","), ord("\n"), ord("\r")
_QUOTED = {",": "\x01", "\n": "\x02", "\r": "\x03"}
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
    names: dict[str, Names] = {label: Names() for label in LABELS if label in columns}
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
    """Give pieces that end with a line."""
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
    inner = str.maketrans(_QUOTED)
    return "".join(",".join(cell.translate(inner) for cell in row) + "\n" for row in rows).encode()


def _parsed(
    path: str, fields: dict[str, Field], names: dict[str, Names], lines: Places
) -> dict[str, np.ndarray]:
    parsed: dict[str, np.ndarray] = {}
    for column, field in fields.items():
        try:
            if column in names:
                parsed[column] = named(names[column], *_distinct(field, is_needed=column in NEEDED))
            else:
                parsed[column] = moments(field) if column == "timestamp" else numbers(field)
        except Unreadable as error:
            what = expected(column, _as_written(error.word))
            raise BadInput(f"{path}: line {lines[error.row]}: {column}: {what}") from error
    return parsed


def _as_written(word: str) -> str:
    for letter, instead in _QUOTED.items():
        word = word.replace(instead, letter)
    return word


def _distinct(field: Field, *, is_needed: bool) -> tuple[Places, list[str]]:
    """Return each row's number among the distinct texts of a field, and those texts, which must be names.

    It takes time in proportion to the bytes of the field: shorter rows are left out as soon as they end.
    """
    widths = field.end - field.start
    width_max = int(widths.max(initial=0))
    if width_max > NAME_LENGTH_MAX:
        row = int(widths.argmax())
        raise Unreadable(row, field.word(row))
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
            raise Unreadable(row, word)
    return inverse.astype(np.intp), words
