"""`equipoise spread`: pods of a workload over nodes."""

from typing import Annotated

import typer

from equipoise.cli.options import Output
from equipoise.runtime.output import Format, print_plan, read_yaml

app = typer.Typer(help="Pods of a workload, spread over nodes.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keep `plan` a command of its own."""


@app.command()
def plan(
    file: Annotated[str, typer.Option("--from", metavar="FILE", help="A workload's pods and a policy.")],
    output: Output = Format.TABLE,
) -> None:
    """Say which pod would be evicted, and why. Changes nothing."""
    import msgspec
    from equipoise.spread.decide import decide
    from equipoise.spread.observe import Observation
    from equipoise.spread.policy import SpreadPolicy

    document = read_yaml(file)
    policy = SpreadPolicy.model_validate(document["policy"])
    seen = msgspec.convert({"workload": document["workload"], "pods": document["pods"]}, Observation)
    print_plan("spread", [decide(policy, seen).decision], output)
