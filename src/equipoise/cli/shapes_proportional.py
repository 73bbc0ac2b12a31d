"""The shapes of proportional plans and simulations, as JSON Schema."""

from typing import Any

from equipoise.core.reason import Code

Shape = dict[str, Any]
TEXT: Shape = {"type": "string"}
NUMBER: Shape = {"type": "number"}
COUNT: Shape = {"type": "integer", "minimum": 0}
TEXTS: Shape = {"type": "object", "additionalProperties": TEXT}
TEXTS_OR_NULLS: Shape = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
CODES = (Code.SET, Code.UNCHANGED, Code.HELD_BY_HYSTERESIS, Code.HELD_BY_PERCENTILE, Code.WARMING_UP)
LIVE_CODES = (
    *(Code.FOUGHT_BY, Code.REFUSED, Code.INFEASIBLE, Code.DEFERRED, Code.OPTED_OUT),
    *(Code.HELD_BY_PAUSE, Code.HELD_BY_LEADER, Code.HELD_BY_COOLDOWN, Code.HELD_BY_BUDGET),
    *(Code.HELD_BY_ROLLOUT, Code.HELD_BY_HEALTH),
)
"""Only of a live cluster."""


def _record(fields: Shape, *, optional: tuple[str, ...] = ()) -> Shape:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "required": required, "properties": fields}


def _list_of(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def plan() -> Shape:
    """Return the shape of a plan: a decision with the containers, and the steps where a series was run."""
    code = {"type": "string", "enum": [code.value for code in CODES]}
    any_code = {"type": "string", "enum": [code.value for code in (*CODES, *LIVE_CODES)]}
    container = _record({"name": TEXT, "requests": TEXTS, "limits": TEXTS})
    step = _record(
        {
            "timestamp": {"type": ["number", "string"]},
            "reason": code,
            "target": TEXTS,
            "applied": TEXTS_OR_NULLS,
        }
    )
    numbers = _record({"inputs": TEXTS, "current": TEXTS_OR_NULLS, "target": TEXTS_OR_NULLS})
    decision = _record(
        {
            "subject": TEXT,
            "reason": any_code,
            "sentence": TEXT,
            "actions": _list_of(_record({"kind": {"const": "SetResources"}})),
            "held": {"type": "array"},
            "numbers": numbers,
            "containers": _list_of(container),
            "steps": _list_of(step),
            "message": TEXT,
            "outcomes": _list_of(_record({"kind": TEXT, "result": TEXT, "detail": TEXT})),
        },
        optional=("steps", "message", "outcomes"),
    )
    return _record({"balancer": {"const": "proportional"}, "decisions": _list_of(decision)})


def simulation() -> Shape:
    """Return the shape of a simulation: every strategy in every history."""
    share = {"type": "number", "minimum": 0, "maximum": 1}
    strategy = _record(
        {
            "name": TEXT,
            "settings": TEXT,
            "changes": {"type": "number", "minimum": 0},
            "changes_per_hour": {"type": "number", "minimum": 0},
            "over_provision_mean": {"type": "number", "minimum": 0},
            "below_model_share": share,
            "below_model_worst": share,
        }
    )
    history = _record({"name": TEXT, "seeds": COUNT, "hours": NUMBER, "strategies": _list_of(strategy)})
    return _record({"policy": TEXT, "interval_seconds": NUMBER, "histories": _list_of(history)})
