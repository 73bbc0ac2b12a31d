"""What deciding needs of the pools: each tier of the chain, each of its pods, and what keeps a pod there.

How many pods and calls each tier has, counted from one look; pure.
"""

import math
from collections.abc import Collection
from enum import StrEnum
from typing import Any

import msgspec

from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PodSeen, PoolSeen, PoolsSeen, by_ordinal
from equipoise.pools.policy import TierPolicy


class TierUnreadable(WorldFailed):
    """The keys of a tier cannot be counted."""

    def __init__(self, tier: str, said: str) -> None:
        super().__init__(said)
        self.tier = tier


class Stay(StrEnum):
    """Why a pod may not move now; an idle one may."""

    IDLE = "idle"
    DRAINING = "draining"
    LEASED = "leased"
    BUSY = "busy"


class PodInTier(msgspec.Struct, frozen=True, gc=False):
    """One assigned pod."""

    name: str
    stay: Stay
    uid: str = ""


class TierSeen(msgspec.Struct, frozen=True):
    """One tier and its assigned pods, in ordinal order."""

    name: str
    pods: tuple[PodInTier, ...]


class Observation(msgspec.Struct, frozen=True):
    """The tiers of the chain, in its order, at one moment."""

    subject: str
    tiers: tuple[TierSeen, ...]


def observe(policy: TierPolicy, seen: PoolsSeen, odd: Collection[str] = ()) -> Observation:
    """Take from a snapshot what deciding needs; keys of a wrong type are not guessed at.

    Pods that are odd count in their tier, and are busy: whatever their keys say, they stay.
    """
    pools = {pool.tier: pool for pool in seen.pools}
    tiers = []
    for name in policy.chain:
        pool = pools.get(name) or PoolSeen(name, "none", "none")
        _expect_types(seen.prefix, pool, is_shared=policy.tiers[name].is_shared)
        pods = sorted(pool.assigned, key=by_ordinal)
        found = (
            PodInTier(pod, Stay.BUSY) if pod in odd else _pod(pod, pool, seen.pods.get(pod) or PodSeen())
            for pod in pods
        )
        tiers.append(TierSeen(name, tuple(found)))
    return Observation(seen.prefix, tuple(tiers))


def _expect_types(prefix: str, pool: PoolSeen, *, is_shared: bool) -> None:
    wanted = {"assigned": "set", "available": "zset" if is_shared else "set"}
    for part, found in (("assigned", pool.assigned_type), ("available", pool.available_type)):
        if found not in {"none", wanted[part]}:
            raise TierUnreadable(
                pool.tier,
                f"{prefix}:pool:{pool.tier}:{part}: expected a {wanted[part]}, got a {found}; "
                "`equipoise pools fsck` lists all that is broken",
            )


def _pod(name: str, pool: PoolSeen, keys: PodSeen) -> PodInTier:
    if keys.is_draining:
        stay = Stay.DRAINING
    elif keys.lease is not None:
        stay = Stay.LEASED
    elif pool.available.get(name) != 0 or keys.calls:
        stay = Stay.BUSY
    else:
        stay = Stay.IDLE
    return PodInTier(name, stay, keys.uid)


STATES = ("idle", "busy", "draining")


def state_of(pod: str, pool: PoolSeen, keys: PodSeen) -> tuple[str, int]:
    """Return what a pod does, and its calls."""
    free = pool.available.get(pod)
    is_held = keys.lease is not None or bool(keys.calls)
    state = "draining" if keys.is_draining else "idle" if free == 0 and not is_held else "busy"
    counted = len(keys.calls) or (1 if is_held else 0)
    return state, int(free) if free and math.isfinite(free) else counted


def tally(policy: TierPolicy, seen: PoolsSeen) -> dict[str, dict[str, Any]]:
    """Count by tier: target, pods by state, calls."""
    counts: dict[str, dict[str, Any]] = {
        name: {"target": tier.target, "calls": 0} | dict.fromkeys(STATES, 0)
        for name, tier in policy.tiers.items()
    }
    for pool in seen.pools:
        row = counts.get(pool.tier)
        if row is None:
            continue
        for pod in pool.assigned:
            state, calls = state_of(pod, pool, seen.pods.get(pod) or PodSeen())
            row[state] += 1
            row["calls"] += calls
    return counts
