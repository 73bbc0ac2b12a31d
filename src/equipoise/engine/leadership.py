"""Leadership of processes without a Lease, and of a process that is stopping.

A command and a node agent act without a Lease: the compare-and-swap of each ledger excludes concurrent
actions. A process that was asked to stop is no longer the leader, so it finishes the present action and
begins none.
"""

import threading
from collections.abc import Callable

from equipoise.core.ledger import GUEST_EPOCH
from equipoise.ports import Leadership


class LeaselessLeadership:
    """Is the leader for a limited time after a snapshot, in the epoch of processes without a Lease.

    A process that was suspended between its snapshot and an action is no longer the leader, like one that
    lost its Lease.
    """

    def __init__(self, monotonic: Callable[[], float], valid_seconds: float = 120.0) -> None:
        self._monotonic = monotonic
        self._valid_seconds = valid_seconds
        self._renewed_at = monotonic()

    def renew(self) -> None:
        """Start the time anew; call it right before the cluster is observed."""
        self._renewed_at = self._monotonic()

    def epoch(self) -> int | None:
        return GUEST_EPOCH if self._monotonic() - self._renewed_at < self._valid_seconds else None


class StoppingLeadership:
    """Is the leader while `inner` is, until this process is asked to stop."""

    def __init__(self, inner: Leadership, stopping: threading.Event) -> None:
        self._inner = inner
        self._stopping = stopping

    def epoch(self) -> int | None:
        return None if self._stopping.is_set() else self._inner.epoch()
