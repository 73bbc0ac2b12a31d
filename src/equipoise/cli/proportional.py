"""`equipoise proportional`: resources that follow the size of the cluster.

`plan` and `apply` are about a policy, and print what is decided for it; `simulate` compares every way
against flapping on one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from equipoise.cli import options
from equipoise.cli.journal import journalled, write_plan, write_records
from equipoise.cli.options import option, words
from equipoise.cli.plots import check_plot
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.quantity import Quantity
from equipoise.runtime.output import (
    Format,
    next_step,
    print_document,
    print_plan,
    print_sentences,
    read_yaml,
    warn,
)

if TYPE_CHECKING:
    from equipoise.cli.proportional_live import ProportionalRequest
    from equipoise.core.decision import Decision
    from equipoise.proportional.functions import CompiledPolicy
    from equipoise.proportional.loop import PolicyResult
    from equipoise.proportional.parse import PolicyFile

app = options.group("Scale container requests and limits with the size of the cluster.")
EXAMPLES = {"--input": "cores=18", "--current": "kube-dns.requests.cpu=250m"}


Policies = Annotated[
    list[str] | None,
    typer.Argument(metavar="POLICY", help="Name of a ScalingPolicy in the cluster; by default all of them."),
]
PolicyPath = Annotated[
    str | None,
    option("FILE", "File with a ScalingPolicy or only its spec; - is standard input.", "--policy"),
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
    size: Annotated[
        list[str] | None,
        option(
            "NAME=SIZE",
            "Size of the cluster (cores, memory, nodes or pods), such as cores=18; "
            "by default counted in the cluster; "
            "may be repeated.",
            "--input",
        ),
    ] = None,
    current: Annotated[
        list[str] | None,
        option("NAME=VALUE", "Current value, such as kube-dns.requests.cpu=250m; may be repeated."),
    ] = None,
    observations: Annotated[
        str | None,
        option("FILE", "CSV with a timestamp and the sizes; runs every row through the smoothing."),
    ] = None,
    live: ProportionalOptions,
) -> None:
    """Show the requests and limits of containers at the current or a given cluster size, and why.

    Changes nothing.
    """
    if policy is not None and (size or current or observations):
        if policies:
            raise BadInput("--policy: expected it alone, without the names of policies in the cluster")
        if live.journal is not None and observations is not None:
            raise BadInput("--journal: expected it without --observations, which are many decisions")
        if policy == "-" and observations == "-":
            raise BadInput("--observations: expected a file, since --policy is standard input")
        _plan_offline(_read_policy(policy), size, current, observations, live, _then(policy))
        return
    if size or current or observations:
        raise BadInput("--policy: expected a file beside --input, --current and --observations")
    request = live.request(policies, policy, takes_sizes=True)
    if request.file is not None and not request.file.spec.inputs:
        _plan_offline(request.file, size, current, observations, live, _then(policy))
        return
    _plan_live(request, live, _then(policy))


@app.command()
@options.expanded
def apply(
    *,
    policies: Policies = None,
    policy: PolicyPath = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be set now, without setting it.")
    ] = False,
    interval: Annotated[str, option("DURATION", "Time between two cycles, where one is not enough.")] = "10s",
    timeout: Annotated[str, option("DURATION", "Time limit for all cycles.")] = "10m",
    live: ProportionalOptions,
) -> None:
    """Set the requests and limits that the policies define, with the same guards as the operator.

    Pods that have to restart are named first.
    """
    request = live.request(policies, policy, takes_sizes=False)
    interval_seconds = options.parse_span("--interval", interval, least=1)
    timeout_seconds = options.parse_span("--timeout", timeout, least=1)
    if is_dry_run:
        _plan_live(request, live, _then(policy))
        return
    from equipoise.cli.proportional_live import apply_proportional

    with journalled(live.journal) as records:
        items, failure = apply_proportional(request, interval_seconds, timeout_seconds, records)
    _print_live(items, live.output, is_done=True)
    if failure:
        raise WorldFailed(failure)


def _plan_offline(
    file: "PolicyFile",
    size: list[str] | None,
    current: list[str] | None,
    path: str | None,
    live: ProportionalOptions,
    then: str,
) -> None:
    from equipoise.proportional.decide import Observation
    from equipoise.proportional.functions import CompiledPolicy

    asked = CompiledPolicy.of(file.spec)
    sizes, in_force = _pairs("--input", size), _pairs("--current", current)
    decision = _decide(file, asked, path, sizes, in_force)
    observation = Observation(file.subject, 0, sizes, in_force)
    write_plan(live.journal, "proportional", asked.document, observation, {}, decision)
    _warn(asked, decision, sizes)
    if live.output is not Format.TABLE:
        print_plan("proportional", [decision], live.output)
        return
    from equipoise.runtime.console import Console

    console = Console()
    if steps := decision.extra.get("steps"):
        _print_steps(console, asked, steps)
    console.print(_values(asked, decision))
    console.print(f"{decision.subject}: {decision.reason.sentence}")
    console.print("Nothing was changed.")
    console.print(next_step([decision], then))


def _plan_live(request: "ProportionalRequest", live: ProportionalOptions, then: str) -> None:
    from equipoise.cli.proportional_live import plan_proportional

    items, records = plan_proportional(request)
    _print_live(items, live.output, is_done=False)
    if live.output is Format.TABLE and items:
        told = words("equipoise proportional apply", *request.names, *live.scope.words())
        decisions = [each.decision for each in items if each.decision is not None]
        print_sentences(next_step(decisions, then if request.file else f"`{told}` sets these values"))
    write_records(live.journal, records)


def _then(path: str | None) -> str:
    command = words("equipoise proportional apply --policy", "FILE" if path in {None, "-"} else str(path))
    return f"`{command}` sets these values in the cluster"


def _read_policy(path: str) -> "PolicyFile":
    from equipoise.proportional.parse import read_policy_file

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


def _decide(
    file: "PolicyFile",
    asked: "CompiledPolicy",
    path: str | None,
    sizes: dict[str, str],
    current: dict[str, str],
) -> "Decision":
    """Decide for one size, or run the observations of a file through the smoothing."""
    from equipoise.proportional.decide import Observation, decide, read_inputs, replay
    from equipoise.proportional.parse import read_observations
    from equipoise.runtime.output import read_text

    inputs = file.spec.inputs
    if path is not None:
        rows = read_observations(read_text(path), path, inputs, sizes)
        with options.values_of("--current "):
            return replay(asked, file.subject, rows, current)
    with options.values_of("--input "):
        given = read_inputs(sizes)
    if missing := sorted(inputs - set(given)):
        raise BadInput(f"--input: expected {missing[0]}=SIZE, since the policy's functions use {missing[0]}")
    with options.values_of("--current "):
        return decide(file.spec, Observation(file.subject, 0, sizes, current)).decision


def _warn(asked: "CompiledPolicy", decision: "Decision", sizes: dict[str, str]) -> None:
    """Warn of input without effect, and of requests that the API server would reject."""
    for name in sizes:
        if name.lower() not in asked.spec.inputs:
            warn(f"--input {name}: no function of the policy uses it")
    for container in decision.extra["containers"]:
        for resource, request in container["requests"].items():
            limit = container["limits"].get(resource)
            if limit is not None and Quantity.parse(request).nanos > Quantity.parse(limit).nanos:
                warn(f"{container['name']}: the {resource} request {request} is above the limit {limit}")


@app.command()
def simulate(
    policy: Annotated[
        str | None,
        option("FILE", "File with a ScalingPolicy or only its spec; by default 100m + 10m per core."),
    ] = None,
    scene: Annotated[
        Literal["all", "random-walk", "rolling-update", "node-flap", "autoscaler-burst"],
        typer.Option(help="Kind of generated node history."),
    ] = "all",
    observations: Annotated[
        str | None, option("FILE", "CSV with a timestamp and the sizes, instead of generated histories.")
    ] = None,
    seeds: Annotated[int, option("N", "Number of histories of each kind.", min=1, max=100_000)] = 20,
    nodes: Annotated[int, option("N", "Number of nodes at the start.", min=2, max=100_000)] = 50,
    node_cores: Annotated[int, option("N", "Cores of a node.", min=1, max=4096)] = 4,
    node_memory: Annotated[str, option("SIZE", "Memory of a node.")] = "16Gi",
    hours: Annotated[float, option("HOURS", "Length of a history in hours.", min=0.01, max=1000)] = 2,
    interval: Annotated[str, option("DURATION", "Time between two observations.")] = "10s",
    plot: Annotated[
        str | None, option("FILE", "Draw the first history of each kind to an .svg or .png file.")
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Compare the strategies against flapping on one policy: number of changes, over- and under-provisioning.

    Needs no cluster.
    """
    from equipoise.cli.proportional_study import (
        cluster_of,
        draw,
        generated,
        policy_of,
        print_tables,
        recorded,
        report,
    )
    from equipoise.sim.smoothing_study import WALKS

    check_plot(plot)
    file = policy_of(policy)
    if observations is not None:
        if scene != "all":
            raise BadInput("--observations: expected it alone, without --scene: the file says what happens")
        studied = [recorded(file.spec, observations)]
    else:
        cluster = cluster_of(nodes, node_cores, node_memory, hours, interval)
        scenes = WALKS if scene == "all" else [scene]
        studied = [generated(file.spec, cluster, each, seeds) for each in scenes]
    if plot is not None:
        draw(file.spec, studied, plot)
    if output is Format.TABLE:
        print_tables(file.subject, studied)
    else:
        print_document(report(file.subject, studied), output)


