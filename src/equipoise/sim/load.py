"""How much work there is for a workload over time, in cores."""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

DAY_SECONDS = 86400.0


class Shape(Protocol):
    """Demand over time: the same time always gives the same demand."""

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same, always."""

    level_cores: float

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        del at
        return self.level_cores


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A day's wave around a mean, highest once a day."""

    mean_cores: float
    swing_cores: float
    peak_second: float = 14 * 3600.0
    """Second of the day (UTC) of the highest demand."""

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        phase = 2 * math.pi * (at - self.peak_second) / DAY_SECONDS
        return max(0.0, self.mean_cores + self.swing_cores * math.cos(phase))


@dataclass(frozen=True, slots=True)
class Ramp:
    """From one level to another, in a straight line between two times."""

    from_cores: float
    to_cores: float
    starts_at: float
    ends_at: float

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        done = (at - self.starts_at) / (self.ends_at - self.starts_at)
        return self.from_cores + (self.to_cores - self.from_cores) * min(max(done, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Spike:
    """A level, and a higher one for a while."""

    level_cores: float
    spike_cores: float
    starts_at: float
    length_seconds: float

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        is_spike = self.starts_at <= at < self.starts_at + self.length_seconds
        return self.spike_cores if is_spike else self.level_cores


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded demand: each value holds until the next; the first one holds before it too."""

    times: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times or len(self.times) != len(self.values):
            raise ValueError("a trace needs as many values as times, and at least one")
        if any(later <= earlier for earlier, later in zip(self.times, self.times[1:], strict=False)):
            raise ValueError("the times of a trace must rise")
        if not all(math.isfinite(value) and value >= 0 for value in self.values):
            raise ValueError("the values of a trace must be finite and not negative")

    @classmethod
    def from_csv(cls, lines: Iterable[str], *, starts_at: float | None = None) -> "Trace":
        """Read rows `ts,value`, with or without a head; `starts_at` moves the trace to begin there."""
        rows = [row for row in csv.reader(lines) if row and row[0].strip() != "ts"]
        times = [float(row[0]) for row in rows]
        moved = 0.0 if starts_at is None or not times else starts_at - times[0]
        return cls(tuple(time + moved for time in times), tuple(float(row[1]) for row in rows))

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        return self.values[max(bisect_right(self.times, at) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Sum:
    """Several shapes on top of each other."""

    shapes: tuple[Shape, ...]

    def cores(self, at: float) -> float:
        """Give the demand at a Unix time."""
        return math.fsum(shape.cores(at) for shape in self.shapes)
