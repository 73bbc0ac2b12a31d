"""Raw samples as JSON: what a selector of a range answers at one time.

It costs the server two thirds of a rate at each step, and is then reduced by us as a remote read is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import simdjson
from numpy.typing import NDArray

from equipoise.adapters.prometheus.decode import Answer, expect
from equipoise.adapters.prometheus.errors import Malformed
from equipoise.adapters.prometheus.remote_read.rates import CELLS_AT_ONCE
from equipoise.adapters.prometheus.remote_read.windows import Samples
from equipoise.adapters.prometheus.series import SECONDS_MAX, Key, each_series, points


@dataclass(slots=True, eq=False)
class Raw:
    """Series as they were scraped; two may have the same key."""

    keys: list[Key] = field(default_factory=list)
    has_histograms: bool = False
    """Whether samples were left out since they are no floats."""
    _times: list[NDArray[np.int64]] = field(default_factory=list)
    _values: list[NDArray[np.float64]] = field(default_factory=list)
    _ends: list[int] = field(default_factory=lambda: [0])

    def add(self, key: Key, times_ms: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Put a series behind the others."""
        self.keys.append(key)
        self._times.append(times_ms)
        self._values.append(values)
        self._ends.append(self._ends[-1] + len(times_ms))

    @property
    def is_full(self) -> bool:
        """Whether more would not stay in the processor's cache until they are reduced."""
        return self._ends[-1] >= CELLS_AT_ONCE

    @property
    def samples(self) -> Samples:
        """All samples."""
        none = np.empty(0, dtype=np.int64)
        times = np.concatenate([none, *self._times])
        return Samples(np.array(self._ends), times, np.concatenate([none.view(np.float64), *self._values]))


def decode_raw(answer: Answer, labels: Sequence[str], series_max: int) -> Iterator[Raw]:
    """Decode an answer to a selector of a range, some series at a time.

    In each series the times rise, or the answer is refused.
    """
    expect(answer, "matrix")
    parser, raw = simdjson.Parser(), Raw()
    for one in each_series(answer, labels, series_max):
        raw.has_histograms |= one.has_histograms
        if one.values:
            seconds, values = points(one.values, parser, answer.address)
            raw.add(one.key, _rising(seconds, answer.address), values)
        if raw.is_full:
            yield raw
            raw = Raw()
    if raw.keys or raw.has_histograms:
        yield raw


def _rising(seconds: NDArray[np.float64], address: str) -> NDArray[np.int64]:
    if len(seconds) and not float(np.abs(seconds).max()) <= SECONDS_MAX:
        raise Malformed(f"{address} answered a timestamp that is no time")
    times_ms = np.rint(seconds * 1000).astype(np.int64)
    if (np.diff(times_ms) <= 0).any():
        raise Malformed(f"{address} answered samples of one series that are not in the order of time")
    return times_ms
