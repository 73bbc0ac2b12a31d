"""Is it our turn?"""

from collections.abc import Callable

from equipoise.model.ledger import GUEST_EPOCH
from equipoise.model.reason import Code, Reason
from equipoise.ports import Leadership


def held_by_leader(leadership: Leadership) -> Reason | None:
    """Hold unless we lead at this moment."""
    if leadership.epoch() is not None:
        return None
    return Reason(Code.HELD_BY_LEADER, "This process does not lead, so it only looks.")


class Guest:
    """Acts without a Lease, for one command: the compare-and-swap of each ledger keeps two apart.

    A command that was stopped between its look and its deed finds that its turn is over, as a leader would.
    """

    def __init__(self, monotonic: Callable[[], float], turn_seconds: float = 120.0) -> None:
        self._monotonic = monotonic
        self._turn_seconds = turn_seconds
        self._looked_at = monotonic()

    def look(self) -> None:
        """Begin a turn: what is seen from here on is fresh."""
        self._looked_at = self._monotonic()

    def epoch(self) -> int | None:
        """Give the epoch of guests while the turn lasts."""
        return GUEST_EPOCH if self._monotonic() - self._looked_at < self._turn_seconds else None
