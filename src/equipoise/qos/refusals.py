"""Evictions that were refused: asked for again after ever longer waits; others go meanwhile. Pure."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import msgspec

FIRST_SECONDS = 30.0
"""How long an eviction that was refused is not asked for again; twice as long after each further refusal."""
WAIT_SECONDS_MAX = 600.0
WHY_LENGTH_MAX = 300
_DOUBLINGS_MAX = 8


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of a pod whose eviction was refused."""

    count: int
    until: float
    """When it may be asked for again: Unix seconds."""
    why: str

    @property
    def sentence(self) -> str:
        """Say why the pod can't be evicted for now."""
        often = "once" if self.count == 1 else f"{self.count} times in a row"
        again = datetime.fromtimestamp(self.until, UTC).strftime("%H:%M:%SZ")
        return f"its eviction was refused {often} and is asked for again at {again}: {self.why}"


Refusals = Mapping[str, Refusal]
"""By the UID of the pod."""


def refused_again(known: Refusal | None, at: float, why: str) -> Refusal:
    """Wait twice as long as the last time, within bounds."""
    count = known.count + 1 if known is not None else 1
    wait = min(FIRST_SECONDS * 2 ** min(count - 1, _DOUBLINGS_MAX), WAIT_SECONDS_MAX)
    return Refusal(count, at + wait, why[:WHY_LENGTH_MAX])


def still_known(refusals: Refusals, pods: Collection[str], at: float) -> dict[str, Refusal]:
    """Forget pods that are gone, and refusals so old that the next one is a first one.

    A wait that is longer than any can be comes from a clock that was set back: it is over.
    """
    return {
        uid: one
        for uid, one in refusals.items()
        if uid in pods and -WAIT_SECONDS_MAX < one.until - at <= WAIT_SECONDS_MAX
    }


def in_force(refusals: Refusals, at: float) -> dict[str, str]:
    """Say of each pod that must not be asked for now why."""
    return {uid: one.sentence for uid, one in refusals.items() if at < one.until}
