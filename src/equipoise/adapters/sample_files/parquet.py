"""Parquet to columns, where the extra `parquet` (pyarrow) is installed.

A Parquet file of a few megabytes can unpack to many gigabytes. So the footer is judged before any data is
read, only the known columns are read, and they are decoded a batch of rows at a time; repeated texts stay
numbers into a dictionary all the way.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.adapters.sample_files.numbers import Unreadable, read_moment, read_number
from equipoise.model.errors import DECODE_ERRORS, BadInput
from equipoise.recommendation.samples import (
    COLUMNS,
    LABELS,
    NEEDED,
    ROWS_MAX,
    Names,
    Samples,
    expected,
    is_name,
    named,
)

BATCH_ROWS = 1 << 20
UNPACKED_BYTES_MAX = 8 * 1024**3
"""What the columns that are read may unpack to, by the footer; a CSV file may have as many bytes."""


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
    names: dict[str, Names] = {}
    columns: dict[str, str] = {}
    rows = 0
    try:
        for name in _files(path):
            footer = parquet.read_metadata(name)
            found = _columns(path, footer)
            if parts and list(found) != list(columns):
                raise BadInput(f"{path}: expected the same columns in every file, got others in {name}")
            columns = found
            names = names or {label: Names() for label in LABELS if label in columns}
            rows += footer.num_rows
            if rows > ROWS_MAX:
                raise BadInput(f"{path}: expected at most {ROWS_MAX:,} rows, got {rows:,}")
            leaves = {footer.schema.column(place).path for place in range(footer.num_columns)}
            texts = [columns[label] for label in names if columns[label] in leaves]
            with parquet.ParquetFile(name, metadata=footer, read_dictionary=texts) as file:
                parts += _parts(file, columns, names)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: {os.strerror(errno.ENOENT)}") from error
    except _Odd as error:
        raise BadInput(f"{path}: {error.column}: {error.what}") from error
    except (OSError, pa.ArrowException, *DECODE_ERRORS) as error:
        raise BadInput(f"{path}: expected a Parquet file: {' '.join(str(error).split())[:200]}") from error
    return Samples.joined(parts, names, list(columns))


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


def _columns(path: str, footer: Any) -> dict[str, str]:
    """Return the file's name of each known column; judge by the footer what reading them would take."""
    columns: dict[str, str] = {}
    for name in footer.schema.to_arrow_schema().names:
        column = COLUMNS.get(name.strip().lower())
        if column is None:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {name!r} too")
        if column in columns:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {column} twice")
        columns[column] = name
    for needed in ("timestamp", "value"):
        if needed not in columns:
            raise BadInput(f"{path}: expected the columns timestamp and value, without {needed}")
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size = sum(
        group.column(place).total_uncompressed_size for group in groups for place in range(group.num_columns)
    )
    if size > UNPACKED_BYTES_MAX:
        got = f"got {size / 1024**3:.1f} GiB"
        raise BadInput(f"{path}: expected at most {UNPACKED_BYTES_MAX >> 30} GiB of unpacked columns, {got}")
    return columns


def _parts(file: Any, columns: dict[str, str], names: dict[str, Names]) -> Iterator[dict[str, Any]]:
    """Yield the columns of one batch of rows after the other."""
    for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
        yield {column: _array(column, batch.column(name), names) for column, name in columns.items()}


def _array(column: str, data: Any, names: dict[str, Names]) -> Any:
    """Return a column as numbers; words become their numbers."""
    if column in names:
        return _codes(column, data, names[column])
    values = data.to_numpy(zero_copy_only=False)
    if np.issubdtype(values.dtype, np.datetime64):
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype != object:
        return values.astype(np.float64)
    read = _moment if column == "timestamp" else _number
    return np.array([np.nan if word is None else read(column, word) for word in values], np.float64)


def _codes(column: str, data: Any, names: Names) -> Any:
    """Return the number of each row's name; each distinct name is looked at once."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    encoded = data if pa.types.is_dictionary(data.type) else data.cast("string").dictionary_encode()
    words = [word or "" for word in encoded.dictionary.cast("string").to_pylist()]
    # A name that is missing is no name, and not the first one that comes.
    codes = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
    is_used = np.zeros(len(words) + 1, np.bool_)
    is_used[codes] = True
    words.append("")
    for place in np.flatnonzero(is_used).tolist():
        if not is_name(words[place], is_needed=column in NEEDED):
            raise _Odd(column, words[place])
    return named(names, np.cumsum(is_used)[codes] - 1, [words[place] for place in np.flatnonzero(is_used)])


def _moment(column: str, word: object) -> float:
    """Return a time that is text, or a day."""
    try:
        return float(str(word))
    except ValueError:
        pass
    try:
        return read_moment(0, str(word))
    except Unreadable as error:
        raise _Odd(column, word) from error


def _number(column: str, word: object) -> float:
    """Return a number that is text, or a decimal."""
    try:
        return read_number(0, str(word))
    except Unreadable as error:
        raise _Odd(column, word) from error
