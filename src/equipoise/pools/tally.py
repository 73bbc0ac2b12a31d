"""How many pods and calls each tier has, counted from one look; pure."""

import math
from typing import Any

from equipoise.model.pools import PodSeen, PoolSeen, PoolsSeen
from equipoise.pools.policy import TierPolicy

STATES = ("idle", "busy", "draining")


def state_of(pod: str, pool: PoolSeen, keys: PodSeen) -> tuple[str, int]:
    """Give what a pod does, and its calls."""
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
