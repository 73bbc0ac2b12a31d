"""What a PodDisruptionBudget allows: the arithmetic of the disruption controller."""

from dataclasses import dataclass
from typing import Literal

from equipoise.sim import portion
from equipoise.sim.portion import Portion


@dataclass(frozen=True, slots=True)
class Budget:
    """`minAvailable` or `maxUnavailable`: exactly one of them."""

    min_available: Portion | None = None
    max_unavailable: Portion | None = None
    unhealthy_policy: Literal["IfHealthyBudget", "AlwaysAllow"] = "IfHealthyBudget"

    def __post_init__(self) -> None:
        if (self.min_available is None) == (self.max_unavailable is None):
            raise ValueError("a budget has either min_available or max_unavailable")


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """What the controller found at its last look."""

    expected: int = 0
    desired: int = 0
    healthy: int = 0
    allowed: int = 0


def status(budget: Budget, *, pods: int, scale: int, healthy: int) -> BudgetStatus:
    """Work out a budget's status: `pods` match it, and their controllers want `scale`.

    Percentages are of the scale, and both are rounded up: 50 % of 3 unavailable are 2.
    """
    if budget.max_unavailable is not None:
        expected = scale
        desired = max(scale - portion.of(budget.max_unavailable, scale, is_rounded_up=True), 0)
    else:
        least = budget.min_available or 0
        expected = pods if isinstance(least, int) else scale
        desired = portion.of(least, scale, is_rounded_up=True)
    allowed = healthy - desired if expected > 0 else 0
    return BudgetStatus(expected, desired, healthy, max(allowed, 0))
