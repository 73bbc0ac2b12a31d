"""Decisions on advice, as commands print them."""

import random
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


WOULD = {**BOUNDS, "minReplicas": 3, "maxReplicas": 9, "targetUtilization": 60}


def container(
    name: str,
    requests: tuple[Any, Any],
    advised: tuple[Any, Any],
    limits: tuple[Any, Any] = (None, None),
    **more: Any,
) -> dict[str, Any]:
    """Return a container's requests and limits of CPU and memory now and as advised; None is left out."""
    today = {"requests": _sizes(requests), "limits": _sizes(limits)}
    kept = more.get("limits_advised", (None, limits[1]))
    return {
        "name": name,
        "current": today,
        "recommended": {"requests": _sizes(advised), "limits": _sizes(kept)},
    }


def _sizes(pair: tuple[Any, Any]) -> dict[str, str]:
    return {name: size for name, size in zip(("cpu", "memory"), pair, strict=True) if size is not None}


def refused(subject: str, code: Code = Code.LOW_USAGE, **more: Any) -> Decision:
    """Return a decision with advice on requests, and on replicas only what it would be."""
    return decision(subject, code, wouldRecommend=WOULD, **more)


CLUSTER = [
    refused(
        "shop/cart",
        containers=[
            container("app", ("2", "4Gi"), ("350m", "1610612736"), ("4", "4Gi")),
            container("proxy", ("100m", "128Mi"), ("20m", "73400320"), ("2", "256Mi")),
        ],
        numbers={"replicas": 3},
    ),
    refused("shop/idle", containers=[container("app", ("500m", "512Mi"), ("500m", "512Mi"))]),
    decision(
        "shop/web",
        containers=[container("app", ("1", "1Gi"), ("1250m", "900Mi"), (None, "2Gi"))],
        current={"hpas": [{"name": "w", "minReplicas": 3, "maxReplicas": 9, "targetUtilization": 60}]},
    ),
    decision(
        "payments-production/checkout-frontend-deployment",
        Code.TOO_FEW_REPLICAS,
        containers=[container("checkout-frontend", (None, None), ("50m", "268435456"))],
        numbers={"replicas": 1, "coverage": 0.099, "confidence": "low"},
    ),
    decision(
        "batch/nightly",
        Code.NO_SAMPLES,
        kind="CronJob",
        containers=[container("job", ("4", "8Gi"), (None, None))],
        numbers={"replicas": 1, "coverage": 0.0, "confidence": "low"},
    ),
]
"""Workloads that request too much, what is advised, nothing, and too little; of one, nothing is known."""


def fleet(count: int, seed: int = 7) -> list[Decision]:
    """Return as many workloads, each with one to three containers of any size."""
    rng = random.Random(seed)

    def size(unit: str, most: int) -> str | None:
        return None if rng.random() < 0.15 else f"{rng.randrange(1, most)}{unit}"

    def some(number: int) -> dict[str, Any]:
        pairs = [(size("m", 8000), size("Mi", 16_000)) for _ in range(3)]
        return container(f"c{number}", *pairs)

    return [
        refused(
            f"team-{rng.randrange(9)}/app-{number:03}",
            rng.choice([Code.LOW_USAGE, Code.LOW_FLUCTUATION, Code.RECOMMEND]),
            containers=[some(each) for each in range(rng.randrange(1, 4))],
            numbers={"replicas": rng.randrange(0, 40)},
        )
        for number in range(count)
    ]
