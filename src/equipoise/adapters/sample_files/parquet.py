"""Parquet to columns, where the extra `parquet` (pyarrow) is installed."""

from typing import Any

import numpy as np

from equipoise.adapters.sample_files.numbers import NotANumber, read_moment
from equipoise.model.errors import BadInput
from equipoise.recommendation.samples import COLUMNS, LABELS, Names, Samples, named


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
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{path}: expected a Parquet file: {' '.join(str(error).split())[:200]}") from error
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = COLUMNS.get(name.lower())
        if column is None:
            raise BadInput(f"{path}: expected the columns timestamp and value, got {name!r} too")
        columns[column] = table[name]
    missing = [column for column in ("timestamp", "value") if column not in columns]
    if missing:
        raise BadInput(f"{path}: expected the columns timestamp and value, without {missing[0]}")
    names = {label: Names() for label in LABELS if label in columns}
    part = {column: _array(path, column, data, names) for column, data in columns.items()}
    return Samples.joined([part], names, list(columns))


def _array(path: str, column: str, data: Any, names: dict[str, Names]) -> Any:
    """Give a column as numbers; words become their numbers."""
    if column in names:
        encoded = data.cast("string").combine_chunks().dictionary_encode()
        words = [word or "" for word in encoded.dictionary.to_pylist()]
        return named(names[column], encoded.indices.fill_null(0).to_numpy(), words or [""])
    values = data.to_numpy()
    if np.issubdtype(values.dtype, np.datetime64):
        seconds = values.astype("datetime64[us]").astype(np.int64) / 1e6
        return np.where(np.isnat(values), np.nan, seconds)
    try:
        if column == "timestamp" and values.dtype == object:
            return np.array([read_moment(row, str(word)) for row, word in enumerate(values)])
        return values.astype(np.float64)
    except (NotANumber, ValueError, TypeError) as error:
        raise BadInput(f"{path}: {column}: expected numbers, got {str(error)[:60]!r}") from error
