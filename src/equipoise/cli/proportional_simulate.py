"""`equipoise proportional simulate`: what each way against flapping costs, and what it saves."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.core.errors import BadInput
from equipoise.runtime.output import Format, print_document, stepping

if TYPE_CHECKING:
    from equipoise.cli.proportional_simulate_output import Studied
    from equipoise.proportional.parse import PolicyFile
    from equipoise.sim.smoothing_study import Cluster

LOOKS_MAX = 2_000_000
DEFAULT_POLICY = {
    "scaleTargetRef": {"kind": "Deployment", "name": "kube-dns"},
    "containers": [
        {
            "name": "kube-dns",
            "resources": {
                "requests": [
                    {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": "10m"}}
                ]
            },
        }
    ],
}
"""The seed's function, without anything against flapping."""


class Scene(StrEnum):
    """What happens to the cluster."""

    ALL = "all"
    RANDOM_WALK = "random-walk"
    ROLLING_UPDATE = "rolling-update"
    NODE_FLAP = "node-flap"
    AUTOSCALER_BURST = "autoscaler-burst"


def simulate(
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A ScalingPolicy, or only its spec; by default 100m + 10m per core."
        ),
    ] = None,
    scene: Annotated[Scene, typer.Option(help="What happens to the cluster.")] = Scene.ALL,
    observations: Annotated[
        str | None, typer.Option(metavar="FILE", help="Instead: a recorded CSV with timestamp and sizes.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="How many histories of each kind.")
    ] = 20,
    nodes: Annotated[
        int, typer.Option(metavar="N", min=2, max=100_000, help="How many nodes at first.")
    ] = 50,
    node_cores: Annotated[int, typer.Option(metavar="N", min=1, max=4096, help="The cores of a node.")] = 4,
    node_memory: Annotated[str, typer.Option(metavar="SIZE", help="The memory of a node.")] = "16Gi",
    hours: Annotated[float, typer.Option(metavar="N", min=0.01, max=1000, help="How long a history is.")] = 2,
    interval: Annotated[
        str, typer.Option(metavar="SPAN", help="How often the cluster is looked at.")
    ] = "10s",
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the first history of each kind: .svg or .png.")
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Compare every way against flapping on one policy: changes, too much, too little. Needs no cluster."""
    from equipoise.cli.proportional_simulate_output import document, print_tables

    if plot is not None:
        _check_plot(plot)
    file = _policy(policy)
    if observations is not None:
        _refuse_beside(scene)
        studied = [_recorded(file, observations)]
    else:
        cluster = _cluster(nodes, node_cores, node_memory, hours, interval)
        names = [each for each in Scene if each is not Scene.ALL] if scene is Scene.ALL else [scene]
        studied = [_generated(file, cluster, name, seeds) for name in names]
    if plot is not None:
        from equipoise.cli.proportional_simulate_output import draw

        draw(file.spec, studied, plot)
    if output is Format.TABLE:
        print_tables(file.subject, studied)
    else:
        print_document(document(file.subject, studied), output)


def _policy(path: str | None) -> "PolicyFile":
    from equipoise.proportional.functions import slots
    from equipoise.proportional.parse import read_policy_file
    from equipoise.runtime.output import read_yaml

    file = (
        read_policy_file(DEFAULT_POLICY, "default")
        if path is None
        else read_policy_file(read_yaml(path), path)
    )
    if not slots(file.spec):
        raise BadInput(f"{path}: expected a function for some resource, got none")
    return file


def _cluster(nodes: int, node_cores: int, node_memory: str, hours: float, interval: str) -> "Cluster":
    from equipoise.core.quantity import parse_bytes, parse_seconds
    from equipoise.sim.smoothing_study import Cluster

    try:
        memory = round(parse_bytes(node_memory))
    except ValueError as error:
        raise BadInput(f"--node-memory: {error}") from error
    try:
        seconds = parse_seconds(interval)
    except ValueError as error:
        raise BadInput(f"--interval: {error}") from error
    if not 1 <= seconds <= 3600:  # noqa: PLR2004 - a second to an hour
        raise BadInput(f"--interval: expected a span between 1s and 1h, got {interval!r}")
    cluster = Cluster(nodes, node_cores, memory, interval_seconds=seconds, hours=hours)
    if cluster.looks > LOOKS_MAX:
        raise BadInput(f"--hours: expected at most {LOOKS_MAX} looks of --interval, got {cluster.looks}")
    return cluster


def _refuse_beside(scene: Scene) -> None:
    if scene is not Scene.ALL:
        raise BadInput("--observations: expected it alone, without --scene: the file says what happens")


def _recorded(file: "PolicyFile", path: str) -> "Studied":
    from equipoise.cli.proportional_simulate_output import Studied
    from equipoise.proportional.replay import read_observations
    from equipoise.runtime.output import read_text
    from equipoise.sim.smoothing_study import History, study

    rows = read_observations(read_text(path), path, file.spec.inputs)
    history = History([row.at for row in rows], [row.inputs for row in rows])
    start = history.inputs[0]
    return Studied(path, 1, history.hours, study(file.spec, start, [history]), history, start)


def _generated(file: "PolicyFile", cluster: "Cluster", scene: Scene, seeds: int) -> "Studied":
    from equipoise.cli.proportional_simulate_output import Studied
    from equipoise.sim.smoothing_study import generate, study

    start = cluster.sized(cluster.nodes)
    histories = (generate(scene.value, cluster, seed) for seed in range(seeds))
    with stepping(scene.value, seeds) as told:
        summaries = study(file.spec, start, histories, told)
    return Studied(scene.value, seeds, cluster.hours, summaries, generate(scene.value, cluster, 0), start)


def _check_plot(path: str) -> None:
    """Find out before minutes have passed."""
    from importlib.util import find_spec

    if not path.lower().endswith((".svg", ".png")):
        raise BadInput(f"--plot {path}: expected a file that ends in .svg or .png")
    if not Path(path).absolute().parent.is_dir():
        raise BadInput(f"--plot {path}: expected a folder that exists")
    if find_spec("matplotlib") is None:
        raise BadInput("--plot: expected the extra plot to be installed: pip install 'equipoise[plot]'")
