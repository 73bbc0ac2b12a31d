"""What is measured of containers over weeks, and how a history of it looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Reduction(StrEnum):
    """How samples become one number for each time."""

    RATE = "rate"
    LAST = "last"
    HIGHEST = "highest"
    """Of all samples from the start to the end: one number, at the end."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of containers."""

    name: str
    metric: str
    reduction: Reduction


CPU = Measure("cpu", "container_cpu_usage_seconds_total", Reduction.RATE)
"""Cores."""
MEMORY = Measure("memory", "container_memory_working_set_bytes", Reduction.HIGHEST)
"""Bytes at their peak, which is all that advice needs of them."""


Grouping = Callable[[str, Sequence[str]], Sequence[object]]
"""Names, for a namespace and some of its pods, the group of each; None are pods that nobody needs."""


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
    groups: frozenset[object] | None = None
    """Of a namespace too large to be read at once, the groups that are whole in here; None means all."""
    partial: tuple[str, ...] = ()
    """Why samples may be missing, in the source's words: it says that its answer is not whole."""
