"""`equipoise proportional`: resources that follow the size of the cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app.output import Format, warn
from equipoise.app.proportional_simulate import simulate
from equipoise.model.errors import BadInput

if TYPE_CHECKING:
    from equipoise.model.decision import Decision
    from equipoise.proportional.decide import Asked
    from equipoise.proportional.written import PolicyFile

app = typer.Typer(
    help="Requests and limits that follow the size of the cluster, without flapping.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
EXAMPLES = {"--input": "cores=18", "--current": "kube-dns.requests.cpu=250m"}


@app.command()
def plan(
    policy: Annotated[
        str, typer.Option(metavar="FILE", help="A ScalingPolicy, or only its spec; - is standard input.")
    ],
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=SIZE", help="How large the cluster is: cores, memory, nodes, pods."
        ),
    ] = None,
    current: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What is in force, such as kube-dns.requests.cpu=250m."),
    ] = None,
    observations: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="CSV with timestamp and sizes: run them all through the smoothing."
        ),
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Say what containers would ask for in a cluster of this size, and why. Changes nothing."""
    from equipoise.app.files import read_yaml
    from equipoise.app.proportional_output import print_proportional
    from equipoise.proportional.decide import Asked
    from equipoise.proportional.written import read_policy_file

    if policy == "-" and observations == "-":
        raise BadInput("--observations: expected a file, since --policy is standard input")
    file = read_policy_file(read_yaml(policy), policy)
    asked = Asked.of(file.spec)
    sizes, in_force = _pairs("--input", size), _pairs("--current", current)
    if observations is None:
        decision = _decide_once(file, sizes, in_force)
    else:
        decision = _decide_all(asked, file, observations, sizes, in_force)
    _warn(asked, decision, sizes)
    print_proportional(asked, decision, output)


app.command()(simulate)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not name or not value:
            raise BadInput(f"{option} {text}: expected NAME=VALUE, such as {EXAMPLES[option]}")
        if name.lower() in map(str.lower, found):
            raise BadInput(f"{option} {text}: expected {name} once")
        found[name] = value
    return found


def _decide_once(file: "PolicyFile", sizes: dict[str, str], in_force: dict[str, str]) -> "Decision":
    from equipoise.proportional.decide import decide
    from equipoise.proportional.observation import Observation, read_inputs

    try:
        given = read_inputs(sizes)
    except ValueError as error:
        raise BadInput(f"--input {error}") from error
    if missing := sorted(file.spec.inputs - set(given)):
        raise BadInput(f"--input: expected {missing[0]}=SIZE, since the policy's functions use {missing[0]}")
    try:
        return decide(file.spec, Observation(file.subject, 0, sizes, in_force))
    except ValueError as error:
        raise BadInput(f"--current {error}") from error


def _decide_all(
    asked: "Asked", file: "PolicyFile", path: str, sizes: dict[str, str], in_force: dict[str, str]
) -> "Decision":
    from equipoise.app.files import read_text
    from equipoise.proportional.observations_file import read_observations
    from equipoise.proportional.replay import replay

    rows = read_observations(read_text(path), path, file.spec.inputs, sizes)
    try:
        return replay(asked, file.subject, rows, in_force)
    except ValueError as error:
        raise BadInput(f"--current {error}") from error


def _warn(asked: "Asked", decision: "Decision", sizes: dict[str, str]) -> None:
    """Tell what was asked for and has no effect, or would be refused by the API server."""
    from equipoise.model.quantity import Quantity

    for name in sizes:
        if name.lower() not in asked.policy.inputs:
            warn(f"--input {name}: no function of the policy uses it")
    for container in decision.extra["containers"]:
        for resource, request in container["requests"].items():
            limit = container["limits"].get(resource)
            if limit is not None and Quantity.parse(request).nanos > Quantity.parse(limit).nanos:
                warn(f"{container['name']}: the {resource} request {request} is above the limit {limit}")
