"""`equipoise rotation simulate`: what rotating brings, by the cause of the imbalance; needs no cluster."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app.output import Format, print_document, warn
from equipoise.app.progress import stepping

if TYPE_CHECKING:
    from equipoise.sim.futility import Futility
    from equipoise.sim.study import CauseStudied, Question

Told = Callable[[int], object]


class Cause(StrEnum):
    """Why pods of a workload are unequal."""

    ALL = "all"
    KEY_SKEW = "key-skew"
    STALE_COUNTS = "stale-counts"
    CONNECTIONS = "connections"
    NOISY_NODE = "noisy-node"

    @property
    def words(self) -> str:
        """The name that the simulator knows it by."""
        return self.value.replace("-", " ")


def simulate(
    cause: Annotated[Cause, typer.Option(help="Why the pods are unequal.")] = Cause.ALL,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="In how many worlds a pod is hot.")
    ] = 20,
    pods: Annotated[
        int, typer.Option(metavar="N", min=2, max=200, help="How many pods the workload has.")
    ] = 6,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the policy, such as topK=3."),
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Say what rotating would bring, and what fewer pods would, by cause. Needs no cluster."""
    from equipoise.app.rotation_simulate_output import document, print_tables
    from equipoise.app.settings import set_options
    from equipoise.model.validation import validated
    from equipoise.rotation.policy import RotationPolicy
    from equipoise.sim.study import Question

    settings = set_options(setting or ())
    validated(RotationPolicy, settings, "--set")
    question = Question(pods, settings)
    causes = [each for each in Cause if each is not Cause.ALL] if cause is Cause.ALL else [cause]
    found = [_studied(each, seeds, question) for each in causes]
    for studied, _ in found:
        if studied.worlds < seeds:
            warn(f"{studied.cause}: a pod was hot in {studied.worlds} of {studied.drawn} worlds only")
    if output is Format.TABLE:
        print_tables(question, found)
    else:
        print_document(document(question, found), output)


def _studied(cause: Cause, seeds: int, question: "Question") -> "tuple[CauseStudied, Futility | None]":
    """Study one cause; where the load itself is unequal, also whether the loop ever gives up."""
    from equipoise.sim.futility import futility
    from equipoise.sim.study import study

    with stepping(f"{cause.words}: rotating", seeds) as told:
        studied = study(cause.words, seeds, question, told=told)
    if cause is not Cause.KEY_SKEW or not studied.worlds:
        return studied, None
    with stepping(f"{cause.words}: going on", studied.worlds) as told:
        return studied, futility(cause.words, studied.worlds, question, told=told)
