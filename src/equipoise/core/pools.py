"""Pools of pods as they stand in Redis: what one look saw, and what one writer answered.

Names that become part of a Redis key.
"""

import re
from enum import StrEnum

import msgspec

EPOCH_MAX = 2**31 - 1
"""How far a Lease can count."""


class TierKeys(msgspec.Struct, frozen=True):
    """The two keys of one tier."""

    tier: str
    assigned_type: str
    """Redis' own word: `set`, `none`, or what should not be there."""
    available_type: str
    assigned: tuple[str, ...] = ()
    available: dict[str, float] = {}
    """Free pods; in a shared tier with the number of their calls, in an exclusive one with 0."""


class PodKeys(msgspec.Struct, frozen=True):
    """What the keys of one pod say. A key of a wrong type says nothing, and is named in `wrong`."""

    tier: str | None = None
    is_draining: bool = False
    lease: str | None = None
    """The call that holds it; empty for a lease that does not say."""
    calls: tuple[str, ...] = ()
    """The calls of ours that are alive."""
    uid: str = ""
    wrong: dict[str, str] = {}
    """Keys of a wrong type, with that type."""
    suspended: str = ""
    """Why it was drained, where nobody asked for it: its pod is not ready."""


class PoolsSnapshot(msgspec.Struct, frozen=True):
    """All pools under one prefix. Each pod was seen at one moment: its tiers and its keys are one state."""

    prefix: str
    config: str | None
    """The text of `PREFIX:tier:config`; None when it is missing."""
    version: str
    """The SHA-1 of that text; empty when it is missing."""
    epoch: int | None
    pools: tuple[TierKeys, ...] = ()
    pods: dict[str, PodKeys] = {}
    metadata: dict[str, str] = {}
    pending: dict[str, str] = {}
    """Busy pods that move to another tier once they are released."""
    wrong: dict[str, str] = {}
    """Other keys of a wrong type, with that type."""
    unreadable_epoch: str | None = None
    """What stands in `PREFIX:epoch` when it is no number that a Lease can count to."""


class PoolCode(StrEnum):
    """What a writer answered. Silence is no answer: it raises."""

    MOVED = "Moved"
    ALREADY_THERE = "AlreadyThere"
    PENDING = "Pending"
    """Busy, and marked: its release delivers it."""
    BUSY = "Busy"
    LEASED = "Leased"
    DRAINING = "Draining"
    SOURCE_NOT_OVER = "SourceNotOver"
    DESTINATION_FULL = "DestinationFull"
    NOT_THERE = "NotThere"
    UNSOUND = "Unsound"
    """What the keys say of the pod contradicts itself (`fsck` tells how), or its name is in others' keys."""
    OTHER_UID = "OtherUid"
    """The name belongs to another incarnation of the pod now."""
    FENCED = "Fenced"
    """A newer leader has written."""
    EPOCH_UNREADABLE = "EpochUnreadable"
    """What stands for the newest leader's epoch is none; `fsck` tells, and forgets it when asked."""
    CONFIG_CHANGED = "ConfigChanged"
    NO_TIER = "NoTier"
    WRONG_TYPE = "WrongType"
    MERCHANT = "Merchant"
    """The pod belongs to a merchant's pool, which is not ours to touch."""
    REGISTERED = "Registered"
    REPLACED = "Replaced"
    KNOWN = "Known"
    UNREGISTERED = "Unregistered"
    ALLOCATED = "Allocated"
    NONE_FREE = "NoneFree"
    CALL_TAKEN = "CallTaken"
    """Another allocator has a record of this call."""
    RELEASED = "Released"
    UNKNOWN_CALL = "UnknownCall"
    NOT_OWNER = "NotOwner"
    RENEWED = "Renewed"
    LEASE_LOST = "LeaseLost"
    DRAINED = "Drained"
    UNDRAINED = "Undrained"
    NOT_DRAINING = "NotDraining"
    HEALTHY = "Healthy"
    SUSPECTED = "Suspected"
    WAITING = "Waiting"
    RECOVERED = "Recovered"
    STORED = "Stored"
    TIER_IN_USE = "TierInUse"
    MENDED = "Mended"
    SOUND = "Sound"
    UNSAFE = "Unsafe"
    FAILED = "Failed"
    """One of many, which was not done since the server failed or refused before it."""
    UNANSWERED = "Unanswered"
    """One of many, of which nobody knows whether it was done."""


class PoolAnswer(msgspec.Struct, frozen=True):
    """The answer of one writer: its code, and what it was about."""

    code: PoolCode
    pod: str = ""
    tier: str = ""
    detail: str = ""


NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
LENGTH_MAX = 253
ORDINAL = re.compile(r"(.*?)(\d{1,18})")


def expect_name(name: str) -> str:
    """Refuse what would not stay one part of a key; a ValueError says what is expected."""
    if len(name) > LENGTH_MAX or not NAME.fullmatch(name):
        raise ValueError(f"expected letters, digits, '-', '_' and '.', got {name[:60]!r}")
    return name


def by_ordinal(name: str) -> tuple[str, int, str]:
    """Order names as a StatefulSet counts: agent-2 before agent-10."""
    found = ORDINAL.fullmatch(name)
    return (name, -1, name) if found is None else (found[1], int(found[2]), name)


def ordinal_of(name: str) -> int | None:
    """Return the number at the end of a StatefulSet's pod, or None."""
    found = re.fullmatch(r".*-(\d{1,18})", name)
    return None if found is None else int(found[1])
