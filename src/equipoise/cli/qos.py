"""`equipoise qos`: pods on a node and its waterlines."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from equipoise.adapters.kubernetes import Client
    from equipoise.core.decision import Decision
    from equipoise.ports import PolicyObject

NOT_FOUND = 404

app = typer.Typer(
    help="Pods on a node: throttle and evict no more than its waterlines ask for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@options.expanded
def plan(
    *,
    file: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="A node, its pods and policies; - is standard input."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A live node, as its kubelet measures it (nodes/proxy)."),
    ] = None,
    excess: Annotated[
        int, typer.Option(metavar="PERCENT", min=0, max=1000, help="Widen gaps by so much.")
    ] = 0,
    output: options.Output = Format.TABLE,
    kubernetes: options.KubernetesOptions,
) -> None:
    """Say which pods would be throttled, evicted or restored, in which order, and why. Changes nothing."""
    import time

    from equipoise.cli.qos_output import print_qos

    if (file is None) == (node is None):
        raise BadInput("--from or --node: expected exactly one of them")
    if node is not None:
        print_qos(_plan_node(kubernetes.connect(), node, time.time(), excess), output)
    elif file is not None:
        from equipoise.qos.decide import decide
        from equipoise.qos.plan_file import read_plan_file
        from equipoise.runtime.output import read_yaml

        planned = read_plan_file(read_yaml(file), file, time.time(), excess)
        for warning in planned.warnings:
            warn(warning)
        print_qos(decide(planned.policy, planned.seen, planned.memory).decision, output)


def _plan_node(client: "Client", name: str, at: float, excess_percent: int) -> "Decision":
    """Decide for a node as its kubelet measures it; counts are taken as reached, and cool-downs as over."""
    from equipoise.adapters.kubernetes.kinds import list_kind
    from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE, read_from_kubelet
    from equipoise.qos.decide import decide
    from equipoise.qos.observe import PendingEffects, observe
    from equipoise.qos.waterlines import memory_at_thresholds
    from equipoise.runtime.agent.node_api import read_objects

    nodes = list_kind(client, NODE, params={"fieldSelector": f"metadata.name={name}"}).records
    if not nodes:
        raise WorldFailed(f"node {name}: not found at {client.address}")
    policy, problems = read_objects(_policies(client))
    for problem in problems:
        warn(f"left out: {problem}")
    pods = list_kind(client, PODS_OF_NODE, params={"fieldSelector": f"spec.nodeName={name}"}).records
    observation = observe(
        name,
        at,
        read_from_kubelet(client, name, pods),
        pods,
        PendingEffects(),
        labels=dict(nodes[0].labels),
        is_scheduling_disabled=nodes[0].is_disabled,
    )
    asked = policy.model_copy(update={"excess_percent": excess_percent})
    return decide(asked, observation, memory_at_thresholds(asked)).decision


def _policies(client: "Client") -> "Iterator[PolicyObject]":
    """Yield the objects of every kind that the cluster has."""
    from equipoise.adapters.kubernetes import ApiError
    from equipoise.adapters.kubernetes.policies import KubernetesPolicies
    from equipoise.qos.policy import QOS_KINDS

    for kind in QOS_KINDS:
        policies = KubernetesPolicies(client, kind)
        try:
            yield from policies.listed()
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
