"""Raw samples as JSON: what a selector of a range answers at one time.

It costs the server two thirds of a rate at each step, and is then reduced by us as a remote read is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import simdjson
from numpy.typing import NDArray

from equipoise.adapters.prometheus.decode import (
    HISTOGRAMS_LEFT_OUT,
    Answer,
    check_series,
    decode_json,
    expect,
    tidy,
)
from equipoise.adapters.prometheus.errors import Malformed
from equipoise.adapters.prometheus.matrix import SECONDS_MAX, Key, points, series_list
from equipoise.adapters.prometheus.remote_read.rates import Samples


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """Series as they were scraped; two may have the same key."""

    keys: list[Key]
    samples: Samples
    warnings: tuple[str, ...] = ()


def decode_raw(answer: Answer, labels: Sequence[str], series_max: int) -> Raw:
    """Decode an answer to a selector of a range: in each series the times rise, or it is refused."""
    expect(answer, "matrix")
    series = decode_json(answer.result, series_list(tuple(labels)), answer.address)
    check_series(len(series), series_max, answer.address)
    found = [one for one in series if one.values]
    keys = [tuple(getattr(one.metric, f"label_{i}") for i in range(len(labels))) for one in found]
    parser = simdjson.Parser()
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for one in found:
        seconds, numbers = points(bytes(one.values), parser, answer.address)
        times.append(_rising(seconds, answer.address))
        values.append(numbers)
    warnings = answer.warnings
    if any(one.histograms for one in series):
        warnings = tidy((*warnings, HISTOGRAMS_LEFT_OUT))
    return Raw(keys, _joined(times, values), warnings)


def _rising(seconds: NDArray[np.float64], address: str) -> NDArray[np.int64]:
    if len(seconds) and not float(np.abs(seconds).max()) <= SECONDS_MAX:
        raise Malformed(f"{address} answered a timestamp that is no time")
    times_ms = np.rint(seconds * 1000).astype(np.int64)
    if (np.diff(times_ms) <= 0).any():
        raise Malformed(f"{address} answered samples of one series that are not in the order of time")
    return times_ms


def _joined(times: Sequence[NDArray[np.int64]], values: Sequence[NDArray[np.float64]]) -> Samples:
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in times], dtype=np.int64))).astype(np.int64)
    if not times:
        return Samples(offsets, np.empty(0, dtype=np.int64), np.empty(0))
    return Samples(offsets, np.concatenate(times), np.concatenate(values))
