"""Changes of the tiers from `pools config set`, applied in the shape that the config has; pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from equipoise.core.documents import read_json
from equipoise.core.errors import BadInput
from equipoise.core.pools import PoolsSnapshot
from equipoise.pools.policy import CONCURRENT_MAX, TierPolicy, TierType

SOURCE = "config set"
FORM = re.compile(r"([^=,\s]+)=(?:(exclusive|shared):)?(\d{1,9})(?::(\d{1,9}))?")


class TierChange(msgspec.Struct, frozen=True):
    """One tier, written as `NAME=PODS` or `NAME=TYPE:PODS[:CALLS]`."""

    tier: str
    target: int
    type: TierType | None = None
    concurrent_max: int | None = None


def read_changes(texts: Sequence[str]) -> list[TierChange]:
    """Read `gold=4,basic=shared:2:5`."""
    changes: dict[str, TierChange] = {}
    for entry in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        match = FORM.fullmatch(entry)
        if match is None:
            raise BadInput(
                f"{SOURCE}: expected NAME=PODS or NAME=exclusive|shared:PODS[:CALLS], got {entry!r}"
            )
        name, kind, target, most = match.groups()
        if name in changes:
            raise BadInput(f"{SOURCE}: {name}: expected each tier once")
        changes[name] = TierChange(
            name, int(target), None if kind is None else TierType(kind), None if most is None else int(most)
        )
    if not changes:
        raise BadInput(f"{SOURCE}: expected NAME=PODS,..., such as gold=4,standard=3,basic=2")
    return list(changes.values())


def apply_changes(text: str | None, changes: Sequence[TierChange]) -> dict[str, Any]:
    """Return the config with the changes. Tiers that are not named stay as they are."""
    document: dict[str, Any] = {} if text is None else read_json(text)
    tiers = document.get("tiers", document)
    _expect_existing(set(tiers), changes)
    is_short = all(isinstance(value, int) for value in tiers.values())
    if is_short and any(change.type or change.concurrent_max for change in changes):
        # The short shape cannot express types.
        for name, target in tiers.items():
            tiers[name] = {"type": TierType.EXCLUSIVE.value, "target": target}
        is_short = False
    for change in changes:
        if is_short:
            tiers[change.tier] = change.target
        else:
            tiers[change.tier] = _tier(tiers, change)
    assert all(change.tier in tiers for change in changes), "every change is in the config"
    chain = document.get("default_chain") if tiers is not document else None
    if chain:
        chain += [change.tier for change in changes if change.tier not in chain]
    return document


def _expect_existing(existing: set[str], changes: Sequence[TierChange]) -> None:
    """Raise BadInput for a tier that is not in the config and has no type: it is probably misspelt."""
    for change in changes:
        if existing and change.tier not in existing and change.type is None:
            raise BadInput(
                f"{SOURCE}: {change.tier}: expected one of {', '.join(sorted(existing))}; "
                f"a new tier needs its type, such as {change.tier}=exclusive:{change.target}"
            )


def _tier(tiers: Mapping[str, Any], change: TierChange) -> dict[str, Any]:
    after = dict(tiers.get(change.tier) or {"type": TierType.EXCLUSIVE.value}) | {"target": change.target}
    if change.type is not None:
        after["type"] = change.type.value
    if change.concurrent_max is not None:
        after["max_concurrent"] = change.concurrent_max
    return after


def tiers_to_empty(old: TierPolicy | None, new: TierPolicy, snapshot: PoolsSnapshot) -> list[str]:
    """Return the tiers that must have no pods: removed, removed from the chain, or of a new type."""
    names = []
    for pool in snapshot.pools:
        before, after = None if old is None else old.tiers.get(pool.tier), new.tiers.get(pool.tier)
        is_set_aside = (
            old is not None and pool.tier in old.chain and after is not None and pool.tier not in new.chain
        )
        kind = None if after is None else {"zset" if after.is_shared else "set", "none"}
        is_other = kind is not None and pool.available_type not in kind
        is_retyped = before is not None and after is not None and before.type is not after.type
        if after is None or is_set_aside or is_other or is_retyped:
            names.append(pool.tier)
    return names


def config_document(policy: TierPolicy) -> dict[str, Any]:
    """Return the config of a policy in the shape with types and chain."""
    tiers: dict[str, Any] = {}
    for name, tier in policy.tiers.items():
        tiers[name] = {"type": tier.type.value, "target": tier.target}
        if tier.is_shared or tier.concurrent_max != CONCURRENT_MAX:
            tiers[name]["max_concurrent"] = tier.concurrent_max
    return {"tiers": tiers, "default_chain": list(policy.chain)}
