"""The shapes of a plan for a node and of the file that it reads, as JSON Schema."""

from typing import Any

from equipoise.core.reason import Code

Shape = dict[str, Any]
TEXT: Shape = {"type": "string"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBERS: Shape = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
AMOUNT: Shape = {"type": ["number", "string"]}
AMOUNT_OR_NULL: Shape = {"type": ["number", "string", "null"]}
TEXTS: Shape = {"type": "object", "additionalProperties": TEXT}
KINDS = ("EvictPod", "ThrottlePod", "RestorePod", "DisableScheduling", "EnableScheduling")
CODES = (
    *(Code.THROTTLE, Code.EVICT, Code.THROTTLE_AND_EVICT, Code.RESTORE, Code.DISABLE_SCHEDULING),
    *(Code.BELOW_WATERLINES, Code.NO_ELIGIBLE_PODS, Code.HELD_BY_THRESHOLD, Code.HELD_BY_COOLDOWN),
    *(Code.HELD_BY_BUDGET, Code.HELD_BY_PAUSE),
)


def _record(fields: Shape, *, optional: tuple[str, ...] = ()) -> Shape:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "required": required, "properties": fields}


def _list_of(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def plan() -> Shape:
    """Return the shape of a plan: one decision, its actions with the gaps after each."""
    code = {"type": "string", "enum": [code.value for code in CODES]}
    fields: Shape = {
        "kind": {"type": "string", "enum": list(KINDS)},
        "pod": TEXT,
        "node": TEXT,
        "metric": TEXT,
        "release": {"type": ["number", "null"]},
        "gap_after": NUMBERS,
        "quota": {"type": "object", "additionalProperties": {"type": "integer"}},
        "reclaim": {"type": "object", "additionalProperties": COUNT},
        "grace_seconds": COUNT,
    }
    optional = tuple(name for name in fields if name != "kind")
    rule = _record(
        {
            "metric": TEXT,
            "usage": {"type": ["number", "null"]},
            "waterline": {"type": "number"},
            "action": TEXT,
            "state": {"type": "string", "enum": ["Crossed", "Released", "Clear", "Unknown"]},
            "breaches": {"type": "integer"},
            "clear": {"type": "integer"},
            "triggered": {"type": "boolean"},
            "preview": {"type": "boolean"},
        }
    )
    numbers = _record(
        {
            "gaps": _record({"evict": NUMBERS, "throttleDown": NUMBERS, "throttleUp": NUMBERS}),
            "left": _record({"evict": NUMBERS, "throttleDown": NUMBERS}),
            "budget": COUNT,
            "cut_by_budget": COUNT,
            "pods": COUNT,
            "eligible": COUNT,
            "unknown": COUNT,
            "terminating": COUNT,
            "refused": COUNT,
            "rules": {"type": "object", "additionalProperties": rule},
        }
    )
    decision = _record(
        {
            "subject": TEXT,
            "reason": code,
            "sentence": TEXT,
            "actions": _list_of(_record(fields, optional=optional)),
            "held": _list_of(_record({**fields, "reason": code, "sentence": TEXT}, optional=optional)),
            "numbers": numbers,
        }
    )
    return _record({"balancer": {"const": "qos"}, "decisions": _list_of(decision)})


def _closed(fields: Shape, *, required: tuple[str, ...] = ()) -> Shape:
    shape: Shape = {"type": "object", "properties": fields, "additionalProperties": False}
    return shape | ({"required": list(required)} if required else {})


def plan_file() -> Shape:
    """Return the shape of the file: the policies in it have schemas of their own."""
    amounts = _closed({"cpu": AMOUNT_OR_NULL, "memory": AMOUNT_OR_NULL})
    usage = {"type": "object", "additionalProperties": AMOUNT_OR_NULL}
    container = _closed(
        {
            "name": TEXT,
            "cpu": AMOUNT_OR_NULL,
            "memory": AMOUNT_OR_NULL,
            "reclaimable": AMOUNT,
            "quota": {"type": "integer", "minimum": -1},
            "request": amounts,
            "limit": amounts,
        },
        required=("name",),
    )
    pod = _closed(
        {
            "name": TEXT,
            "namespace": TEXT,
            "qosClass": {"enum": ["BestEffort", "Burstable", "Guaranteed"]},
            "priority": {"type": "integer"},
            "priorityClassName": TEXT,
            "startTime": TEXT,
            "extendedCpuLimit": AMOUNT,
            "labels": TEXTS,
            "owner": TEXT,
            "containers": _list_of(container),
        },
        required=("name", "containers"),
    )
    counts = {"type": "object", "additionalProperties": COUNT}
    state = _closed(
        {
            "breaches": counts,
            "clear": counts,
            "throttled": _list_of(TEXT),
            "terminating": _list_of(TEXT),
            "lastTrigger": {"type": ["number", "string", "object", "null"]},
            "schedulingDisabled": {"type": "boolean"},
        }
    )
    node = _closed(
        {"name": TEXT, "cpu_cores": AMOUNT, "memory": AMOUNT, "usage": usage, "labels": TEXTS},
        required=("cpu_cores", "memory", "usage"),
    )
    return _closed(
        {
            "node": node,
            "pods": _list_of(pod),
            "policies": _list_of({"type": "object"}),
            "fresh": usage,
            "state": state,
            "budget": _closed({"evictionsPerRound": COUNT}),
            "now": TEXT,
        },
        required=("node", "pods", "policies"),
    )
