"""What deciding needs of the pools: each tier of the chain, each of its pods, and what keeps a pod there."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from equipoise.model.errors import WorldFailed
from equipoise.model.names import by_ordinal
from equipoise.model.pools import PodSeen, PoolSeen, PoolsSeen
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
