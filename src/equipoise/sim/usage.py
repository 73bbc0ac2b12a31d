"""The CPU counter of a pod: core-seconds as a function of time, kept as straight pieces."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

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
        """Give the core-seconds up to a time, as if it had never restarted."""
        times = self._times
        if at >= times[-1]:
            return self._totals[-1] + self._rates[-1] * (at - times[-1])
        index = bisect_right(times, at) - 1
        return (
            self._totals[index] + self._rates[index] * (at - times[index]) if index >= 0 else self._totals[0]
        )

    def mean_cores(self, since: float, until: float) -> float:
        """Give the mean usage between two times."""
        if since >= self._times[-1]:
            return self._rates[-1]
        return (self.total(until) - self.total(since)) / (until - since)

    def rate(self, samples: Sequence[float]) -> float:
        """Give the rate that two or more readings at these times show, as PromQL's `rate` counts it."""
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
