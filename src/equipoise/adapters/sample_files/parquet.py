"""Parquet to columns, where the extra `parquet` (pyarrow) is installed.

A Parquet file of a few megabytes can unpack to many gigabytes. So the footer is judged before any data is
read, only known and flat columns are read, and they are decoded a batch of rows at a time; repeated texts
stay numbers into a dictionary all the way.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.adapters.sample_files.fields import read_memory, read_moment, read_number
from equipoise.adapters.sample_files.headers import listed
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.stats.samples import (
    CONTAINER,
    LABELS,
    NEEDED,
    ROWS_MAX,
    Column,
    Samples,
    WordNumbers,
    column_of,
    expected,
    is_name,
    named,
)

BATCH_ROWS = 1 << 20
UNPACKED_BYTES_MAX = 8 * 1024**3
"""What the columns that are read may unpack to, by the footer; a CSV file may have as many bytes."""
VALUE_BYTES_MAX = 512
"""What a value may take on average in a group of rows, by the footer: twice the longest name."""
GROUP_BYTES_MIN = 1 << 20
"""What a group may take however few rows it has."""
DECIMAL_BYTES_MAX = 32
"""A value of a fixed length that is longer is no number."""


def read_parquet(path: str) -> Samples:
    """Return the known columns of a file, or of all Parquet files in a folder."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise BadInput(
            f"{path}: Parquet needs the extra `parquet`: pip install 'equipoise[parquet]', or give CSV"
        ) from error
    parts: list[dict[str, Any]] = []
    names: dict[str, WordNumbers] = {}
    columns: dict[Column, str] = {}
    ignored: list[str] = []
    rows = 0
    try:
        for name in _files(path):
            footer = parquet.read_metadata(name)
            found, ignored = _columns(path, footer)
            if parts and list(found) != list(columns):
                raise BadInput(f"{path}: expected the same columns in every file, got others in {name}")
            columns = found
            labels = {column.name for column in columns} & {*LABELS, CONTAINER}
            names = names or {label: {} for label in (*LABELS, CONTAINER) if label in labels}
            rows += sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
            if rows > ROWS_MAX:
                raise BadInput(f"{path}: expected at most {ROWS_MAX:,} rows, got {rows:,}")
            texts = [leaf.path for leaf in _leaves(footer) if leaf.physical_type == "BYTE_ARRAY"]
            with parquet.ParquetFile(name, metadata=footer, read_dictionary=texts) as file:
                parts += _parts(file, columns, names)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: {os.strerror(errno.ENOENT)}") from error
    except _Odd as error:
        raise BadInput(f"{path}: {error.column}: {error.what}") from error
    except (OSError, pa.ArrowException, *DECODE_ERRORS) as error:
        raise BadInput(f"{path}: expected a Parquet file: {' '.join(str(error).split())[:200]}") from error
    notes = (f"{path}: ignored {listed(ignored)}",) if ignored else ()
    return replace(Samples.joined(parts, names, [column.name for column in columns]), notes=notes)


class _Odd(Exception):  # noqa: N818 - reads as a fact
    def __init__(self, column: str, got: object) -> None:
        super().__init__(column)
        self.column, self.what = column, expected(column, str(got))


def _files(path: str) -> list[str]:
    """Return the file, or those in a folder that Parquet writers do not mark as their own notes."""
    if not Path(path).is_dir():
        return [path]
    found = sorted(str(file) for file in Path(path).rglob("*") if file.is_file() and file.name[0] not in "._")
    if not found:
        raise BadInput(f"{path}: expected a Parquet file, got an empty folder")
    return found


def _columns(path: str, footer: Any) -> tuple[dict[Column, str], list[str]]:
    """Return the file's name of each known column, and the others; judge by the footer what reading takes."""
    schema = footer.schema.to_arrow_schema()
    columns: dict[Column, str] = {}
    ignored = []
    for name in schema.names:
        column = column_of(name)
        if column is None:
            ignored.append(name)
        elif column.name in {known.name for known in columns}:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {column.name} twice")
        else:
            columns[column] = name
    for needed in ("timestamp", "value"):
        if needed not in {known.name for known in columns}:
            got = f", got {ignored[0]!r}" if ignored else ""
            raise BadInput(f"{path}: expected the columns timestamp and value, without {needed}{got}")
    flat = {leaf.path for leaf in _leaves(footer) if not leaf.max_repetition_level and not _is_long(leaf)}
    for column, name in columns.items():
        if name not in flat:  # a row may unpack to any number of values
            raise _Odd(column.name, schema.field(name).type)
    _expect_size(path, footer, len(schema.names))
    return columns, ignored


