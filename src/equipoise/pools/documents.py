"""Documents and sentences about tiers and the scripts' answers, for the command line and the API."""

from typing import Any

from equipoise.core.pools import PodKeys, PoolAnswer, PoolCode, PoolsSnapshot, TierKeys, by_ordinal
from equipoise.pools.invariants import violations
from equipoise.pools.observe import state_of
from equipoise.pools.policy import TierPolicy, unfilled

SENTENCES = {
    PoolCode.ALLOCATED: "{pod} of {tier} serves the call {call}.",
    PoolCode.NONE_FREE: "no pod is free{in_tier}",
    PoolCode.NO_TIER: "--tier: expected a tier of the config",
    PoolCode.CALL_TAKEN: "the call {call} is another allocator's",
    PoolCode.RELEASED: "{pod} is released{in_tier}.",
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
    """Return the sentence for the answer of a script that writes."""
    tier = answer.tier or tier
    if answer.code is PoolCode.UNSOUND and answer.detail:
        return f"{answer.pod}: {answer.detail}"
    return SENTENCES.get(answer.code, answer.code.value).format(
        pod=answer.pod,
        call=call,
        tier=tier,
        in_tier=f" in {tier}" if tier else "",
        detail=f"{answer.detail} calls" if answer.detail != "1" else "1 call",
    )


def status_document(policy: TierPolicy, snapshot: PoolsSnapshot) -> dict[str, Any]:
    """Return the document of `pools status`: each tier of the config with its pods."""
    pools = {pool.tier: pool for pool in snapshot.pools}
    chain = policy.chain
    names = [*chain, *sorted(set(policy.tiers) - set(chain))]
    tiers = [
        _tier(name, policy, pools.get(name) or TierKeys(name, "none", "none"), snapshot) for name in names
    ]
    pods = sum(tier["assigned"] for tier in tiers if tier["inChain"])
    broken = len(violations(policy, snapshot))
    warnings = [
        unfilled(policy, pods),
        f"{broken} broken; `equipoise pools fsck` lists them" if broken else "",
    ]
    return {
        "prefix": snapshot.prefix,
        "configVersion": snapshot.version,
        "epoch": snapshot.epoch,
        "tiers": tiers,
        "warnings": [warning for warning in warnings if warning],
    }


def _tier(name: str, policy: TierPolicy, pool: TierKeys, snapshot: PoolsSnapshot) -> dict[str, Any]:
    tier = policy.tiers[name]
    pods = [
        _pod(pod, pool, snapshot.pods.get(pod) or PodKeys(), snapshot.pending.get(pod, ""))
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


def _pod(name: str, pool: TierKeys, keys: PodKeys, pending: str) -> dict[str, Any]:
    state, calls = state_of(name, pool, keys)
    return {"pod": name, "state": state, "calls": calls} | ({"pendingTier": pending} if pending else {})
