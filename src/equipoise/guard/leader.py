"""Is it our turn?"""

from equipoise.model.reason import Code, Reason
from equipoise.ports import Leadership


def held_by_leader(leadership: Leadership) -> Reason | None:
    """Hold unless we lead at this moment."""
    if leadership.epoch() is not None:
        return None
    return Reason(Code.HELD_BY_LEADER, "This process does not lead, so it only looks.")
