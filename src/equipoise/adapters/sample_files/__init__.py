"""Samples in files that users give us: CSV, and Parquet where its reader is installed."""

from contextlib import suppress
from pathlib import Path

from equipoise.adapters.sample_files.csv import read_csv
from equipoise.model.errors import BadInput
from equipoise.recommendation.samples import Samples

PARQUET_ENDINGS = {".parquet", ".pq"}
PARQUET_MARK = b"PAR1"


def read_samples(path: str) -> Samples:
    """Read a file of either format; `-` is CSV on standard input."""
    if not path:
        raise BadInput("expected the name of a file, got an empty one")
    if path != "-" and (Path(path).suffix.lower() in PARQUET_ENDINGS or _is_marked(path)):
        from equipoise.adapters.sample_files.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(path)
    return read_csv(path)


def _is_marked(path: str) -> bool:
    if not Path(path).is_file():  # what is read from a pipe is gone
        return False
    with suppress(OSError), Path(path).open("rb") as file:
        return file.read(len(PARQUET_MARK)) == PARQUET_MARK
    return False
