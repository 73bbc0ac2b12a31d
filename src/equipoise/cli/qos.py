"""`equipoise qos`: pods on a node and its waterlines."""

from typing import Annotated

import typer

from equipoise.cli import options
from equipoise.runtime.output import Format

app = typer.Typer(
    help="Pods on a node: throttle and evict no more than its waterlines ask for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def plan(
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
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Say which pods would be throttled, evicted or restored, in which order, and why. Changes nothing."""
    import time

    from equipoise.core.errors import BadInput

    if (file is None) == (node is None):
        raise BadInput("--from or --node: expected exactly one of them")
    from equipoise.cli.qos_output import print_qos

    if node is not None:
        from equipoise.cli.qos_live import plan_node

        print_qos(plan_node(node, time.time(), kubeconfig, context, excess), output)
    elif file is not None:
        from equipoise.qos.decide import decide
        from equipoise.qos.plan_file import read_plan_file
        from equipoise.runtime.output import read_yaml, warn

        planned = read_plan_file(read_yaml(file), file, time.time(), excess)
        for warning in planned.warnings:
            warn(warning)
        print_qos(decide(planned.policy, planned.seen, planned.memory).decision, output)
