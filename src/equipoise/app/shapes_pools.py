"""The shapes of what `equipoise pools` prints."""

from typing import Any

from equipoise.model.pools import PoolCode
from equipoise.pools.fsck import Invariant
from equipoise.pools.policy import TierType

Shape = dict[str, Any]
TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer", "minimum": 0}
CODE: Shape = {"type": "string", "enum": [code.value for code in PoolCode]}


def _record(fields: dict[str, Shape], *optional: str) -> Shape:
    return {
        "type": "object",
        "required": [name for name in fields if name not in optional],
        "properties": fields,
    }


def _list(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def status() -> Shape:
    """Give every tier and its pods."""
    states = {"type": "string", "enum": ["idle", "busy", "draining"]}
    pod = _record({"pod": TEXT, "state": states, "calls": COUNT, "pendingTier": TEXT}, "pendingTier")
    counts = ("target", "assigned", "available", "busy", "draining", "calls")
    tier = _record(
        {"tier": TEXT, "type": {"enum": [kind.value for kind in TierType]}, "inChain": {"type": "boolean"}}
        | dict.fromkeys(counts, COUNT)
        | {"diff": {"type": "integer"}, "pods": _list(pod)}
    )
    return _record(
        {
            "prefix": TEXT,
            "configVersion": TEXT,
            "epoch": {"type": ["integer", "null"]},
            "tiers": _list(tier),
            "warnings": _list(TEXT),
        }
    )


def answer() -> Shape:
    """Give what one writer answered."""
    fields = {"result": CODE, "pod": TEXT, "tier": TEXT, "call": TEXT, "detail": TEXT, "sentence": TEXT}
    return _record(fields | {"dryRun": {"type": "boolean"}}, "call")


def fsck() -> Shape:
    """Give what is broken, and what was mended."""
    names = {"type": "string", "enum": [name.value for name in Invariant]}
    return _record(
        {
            "clean": {"type": "boolean"},
            "violations": _list(_record({"invariant": names, "key": TEXT, "detail": TEXT})),
            "repairs": _list(_record({"pod": TEXT, "result": CODE, "detail": TEXT})),
            "notes": _list(TEXT),
        }
    )


def config() -> Shape:
    """Give the tiers in their longest shape."""
    tier = _record(
        {
            "type": {"enum": [kind.value for kind in TierType]},
            "target": COUNT,
            "max_concurrent": {"type": "integer", "minimum": 1},
        },
        "max_concurrent",
    )
    tiers = {"type": "object", "additionalProperties": tier, "minProperties": 1}
    return _record({"tiers": tiers, "default_chain": _list(TEXT)}, "default_chain")
