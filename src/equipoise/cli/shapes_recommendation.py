"""The shapes of advice and forecasts, as JSON Schema."""

from collections.abc import Sequence
from typing import Any

from equipoise.core.reason import Code
from equipoise.ports import ApplyResult

Shape = dict[str, Any]
TEXT: Shape = {"type": "string"}
NUMBER: Shape = {"type": "number"}
NUMBER_OR_NULL: Shape = {"type": ["number", "null"]}
NUMBERS: Shape = {"type": "array", "items": NUMBER}
COUNT: Shape = {"type": "integer", "minimum": 1}
CODES = (
    Code.RECOMMEND,
    Code.TOO_FEW_REPLICAS,
    Code.TOO_FEW_AVAILABLE_PODS,
    Code.NO_PODS,
    Code.LOW_USAGE,
    Code.LOW_FLUCTUATION,
    Code.NO_SAMPLES,
    Code.NO_REQUEST,
)
GUARDS = (Code.HELD_BY_PAUSE, Code.OPTED_OUT, Code.NOT_OURS, Code.NOT_APPLIED)
KNOWN = (
    "pod_p99_cores",
    "lowest_median_cores",
    "highest_median_cores",
    "p95_cores",
    "peak_cores",
    "fluctuation",
)


def _record(fields: Shape) -> Shape:
    return {"type": "object", "required": list(fields), "properties": fields}


def _recommended() -> Shape:
    replicas = {
        "minReplicas": COUNT,
        "maxReplicas": COUNT,
        "targetUtilization": COUNT,
        "metrics": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "behavior": {"type": ["object", "null"]},
    }
    container = _record({"name": {"type": "string"}, "requests": {"type": "object"}})
    resources = _record({"containers": {"type": "array", "items": container}})
    return {"anyOf": [_record(replicas), resources, {"type": "null"}]}


def _prediction() -> Shape:
    return _record(
        {
            "predictable": {"type": "boolean"},
            "period_seconds": NUMBER_OR_NULL,
            "model": {"type": "string"},
            "error": NUMBER_OR_NULL,
            "baseline_error": NUMBER_OR_NULL,
        }
    )


def applied_plan() -> Shape:
    """Give the shape of what became of a plan: what was carried out, what was not, and what came of each."""
    shape = advice_plan(GUARDS)
    decision = shape["properties"]["decisions"]["items"]
    action = _record({"kind": {"const": "ApplyHpa"}, "workload": TEXT, "manifest": {"type": "object"}})
    results = [result.value for result in ApplyResult]
    outcome = action | _record(
        action["properties"] | {"result": {"enum": [*results, "Unknown"]}, "detail": TEXT}
    )
    held = _record(action["properties"] | {"reason": {"enum": [code.value for code in GUARDS]}})
    decision["properties"] |= {
        "actions": {"type": "array", "maxItems": 1, "items": action},
        "held": {"type": "array", "maxItems": 1, "items": held},
        "outcomes": {"type": "array", "maxItems": 1, "items": outcome},
        "dry_run": {"type": "boolean"},
    }
    decision["required"] += ["outcomes", "dry_run"]
    return shape


def advice_plan(more: Sequence[Code] = ()) -> Shape:
    """Return the shape of a plan of the recommendation, whose reasons may be more."""
    numbers = dict.fromkeys(KNOWN, NUMBER_OR_NULL) | {
        "coverage": {"type": "number", "minimum": 0, "maximum": 1},
        "confidence": {"enum": ["low", "high"]},
    }
    decision = _record(
        {
            "subject": {"type": "string"},
            "reason": {"enum": [code.value for code in (*CODES, *more)]},
            "sentence": {"type": "string"},
            "actions": {"type": "array"},
            "held": {"type": "array"},
            "numbers": _record(numbers),
            "recommended": _recommended(),
            "prediction": _prediction(),
        }
    )
    plan = {"balancer": {"const": "recommendation"}, "decisions": {"type": "array", "items": decision}}
    return _record(plan)


def simulation() -> Shape:
    """Return the shape of a replayed week: every workload under today's settings and the advised ones."""
    count = {"type": "integer", "minimum": 0}
    costs = {
        "replica_hours": {"type": "number", "minimum": 0},
        "minutes_above_request": {"type": ["integer", "null"], "minimum": 0},
        "scalings": count,
    }
    replicas = _record({"replicas": count})
    hpa = _record({"minReplicas": COUNT, "maxReplicas": COUNT, "targetUtilization": COUNT})
    run = _record({"settings": {"anyOf": [replicas, hpa]}, **costs, "replicas_highest": count})
    workload = _record(
        {
            "subject": {"type": "string"},
            "reason": {"enum": [code.value for code in CODES]},
            "sentence": {"type": "string"},
            "minutes_known": count,
            "current": run,
            "recommended": {"anyOf": [run, {"type": "null"}]},
        }
    )
    total = {
        "workloads": count,
        "advised": count,
        "current": _record(costs),
        "recommended": _record(costs),
    }
    return _record(
        {
            "interval_seconds": {"type": "number", "exclusiveMinimum": 0},
            "minutes": count,
            "workloads": {"type": "array", "items": workload},
            "total": _record(total),
        }
    )


def forecast() -> Shape:
    """Return the shape of a forecast."""
    return _record(
        {
            "predictable": {"type": "boolean"},
            "period_seconds": NUMBER_OR_NULL,
            "model": {"type": "string"},
            "interval_seconds": {"type": "number", "exclusiveMinimum": 0},
            "margin": NUMBER,
            "notes": {"type": "array", "items": TEXT},
            "timestamps": NUMBERS,
            "values": NUMBERS,
            "upper": NUMBERS,
        }
    )


def backtest() -> Shape:
    """Return the shape of a forecast of what was held out."""
    shape = forecast()
    more = {"error": NUMBER_OR_NULL, "baseline_error": NUMBER_OR_NULL, "coverage": NUMBER}
    return _record(more | shape["properties"])
