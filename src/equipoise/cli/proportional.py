"""`equipoise proportional`: resources that follow the size of the cluster.

`plan` and `apply` are about a policy, `simulate` compares every way against flapping on one.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.cli.plots import check_plot
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, print_document, stepping, warn

if TYPE_CHECKING:
    from equipoise.cli.proportional_live import ProportionalRequest
    from equipoise.cli.proportional_study import Studied
    from equipoise.core.decision import Decision
    from equipoise.proportional.functions import CompiledPolicy
    from equipoise.proportional.parse import PolicyFile
    from equipoise.sim.smoothing_study import ClusterShape

app = typer.Typer(
    help="Requests and limits that follow the size of the cluster, without flapping.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
EXAMPLES = {"--input": "cores=18", "--current": "kube-dns.requests.cpu=250m"}


Policies = Annotated[
    list[str] | None,
    typer.Argument(metavar="POLICY", help="Names of ScalingPolicies in the cluster; by default all."),
]
PolicyPath = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="FILE", help="A ScalingPolicy, or only its spec, in a file; - is standard input."
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=SIZE",
        help="How large the cluster is: cores, memory, nodes, pods; by default it is counted.",
    ),
]
Current = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="What is in force, such as kube-dns.requests.cpu=250m."),
]
Observations = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="CSV with timestamp and sizes: run them all through the smoothing."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProportionalOptions:
    """The options of plan and apply."""

    scope: options.ScopeOptions
    output: options.Output = Format.TABLE
    journal: options.Journal = None
    kubernetes: options.OperatorOptions

    def request(
        self, policies: list[str] | None, path: str | None, *, takes_sizes: bool
    ) -> "ProportionalRequest":
        """Return the request: which policies of which cluster."""
        from equipoise.cli.proportional_live import ProportionalRequest

        if path is not None and policies:
            raise BadInput("--policy: expected it alone, without the names of policies in the cluster")
        if self.scope.namespace is not None and self.scope.all_namespaces:
            raise BadInput("-n and -A: expected one of them, not both")
        cluster = options.cluster_request(self.kubernetes, self.scope)
        file = None if path is None else _read_policy(path)
        return ProportionalRequest(cluster, policies or (), file, takes_sizes)


@app.command()
@options.expanded
def plan(
    *,
    policies: Policies = None,
    policy: PolicyPath = None,
    size: Sizes = None,
    current: Current = None,
    observations: Observations = None,
    live: ProportionalOptions,
) -> None:
    """Say what containers would ask for, in a cluster or at a given size, and why. Changes nothing."""
    if policy is not None and (size or current or observations):
        if policies:
            raise BadInput("--policy: expected it alone, without the names of policies in the cluster")
        if live.journal is not None:
            raise BadInput("--journal: expected a look at a cluster, without --input and --observations")
        if policy == "-" and observations == "-":
            raise BadInput("--observations: expected a file, since --policy is standard input")
        _plan_offline(_read_policy(policy), size, current, observations, live.output)
        return
    if size or current or observations:
        raise BadInput("--policy: expected a file beside --input, --current and --observations")
    request = live.request(policies, policy, takes_sizes=True)
    if request.file is not None and not request.file.spec.inputs:
        _plan_offline(request.file, size, current, observations, live.output)
        return
    _plan_live(request, live)


@app.command()
@options.expanded
def apply(
    *,
    policies: Policies = None,
    policy: PolicyPath = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be set now; change nothing.")
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="SPAN", help="How long to wait between two turns where one is not enough.")
    ] = "10s",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long all turns may take.")] = "10m",
    live: ProportionalOptions,
) -> None:
    """Set what the policies ask for now, with the operator's guards, and say what it restarts before."""
    request = live.request(policies, policy, takes_sizes=False)
    interval_seconds = options.parse_span("--interval", interval, least=1)
    timeout_seconds = options.parse_span("--timeout", timeout, least=1)
    if is_dry_run:
        _plan_live(request, live)
        return
    from equipoise.cli.journal import journalled
    from equipoise.cli.proportional_live import apply_proportional
    from equipoise.cli.proportional_output import print_live

    with journalled(live.journal) as records:
        items, failure = apply_proportional(request, interval_seconds, timeout_seconds, records)
    print_live(items, live.output, is_done=True)
    if failure:
        raise WorldFailed(failure)


def _plan_offline(
    file: "PolicyFile",
    size: list[str] | None,
    current: list[str] | None,
    observations: str | None,
    output: Format,
) -> None:
    from equipoise.cli.proportional_output import print_proportional
    from equipoise.proportional.functions import CompiledPolicy

    asked = CompiledPolicy.of(file.spec)
    sizes, in_force = _pairs("--input", size), _pairs("--current", current)
    if observations is None:
        decision = _decide_once(file, sizes, in_force)
    else:
        decision = _decide_all(asked, file, observations, sizes, in_force)
    _warn(asked, decision, sizes)
    print_proportional(asked, decision, output)


def _plan_live(request: "ProportionalRequest", live: ProportionalOptions) -> None:
    from equipoise.cli.journal import write_records
    from equipoise.cli.proportional_live import plan_proportional
    from equipoise.cli.proportional_output import print_live

    items, records = plan_proportional(request)
    print_live(items, live.output, is_done=False)
    write_records(live.journal, records)