def _expect_size(path: str, footer: Any, columns: int) -> None:
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for group in groups:  # not its columns: pyarrow ends the process over some damaged ones
        if group.total_byte_size > max(GROUP_BYTES_MIN, VALUE_BYTES_MAX * group.num_rows * columns):
            got = f"got {group.total_byte_size:,} bytes in {group.num_rows:,} rows"
            raise BadInput(f"{path}: expected at most {VALUE_BYTES_MAX} bytes for a name or a number, {got}")
    size = sum(group.total_byte_size for group in groups)
    if size > UNPACKED_BYTES_MAX:
        got = f"got {size / 1024**3:.1f} GiB"
        raise BadInput(f"{path}: expected at most {UNPACKED_BYTES_MAX >> 30} GiB of unpacked columns, {got}")


def _leaves(footer: Any) -> list[Any]:
    return [footer.schema.column(place) for place in range(footer.num_columns)]


def _is_long(leaf: Any) -> bool:
    return bool(leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and leaf.length > DECIMAL_BYTES_MAX)


def _parts(file: Any, columns: dict[Column, str], names: dict[str, WordNumbers]) -> Iterator[dict[str, Any]]:
    """Yield the columns of one batch of rows after the other."""
    wanted = list(columns.values())
    for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False, columns=wanted):
        part = {column: _array(column.name, batch.column(name), names) for column, name in columns.items()}
        yield {
            column.name: found if column.factor == 1 else found * column.factor
            for column, found in part.items()
        }


def _array(column: str, data: Any, names: dict[str, WordNumbers]) -> Any:
    """Return a column as numbers; words become their numbers."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if column in names:
        return _codes(column, data, names[column])
    values = None if pa.types.is_dictionary(data.type) else data.to_numpy(zero_copy_only=False)
    if values is None or values.dtype == object:
        codes, words = _distinct(data)
        read = READERS.get(column, read_number)
        return np.array([np.nan if word is None else _read(column, word, read) for word in words])[codes]
    if values.dtype.kind == "M" and column == "timestamp":
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype.kind not in "iuf":
        raise _Odd(column, data.type)
    return values.astype(np.float64)


def _codes(column: str, data: Any, names: WordNumbers) -> Any:
    """Return the number of each row's name; one that is missing is no name, and not the first that comes."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    codes, found = _distinct(data if pa.types.is_dictionary(data.type) else data.cast("string"))
    words = [word or "" for word in found]
    for word in words:
        if not is_name(word, is_needed=column in NEEDED):
            raise _Odd(column, word)
    return named(names, codes, words)


def _distinct(data: Any) -> tuple[Any, list[Any]]:
    """Return each row's number among the distinct values that there are, and these; None is a missing one."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    encoded = data if pa.types.is_dictionary(data.type) else data.dictionary_encode()
    encoded.validate(full=True)
    known = encoded.dictionary
    codes = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    is_used = np.zeros(len(known) + 1, np.bool_)
    is_used[codes] = True
    used = np.flatnonzero(is_used)
    found = known.take(pa.array(used[used < len(known)]))
    if pa.types.is_binary(found.type):
        found = found.cast("string")
    return (np.cumsum(is_used) - 1)[codes], [*found.to_pylist(), *[None] * int(is_used[-1])]


def _read(column: str, word: object, read: Callable[[str], float]) -> float:
    """Return a time or a number that is text, a day or a decimal."""
    try:
        return read(str(word))
    except DECODE_ERRORS as error:
        raise _Odd(column, word) from error


def _moment(word: str) -> float:
    with suppress(ValueError):
        return float(word)
    return read_moment(word)


READERS = {"timestamp": _moment, "memory": read_memory}
"""How a text is read; a column that is not here has cores."""
