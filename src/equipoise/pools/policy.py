"""Tiers and their targets, read from `PREFIX:tier:config` in any of three shapes.

{"tiers": {"gold": {"type": "exclusive", "target": 4}}, "default_chain": ["gold"]}
{"gold": {"type": "exclusive", "target": 4}}
{"gold": 4}

`pools config set` changes them in the shape that the config has. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec
from pydantic import AfterValidator, Field, model_validator

from equipoise.core.documents import read_json, validated
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.pools import PoolsSnapshot, expect_name
from equipoise.crd.fields import INTEGER_MAX, SchemaPart

BALANCER = "pools"

CONCURRENT_MAX = 5
"""How many calls a pod of a shared tier takes by default."""


class TierType(StrEnum):
    """How many calls a pod of a tier takes: one, or several."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"


Name = Annotated[str, AfterValidator(expect_name)]
Pods = Annotated[int, Field(strict=True, ge=0, le=INTEGER_MAX)]


class Tier(SchemaPart):
    """One tier: its type, and how many pods it should have. A target of 0 empties it."""

    type: TierType
    target: Pods
    concurrent_max: Annotated[int, Field(strict=True, ge=1, le=INTEGER_MAX)] = Field(
        CONCURRENT_MAX, alias="max_concurrent"
    )

    @property
    def is_shared(self) -> bool:
        """Whether its pods take several calls."""
        return self.type is TierType.SHARED

    @property
    def available_type(self) -> str:
        """The type of the Redis key with its free pods."""
        return "zset" if self.is_shared else "set"


class TierPolicy(SchemaPart):
    """All tiers, and the order in which they are filled."""

    tiers: dict[Name, Tier]
    default_chain: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _chain_of_tiers(self) -> Self:
        if not self.tiers:
            raise ValueError("expected at least one tier")
        names: set[str] = set()
        for number, name in enumerate(self.default_chain):
            if name not in self.tiers:
                raise ValueError(f"default_chain[{number}]: expected one of the tiers, got {name!r}")
            if name in names:
                raise ValueError(f"default_chain[{number}]: expected each tier once, got {name!r} twice")
            names.add(name)
        return self

    @property
    def chain(self) -> tuple[str, ...]:
        """The tiers in order; by default the exclusive by name, then the shared by name."""
        if self.default_chain:
            return self.default_chain
        return tuple(sorted(self.tiers, key=lambda name: (self.tiers[name].is_shared, name)))

    @property
    def names(self) -> list[str]:
        """All tiers: the chain, then the others by name."""
        return [*self.chain, *sorted(set(self.tiers) - set(self.chain))]

    @property
    def pods_targeted(self) -> int:
        """The sum of the targets of the chain."""
        return sum(self.tiers[name].target for name in self.chain)


def read_policy(text: str | None, source: str) -> TierPolicy:
    """Read the config in any of its shapes, or refuse it with the path of the bad field."""
    if text is None:
        raise BadInput(
            f"{source}: missing; write it with `equipoise pools config set NAME=PODS,...`, such as "
            "gold=4,basic=2"
        )
    try:
        document = read_json(text)
    except DECODE_ERRORS as error:
        raise BadInput(f"{source}: expected JSON: {error}") from error
    return policy_from(document, source)


def policy_from(document: object, source: str) -> TierPolicy:
    """Read a parsed config in any of its shapes."""
    if not isinstance(document, Mapping):
        raise BadInput(f"{source}: expected a mapping of tiers")
    if "tiers" in document:
        return _validated(document, source)
    if document and all(
        isinstance(value, int) and not isinstance(value, bool) for value in document.values()
    ):
        document = {name: {"type": "exclusive", "target": target} for name, target in document.items()}
    return _validated({"tiers": document}, source, implied="tiers.")


def _validated(document: Mapping[str, Any], source: str, implied: str = "") -> TierPolicy:
    try:
        return validated(TierPolicy, document, source)
    except BadInput as error:
        # Errors name the path that the user wrote: a map of tiers alone has no `tiers`.
        text = str(error).removeprefix(f"{source}: ").removeprefix("document: ")
        text = text.removesuffix(", got a mapping").removeprefix(implied).replace(".[key]", "")
        raise BadInput(f"{source}: {text}") from error


def unfilled(policy: TierPolicy, pods: int) -> str:
    """Return a sentence where there are fewer pods than the targets demand; empty otherwise."""
    targeted = policy.pods_targeted
    if pods >= targeted:
        return ""
    return (
        f"the targets require {targeted} pods, but only {pods} exist, so some tiers stay below their targets"
    )


def tiers_for_scripts(text: str | None, source: str) -> str:
    """Return the config's tiers as the scripts in Redis read them, or refuse the config."""
    return encode_tiers(read_policy(text, source))


def encode_tiers(policy: TierPolicy) -> str:
    """Return the tiers as JSON for the scripts, the chain first."""
    return "".join(
        f"{name} {tier.type} {tier.target} {tier.concurrent_max} {1 if name in policy.chain else 0};"
        for name in policy.names
        for tier in [policy.tiers[name]]
    )


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
    for change in changes:
        if tiers and change.tier not in tiers and change.type is None:  # it is probably misspelt
            raise BadInput(
                f"{SOURCE}: {change.tier}: expected one of {', '.join(sorted(tiers))}; "
                f"a new tier needs its type, such as {change.tier}=exclusive:{change.target}"
            )
    is_short = all(isinstance(value, int) for value in tiers.values())
    if is_short and any(change.type or change.concurrent_max for change in changes):
        # The short shape cannot express types.
        for name, target in tiers.items():
            tiers[name] = {"type": TierType.EXCLUSIVE.value, "target": target}
        is_short = False
    for change in changes:
        if is_short:
            tiers[change.tier] = change.target
            continue
        tier = tiers[change.tier] = dict(tiers.get(change.tier) or {"type": TierType.EXCLUSIVE.value})
        tier["target"] = change.target
        if change.type is not None:
            tier["type"] = change.type.value
        if change.concurrent_max is not None:
            tier["max_concurrent"] = change.concurrent_max
    assert all(change.tier in tiers for change in changes), "every change is in the config"
    chain = document.get("default_chain") if tiers is not document else None
    if chain:
        chain += [change.tier for change in changes if change.tier not in chain]
    return document


def tiers_to_empty(old: TierPolicy | None, new: TierPolicy, snapshot: PoolsSnapshot) -> list[str]:
    """Return the tiers that must have no pods: removed, removed from the chain, or of a new type."""
    names = []
    for pool in snapshot.pools:
        before, after = None if old is None else old.tiers.get(pool.tier), new.tiers.get(pool.tier)
        if after is None:
            names.append(pool.tier)
            continue
        is_set_aside = old is not None and pool.tier in old.chain and pool.tier not in new.chain
        is_other = pool.available_type not in {after.available_type, "none"}
        is_retyped = before is not None and before.type is not after.type
        if is_set_aside or is_other or is_retyped:
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
