"""A change of the tiers: what a person asks for, in the shape in which the config stands; pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from equipoise.core.documents import read_json
from equipoise.core.errors import BadInput
from equipoise.core.pools import PoolsSeen
from equipoise.pools.policy import CONCURRENT_MAX, TierPolicy, TierType

SOURCE = "config set"
FORM = re.compile(r"([^=,\s]+)=(?:(exclusive|shared):)?(\d{1,9})(?::(\d{1,9}))?")


class Setting(msgspec.Struct, frozen=True):
    """One tier as `NAME=PODS` or `NAME=TYPE:PODS[:CALLS]` says it."""

    tier: str
    target: int
    type: TierType | None = None
    concurrent_max: int | None = None


def read_settings(words: Sequence[str]) -> list[Setting]:
    """Read `gold=4,basic=shared:2:5`."""
    settings: dict[str, Setting] = {}
    for word in (part.strip() for words_ in words for part in words_.split(",") if part.strip()):
        found = FORM.fullmatch(word)
        if found is None:
            raise BadInput(
                f"{SOURCE}: expected NAME=PODS or NAME=exclusive|shared:PODS[:CALLS], got {word!r}"
            )
        name, kind, target, most = found.groups()
        if name in settings:
            raise BadInput(f"{SOURCE}: {name}: expected each tier once")
        settings[name] = Setting(
            name, int(target), None if kind is None else TierType(kind), None if most is None else int(most)
        )
    if not settings:
        raise BadInput(f"{SOURCE}: expected NAME=PODS,..., such as gold=4,standard=3,basic=2")
    return list(settings.values())


def changed(text: str | None, settings: Sequence[Setting]) -> dict[str, Any]:
    """Lay the settings over the config. Tiers that are not named stay as they are."""
    document: dict[str, Any] = {} if text is None else read_json(text)
    tiers = document.get("tiers", document)
    _expect_known(set(tiers), settings)
    is_short = all(isinstance(value, int) for value in tiers.values())
    if is_short and any(setting.type or setting.concurrent_max for setting in settings):
        # The short shape has no room for types.
        for name, target in tiers.items():
            tiers[name] = {"type": TierType.EXCLUSIVE.value, "target": target}
        is_short = False
    for setting in settings:
        if is_short:
            tiers[setting.tier] = setting.target
        else:
            tiers[setting.tier] = _tier(tiers, setting)
    chain = document.get("default_chain") if tiers is not document else None
    if chain:
        chain += [setting.tier for setting in settings if setting.tier not in chain]
    return document


def _expect_known(known: set[str], settings: Sequence[Setting]) -> None:
    """Refuse a name that is probably misspelt."""
    for setting in settings:
        if known and setting.tier not in known and setting.type is None:
            raise BadInput(
                f"{SOURCE}: {setting.tier}: expected one of {', '.join(sorted(known))}; "
                f"a new tier needs its type, such as {setting.tier}=exclusive:{setting.target}"
            )


def _tier(tiers: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    after = dict(tiers.get(setting.tier) or {"type": TierType.EXCLUSIVE.value}) | {"target": setting.target}
    if setting.type is not None:
        after["type"] = setting.type.value
    if setting.concurrent_max is not None:
        after["max_concurrent"] = setting.concurrent_max
    return after


def emptied(old: TierPolicy | None, new: TierPolicy, seen: PoolsSeen) -> list[str]:
    """Name the tiers that must have no pods: taken away, left out of the chain, or of another type now."""
    names = []
    for pool in seen.pools:
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


def document_of(policy: TierPolicy) -> dict[str, Any]:
    """Write a policy in its longest shape."""
    tiers: dict[str, Any] = {}
    for name, tier in policy.tiers.items():
        tiers[name] = {"type": tier.type.value, "target": tier.target}
        if tier.is_shared or tier.concurrent_max != CONCURRENT_MAX:
            tiers[name]["max_concurrent"] = tier.concurrent_max
    return {"tiers": tiers, "default_chain": list(policy.chain)}
