"""`equipoise spread`: pods of a workload over nodes."""

from typing import Annotated

import typer

from equipoise.cli import options
from equipoise.runtime.output import Format, print_plan, read_yaml

app = options.group("Spread the pods of a workload over nodes.")


@app.callback()
def _group() -> None:
    """Keep `plan` a command of its own."""


@app.command()
def plan(
    file: Annotated[
        str, typer.Option("--from", metavar="FILE", help="File with the pods of a workload and a policy.")
    ],
    output: options.Output = Format.TABLE,
) -> None:
    """Show which pod would be evicted, and why. Changes nothing."""
    import msgspec
    from equipoise.spread.decide import decide
    from equipoise.spread.observe import Observation
    from equipoise.spread.policy import SpreadPolicy

    document = read_yaml(file)
    policy = SpreadPolicy.model_validate(document["policy"])
    seen = msgspec.convert({"workload": document["workload"], "pods": document["pods"]}, Observation)
    print_plan("spread", [decide(policy, seen).decision], output)
