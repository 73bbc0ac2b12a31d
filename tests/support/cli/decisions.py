"""Decisions on advice, as commands print them."""

from typing import Any

from equipoise.core.decision import Decision
from equipoise.core.reason import Code, Reason

NUMBERS = {"replicas": 12, "coverage": 1.0, "confidence": "high"}


CPU = {"type": "Resource", "resource": {"name": "cpu"}}


BOUNDS = {"minReplicas": 2, "maxReplicas": 128, "targetUtilization": 75, "metrics": [CPU], "behavior": None}


def decision(
    subject: str = "shop/web", code: Code = Code.RECOMMEND, recommended: Any = BOUNDS, **more: Any
) -> Decision:
    """Give a decision with as little as a table needs."""
    extra = {"kind": "Deployment", "recommended": recommended if code is Code.RECOMMEND else None}
    extra["prediction"] = {"predictable": False}
    return Decision(subject, Reason(code, "Because.", NUMBERS | more.pop("numbers", {})), extra=extra | more)
