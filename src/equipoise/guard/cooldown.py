"""Was there a rest since the last time?"""

from equipoise.model.ledger import Ledger
from equipoise.model.reason import Code, Reason


def held_by_cooldown(ledger: Ledger, balancer: str, cooldown_seconds: float, at: float) -> Reason | None:
    """Hold until so long after the last action, whoever led then."""
    last = ledger.last_at(balancer)
    if last is None or at - last >= cooldown_seconds:
        return None
    left = cooldown_seconds - (at - last)
    if at < last:
        sentence = (
            f"The ledger has an action {last - at:.0f} s in the future: a clock is wrong, or the ledger."
        )
        return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": left})
    return Reason(
        Code.HELD_BY_COOLDOWN,
        f"The last action was {at - last:.0f} s ago, and the next waits {left:.0f} s more.",
        {"seconds_left": left},
    )
