"""Is somebody else taking pods of this workload now?

Two balancers may run in two processes with two Leases, and agents have none. What they share is the ledger of
the workload: whoever finds that another has begun something waits until it is over. The compare-and-swap with
which the own intent is then written makes sure that nobody has begun in between.
"""

from collections.abc import Collection

from equipoise.model.ledger import INTENT_MAX_SECONDS, Entry, EntryState, Ledger
from equipoise.model.reason import Code, Reason

OTHERS_SECONDS = INTENT_MAX_SECONDS
"""So long nobody may have seen yet what another has done; from then on what is seen counts."""
MENDING_SECONDS = 3600.0
"""So long it is another's deed, as far as anybody can tell, when a workload is not whole."""


def held_by_others(ledger: Ledger, balancer: str, at: float) -> Reason | None:
    """Hold shortly after another balancer, or an agent, has taken a pod of this workload or may have."""
    return _held([entry for entry in ledger.entries if entry.balancer != balancer], at, OTHERS_SECONDS)


def held_by_anyone(ledger: Ledger, own: Collection[str], at: float, *, is_whole: bool) -> Reason | None:
    """Hold as long as anyone's deed is under way, but for our own: for who sees only some of the pods.

    `is_whole` says whether the workload has all the pods that it wants; while it has not, a deed of the last
    hour is not over.
    """
    entries = [entry for entry in ledger.entries if entry.id not in own]
    return _held(entries, at, OTHERS_SECONDS if is_whole else MENDING_SECONDS)


def _held(entries: Collection[Entry], at: float, seconds: float) -> Reason | None:
    recent = [entry for entry in entries if entry.state is not EntryState.FAILED and at - entry.at < seconds]
    if not recent:
        return None
    last = max(recent, key=lambda entry: entry.at)
    since = max(0.0, at - last.at)
    return Reason(
        Code.HELD_BY_BUDGET,
        f"{last.balancer} acted on {last.pod} of this workload {since:.0f} s ago ({last.action}), and one "
        "balancer at a time takes pods of it.",
        {"other": last.balancer, "seconds_since": since},
    )
