"""What is measured of containers over weeks, and how a history of it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Reduction(StrEnum):
    """How samples become one number for each time."""

    RATE = "rate"
    HIGHEST = "highest"
    """Of all within the window, so that no peak between two times is lost."""
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of containers."""

    name: str
    metric: str
    reduction: Reduction
    step_seconds: float | None = None
    """A step of its own, where fewer numbers tell the same."""


CPU = Measure("cpu", "container_cpu_usage_seconds_total", Reduction.RATE)
"""Cores."""
MEMORY = Measure("memory", "container_memory_working_set_bytes", Reduction.HIGHEST, step_seconds=3600)
"""Bytes, the highest of each hour: the peak is the same, and a sixtieth of the numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageHistory:
    """Usage per container: a row for each, a column for each time, NaN where it is unknown."""

    measure: str
    scope: tuple[str, ...] | None
    """The namespaces that are all in here; None are all there are."""
    namespaces: Sequence[str]
    pods: Sequence[str]
    containers: Sequence[str]
    timestamps: NDArray[np.float64]
    values: NDArray[np.float64]
    window_seconds: float
    """How far back each column looks."""
    source: str
    warnings: tuple[str, ...] = ()
