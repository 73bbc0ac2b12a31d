"""A lease that processes stand for, on simulated time: the rule of the real one, without its wire."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class SimLease:
    """What everybody can read: who holds it, in which transition, and how often it was written."""

    holder: str = ""
    epoch: int = 0
    writes: int = 0


@dataclass
class SimCandidate:
    """One process that stands for election. `step` is its turn; `epoch` is asked right before an action.

    It takes over only after it has itself seen the lease unchanged for a whole lease, and believes in its own
    only for `renew_seconds` after the beginning of a renewal.
    """

    name: str
    lease: SimLease
    now: Callable[[], float]
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    is_connected: bool = True
    _renewed_at: float | None = field(default=None, init=False)
    _epoch: int = field(default=0, init=False)
    _seen: tuple[int, float] | None = field(default=None, init=False)

    def epoch(self) -> int | None:
        """Return the transition that we lead in, or None when we do not lead or can't be sure."""
        if self._renewed_at is None or self.now() - self._renewed_at >= self.renew_seconds:
            return None
        return self._epoch

    def step(self) -> None:
        """Take one turn: renew, take over, or look."""
        if not self.is_connected:
            return
        at = self.now()
        if self._seen is None or self._seen[0] != self.lease.writes:
            self._seen = (self.lease.writes, at)
        if self._is_ours():
            # A lapse of our own belief is a transition too: somebody may have counted on it.
            self._write(at, self.lease.epoch if self.epoch() is not None else self.lease.epoch + 1)
        elif not self.lease.holder or at - self._seen[1] >= self.lease_seconds:
            self._write(at, self.lease.epoch + 1)
        else:
            self._renewed_at = None

    def release(self) -> None:
        """Leave politely, so that nobody has to wait."""
        if self._is_ours() and self.is_connected:
            self.lease.holder = ""
            self.lease.writes += 1
        self._renewed_at = None

    def _is_ours(self) -> bool:
        return self.lease.holder == self.name and self.lease.epoch == self._epoch

    def _write(self, at: float, epoch: int) -> None:
        self.lease.holder, self.lease.epoch = self.name, epoch
        self.lease.writes += 1
        self._seen = (self.lease.writes, at)
        self._epoch, self._renewed_at = epoch, at
