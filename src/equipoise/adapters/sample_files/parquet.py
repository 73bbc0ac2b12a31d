"""Parquet to columns, where the extra `parquet` (pyarrow) is installed."""

import errno
import os
from typing import Any

import numpy as np

from equipoise.adapters.sample_files.numbers import Unreadable, read_moment, read_number
from equipoise.model.errors import BadInput
from equipoise.recommendation.samples import (
    COLUMNS,
    EXPECTED,
    LABELS,
    NEEDED,
    Names,
    Samples,
    is_name,
    named,
)


def read_parquet(path: str) -> Samples:
    """Read the known columns of a file."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise BadInput(
            f"{path}: Parquet needs the extra `parquet`: pip install 'equipoise[parquet]', or give CSV"
        ) from error
    try:
        # Without partitions: folders called x=y are not columns that somebody wrote.
        table = parquet.read_table(path, partitioning=None)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: {os.strerror(errno.ENOENT)}") from error
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{path}: expected a Parquet file: {' '.join(str(error).split())[:200]}") from error
    columns = _columns(path, table)
    names = {label: Names() for label in LABELS if label in columns}
    try:
        part = {column: _array(column, data, names) for column, data in columns.items()}
    except pa.ArrowException as error:
        raise BadInput(f"{path}: {' '.join(str(error).split())[:200]}") from error
    except _Odd as error:
        raise BadInput(f"{path}: {error.column}: expected {EXPECTED[error.column]}, {error.got}") from error
    return Samples.joined([part], names, list(columns))


class _Odd(ValueError):  # noqa: N818 - reads as a fact
    def __init__(self, column: str, got: object) -> None:
        super().__init__(column)
        self.column, self.got = column, f"got {str(got)[:60]!r}"


def _columns(path: str, table: Any) -> dict[str, Any]:
    """Give the columns by what they are."""
    columns: dict[str, Any] = {}
    for place, name in enumerate(table.column_names):
        column = COLUMNS.get(name.strip().lower())
        if column is None:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {name!r} too")
        if column in columns:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {column} twice")
        columns[column] = table.column(place)
    for needed in ("timestamp", "value"):
        if needed not in columns:
            raise BadInput(f"{path}: expected the columns timestamp and value, without {needed}")
    return columns


def _array(column: str, data: Any, names: dict[str, Names]) -> Any:
    """Give a column as numbers; words become their numbers."""
    if column in names:
        # A name that is missing is no name, and not the first one that comes.
        encoded = data.cast("string").fill_null("").combine_chunks().dictionary_encode()
        words = encoded.dictionary.to_pylist()
        for word in words:
            if not is_name(word, is_needed=column in NEEDED):
                raise _Odd(column, word)
        return named(names[column], encoded.indices.to_numpy(), words or [""])
    values = data.to_numpy()
    if np.issubdtype(values.dtype, np.datetime64):
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype != object:
        return values.astype(np.float64)
    read = _moment if column == "timestamp" else _number
    return np.array([np.nan if word is None else read(column, word) for word in values], np.float64)


def _moment(column: str, word: object) -> float:
    """Read a time that is text, or a day."""
    try:
        return float(str(word))
    except ValueError:
        pass
    try:
        return read_moment(0, str(word))
    except Unreadable as error:
        raise _Odd(column, word) from error


def _number(column: str, word: object) -> float:
    """Read a number that is text, or a decimal."""
    try:
        return read_number(0, str(word))
    except Unreadable as error:
        raise _Odd(column, word) from error
