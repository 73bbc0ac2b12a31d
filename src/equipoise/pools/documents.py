"""The tiers and the answers of the scripts as documents and sentences, for the command line and the API."""

from typing import Any

from equipoise.core.pools import PodSeen, PoolAnswer, PoolCode, PoolSeen, PoolsSeen, by_ordinal
from equipoise.pools.invariants import violations
from equipoise.pools.observation import state_of
from equipoise.pools.policy import TierPolicy, unfilled

SENTENCES = {
    PoolCode.ALLOCATED: "{pod} of {tier} serves the call {call}.",
    PoolCode.NONE_FREE: "no pod is free{tier_said}",
    PoolCode.NO_TIER: "--tier: expected a tier of the config",
    PoolCode.CALL_TAKEN: "the call {call} is another allocator's",
    PoolCode.RELEASED: "{pod} is released{tier_said}.",
    PoolCode.UNKNOWN_CALL: "There is no call {call}, or it has ended.",
    PoolCode.NOT_OWNER: "the call {call} is served by {pod}",
    PoolCode.RENEWED: "{pod} goes on with the call {call}.",
    PoolCode.LEASE_LOST: "{pod} no longer belongs to the call {call}",
    PoolCode.DRAINED: "{pod} of {tier} gets no more calls; it has {detail}.",
    PoolCode.UNDRAINED: "{pod} of {tier} gets calls again.",
    PoolCode.NOT_DRAINING: "{pod} of {tier} is not draining; nothing to do.",
    PoolCode.NOT_THERE: "{pod} is in no tier.",
    PoolCode.REGISTERED: "{pod} is in {tier} now.",
    PoolCode.REPLACED: "{pod} is another pod now; the calls of the old one ended. It is in {tier}.",
    PoolCode.KNOWN: "{pod} is in {tier} already; nothing to do.",
    PoolCode.UNREGISTERED: "{pod} is forgotten.",
    PoolCode.OTHER_UID: "{pod} is another incarnation now",
    PoolCode.MERCHANT: "{pod} belongs to a merchant's pool, which is left alone",
    PoolCode.UNSOUND: "the keys of {pod} contradict each other; `equipoise pools fsck` tells how",
}


def sentence_of(answer: PoolAnswer, *, call: str = "", tier: str = "") -> str:
    """Return what a writer answered."""
    in_tier = answer.tier or tier
    if answer.code is PoolCode.UNSOUND and answer.detail:
        return f"{answer.pod}: {answer.detail}"
    return SENTENCES.get(answer.code, answer.code.value).format(
        pod=answer.pod,
        call=call,
        tier=in_tier,
        tier_said=f" in {in_tier}" if in_tier else "",
        detail=f"{answer.detail} calls" if answer.detail != "1" else "1 call",
    )


def status_document(policy: TierPolicy, seen: PoolsSeen) -> dict[str, Any]:
    """Return every tier and every pod."""
    pools = {pool.tier: pool for pool in seen.pools}
    chain = policy.chain
    names = [*chain, *sorted(set(policy.tiers) - set(chain))]
    tiers = [_tier(name, policy, pools.get(name) or PoolSeen(name, "none", "none"), seen) for name in names]
    pods = sum(tier["assigned"] for tier in tiers if tier["inChain"])
    broken = len(violations(policy, seen))
    warnings = [
        unfilled(policy, pods),
        f"{broken} broken; `equipoise pools fsck` lists them" if broken else "",
    ]
    return {
        "prefix": seen.prefix,
        "configVersion": seen.version,
        "epoch": seen.epoch,
        "tiers": tiers,
        "warnings": [said for said in warnings if said],
    }


def _tier(name: str, policy: TierPolicy, pool: PoolSeen, seen: PoolsSeen) -> dict[str, Any]:
    tier = policy.tiers[name]
    pods = [
        _pod(pod, pool, seen.pods.get(pod) or PodSeen(), seen.pending.get(pod, ""))
        for pod in sorted(pool.assigned, key=by_ordinal)
    ]
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


def _pod(name: str, pool: PoolSeen, keys: PodSeen, pending: str) -> dict[str, Any]:
    state, calls = state_of(name, pool, keys)
    return {"pod": name, "state": state, "calls": calls} | ({"pendingTier": pending} if pending else {})
