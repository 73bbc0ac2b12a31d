"""Which pods may be disrupted, and how many at the same time.

A pod is protected by its kind, its priority or an annotation. The number of other pods that may be disrupted
at the same time is limited per workload, for the whole cluster, and by each PodDisruptionBudget. The API
server's dry run of an eviction does not count down, so its answer holds for the first pod only.
`DisruptionBudget` counts down for a whole cycle. It never allows more than the server: an eviction that the
server does not count (of a pod that is not ready, for example) is counted here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from equipoise.core.cluster import Pdb, Pod, Selector
from equipoise.core.ledger import Ledger
from equipoise.core.quantity import print_count
from equipoise.core.reason import Code, Reason

SYSTEM_NAMESPACES = frozenset({"kube-system"})
CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Kubernetes reserves priorities from this value on for its own critical classes."""
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
ROTATE = "equipoise.dev/rotate"
RECOMMEND = "equipoise.dev/recommend"
DO_NOT_DISRUPT = "equipoise.dev/do-not-disrupt"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
STAYS_WHEN_FALSE = (ROTATE, SAFE_TO_EVICT, "descheduler.alpha.kubernetes.io/evict")
STAYS_WHEN_SET = (
    DO_NOT_DISRUPT,
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
)
"""Any value but `false` counts."""


def held_by_kind(kind: str, *, includes_stateful_sets: bool) -> Reason | None:
    """Hold StatefulSets: a replacement has the same identity, and so the same share of the load."""
    if kind != "StatefulSet" or includes_stateful_sets:
        return None
    return Reason(Code.OPTED_OUT, "A StatefulSet is rotated only if includeStatefulSets is true.")


def opted_out_by(annotations: Iterable[tuple[str, str]]) -> str:
    """Return the annotation that opts out of disruption, as `key=value`; empty without one.

    Our own has precedence: `equipoise.dev/rotate: "true"` overrules annotations meant for other tools.
    """
    values = dict(annotations)
    if not values or _normalized(values.get(ROTATE)) == "true":
        return ""
    stays = [key for key in STAYS_WHEN_FALSE if _normalized(values.get(key)) == "false"]
    stays += [key for key in STAYS_WHEN_SET if key in values and _normalized(values[key]) != "false"]
    return f"{stays[0]}={values[stays[0]]}" if stays else ""


def adoption_opted_out_by(annotations: Iterable[tuple[str, str]]) -> str:
    """Return the annotation that opts a workload out of changed settings, as `key=value`; empty without one.

    Annotations meant for tools that evict pods do not count here.
    """
    values = dict(annotations)
    if _normalized(values.get(RECOMMEND)) == "false":
        return f"{RECOMMEND}={values[RECOMMEND]}"
    is_left_alone = DO_NOT_DISRUPT in values and _normalized(values[DO_NOT_DISRUPT]) != "false"
    if is_left_alone and _normalized(values.get(RECOMMEND)) != "true":
        return f"{DO_NOT_DISRUPT}={values[DO_NOT_DISRUPT]}"
    return ""


def protection_of(pod: Pod, *, includes_local_storage: bool, includes_stateful_sets: bool = False) -> str:
    """Return why a pod is never evicted; empty if it may be."""
    if pod.is_mirror or (pod.owner is not None and pod.owner.kind == "Node"):
        return "it is a static pod"
    if pod.owner is None:
        return "no controller would replace it"
    if pod.owner.kind == "DaemonSet":
        return "its DaemonSet would start it on the same node again"
    if pod.owner.kind == "StatefulSet" and not includes_stateful_sets:
        return "it belongs to a StatefulSet"
    if pod.priority >= CRITICAL_PRIORITY_MIN or pod.priority_class in CRITICAL_CLASSES:
        return "its priority class is critical"
    annotation = opted_out_by(pod.annotations)
    if annotation:
        return f"its annotation {annotation} excludes it"
    values = dict(pod.annotations)
    is_marked_safe = "true" in {_normalized(values.get(SAFE_TO_EVICT)), _normalized(values.get(ROTATE))}
    if pod.has_local_storage and not includes_local_storage and not is_marked_safe:
        return "it uses local storage"
    return ""


def _normalized(value: str | None) -> str:
    return "" if value is None else value.strip().lower()


class Waiting(msgspec.Struct, frozen=True):
    """A pod that may not be evicted now, and the budgets that forbid it."""

    pod: Pod
    budgets: tuple[Pdb, ...]

    @property
    def sentence(self) -> str:
        names = ", ".join(budget.name for budget in self.budgets)
        if len(self.budgets) > 1:
            several = f"several PodDisruptionBudgets ({names}) select {self.pod.name}"
            return f"{several}, and Kubernetes does not evict such a pod"
        (budget,) = self.budgets
        if not budget.is_current:
            return f"Kubernetes has not processed the PodDisruptionBudget {names} yet"
        allowed = budget.disruptions_allowed
        if allowed > 0:
            evictions = print_count(allowed, "eviction")
            return f"the PodDisruptionBudget {names} allows {evictions} now, used by pods before this one"
        pods = f"{print_count(budget.pods_healthy, 'healthy pod')}, {budget.pods_desired} required"
        return f"the PodDisruptionBudget {names} allows no eviction now ({pods})"