def _read_policy(path: str) -> "PolicyFile":
    from equipoise.proportional.parse import read_policy_file
    from equipoise.runtime.output import read_yaml

    return read_policy_file(read_yaml(path), path)


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
    from equipoise.proportional.decide import Observation, decide, read_inputs

    try:
        given = read_inputs(sizes)
    except ValueError as error:
        raise BadInput(f"--input {error}") from error
    if missing := sorted(file.spec.inputs - set(given)):
        raise BadInput(f"--input: expected {missing[0]}=SIZE, since the policy's functions use {missing[0]}")
    try:
        return decide(file.spec, Observation(file.subject, 0, sizes, in_force)).decision
    except ValueError as error:
        raise BadInput(f"--current {error}") from error


def _decide_all(
    asked: "CompiledPolicy", file: "PolicyFile", path: str, sizes: dict[str, str], in_force: dict[str, str]
) -> "Decision":
    from equipoise.proportional.decide import replay
    from equipoise.proportional.parse import read_observations
    from equipoise.runtime.output import read_text

    rows = read_observations(read_text(path), path, file.spec.inputs, sizes)
    try:
        return replay(asked, file.subject, rows, in_force)
    except ValueError as error:
        raise BadInput(f"--current {error}") from error


def _warn(asked: "CompiledPolicy", decision: "Decision", sizes: dict[str, str]) -> None:
    """Warn of input without effect, and of requests that the API server would reject."""
    from equipoise.core.quantity import Quantity

    for name in sizes:
        if name.lower() not in asked.spec.inputs:
            warn(f"--input {name}: no function of the policy uses it")
    for container in decision.extra["containers"]:
        for resource, request in container["requests"].items():
            limit = container["limits"].get(resource)
            if limit is not None and Quantity.parse(request).nanos > Quantity.parse(limit).nanos:
                warn(f"{container['name']}: the {resource} request {request} is above the limit {limit}")


CYCLES_MAX = 2_000_000
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
"""The seed's function, without smoothing."""


class HistoryKind(StrEnum):
    """The scenario of the cluster's size."""

    ALL = "all"
    RANDOM_WALK = "random-walk"
    ROLLING_UPDATE = "rolling-update"
    NODE_FLAP = "node-flap"
    AUTOSCALER_BURST = "autoscaler-burst"


@app.command()
def simulate(
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A ScalingPolicy, or only its spec; by default 100m + 10m per core."
        ),
    ] = None,
    scene: Annotated[HistoryKind, typer.Option(help="What happens to the cluster.")] = HistoryKind.ALL,
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
    from equipoise.cli.proportional_study import print_tables, report

    check_plot(plot)
    file = _policy(policy)
    if observations is not None:
        if scene is not HistoryKind.ALL:
            raise BadInput("--observations: expected it alone, without --scene: the file says what happens")
        studied = [_recorded(file, observations)]
    else:
        cluster = _cluster(nodes, node_cores, node_memory, hours, interval)
        names = (
            [each for each in HistoryKind if each is not HistoryKind.ALL]
            if scene is HistoryKind.ALL
            else [scene]
        )
        studied = [_generated(file, cluster, name, seeds) for name in names]
    if plot is not None:
        from equipoise.cli.proportional_study import draw

        draw(file.spec, studied, plot)
    if output is Format.TABLE:
        print_tables(file.subject, studied)
    else:
        print_document(report(file.subject, studied), output)


def _policy(path: str | None) -> "PolicyFile":
    from equipoise.proportional.functions import slots
    from equipoise.proportional.parse import read_policy_file

    file = read_policy_file(DEFAULT_POLICY, "default") if path is None else _read_policy(path)
    if not slots(file.spec):
        raise BadInput(f"{path}: expected a function for some resource, got none")
    return file


def _cluster(nodes: int, node_cores: int, node_memory: str, hours: float, interval: str) -> "ClusterShape":
    from equipoise.core.quantity import parse_bytes
    from equipoise.sim.smoothing_study import ClusterShape

    try:
        memory = round(parse_bytes(node_memory))
    except ValueError as error:
        raise BadInput(f"--node-memory: {error}") from error
    seconds = options.parse_span("--interval", interval)
    if not 1 <= seconds <= 3600:  # noqa: PLR2004 - a second to an hour
        raise BadInput(f"--interval: expected a span between 1s and 1h, got {interval!r}")
    cluster = ClusterShape(nodes, node_cores, memory, interval_seconds=seconds, hours=hours)
    if cluster.observation_count > CYCLES_MAX:
        raise BadInput(
            f"--hours: expected at most {CYCLES_MAX} looks of --interval, got {cluster.observation_count}"
        )
    return cluster


def _recorded(file: "PolicyFile", path: str) -> "Studied":
    from equipoise.cli.proportional_study import Studied
    from equipoise.proportional.parse import read_observations
    from equipoise.runtime.output import read_text
    from equipoise.sim.smoothing_study import SizeHistory, study

    rows = read_observations(read_text(path), path, file.spec.inputs)
    history = SizeHistory([row.at for row in rows], [row.inputs for row in rows])
    start = history.inputs[0]
    return Studied(path, 1, history.hours, study(file.spec, start, [history]), history, start)


def _generated(file: "PolicyFile", cluster: "ClusterShape", scene: HistoryKind, seeds: int) -> "Studied":
    from equipoise.cli.proportional_study import Studied
    from equipoise.sim.smoothing_study import generate, study

    start = cluster.sized(cluster.nodes)
    histories = (generate(scene.value, cluster, seed) for seed in range(seeds))
    with stepping(scene.value, seeds) as on_step:
        summaries = study(file.spec, start, histories, on_step)
    return Studied(scene.value, seeds, cluster.hours, summaries, generate(scene.value, cluster, 0), start)
