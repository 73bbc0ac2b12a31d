"""The demand on a workload over time, how it is split between its pods, and the CPU counter of each pod.

A counter is kept as straight pieces, so that it can be read at any time without stepping through it. Unequal
shares are the causes of imbalance.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
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
        phase = 2 * math.pi * (at - self.peak_second) / DAY_SECONDS
        return max(0.0, self.mean_cores + self.swing_cores * math.cos(phase))


_PIECES_MAX = 1024


class CpuCounter:
    """Grows with the pod's usage, and starts from nothing when the containers restart."""

    __slots__ = ("_rates", "_times", "_totals", "resets", "started_at", "stopped_at")

    def __init__(self, at: float) -> None:
        self.started_at = at
        self.stopped_at: float | None = None
        """The time from which it cannot be read, because the pod or its node is gone."""
        self.resets: list[float] = []
        self._times = [at]
        self._totals = [0.0]
        self._rates = [0.0]

    @property
    def rate_cores(self) -> float:
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
        if index < 0:
            return self._totals[0]
        return self._totals[index] + self._rates[index] * (at - times[index])

    def mean_cores(self, since: float, until: float) -> float:
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


class Sharing(ABC):
    """Splits the demand among the pods that serve, known by their UIDs; one whose shares stay as they are.

    `settle` sets the pods that serve, and `shares` returns the share of each; the shares add up to 1.
    """

    _rng: Random
    """Set by `begin`."""

    def begin(self, rng: Random) -> None:
        """Take the random generator; called once, before anything else."""
        self._rng = rng

    @abstractmethod
    def settle(self, members: Sequence[str], replicas: int) -> None:
        """Set the serving pods, in the order of their creation, and the workload's replicas."""

    def drift(self, seconds: float) -> bool:
        """Let so many seconds pass; return whether the shares changed."""
        del seconds
        return False

    @abstractmethod
    def shares(self) -> Mapping[str, float]:
        """Return each serving pod's share."""


class Even(Sharing):
    """A fair load balancer: equal shares."""

    _shares: Mapping[str, float]

    def settle(self, members: Sequence[str], replicas: int) -> None:
        del replicas
        self._shares = {member: 1 / len(members) for member in members}

    def shares(self) -> Mapping[str, float]:
        return self._shares


class Partitions(Sharing):
    """A consumer group: partitions of unequal weight, reassigned when a member joins or leaves.

    Reassignment is sticky and balances counts, never weights: what is hot stays hot wherever it goes. With
    `is_stale` the first full group has got its partitions by chance, as after an unlucky start, and keeps
    them until the membership changes.
    """

    def __init__(self, weights: Sequence[float], *, is_stale: bool = False) -> None:
        total = math.fsum(weights)
        self._weights = [weight / total for weight in weights]
        self._is_stale = is_stale
        self._owners: list[str] = [""] * len(weights)
        self._members: Sequence[str] = ()

    @classmethod
    def skewed(cls, seed: int, count: int = 64, sigma: float = 1.0) -> "Partitions":
        """Draw log-normal weights: a few keys are hot."""
        rng = Random(seed)  # noqa: S311 - repeatable
        return cls([rng.lognormvariate(0.0, sigma) for _ in range(count)])

    @classmethod
    def stale(cls, count: int = 24) -> "Partitions":
        """Return partitions of equal weights, with unequal counts until a member is replaced."""
        return cls([1.0] * count, is_stale=True)

    def settle(self, members: Sequence[str], replicas: int) -> None:
        self._members = members
        if not members:
            self._owners = [""] * len(self._owners)
        elif self._is_stale and len(members) >= replicas:
            self._is_stale = False
            self._owners = [self._rng.choice(members) for _ in self._owners]
        else:
            self._reassign(members)

    def _reassign(self, members: Sequence[str]) -> None:
        counts = Counter(owner for owner in self._owners if owner in set(members))
        floor, extra = divmod(len(self._owners), len(members))
        # The members with most partitions keep the extra ones, so that the fewest partitions move.
        ranked = sorted(members, key=lambda member: -counts[member])
        rooms = {member: floor + (rank < extra) for rank, member in enumerate(ranked)}
        homeless = []
        for partition in self._rng.sample(range(len(self._owners)), len(self._owners)):
            owner = self._owners[partition]
            if rooms.get(owner, 0) > 0:
                rooms[owner] -= 1
            else:
                homeless.append(partition)
        empty = [member for member in members for _ in range(rooms[member])]
        for partition, member in zip(sorted(homeless), empty, strict=True):
            self._owners[partition] = member

    def shares(self) -> Mapping[str, float]:
        found = dict.fromkeys(self._members, 0.0)
        for owner, weight in zip(self._owners, self._weights, strict=True):
            if owner:
                found[owner] += weight
        return found


