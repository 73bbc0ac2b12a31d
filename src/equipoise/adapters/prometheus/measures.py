"""What is measured, and how its samples become one number for each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from equipoise.adapters.prometheus.remote_read.rates import Floats, Samples, Steps, highest, last, rates
from equipoise.model.duration import print_seconds


class Reduction(StrEnum):
    """How samples become one number for each time."""

    RATE = "rate"
    HIGHEST = "highest"
    """Of all within the window, so that no peak between two times is lost."""
    LAST = "last"


_REDUCE: dict[Reduction, Callable[[Samples, Steps, Floats | None], Floats]] = {
    Reduction.RATE: rates,
    Reduction.HIGHEST: highest,
    Reduction.LAST: last,
}
_FUNCTIONS = {Reduction.RATE: "rate", Reduction.HIGHEST: "max_over_time", Reduction.LAST: "last_over_time"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of containers."""

    name: str
    metric: str
    reduction: Reduction
    step_seconds: float | None = None
    """A step of its own, where fewer numbers tell the same."""

    def reduce(self, samples: Samples, steps: Steps, out: Floats) -> None:
        """Reduce raw samples."""
        _REDUCE[self.reduction](samples, steps, out)

    def expression(self, selected: str, window_ms: int) -> str:
        """Write the same as PromQL, bare: whatever stands around it (`max by`, `round`) triples its cost."""
        return f"{_FUNCTIONS[self.reduction]}({selected}[{print_seconds(window_ms / 1000)}])"


CPU = Measure("cpu", "container_cpu_usage_seconds_total", Reduction.RATE)
"""Cores."""
MEMORY = Measure("memory", "container_memory_working_set_bytes", Reduction.HIGHEST, step_seconds=3600)
"""Bytes, the highest of each hour: the peak is the same, and a sixtieth of the numbers."""
