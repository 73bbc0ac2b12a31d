"""Which of these pods may be evicted now: PodDisruptionBudgets, counted down.

The server's dry run does not count down, so it is true for the first pod only. This is the arithmetic for all
of them, in order: every eviction takes one from `disruptionsAllowed` of the budget that selects the pod. It
is never more generous than the server: where that lets a pod go for free (one that is not ready, say), one is
counted all the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from equipoise.model.cluster import Pdb, Pod


class Waiting(msgspec.Struct, frozen=True):
    """A pod that has to stay for now, and the budgets that keep it."""

    pod: Pod
    budgets: tuple[Pdb, ...]

    @property
    def sentence(self) -> str:
        """Say why, in words that a person understands."""
        names = ", ".join(budget.name for budget in self.budgets)
        if len(self.budgets) > 1:
            return f"{self.pod.name} is selected by several budgets ({names}), which Kubernetes never evicts"
        (budget,) = self.budgets
        if not budget.is_current:
            return f"the budget {names} is still being worked out by Kubernetes"
        if budget.disruptions_allowed > 0:
            return (
                f"the budget {names} allows {budget.disruptions_allowed} now, taken by pods before this one"
            )
        pods = "1 healthy pod" if budget.pods_healthy == 1 else f"{budget.pods_healthy} healthy pods"
        counts = f"{pods}, {budget.pods_desired} needed"
        return f"the budget {names} allows none now ({counts})"


class Cleared(msgspec.Struct, frozen=True):
    """Which pods may go now, and which have to wait; both in the order in which they were wanted."""

    may_go: tuple[Pod, ...]
    waiting: tuple[Waiting, ...]


def clear(
    wanted: Sequence[Pod], budgets: Iterable[Pdb], left: dict[tuple[str, str], int] | None = None
) -> Cleared:
    """Count down from what every matching budget allows, pod by pod in the order wanted.

    A pod under several budgets is held, since the server refuses it; so is one whose budget is not current,
    which counts as none allowed. A pod under no budget may go. One that waits takes nothing from the next.
    `left` carries what the budgets still allow from one call to the next.
    """
    places = {pod.namespace for pod in wanted}
    by_namespace: dict[str, list[Pdb]] = defaultdict(list)
    for budget in budgets:
        if budget.namespace in places:
            by_namespace[budget.namespace].append(budget)
    left = {} if left is None else left
    may_go: list[Pod] = []
    waiting: list[Waiting] = []
    for pod in wanted:
        matching = matching_budgets(pod, by_namespace[pod.namespace])
        if _take_one(matching, left):
            may_go.append(pod)
        else:
            waiting.append(Waiting(pod, matching))
    return Cleared(tuple(may_go), tuple(waiting))


def matching_budgets(pod: Pod, budgets: Iterable[Pdb]) -> tuple[Pdb, ...]:
    """Give the budgets that select this pod."""
    labels = dict(pod.labels)
    return tuple(
        budget
        for budget in budgets
        if budget.namespace == pod.namespace
        and budget.selector is not None
        and budget.selector.matches(labels)
    )


def _take_one(matching: tuple[Pdb, ...], left: dict[tuple[str, str], int]) -> bool:
    if not matching:
        return True
    if len(matching) > 1:
        return False
    (budget,) = matching
    key = (budget.namespace, budget.name)
    allowed = left.setdefault(key, budget.disruptions_allowed if budget.is_current else 0)
    if allowed <= 0:
        return False
    left[key] = allowed - 1
    return True
