"""CSV to columns, block by block, with arrays instead of a loop over lines (docs/decisions/0003).

Columns of text to numbers, all rows at once; only odd ones (NaN, 1e-5, 250m) are read one by one.
"""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from equipoise.adapters.sample_files.fields import (
    Bytes,
    Field,
    Places,
    UnreadableField,
    completed,
    decimals,
    distinct,
    moments,
    numbers,
    read_memory,
)
from equipoise.adapters.sample_files.headers import Header, read_header
from equipoise.core.errors import BadInput
from equipoise.stats.samples import (
    CONTAINER,
    LABELS,
    NEEDED,
    ROWS_MAX,
    Column,
    Samples,
    WordNumbers,
    added_up,
    expected,
    named,
)

BLOCK_BYTES = 16 * 1024 * 1024
SIZE_MAX_BYTES = 8 * 1024**3
HEADER_BYTES_MAX = 1 << 20
SEPARATOR = re.compile(rb'"?sep=,"?')
LOOKED_AT = 20
"""Rows by which a column of a wide file is judged to be text."""
SECONDS_MAX = 1e11
"""Larger times, where they may be milliseconds, are."""
_COMMA, _NEWLINE, _RETURN = ord(","), ord("\n"), ord("\r")
_QUOTED, _AS_WRITTEN = str.maketrans(",\n\r", "\x01\x02\x03"), str.maketrans("\x01\x02\x03", ",\n\r")
"""What stands for a comma and a line's end between quotes: nothing that a name or a number may have."""


def read_csv(path: str, on_bytes: Callable[[int], None] | None = None) -> Samples:
    """Read a file with a header; `-` is standard input."""
    with opened(path) as file:
        return read_rows(path, file, on_bytes)


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input for `-`; BadInput says why it cannot be read."""
    try:
        if path == "-" and sys.stdin is None:
            raise BadInput("-: standard input is closed")
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def read_rows(
    path: str, file: IO[bytes], on_bytes: Callable[[int], None] | None = None, begin: bytes = b""
) -> Samples:
    """Read an open CSV file; by how it begins, a file for another command is recognised."""
    return _read(path, file, on_bytes or (lambda _: None), begin)


def _read(path: str, file: IO[bytes], on_bytes: Callable[[int], None], begin: bytes = b"") -> Samples:
    line, first = 1, file.readline(HEADER_BYTES_MAX)
    if SEPARATOR.fullmatch(first.strip()):  # for Excel: the header comes after it
        line, first = 2, file.readline(HEADER_BYTES_MAX)
    header = read_header(path, first, line, begin)
    columns = header.names
    if header.series is not None:
        columns += ["value", *header.series.labels]
    parts: list[dict[str, np.ndarray]] = []
    names: dict[str, WordNumbers] = {label: {} for label in (*LABELS, CONTAINER) if label in columns}
    line, rows = line + 1, 0
    for block in _blocks(path, file):
        fields, lines, count = _rows(path, block, len(header.columns), line)
        if header.series is not None and not parts:
            header = _without_text(path, header, fields)
        part = _parsed(path, header, fields, names, lines)
        rows += len(part["timestamp"])
        if rows > ROWS_MAX:
            raise BadInput(f"{path}: expected at most {ROWS_MAX:,} rows")
        parts.append(part)
        line += count
        on_bytes(len(block))
    found = Samples.joined(parts, names, columns)
    if header.series is None:
        return replace(found, notes=header.notes)
    if header.series.has_twice:
        found = added_up(found)
    return replace(found, shape=header.series.shape, notes=header.notes)


def _without_text(path: str, header: Header, fields: list[Field]) -> Header:
    """Return the header of a wide file without the columns that begin with text."""
    assert header.series is not None, "the file is wide"
    kept, odd = [], []
    for number, place in enumerate(header.places):
        field = fields[place]
        try:
            numbers(Field(field.text, field.start[:LOOKED_AT], field.end[:LOOKED_AT]))
        except UnreadableField as error:
            odd.append(error.word)
        else:
            kept.append(number)
    if not odd:
        return header
    if not kept:
        raise BadInput(f"{path}: line 2: value: {expected('value', odd[0])}")
    series = header.series
    labels = {label: [words[number] for number in kept] for label, words in series.labels.items()}
    columns = "a column of text" if len(odd) == 1 else f"{len(odd)} columns of text"
    note = f"{path}: ignored {columns}, such as {odd[0][:40]!r}"
    return replace(
        header,
        series=replace(series, labels=labels),
        places=tuple(header.places[number] for number in kept),
        notes=(*header.notes, note),
    )


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
    path: str, header: Header, fields: list[Field], names: dict[str, WordNumbers], lines: Places
) -> dict[str, np.ndarray]:
    parsed: dict[str, np.ndarray] = {}
    for column, field in zip(header.columns, fields, strict=True):
        if column is not None:
            with _at_its_line(path, column.name, lines):
                parsed[column.name] = _column(column, field, names)
    times = parsed["timestamp"]
    if header.may_be_milliseconds and len(times) and times.min() > SECONDS_MAX:
        parsed["timestamp"] = times / 1000
    assert all(len(column) == len(lines) for column in parsed.values()), "a value for each row"
    return parsed if header.series is None else _series(path, header, fields, names, lines, parsed)


@contextmanager
def _at_its_line(path: str, column: str, lines: Places) -> Iterator[None]:
    try:
        yield
    except UnreadableField as error:
        what = expected(column, error.word.translate(_AS_WRITTEN))
        raise BadInput(f"{path}: line {lines[error.row]}: {column}: {what}") from error


def _column(column: Column, field: Field, names: dict[str, WordNumbers]) -> np.ndarray:
    if column.name in names:
        return named(names[column.name], *distinct(field, is_needed=column.name in NEEDED))
    if column.name == "timestamp":
        return moments(field)
    found = completed(field, *decimals(field), read_memory) if column.name == "memory" else numbers(field)
    return found if column.factor == 1 else found * column.factor


def _series(
    path: str,
    header: Header,
    fields: list[Field],
    names: dict[str, WordNumbers],
    lines: Places,
    parsed: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Return a row for each cell of a wide file that has a number: an empty one is no sample."""
    assert header.series is not None, "the file is wide"
    table = np.empty((len(lines), len(header.places)))
    for number, place in enumerate(header.places):
        with _at_its_line(path, "value", lines):
            table[:, number] = numbers(fields[place])
    row, series = np.nonzero(~np.isnan(table))
    found = {"timestamp": parsed["timestamp"][row], "value": table[row, series]}
    for label, words in header.series.labels.items():
        found[label] = named(names[label], np.arange(len(words)), words)[series]
    return found
