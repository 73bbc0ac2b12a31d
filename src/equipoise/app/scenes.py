"""The worlds that the demo shows, in the shape that `--from` reads."""

from typing import Any

_HPA = {"name": "keda-hpa-web", "target": {"type": "Utilization", "value": 70}}


def _pods(**cores: float | None) -> list[dict[str, Any]]:
    return [
        {"name": name, "request": "1"} | ({} if usage is None else {"cpu": usage})
        for name, usage in cores.items()
    ]


ROTATION: list[dict[str, Any]] = [
    {
        "workload": "shop/web",
        "hpa": _HPA,
        "pods": _pods(a=1.2, b=1.1, c=0.8, d=0.6, e=0.4, f=0.3),
    },
    {
        "workload": "shop/cart",
        "hpa": _HPA,
        "pods": _pods(a=0.9, b=0.8, c=0.7, d=0.6),
    },
    {
        "workload": "shop/search",
        "hpa": _HPA,
        "pods": _pods(a=1.4, b=None, c=None, d=0.2),
    },
    {
        "workload": "shop/admin",
        "hpa": _HPA,
        "pods": _pods(a=1.4, b=0.1),
    },
]
