"""Which pod is evicted, if any: the youngest one on the node with most pods above the maximum."""

from collections import defaultdict

import msgspec
from equipoise.spread.observe import Observation, PlacedPod
from equipoise.spread.policy import SpreadPolicy

from equipoise.core.decision import Decided, Decision, EvictPod
from equipoise.core.reason import Code, Reason


class SpreadDetails(msgspec.Struct, frozen=True):
    """The details of a decision, from which its numbers are made."""

    pods_per_node_max: int
    pods_on_fullest_node: int
    fullest_node: str


def decide(policy: SpreadPolicy, seen: Observation) -> Decided[SpreadDetails]:
    """Return the eviction of at most one pod, so that the next cycle observes its effect."""
    by_node: dict[str, list[PlacedPod]] = defaultdict(list)
    for pod in seen.pods:
        by_node[pod.node].append(pod)
    node = max(sorted(by_node), key=lambda name: len(by_node[name]), default="")
    count = len(by_node[node]) if node else 0
    details = SpreadDetails(policy.pods_per_node_max, count, node)
    if count <= policy.pods_per_node_max:
        sentence = f"No node has more than {policy.pods_per_node_max} pods of the workload."
        return Decided(Decision(seen.workload, Reason.of(Code.BALANCED, sentence, details)), details)
    pod = max(by_node[node], key=lambda pod: (pod.created_at, pod.name))
    namespace = seen.workload.rpartition("/")[0]
    sentence = f"{node} has {count} pods of the workload, and at most {policy.pods_per_node_max} are wanted."
    action = EvictPod(pod.name, namespace, pod.uid)
    assert pod in seen.pods, "only a pod that was observed is evicted"
    return Decided(Decision(seen.workload, Reason.of(Code.REBALANCE, sentence, details), (action,)), details)
