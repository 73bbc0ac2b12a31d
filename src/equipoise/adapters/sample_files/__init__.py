"""Samples in files that users give us: CSV, answers of Prometheus, and Parquet where its reader is installed.

What a file contains decides how it is read, and never its name.
"""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from equipoise.adapters.sample_files.csv import opened, read_rows
from equipoise.core.errors import BadInput
from equipoise.stats.samples import Samples

PARQUET_ENDINGS = {".parquet", ".pq"}
PARQUET_MARK = b"PAR1"
LOOKED_AT_BYTES = 4096
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_samples(path: str, on_bytes: Callable[[int], None] | None = None) -> Samples:
    """Read a file of any of the formats; `-` is standard input. Reports the bytes of text."""
    if not path:
        raise BadInput("expected the name of a file, got an empty one")
    if path != "-" and _is_parquet(path):
        from equipoise.adapters.sample_files.parquet import read_parquet  # noqa: PLC0415 - an extra

        return read_parquet(path)
    with opened(path) as file:
        begin = file.peek(LOOKED_AT_BYTES) if isinstance(file, io.BufferedReader) else b""
        if _is_json(begin):
            from equipoise.adapters.sample_files.prometheus import read_answer  # noqa: PLC0415

            return read_answer(path, file, on_bytes)
        return read_rows(path, file, on_bytes, begin)


def _is_json(begin: bytes) -> bool:
    return begin.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] in {b"{", b"["}


def _is_parquet(path: str) -> bool:
    """Return whether a path is Parquet, or a folder of it; its name decides only where the content cannot."""
    begin = b""
    with suppress(OSError):  # whoever reads the rest says what is wrong
        if Path(path).is_dir():
            return Path(path).suffix.lower() in PARQUET_ENDINGS
        if Path(path).is_file():  # what is read from a pipe is gone
            with Path(path).open("rb") as file:
                begin = file.read(LOOKED_AT_BYTES)
    if begin.startswith(PARQUET_MARK):
        return True
    is_text = _is_json(begin) or b"," in begin.split(b"\n", 1)[0]
    return Path(path).suffix.lower() in PARQUET_ENDINGS and not is_text
