"""`equipoise proportional`: resources that follow the size of the cluster."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.cli.proportional_simulate import simulate
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, warn

if TYPE_CHECKING:
    from equipoise.cli.proportional_live import ProportionalRequest
    from equipoise.core.decision import Decision
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What plan and apply share."""

    scope: options.ScopeOptions
    output: options.Output = Format.TABLE
    journal: options.Journal = None
    kubernetes: options.OperatorOptions

    def request(
        self, policies: list[str] | None, path: str | None, *, takes_sizes: bool
    ) -> "ProportionalRequest":
        """Return which policies are meant, of which cluster."""
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
    live: LiveOptions,
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
    live: LiveOptions,
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


def _plan_live(request: "ProportionalRequest", live: LiveOptions) -> None:
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
