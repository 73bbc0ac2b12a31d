"""`equipoise demo`: every balancer decides before your eyes, without a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

BAR_WIDTH_MAX = 44


def demo(
    once: Annotated[bool, typer.Option("--once", help="Run to the end, print, and exit.")] = True,
) -> None:
    """Show what each balancer decides, and why. Needs no cluster and changes nothing."""
    from rich.console import Console

    del once  # there is no other way to run it yet
    console = Console(highlight=False)
    for scene in SCENES:
        scene(console)


def _rotation(console: "Console") -> None:
    """Six pods behind an HPA at 70 %: the mean is fine, and two pods are not."""
    from equipoise.app.bars import usage_bars
    from equipoise.app.output import plan_table
    from equipoise.app.scenes import ROTATION
    from equipoise.rotation.decide import decide
    from equipoise.rotation.plan_file import read_plan_file

    console.rule("[bold]rotation[/]: hot and cold pods of an autoscaled workload", align="left")
    decisions = []
    for number, document in enumerate(ROTATION):
        policy, seen = read_plan_file(document, "demo", {}, {})
        decisions.append(decide(policy, seen))
        if number == 0:
            numbers = decisions[0].reason.numbers
            console.print(
                f"\n{seen.subject}: the HPA wants {numbers['target_cores']:g} cores a pod; "
                f"above {numbers['threshold_cores']:g} (│) a pod is hot.\n"
            )
            console.print(usage_bars(seen.pods, decisions[0], min(BAR_WIDTH_MAX, console.width - 36)))
    console.print(plan_table(decisions))
    console.print("A plan changes nothing: these pods are named, not evicted.\n", style="dim")


SCENES = (_rotation,)
"""One for each balancer there is."""