class Leases(Sharing):
    """Partitions that pods hold by leases: no pod releases one, and a new pod takes only a few.

    What a pod held goes, when it ends, to those that hold fewest. All hold the same until the first `upset`,
    which deals them out anew and unevenly, as when everybody restarts and the first take what they can.
    """

    UNEVEN = (25, 24, 12, 10, 8, 7, 5, 5)
    """How many of 96 each of eight pods gets; other numbers of pods get the like."""

    def __init__(self, *, taken_max: int = 5, taken_every_seconds: float = 30.0) -> None:
        self._held: dict[str, int] = {}
        self._takes: dict[str, int] = {}
        """How many partitions a new pod may still take."""
        self._is_even = True
        self._taken_max = taken_max
        self._taken_every_seconds = taken_every_seconds
        self._due = 0.0

    def upset(self) -> None:
        """Deal the partitions out unevenly among those who serve now."""
        self._is_even = False
        members = self._rng.sample(list(self._held), len(self._held))
        if not members:
            return
        total = sum(self.UNEVEN)
        weights = [self.UNEVEN[place * len(self.UNEVEN) // len(members)] for place in range(len(members))]
        counts = [total * weight // sum(weights) for weight in weights]
        counts[0] += total - sum(counts)
        self._held, self._takes = dict(zip(members, counts, strict=True)), {}

    def settle(self, members: Sequence[str], replicas: int) -> None:
        """Set the serving pods; leases of those that left go to the one that holds fewest."""
        del replicas
        before = {} if self._is_even else self._held
        if before:
            self._takes |= {member: self._taken_max for member in members if member not in before}
        self._held = {member: before.get(member, 0) for member in members}
        self._takes = {member: left for member, left in self._takes.items() if member in self._held}
        for _ in range(sum(self.UNEVEN) - sum(self._held.values()) if members else 0):
            self._held[min(self._held, key=lambda member: self._held[member])] += 1

    def drift(self, seconds: float) -> bool:
        """Move leases from the pod that holds most to new ones."""
        takers = [member for member, left in self._takes.items() if left]
        self._due = self._due + seconds / self._taken_every_seconds if takers else 0.0
        count, self._due = int(self._due), self._due % 1.0
        for member in takers * count:
            richest = max(self._held, key=lambda other: self._held[other])
            if self._takes[member] and self._held[richest] > self._held[member] + 1:
                self._held[richest] -= 1
                self._held[member] += 1
                self._takes[member] -= 1
        return count > 0

    def shares(self) -> Mapping[str, float]:
        return {member: held / sum(self.UNEVEN) for member, held in self._held.items()}


class StickyConnections(Sharing):
    """Long-lived connections: they stay where they are until their pod ends or they are renewed."""

    def __init__(self, count: int = 600, *, renewed_per_second: float = 0.0) -> None:
        self._count = count
        self._renewed_per_second = renewed_per_second
        self._due = 0.0
        self._held: dict[str, int] = {}

    def settle(self, members: Sequence[str], replicas: int) -> None:
        """Set the serving pods; connections of those that left go to the others."""
        del replicas
        self._held = {member: self._held.get(member, 0) for member in members}
        if members:
            self._connect_rest()

    def _connect_rest(self) -> None:
        for member in self._rng.choices(list(self._held), k=self._count - sum(self._held.values())):
            self._held[member] += 1

    def drift(self, seconds: float) -> bool:
        """Renew some connections, which may land anywhere."""
        self._due += self._renewed_per_second * seconds
        count = min(int(self._due), self._count)
        if count < 1 or not self._held:
            return False
        self._due -= count
        for member in self._rng.choices(list(self._held), weights=list(self._held.values()), k=count):
            if self._held[member]:
                self._held[member] -= 1
        self._connect_rest()
        return True

    def shares(self) -> Mapping[str, float]:
        return {member: held / self._count for member, held in self._held.items()}