class Cleared(msgspec.Struct, frozen=True):
    """Which pods may be evicted now, and which must wait; both in the order of the candidates."""

    may_go: tuple[Pod, ...]
    waiting: tuple[Waiting, ...]


def clear(
    candidates: Sequence[Pod], budgets: Iterable[Pdb], left: dict[tuple[str, str], int] | None = None
) -> Cleared:
    """Return which candidates the budgets allow to evict, counting down in the order of the candidates.

    A pod under several budgets waits, since the server refuses its eviction; so does one whose budget's
    status is not current, which counts as 0 allowed. A pod under no budget may be evicted. A pod that waits
    costs no budget. `left` carries the remaining disruptions of each budget from one call to the next.
    """
    by_namespace: dict[str, list[tuple[Pdb, Selector]]] = defaultdict(list)
    for budget in budgets:
        if budget.selector is not None:
            by_namespace[budget.namespace].append((budget, budget.selector))
    left = {} if left is None else left
    may_go: list[Pod] = []
    waiting: list[Waiting] = []
    for pod in candidates:
        labels = dict(pod.labels)
        matching = tuple(pdb for pdb, selector in by_namespace[pod.namespace] if selector.matches(labels))
        if _take_one(matching, left):
            may_go.append(pod)
        else:
            waiting.append(Waiting(pod, matching))
    assert len(may_go) + len(waiting) == len(candidates), "every pod goes or waits"
    return Cleared(tuple(may_go), tuple(waiting))


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
    assert left[key] >= 0, "a budget is never overdrawn"
    return True


HOUR_SECONDS = 3600.0


def held_by_hourly_budget(ledger: Ledger, balancer: str, rounds_max: int, at: float) -> Reason | None:
    """Hold when the rounds of the last hour have used up the budget."""
    used = ledger.rounds_since(at - HOUR_SECONDS, balancer)
    if used < rounds_max:
        return None
    rounds = print_count(used, "round")
    return Reason(
        Code.HELD_BY_BUDGET,
        f"The workload had {rounds} in the last hour; the limit is {rounds_max}.",
        {"rounds_last_hour": used, "rounds_per_hour": rounds_max},
    )


def room_for_disruption(
    disturbed: int, disturbed_max: int, disturbed_in_cluster: int, disturbed_in_cluster_max: int
) -> tuple[int, Reason]:
    """Return how many more pods may be disrupted, by both limits, and the reason that holds the rest."""
    here = max(0, disturbed_max - disturbed)
    everywhere = max(0, disturbed_in_cluster_max - disturbed_in_cluster)
    numbers = {"disturbed": disturbed, "disturbed_in_cluster": disturbed_in_cluster}
    scope, now, most = "this workload", disturbed, disturbed_max
    if everywhere < here:
        scope, now, most = "the cluster", disturbed_in_cluster, disturbed_in_cluster_max
    pods, are = print_count(now, "pod"), "is" if now == 1 else "are"
    sentence = f"{pods} of {scope} {are} unavailable; the limit is {most}. The other pods wait."
    if now == 0:
        pods = print_count(most, "pod")
        sentence = f"At most {pods} of {scope} may be unavailable at once. The other pods wait."
    assert here >= 0, "room is never negative"
    return min(here, everywhere), Reason(Code.HELD_BY_BUDGET, sentence, numbers)


@dataclass(slots=True)
class DisruptionBudget:
    """The disruptions that one cycle may still cause, counted down during the cycle.

    So two workloads of one cycle cannot both use what is left for one of them.
    """

    away: set[str]
    """UIDs of all disrupted pods of the cluster, whatever the cause; the cycle adds those that it evicts."""
    away_max: int
    pdbs: Sequence[Pdb]
    _allowed: dict[tuple[str, str], int] = field(default_factory=dict)
    """The disruptions that each PodDisruptionBudget still allows, once it has been used."""

    def disturbed(self, pods: Iterable[Pod], replicas_wanted: int, ledger: Ledger) -> int:
        """Return how many pods of a workload are disrupted, were or may have been evicted, or are missing."""
        uids, away = [pod.uid for pod in pods], self.away | ledger.sent()
        return sum(uid in away for uid in uids) + max(0, replicas_wanted - len(uids))

    def room(self, disturbed: int, disturbed_max: int) -> tuple[int, Reason]:
        """Return how many more pods of a workload may be disrupted, and the reason that holds the rest."""
        return room_for_disruption(disturbed, disturbed_max, len(self.away), self.away_max)

    def clear(self, candidates: Sequence[Pod]) -> Cleared:
        """Return which candidates the PodDisruptionBudgets allow to evict, without counting them."""
        return clear(candidates, self.pdbs, dict(self._allowed))

    def spend(self, pods: Sequence[Pod]) -> None:
        """Count these evictions under their PodDisruptionBudgets."""
        clear(pods, self.pdbs, self._allowed)
