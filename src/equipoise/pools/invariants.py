"""The invariants of the pools, checked on a snapshot; pure."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.pools import EPOCH_MAX, PodKeys, PoolsSnapshot, TierKeys, by_ordinal
from equipoise.core.quantity import print_count, print_list
from equipoise.pools.policy import TierPolicy

MERCHANT = "merchant:"
SHOWN_MAX = 40
"""How many characters of an invalid value are shown."""


class Invariant(StrEnum):
    """What can be broken."""

    ONE_ASSIGNED = "OneAssigned"
    AVAILABLE_WITHIN_ASSIGNED = "AvailableWithinAssigned"
    TIER_KEY_AGREES = "TierKeyAgrees"
    DRAINING_NOT_AVAILABLE = "DrainingNotAvailable"
    KEY_TYPE = "KeyType"
    EPOCH_READABLE = "EpochReadable"


class Violation(msgspec.Struct, frozen=True):
    """A violated invariant: its kind, the key or pod, and the details."""

    invariant: Invariant
    key: str
    detail: str
    pod: str = ""


def violations(policy: TierPolicy | None, snapshot: PoolsSnapshot) -> list[Violation]:
    """Return all violations, in the order in which a person would repair them.

    Without a policy (the config's own key has a wrong type), a tier may be of either type.
    """
    found = list(_wrong_types(policy, snapshot))
    if snapshot.unreadable_epoch is not None:
        why = unreadable_epoch(snapshot.unreadable_epoch)
        found.append(Violation(Invariant.EPOCH_READABLE, f"{snapshot.prefix}:epoch", why))
    homes: dict[str, list[str]] = defaultdict(list)
    for pool in snapshot.pools:
        for pod in pool.assigned:
            homes[pod].append(pool.tier)
    for pod in sorted(snapshot.pods, key=by_ordinal):
        found += _of_pod(pod, homes.get(pod, []), snapshot)
    return found


def broken_invariants(count: int) -> str:
    """Return how many invariants the keys violate, and the command that lists them."""
    are = "is" if count == 1 else "are"
    return f"{print_count(count, 'invariant')} {are} violated; run `equipoise pools fsck` for details"


def unreadable_epoch(text: str) -> str:
    """Return what is wrong with a text that is not a valid epoch."""
    shown = repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...")
    return (
        f"expected a whole number up to {EPOCH_MAX}, got {shown}; every leader is refused until it is deleted"
    )


def _wrong_types(policy: TierPolicy | None, snapshot: PoolsSnapshot) -> Iterator[Violation]:
    for pool in snapshot.pools:
        tier = None if policy is None else policy.tiers.get(pool.tier)
        free = {"set", "zset"} if tier is None else {tier.available_type}
        yield from _expect(f"{snapshot.prefix}:pool:{pool.tier}:assigned", pool.assigned_type, {"set"})
        yield from _expect(f"{snapshot.prefix}:pool:{pool.tier}:available", pool.available_type, free)
    others = [snapshot.wrong, *(pod.wrong for pod in snapshot.pods.values())]
    for key, found in sorted(item for wrong in others for item in wrong.items()):
        yield Violation(Invariant.KEY_TYPE, key, f"has the wrong type {found}")


def _expect(key: str, found: str, expected: set[str]) -> Iterator[Violation]:
    if found not in {"none", *expected}:
        yield Violation(Invariant.KEY_TYPE, key, f"expected a {' or '.join(sorted(expected))}, got a {found}")


def _of_pod(pod: str, homes: list[str], snapshot: PoolsSnapshot) -> Iterator[Violation]:
    keys, tier_key = snapshot.pods[pod], f"{snapshot.prefix}:pod:tier:{pod}"
    is_available = any(pod in pool.available for pool in snapshot.pools)
    is_named = keys.tier is not None or tier_key in keys.wrong or pod in snapshot.metadata or is_available
    is_merchants = (keys.tier or "").startswith(MERCHANT)
    if len(homes) > 1 or (not homes and not is_merchants and is_named):
        where = print_list(sorted(homes)) if homes else "none"
        detail = f"{pod} must be assigned to exactly one tier, but is assigned to {where}"
        first = homes[0] if homes else keys.tier or ""
        key = f"{snapshot.prefix}:pool:{first}:assigned" if first else f"{snapshot.prefix}:pod:metadata"
        yield Violation(Invariant.ONE_ASSIGNED, key, detail, pod)
    for pool in snapshot.pools:
        if pod in pool.available:
            yield from _of_free_pod(pod, keys, pool.tier, snapshot.prefix, is_home=pool.tier in homes)
    if len(homes) == 1 and keys.tier != homes[0] and tier_key not in keys.wrong:
        found = "is missing" if keys.tier is None else f"names {keys.tier}"
        detail = f"{pod} is assigned to {homes[0]}, but its tier key {found}"
        yield Violation(Invariant.TIER_KEY_AGREES, tier_key, detail, pod)


def _of_free_pod(pod: str, keys: PodKeys, tier: str, prefix: str, *, is_home: bool) -> Iterator[Violation]:
    key = f"{prefix}:pool:{tier}:available"
    if not is_home:
        detail = f"{pod} is available in {tier}, but not assigned to it"
        yield Violation(Invariant.AVAILABLE_WITHIN_ASSIGNED, key, detail, pod)
    if keys.is_draining:
        detail = f"{pod} is draining, but available in {tier}"
        yield Violation(Invariant.DRAINING_NOT_AVAILABLE, key, detail, pod)


def notes(policy: TierPolicy | None, snapshot: PoolsSnapshot) -> list[str]:
    """Return notes on allowed but unusual states: another allocator's unfinished write, or leftovers."""
    if policy is None:
        return []
    return [*_notes_on_pools(policy, snapshot), *_notes_on_metadata(snapshot)]


def _notes_on_pools(policy: TierPolicy, snapshot: PoolsSnapshot) -> Iterator[str]:
    for pool in snapshot.pools:
        tier = policy.tiers.get(pool.tier)
        if tier is None:
            if pool.assigned or pool.available:
                yield _left_behind(pool)
            continue
        for pod in sorted(pool.assigned, key=by_ordinal):
            keys = snapshot.pods[pod]
            calls = pool.available.get(pod)
            if calls is not None and not 0 <= calls < math.inf:
                yield f"{pod}: its number of calls in {pool.tier} is {calls:g}"
            if calls is not None and not tier.is_shared and keys.lease is not None:
                yield f"{pod}: it is available in {pool.tier} although it has a lease"
            if calls is None and not (keys.is_draining or keys.lease is not None or keys.calls):
                yield f"{pod}: it has no call and no lease, but is not available in {pool.tier}"


def _left_behind(pool: TierKeys) -> str:
    count = len(pool.assigned)
    pods = f"{print_count(count, 'pod')} {'is' if count == 1 else 'are'}"
    kind = "shared" if pool.available_type == "zset" else "exclusive"
    back = f"`equipoise pools config set {pool.tier}={kind}:{count}`"
    return f"{pool.tier}: {pods} in this tier, which the config does not have; {back} adds it"


def _notes_on_metadata(snapshot: PoolsSnapshot) -> Iterator[str]:
    for pod, text in sorted(snapshot.metadata.items()):
        try:
            is_mapping = isinstance(json.loads(text), dict)
        except DECODE_ERRORS:
            is_mapping = False
        if not is_mapping:
            yield f"{pod}: its metadata is malformed and is not changed"
