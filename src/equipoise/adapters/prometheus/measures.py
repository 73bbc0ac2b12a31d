"""How the samples of a measure are reduced: by us, and the same by PromQL."""

from __future__ import annotations

from collections.abc import Callable

from equipoise.adapters.prometheus.matrix import Grid
from equipoise.adapters.prometheus.remote_read.rates import highest, last, rates
from equipoise.adapters.prometheus.remote_read.windows import Floats, Samples, Steps
from equipoise.model.duration import print_seconds
from equipoise.model.history import CPU, MEMORY, Measure, Reduction

_REDUCE: dict[Reduction, Callable[[Samples, Steps, Floats | None], Floats]] = {
    Reduction.RATE: rates,
    Reduction.HIGHEST: highest,
    Reduction.LAST: last,
}
_FUNCTIONS = {Reduction.RATE: "rate", Reduction.HIGHEST: "max_over_time", Reduction.LAST: "last_over_time"}


def grid_of(measure: Measure, grid: Grid) -> Grid:
    """Give the times of a measure: all, or the last one where a single number tells about all of them."""
    return grid if measure.reduction is not Reduction.HIGHEST else grid.part(grid.count - 1, 1)


def reduce(measure: Measure, samples: Samples, steps: Steps, out: Floats) -> None:
    """Reduce raw samples."""
    _REDUCE[measure.reduction](samples, steps, out)


def expression(measure: Measure, selected: str, window_ms: int) -> str:
    """Write the same as PromQL, bare: whatever stands around it (`max by`, `round`) triples its cost."""
    return f"{_FUNCTIONS[measure.reduction]}({selected}[{print_seconds(window_ms / 1000)}])"


__all__ = ["CPU", "MEMORY", "Measure", "Reduction", "expression", "grid_of", "reduce"]
