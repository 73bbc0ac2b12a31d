"""Who may act now, where a Lease alone does not say it.

A command and a node agent act without a Lease: the compare-and-swap of each ledger keeps two of them apart.
A process that is asked to stop leads no more from then on, so it finishes an action and begins none.
"""

import threading
from collections.abc import Callable

from equipoise.core.ledger import GUEST_EPOCH
from equipoise.ports import Leadership


class LeaselessLeadership:
    """Leads in the epoch of those without a Lease, for so long after a snapshot of the cluster was taken.

    A process that was stopped between its snapshot and an action finds that it leads no more, as one that
    lost its Lease would.
    """

    def __init__(self, monotonic: Callable[[], float], valid_seconds: float = 120.0) -> None:
        self._monotonic = monotonic
        self._valid_seconds = valid_seconds
        self._renewed_at = monotonic()

    def renew(self) -> None:
        """Lead from now on, right before the cluster is observed."""
        self._renewed_at = self._monotonic()

    def epoch(self) -> int | None:
        return GUEST_EPOCH if self._monotonic() - self._renewed_at < self._valid_seconds else None


class StoppingLeadership:
    """Leads while another does, until this process is asked to stop."""

    def __init__(self, inner: Leadership, stopping: threading.Event) -> None:
        self._inner = inner
        self._stopping = stopping

    def epoch(self) -> int | None:
        return None if self._stopping.is_set() else self._inner.epoch()
