"""Is this workload, or this pod, one that is left alone unless somebody asked?"""

from collections.abc import Iterable

from equipoise.model.cluster import Pod
from equipoise.model.reason import Code, Reason

SYSTEM_NAMESPACES = frozenset({"kube-system"})
CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Kubernetes keeps priorities from here on for its own critical classes."""
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
"""Any value but `false` counts: who writes such an annotation means it."""


def held_by_kind(kind: str, *, includes_stateful_sets: bool) -> Reason | None:
    """Hold StatefulSets: the same identity comes back with the same share of the load."""
    if kind != "StatefulSet" or includes_stateful_sets:
        return None
    sentence = "A StatefulSet is rotated only where includeStatefulSets says so."
    return Reason(Code.OPTED_OUT, sentence)


def opted_out_by(annotations: Iterable[tuple[str, str]]) -> str:
    """Name the annotation that asks to be left alone, as `key=value`, or give nothing.

    Our own says the last word: `equipoise.dev/rotate: "true"` overrules what was meant for other tools.
    """
    said = dict(annotations)
    if not said or _word(said.get(ROTATE)) == "true":
        return ""
    stays = [key for key in STAYS_WHEN_FALSE if _word(said.get(key)) == "false"]
    stays += [key for key in STAYS_WHEN_SET if key in said and _word(said[key]) != "false"]
    return f"{stays[0]}={said[stays[0]]}" if stays else ""


def adoption_opted_out_by(annotations: Iterable[tuple[str, str]]) -> str:
    """Name the annotation that asks to leave a workload's settings alone, as `key=value`, or give nothing.

    What was meant for tools that evict says nothing about settings.
    """
    said = dict(annotations)
    if _word(said.get(RECOMMEND)) == "false":
        return f"{RECOMMEND}={said[RECOMMEND]}"
    is_left_alone = DO_NOT_DISRUPT in said and _word(said[DO_NOT_DISRUPT]) != "false"
    if is_left_alone and _word(said.get(RECOMMEND)) != "true":
        return f"{DO_NOT_DISRUPT}={said[DO_NOT_DISRUPT]}"
    return ""


def protection_of(pod: Pod, *, includes_local_storage: bool, includes_stateful_sets: bool = False) -> str:
    """Say why a pod is never evicted, or nothing."""
    if pod.is_mirror or (pod.owner is not None and pod.owner.kind == "Node"):
        return "it is a static pod"
    if pod.owner is None:
        return "it has no controller that would replace it"
    if pod.owner.kind == "DaemonSet":
        return "a DaemonSet would start it on the same node again"
    if pod.owner.kind == "StatefulSet" and not includes_stateful_sets:
        return "it is of a StatefulSet"
    if pod.priority >= CRITICAL_PRIORITY_MIN or pod.priority_class in CRITICAL_CLASSES:
        return "its priority is critical"
    annotation = opted_out_by(pod.annotations)
    if annotation:
        return f"it is opted out by {annotation}"
    if pod.has_local_storage and not includes_local_storage and not _is_called_safe(pod):
        return "it has local storage"
    return ""


def _is_called_safe(pod: Pod) -> bool:
    said = dict(pod.annotations)
    return "true" in {_word(said.get(SAFE_TO_EVICT)), _word(said.get(ROTATE))}


def _word(value: str | None) -> str:
    return "" if value is None else value.strip().lower()
