"""`equipoise proportional`: resources that follow the size of the cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.cli.proportional_simulate import simulate
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, warn

if TYPE_CHECKING:
    from equipoise.core.decision import Decision, Record
    from equipoise.proportional.functions import CompiledPolicy
    from equipoise.proportional.parse import PolicyFile

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
JournalFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="Add what was decided, and from what, to a journal.")
]


@app.command()
def plan(
    command: typer.Context,
    policies: Policies = None,
    policy: PolicyPath = None,
    size: Sizes = None,
    current: Current = None,
    observations: Observations = None,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: JournalFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
) -> None:
    """Say what containers would ask for, in a cluster or at a given size, and why. Changes nothing."""
    if policy is not None and (size or current or observations):
        if policies:
            raise BadInput("--policy: expected it alone, without the names of policies in the cluster")
        if journal is not None:
            raise BadInput("--journal: expected a look at a cluster, without --input and --observations")
        if policy == "-" and observations == "-":
            raise BadInput("--observations: expected a file, since --policy is standard input")
        from equipoise.proportional.parse import read_policy_file
        from equipoise.runtime.output import read_yaml

        file = read_policy_file(read_yaml(policy), policy)
        _plan_offline(file, size, current, observations, output)
        return
    if size or current or observations:
        raise BadInput("--policy: expected a file beside --input, --current and --observations")
    from equipoise.cli.proportional_live import plan_live, request_of
    from equipoise.cli.proportional_output import print_live

    request = request_of(command.params)
    if request.file is not None and not request.file.spec.inputs:
        _plan_offline(request.file, size, current, observations, output)
        return
    turns, records = plan_live(request)
    print_live(turns, output, is_done=False)
    _write(journal, records)


@app.command()
def apply(
    command: typer.Context,
    policies: Policies = None,
    policy: PolicyPath = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be set now; change nothing.")
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="SPAN", help="How long to wait between two turns where one is not enough.")
    ] = "10s",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long all turns may take.")] = "10m",
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: JournalFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
) -> None:
    """Set what the policies ask for now, with the operator's guards, and say what it restarts before."""
    from equipoise.cli.proportional_live import apply_live, plan_live, request_of
    from equipoise.cli.proportional_output import print_live

    request = request_of(command.params)
    seconds = (_span("--interval", interval), _span("--timeout", timeout))
    if is_dry_run:
        turns, records = plan_live(request)
        print_live(turns, output, is_done=False)
        _write(journal, records)
        return
    _write(journal, [])  # a journal that can't be written is said before anything is done
    turns, records, failure = apply_live(request, *seconds)
    _write(journal, records)
    print_live(turns, output, is_done=True)
    if failure:
        raise WorldFailed(failure)


app.command()(simulate)


def _plan_offline(
    file: "PolicyFile",
    size: list[str] | None,
    current: list[str] | None,
    observations: str | None,
    output: Format,
) -> None:
    """Decide from files and options alone."""
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


def _span(option: str, text: str) -> float:
    from equipoise.core.quantity import parse_seconds

    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
    if seconds < 1:
        raise BadInput(f"{option}: expected at least 1s, got {text!r}")
    return seconds


def _write(journal: str | None, records: "list[Record]") -> None:
    if journal is not None:
        from equipoise.cli.journal import write_records

        write_records(journal, records)


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
    from equipoise.proportional.replay import read_observations, replay
    from equipoise.runtime.output import read_text

    rows = read_observations(read_text(path), path, file.spec.inputs, sizes)
    try:
        return replay(asked, file.subject, rows, in_force)
    except ValueError as error:
        raise BadInput(f"--current {error}") from error


def _warn(asked: "CompiledPolicy", decision: "Decision", sizes: dict[str, str]) -> None:
    """Tell what was asked for and has no effect, or would be refused by the API server."""
    from equipoise.core.quantity import Quantity

    for name in sizes:
        if name.lower() not in asked.policy.inputs:
            warn(f"--input {name}: no function of the policy uses it")
    for container in decision.extra["containers"]:
        for resource, request in container["requests"].items():
            limit = container["limits"].get(resource)
            if limit is not None and Quantity.parse(request).nanos > Quantity.parse(limit).nanos:
                warn(f"{container['name']}: the {resource} request {request} is above the limit {limit}")