STEPS_SHOWN_MAX = 40
STYLES = {"Set": "bold yellow", "Unchanged": "dim"}


def _print_live(results: "Sequence[PolicyResult]", form: Format, *, is_done: bool) -> None:
    decided = [(turn, turn.decision) for turn in results if turn.decision is not None]
    if form is not Format.TABLE:
        decisions = [decision for _, decision in decided]
        outcomes = [turn.outcomes for turn, _ in decided] if is_done else None
        print_plan("proportional", decisions, form, outcomes)
        return
    from equipoise.runtime.console import Console

    console = Console()
    for turn, decision in decided:
        console.print(_values(turn.item.compiled, decision))
        console.print(f"{decision.subject}: {decision.reason.sentence}")
        if decision.actions and turn.cost:
            console.print(turn.cost)
        for outcome in turn.outcomes:
            console.print(f"{outcome.result}: {outcome.detail}".rstrip(": "))
        console.print()
    if not decided:
        console.print("There is nothing to decide.")
    changed = sum(any(o.result == "Accepted" for o in turn.outcomes) for turn, _ in decided)
    console.print(f"{len(decided)} decided, {changed} changed." if is_done else "Nothing was changed.")


RIGHT = {"NOW", "TARGET", "IN FORCE"}


def _values(asked: "CompiledPolicy", decision: "Decision") -> Any:
    """Return one row per resource: its value, the cluster's target, and its planned value."""
    from rich.text import Text

    from equipoise.runtime.console import table

    numbers = decision.reason.numbers
    applied = {
        f"{container['name']}.{section}.{resource}": value
        for container in decision.extra["containers"]
        for section in ("requests", "limits")
        for resource, value in container[section].items()
    }
    laid_out = table("RESOURCE", "NOW", "TARGET", "IN FORCE", "REASON", right=RIGHT)
    for slot in asked.slots:
        code = numbers["reasons"][slot.key]
        laid_out.add_row(
            slot.key,
            numbers["current"][slot.key] or "-",
            numbers["target"][slot.key],
            Text(applied.get(slot.key, "-"), style=STYLES.get(code, "")),
            Text(code, style=STYLES.get(code, "yellow")),
        )
    return laid_out


