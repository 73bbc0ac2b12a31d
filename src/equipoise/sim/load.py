"""How much work a workload gets over time, in cores, and the CPU counter that a pod makes of its share.

A counter is kept as straight pieces, so that it can be read at any time without stepping through it.
"""

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

DAY_SECONDS = 86400.0


class Shape(Protocol):
    """Demand over time: the same time always gives the same demand."""

    def cores(self, at: float) -> float:
        """Return the demand at a Unix time."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same, always."""

    level_cores: float

    def cores(self, at: float) -> float:
        """Return the demand at a Unix time."""
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
        """Return the demand at a Unix time."""
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
        """Return the demand at a Unix time."""
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
        """Return the demand at a Unix time."""
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
        """Return the demand at a Unix time."""
        return self.values[max(bisect_right(self.times, at) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Sum:
    """Several shapes on top of each other."""

    shapes: tuple[Shape, ...]

    def cores(self, at: float) -> float:
        """Return the demand at a Unix time."""
        return math.fsum(shape.cores(at) for shape in self.shapes)


_PIECES_MAX = 1024


class CpuCounter:
    """Grows with the pod's usage, and starts from nothing when the containers restart."""

    __slots__ = ("_rates", "_times", "_totals", "resets", "started_at", "stopped_at")

    def __init__(self, at: float) -> None:
        self.started_at = at
        self.stopped_at: float | None = None
        """From when on nobody can read it: the pod or its node is gone."""
        self.resets: list[float] = []
        self._times = [at]
        self._totals = [0.0]
        self._rates = [0.0]

    @property
    def rate_cores(self) -> float:
        """How fast it grows now."""
        return self._rates[-1]

    @property
    def run_since(self) -> float:
        """When the present containers started."""
        return self.resets[-1] if self.resets else self.started_at

    def set_rate(self, at: float, cores: float) -> None:
        """Grow by so many core-seconds a second from now on."""
        if cores == self._rates[-1]:
            return
        if at > self._times[-1]:
            self._totals.append(self._totals[-1] + self._rates[-1] * (at - self._times[-1]))
            self._times.append(at)
            self._rates.append(cores)
            if len(self._times) > _PIECES_MAX:
                self._forget()
        else:
            self._rates[-1] = cores

    def reset(self, at: float) -> None:
        """Start from nothing again, as a restarted container does."""
        self.resets.append(at)

    def _forget(self) -> None:
        """Keep the younger half: what is older than any window is never asked for."""
        keep = _PIECES_MAX // 2
        del self._times[:keep], self._totals[:keep], self._rates[:keep]
        self.started_at = max(self.started_at, self._times[0])
        self.resets = [reset for reset in self.resets if reset >= self._times[0]]

    def total(self, at: float) -> float:
        """Return the core-seconds up to a time, as if it had never restarted."""
        times = self._times
        if at >= times[-1]:
            return self._totals[-1] + self._rates[-1] * (at - times[-1])
        index = bisect_right(times, at) - 1
        return (
            self._totals[index] + self._rates[index] * (at - times[index]) if index >= 0 else self._totals[0]
        )

    def mean_cores(self, since: float, until: float) -> float:
        """Return the mean usage between two times."""
        if since >= self._times[-1]:
            return self._rates[-1]
        return (self.total(until) - self.total(since)) / (until - since)

    def rate(self, samples: Sequence[float]) -> float:
        """Return the rate that two or more readings at these times show, as PromQL's `rate` counts it."""
        grown = self.total(samples[-1]) - self.total(samples[0])
        for reset in self.resets:
            after = bisect_left(samples, reset)
            if 0 < after < len(samples):
                grown += self._lost(samples[after - 1], samples[after])
        return max(grown, 0.0) / (samples[-1] - samples[0])

    def _lost(self, before: float, after: float) -> float:
        """How much less (negative) two readings around a restart show than was used between them."""
        first, second = self._read(before), self._read(after)
        shown = second if second < first else second - first
        return shown - (self.total(after) - self.total(before))

    def _read(self, at: float) -> float:
        index = bisect_right(self.resets, at)
        return self.total(at) - (self.total(self.resets[index - 1]) if index else 0.0)
