"""Pools of pods in Redis: snapshots, answers of writers with their sentences, and names within Redis keys."""

import re
from enum import StrEnum

import msgspec

EPOCH_MAX = 2**31 - 1
"""The largest number of Lease transitions."""


class TierKeys(msgspec.Struct, frozen=True):
    """The two keys of one tier."""

    tier: str
    assigned_type: str
    """The type that Redis reports: `set`, `none`, or a wrong one."""
    available_type: str
    assigned: tuple[str, ...] = ()
    available: dict[str, float] = {}
    """Free pods with their number of calls, which is 0 in an exclusive tier."""


class PodKeys(msgspec.Struct, frozen=True):
    """What the keys of one pod say. A key of a wrong type says nothing, and is named in `wrong`."""

    tier: str | None = None
    is_draining: bool = False
    lease: str | None = None
    """The call that holds the pod; empty for a lease without a call."""
    calls: tuple[str, ...] = ()
    """Our calls whose leases have not expired."""
    uid: str = ""
    wrong: dict[str, str] = {}
    """Keys of a wrong type, with that type."""
    suspended: str = ""
    """Why the operator suspended the pod: it is not ready."""


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
    """Busy pods that move to another tier on their release."""
    wrong: dict[str, str] = {}
    """Other keys of a wrong type, with that type."""
    unreadable_epoch: str | None = None
    """The value of `PREFIX:epoch` when it is no valid epoch."""


class PoolCode(StrEnum):
    """What a writer answered. Silence is no answer: it raises."""

    MOVED = "Moved"
    ALREADY_THERE = "AlreadyThere"
    PENDING = "Pending"
    """Busy and marked: the pod moves when it is released."""
    BUSY = "Busy"
    LEASED = "Leased"
    DRAINING = "Draining"
    SOURCE_NOT_OVER = "SourceNotOver"
    DESTINATION_FULL = "DestinationFull"
    NOT_THERE = "NotThere"
    UNSOUND = "Unsound"
    """The pod's keys are contradictory (`fsck` describes how), or its name is in other pods' keys."""
    OTHER_UID = "OtherUid"
    """The name belongs to another incarnation of the pod now."""
    FENCED = "Fenced"
    """A newer leader has written."""
    EPOCH_UNREADABLE = "EpochUnreadable"
    """The stored epoch is invalid; `fsck` reports it, and removes it on request."""
    CONFIG_CHANGED = "ConfigChanged"
    NO_TIER = "NoTier"
    WRONG_TYPE = "WrongType"
    MERCHANT = "Merchant"
    """The pod belongs to a merchant's pool, which we do not change."""
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
    """Not executed, since the server failed or refused at an earlier one of several requests."""
    UNANSWERED = "Unanswered"
    """The outcome of this one of several requests is unknown."""


class PoolAnswer(msgspec.Struct, frozen=True):
    """The answer of one writer: its code, and what it was about."""

    code: PoolCode
    pod: str = ""
    tier: str = ""
    detail: str = ""


SENTENCES = {
    PoolCode.ALLOCATED: "{pod} of {tier} serves the call {call}.",
    PoolCode.NONE_FREE: "no pod is free{in_tier}",
    PoolCode.NO_TIER: "--tier: expected a tier of the config",
    PoolCode.CALL_TAKEN: "the call {call} belongs to another allocator",
    PoolCode.RELEASED: "{pod} is released{in_tier}.",
    PoolCode.UNKNOWN_CALL: "There is no call {call}, or it has ended.",
    PoolCode.NOT_OWNER: "the call {call} is served by {pod}",
    PoolCode.RENEWED: "{pod} continues the call {call}.",
    PoolCode.LEASE_LOST: "{pod} no longer belongs to the call {call}",
    PoolCode.DRAINED: "{pod} of {tier} receives no new calls; it still has {detail}.",
    PoolCode.UNDRAINED: "{pod} of {tier} receives calls again.",
    PoolCode.NOT_DRAINING: "{pod} of {tier} is not draining; nothing was changed.",
    PoolCode.NOT_THERE: "{pod} is in no tier.",
    PoolCode.REGISTERED: "{pod} is in {tier} now.",
    PoolCode.REPLACED: "{pod} is a new pod in {tier}; the calls of the old one ended.",
    PoolCode.KNOWN: "{pod} is already in {tier}; nothing was changed.",
    PoolCode.UNREGISTERED: "{pod} was unregistered.",
    PoolCode.OTHER_UID: "{pod} is another pod with the same name now",
    PoolCode.MERCHANT: "{pod} belongs to a merchant's pool, which Equipoise does not change",
    PoolCode.UNSOUND: "the keys of {pod} contradict each other; run `equipoise pools fsck` for details",
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


NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
LENGTH_MAX = 253
ORDINAL = re.compile(r"(.*?)(\d{1,18})")


def expect_name(name: str) -> str:
    """Return a name that is one part of a key; raise ValueError with the expected form for any other."""
    if len(name) > LENGTH_MAX or not NAME.fullmatch(name):
        raise ValueError(f"expected letters, digits, '-', '_' and '.', got {name[:60]!r}")
    return name


def by_ordinal(name: str) -> tuple[str, int, str]:
    """Return a sort key in the order of a StatefulSet's ordinals: agent-2 before agent-10."""
    found = ORDINAL.fullmatch(name)
    return (name, -1, name) if found is None else (found[1], int(found[2]), name)


def ordinal_of(name: str) -> int | None:
    """Return the ordinal of a StatefulSet's pod, or None."""
    found = re.fullmatch(r".*-(\d{1,18})", name)
    return None if found is None else int(found[1])
