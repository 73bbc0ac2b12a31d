"""What one decision leaves for the next: the targets of the window, since when, and the last change.

Plain data: it lives in the policy's status, and a new leader needs nothing else. Times are whole
milliseconds, values whole millicores or bytes, so nothing is lost on the way through JSON.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from equipoise.proportional.damping import Smoothing
from equipoise.proportional.policy import ScalingPolicySpec

OBSERVATIONS_MAX = 4096
"""How many targets of one slot are kept; older ones are forgotten first."""

Sight = tuple[int, int]
"""When, and which target."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The last change of one slot."""

    at: int
    after: int
    before: int | None = None


class ProportionalMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All that is carried over for one policy."""

    policy: str = ""
    """A fingerprint: an edit empties the windows."""
    since: int | None = None
    """When the first target under this policy was seen."""
    windows: dict[str, tuple[Sight, ...]] = {}
    """The targets that still count, oldest first, by slot."""
    changes: dict[str, Change] = {}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "ProportionalMemory":
        """Read what `to_data` gave; a ValueError says what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        """Give it as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return msgspec.json.decode(msgspec.json.encode(data), type=dict[str, Any])

    def under(self, policy: str) -> "ProportionalMemory":
        """Give what still counts under this policy: an edit empties the windows."""
        return self if self.policy == policy else ProportionalMemory(policy, changes=self.changes)


def fingerprint(policy: ScalingPolicySpec) -> str:
    """Tell a policy from the same one after any edit."""
    parts = policy.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def remembered(window: tuple[Sight, ...], at: int, target: int, smoothing: Smoothing) -> tuple[Sight, ...]:
    """Add a target, and forget what no decision will ask for again; one moment has one target."""
    earlier = [sight for sight in window if sight[0] != at]
    if smoothing.percentile is not None:
        span = milliseconds(smoothing.percentile.window_seconds)
        kept = [sight for sight in earlier if at - sight[0] < span]
        return (*kept, (at, target))[-OBSERVATIONS_MAX:]
    spans = {
        -1: smoothing.delay_down.delay_seconds if smoothing.delay_down is not None else None,
        1: smoothing.delay_up.delay_seconds if smoothing.delay_up is not None else None,
    }
    kept_all: set[Sight] = set()
    for sign, seconds in spans.items():
        if seconds is not None:
            span = milliseconds(seconds)
            young = [sight for sight in earlier if at - sight[0] <= span]
            kept_all.update(_extremes([*young, (at, target)], sign))
    return tuple(sorted(kept_all))[-OBSERVATIONS_MAX:]


def _extremes(sights: list[Sight], sign: int) -> list[Sight]:
    """Keep those that no later one outdoes: the highest (-1) or lowest (1) of any rest of the window."""
    kept: list[Sight] = []
    for sight in sights:
        while kept and sign * kept[-1][1] >= sign * sight[1]:
            kept.pop()
        kept.append(sight)
    return kept


def milliseconds(seconds: float) -> int:
    """Give a span as times are counted."""
    return round(seconds * 1000)