def _print_steps(console: Any, asked: "CompiledPolicy", steps: list[dict[str, Any]]) -> None:
    """Print the rows with a change, and the number of all."""
    from rich.text import Text

    from equipoise.runtime.console import table

    shown = list(_changes(steps))
    laid_out = table("TIME", "REASON", "RESOURCE", "TARGET", "IN FORCE", right=RIGHT)
    for step in shown[:STEPS_SHOWN_MAX]:
        style = STYLES.get(step["reason"], "yellow")
        head: list[Any] = [str(step["timestamp"]), Text(step["reason"], style=style)]
        for slot in asked.slots:
            applied = step["applied"][slot.key] or "-"
            laid_out.add_row(*head, slot.key, step["target"][slot.key], Text(applied, style=style))
            head = ["", ""]
    console.print(laid_out)
    changes = sum(step["reason"] == "Set" for step in steps)
    rest = len(shown) - STEPS_SHOWN_MAX
    more = f"; {rest} more rows with -o json" if rest > 0 else ""
    console.print(
        f"{len(steps)} steps, {changes} {'change' if changes == 1 else 'changes'}; "
        f"shown are those with a change or another reason{more}.\n"
    )


def _changes(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    before = None
    for step in steps:
        if step["reason"] != before or step["reason"] == "Set":
            yield step
        before = step["reason"]
