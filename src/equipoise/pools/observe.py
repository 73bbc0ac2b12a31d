"""The observation of the pools: the tiers of the chain, their pods, and why a pod must stay. Pure.

The counts by tier for metrics, and the document of `pools status`, are from the same snapshot.
"""

import math
from collections.abc import Collection
from enum import StrEnum
from typing import Any

import msgspec

from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PodKeys, PoolsSnapshot, TierKeys, by_ordinal
from equipoise.pools.invariants import broken_invariants, violations
from equipoise.pools.policy import TierPolicy, unfilled


class TierUnreadable(WorldFailed):
    """The keys of a tier cannot be counted."""

    def __init__(self, tier: str, text: str) -> None:
        super().__init__(text)
        self.tier = tier


class Activity(StrEnum):
    """What a pod does; only an idle one may be moved."""

    IDLE = "idle"
    DRAINING = "draining"
    LEASED = "leased"
    BUSY = "busy"


class PodInTier(msgspec.Struct, frozen=True, gc=False):
    """A pod that is assigned to a tier."""

    name: str
    activity: Activity = msgspec.field(name="stay")
    uid: str = ""


class TierPods(msgspec.Struct, frozen=True):
    """One tier and its assigned pods, in ordinal order."""

    name: str
    pods: tuple[PodInTier, ...]


class Observation(msgspec.Struct, frozen=True):
    """The tiers of the chain, in its order, at one moment."""

    subject: str
    tiers: tuple[TierPods, ...]


def observe(policy: TierPolicy, snapshot: PoolsSnapshot, failing: Collection[str] = ()) -> Observation:
    """Return the observation of a snapshot; raises TierUnreadable for keys of a wrong type.

    Failing pods, which caused an error, count in their tier and are busy: they stay.
    """
    tiers = []
    for name in policy.chain:
        pool = _keys_of(name, snapshot)
        _expect_types(snapshot.prefix, pool, policy.tiers[name].available_type)
        pods = []
        for pod in sorted(pool.assigned, key=by_ordinal):
            is_failing = pod in failing
            pods.append(PodInTier(pod, Activity.BUSY) if is_failing else _pod(pod, pool, snapshot))
        tiers.append(TierPods(name, tuple(pods)))
    assert [tier.name for tier in tiers] == list(policy.chain), "the tiers of the chain, in its order"
    return Observation(snapshot.prefix, tuple(tiers))


def _keys_of(tier: str, snapshot: PoolsSnapshot) -> TierKeys:
    return next((pool for pool in snapshot.pools if pool.tier == tier), TierKeys(tier, "none", "none"))


def _expect_types(prefix: str, pool: TierKeys, available_type: str) -> None:
    for part, expected, found in (
        ("assigned", "set", pool.assigned_type),
        ("available", available_type, pool.available_type),
    ):
        if found not in {"none", expected}:
            raise TierUnreadable(
                pool.tier,
                f"{prefix}:pool:{pool.tier}:{part}: expected a {expected}, got a {found}; "
                "`equipoise pools fsck` lists all violations",
            )


def _pod(name: str, pool: TierKeys, snapshot: PoolsSnapshot) -> PodInTier:
    keys = snapshot.pods.get(name) or PodKeys()
    return PodInTier(name, _activity(name, pool, keys), keys.uid)


def _activity(pod: str, pool: TierKeys, keys: PodKeys) -> Activity:
    if keys.is_draining:
        return Activity.DRAINING
    if keys.lease is not None:
        return Activity.LEASED
    return Activity.BUSY if pool.available.get(pod) != 0 or keys.calls else Activity.IDLE


STATES = ("idle", "busy", "draining")


def state_of(pod: str, pool: TierKeys, keys: PodKeys) -> tuple[str, int]:
    """Return the state of a pod, one of three, and the number of its calls."""
    free, activity = pool.available.get(pod), _activity(pod, pool, keys)
    state = "busy" if activity is Activity.LEASED else activity.value
    counted = len(keys.calls) or int(keys.lease is not None)
    return state, int(free) if free and math.isfinite(free) else counted


def count_tiers(policy: TierPolicy, snapshot: PoolsSnapshot) -> dict[str, dict[str, Any]]:
    """Return by tier: target, calls, and pods by state."""
    counts: dict[str, dict[str, Any]] = {
        name: {"target": tier.target, "calls": 0} | dict.fromkeys(STATES, 0)
        for name, tier in policy.tiers.items()
    }
    for pool in snapshot.pools:
        row = counts.get(pool.tier)
        if row is None:
            continue
        for pod in pool.assigned:
            state, calls = state_of(pod, pool, snapshot.pods.get(pod) or PodKeys())
            row[state] += 1
            row["calls"] += calls
    return counts


def status_document(policy: TierPolicy, snapshot: PoolsSnapshot) -> dict[str, Any]:
    """Return the document of `pools status`: each tier of the config with its pods."""
    tiers = [_tier_document(name, policy, snapshot) for name in policy.names]
    pods = sum(tier["assigned"] for tier in tiers if tier["inChain"])
    broken = len(violations(policy, snapshot))
    warnings = [
        unfilled(policy, pods),
        broken_invariants(broken) if broken else "",
    ]
    return {
        "prefix": snapshot.prefix,
        "configVersion": snapshot.version,
        "epoch": snapshot.epoch,
        "tiers": tiers,
        "warnings": [warning for warning in warnings if warning],
    }


def _tier_document(name: str, policy: TierPolicy, snapshot: PoolsSnapshot) -> dict[str, Any]:
    tier, pool = policy.tiers[name], _keys_of(name, snapshot)
    pods: list[dict[str, Any]] = []
    for pod in sorted(pool.assigned, key=by_ordinal):
        state, calls = state_of(pod, pool, snapshot.pods.get(pod) or PodKeys())
        pending = {"pendingTier": snapshot.pending[pod]} if snapshot.pending.get(pod) else {}
        pods.append({"pod": pod, "state": state, "calls": calls} | pending)
    states = [pod["state"] for pod in pods]
    return {
        "tier": name,
        "type": tier.type.value,
        "inChain": name in policy.chain,
        "target": tier.target,
        "assigned": len(pods),
        "available": len(pool.available),
        "busy": states.count("busy"),
        "draining": states.count("draining"),
        "calls": sum(pod["calls"] for pod in pods),
        "diff": len(pods) - tier.target,
        "pods": pods,
    }
