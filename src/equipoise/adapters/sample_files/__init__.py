"""Samples in files that users give us: CSV, and Parquet where its reader is installed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from equipoise.adapters.sample_files.csv import read_csv
from equipoise.core.errors import BadInput
from equipoise.stats.samples import Samples

PARQUET_ENDINGS = {".parquet", ".pq"}
PARQUET_MARK = b"PAR1"


def read_samples(path: str, on_bytes: Callable[[int], None] | None = None) -> Samples:
    """Read a file of either format; `-` is CSV on standard input. What came of a CSV is told on the way."""
    if not path:
        raise BadInput("expected the name of a file, got an empty one")
    if path != "-" and (Path(path).suffix.lower() in PARQUET_ENDINGS or _is_marked(path)):
        from equipoise.adapters.sample_files.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(path)
    return read_csv(path, on_bytes)


def _is_marked(path: str) -> bool:
    with suppress(OSError):  # whoever reads the rest says what is wrong
        if Path(path).is_file():  # what is read from a pipe is gone
            with Path(path).open("rb") as file:
                return file.read(len(PARQUET_MARK)) == PARQUET_MARK
    return False
