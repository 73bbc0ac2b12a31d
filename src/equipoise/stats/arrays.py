"""The arrays of this room: a row per series, a column per sample, NaN where nothing is known."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Whole = npt.NDArray[np.intp]
Claims = npt.NDArray[np.bool_]

CHUNK_SAMPLES = 160_000
"""So many samples at a time stay in a core's cache while they are sorted."""


def chunks(values: Floats, samples: int = CHUNK_SAMPLES) -> Iterator[slice]:
    """Cut a batch into parts that the cache holds."""
    count, length = values.shape[:2]
    size = max(1, samples // max(1, length))
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def cleaned(values: Floats) -> Floats:
    """Drop what is no usage: NaN, infinite and negative samples become unknown."""
    with np.errstate(invalid="ignore"):
        is_usage = (values >= 0) & (values < np.inf)
    return np.where(is_usage, values, values.dtype.type(np.nan))


def zero_or_more(values: Floats, unknown: float) -> Floats:
    """Put a number that no usage has in place of what is unknown, so that rows can be sorted."""
    return np.fmax(values, values.dtype.type(unknown))
