"""The pools for people and for scripts."""

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.app.output import Format, plain, print_document, warn
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.model.pools import PodSeen, PoolAnswer, PoolCode, PoolSeen, PoolsSeen
from equipoise.pools.fsck import Violation, violations
from equipoise.pools.policy import TierPolicy, unfilled
from equipoise.pools.tally import state_of

if TYPE_CHECKING:
    from equipoise.model.decision import Outcome

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
REFUSED = {
    PoolCode.NONE_FREE,
    PoolCode.CALL_TAKEN,
    PoolCode.NOT_OWNER,
    PoolCode.LEASE_LOST,
    PoolCode.NOT_THERE,
    PoolCode.MERCHANT,
    PoolCode.UNSOUND,
    PoolCode.OTHER_UID,
    PoolCode.CONFIG_CHANGED,
}
"""Answers that are an error, whatever was asked."""


def sentence_of(answer: PoolAnswer, *, call: str = "", tier: str = "") -> str:
    """Say what a writer answered."""
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


def tell(
    answer: PoolAnswer,
    form: Format,
    *,
    call: str = "",
    tier: str = "",
    is_dry: bool = False,
    refused: Collection[PoolCode] = REFUSED,
) -> None:
    """Print the answer of one writer; a refusal is an error too."""
    in_tier = answer.tier or tier
    sentence = sentence_of(answer, call=call, tier=tier)
    if answer.code is PoolCode.NO_TIER:
        raise BadInput(f"{sentence}, got {tier!r}")
    is_refused = answer.code in refused
    if form is not Format.TABLE:
        document = {"result": answer.code.value, "pod": answer.pod, "tier": in_tier}
        document |= {"call": call} if call else {}
        document |= {"detail": answer.detail, "sentence": sentence, "dryRun": is_dry}  # type: ignore[dict-item]
        print_document(document, form)
    elif not is_refused:
        print(f"{sentence} Nothing was changed." if is_dry else sentence)
    if is_refused:
        raise WorldFailed(sentence.removesuffix("."))


def status_document(policy: TierPolicy, seen: PoolsSeen) -> dict[str, Any]:
    """Give every tier and every pod."""
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
    from equipoise.model.names import by_ordinal

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


def print_status(document: Mapping[str, Any], form: Format) -> None:
    """Print the tiers; the pods of each are in the document only."""
    for said in document["warnings"]:
        warn(said)
    if form is not Format.TABLE:
        print_document(document, form)
        return
    from equipoise.app.console import Console

    Console().print(status_table(document["tiers"]))


def status_table(tiers: Sequence[Mapping[str, Any]]) -> Any:
    """Lay the tiers out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("TIER", overflow="fold")
    table.add_column("TYPE", no_wrap=True)
    for head in ("TARGET", "ASSIGNED", "FREE", "BUSY", "DRAINING", "CALLS"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for tier in tiers:
        diff = tier["diff"]
        said = f"over by {diff}" if diff > 0 else f"under by {-diff}" if diff < 0 else ""
        numbers = (tier[name] for name in ("target", "assigned", "available", "busy", "draining", "calls"))
        table.add_row(tier["tier"], tier["type"], *map(str, numbers), Text(said, style="bold yellow"))
    return table


def print_fsck(
    found: Sequence[Violation], notes: Sequence[str], mended: Sequence[PoolAnswer], form: Format
) -> None:
    """Print what is broken, what was mended, and what is worth a look."""
    if form is not Format.TABLE:
        rows = [{"invariant": each.invariant.value, "key": each.key, "detail": each.detail} for each in found]
        repairs = [{"pod": each.pod, "result": each.code.value, "detail": each.detail} for each in mended]
        print_document(
            {"clean": not found, "violations": rows, "repairs": repairs, "notes": list(notes)}, form
        )
        return
    for repair in mended:
        print(plain(f"{repair.pod or 'epoch'}: {repair.code.value}: {repair.detail or repair.tier}"))
    for each in found:
        print(plain(f"{each.invariant.value}  {each.key}: {each.detail}"))
    for note in notes:
        print(plain(f"note: {note}"), file=sys.stderr)
    if not found:
        print("The pools are clean.")


def log_moves(outcomes: "Sequence[Outcome]", moved: int) -> None:
    """Write the seed's log lines, to standard error."""
    for outcome in outcomes:
        move = outcome.action
        if outcome.result == "Moved":
            tiers = f"from_tier={getattr(move, 'source', '')} to_tier={getattr(move, 'destination', '')}"
            print(f'"Rebalanced pod" pod={move.pod} {tiers}', file=sys.stderr)
        if outcome.detail:
            warn(f"{move.pod}: {outcome.detail}")
    if moved:
        print(f'"Rebalancing complete" pods_moved={moved}', file=sys.stderr)
