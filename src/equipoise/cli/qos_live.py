"""A plan for a live node, from what its kubelet measures: what an agent there would do now."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from equipoise.adapters.kubernetes import ApiError, Client, connect, list_kind
from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE, look_from_outside
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.core.errors import WorldFailed
from equipoise.qos.decide import decide
from equipoise.qos.objects import QOS_KINDS
from equipoise.qos.observe import PendingEffects, see
from equipoise.qos.waterlines import reached
from equipoise.runtime.agent.cluster import read_objects
from equipoise.runtime.output import warn

if TYPE_CHECKING:
    from equipoise.core.decision import Decision
    from equipoise.ports import PolicyObject

NOT_FOUND = 404


def plan_node(
    name: str, at: float, kubeconfig: str | None, context: str | None, excess_percent: int
) -> "Decision":
    """Decide for a node as it is now; counts are taken as reached, and cool-downs as over."""
    client = connect(kubeconfig, context)
    nodes = list_kind(client, NODE, params={"fieldSelector": f"metadata.name={name}"}).records
    if not nodes:
        raise WorldFailed(f"node {name}: not found at {client.address}")
    policy, problems = read_objects(_listed(client))
    for problem in problems:
        warn(f"left out: {problem}")
    pods = list_kind(client, PODS_OF_NODE, params={"fieldSelector": f"spec.nodeName={name}"}).records
    seen = see(
        name,
        at,
        look_from_outside(client, name, pods),
        pods,
        PendingEffects(),
        labels=dict(nodes[0].labels),
        is_scheduling_disabled=nodes[0].is_disabled,
    )
    asked = policy.model_copy(update={"excess_percent": excess_percent})
    return decide(asked, seen, reached(asked)).decision


def _listed(client: Client) -> "Iterator[PolicyObject]":
    for kind in QOS_KINDS:
        policies = KubernetesPolicies(
            client, group=kind.group, version=kind.version, name=kind.name, plural=kind.plural
        )
        try:
            yield from policies.listed()
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
