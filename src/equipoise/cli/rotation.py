"""`equipoise rotation`: hot and cold pods.

`equipoise rotation simulate`: what rotating brings, by the cause of the imbalance; needs no cluster.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from equipoise.cli import options
from equipoise.cli.journal import journalled, write_plan, write_records
from equipoise.cli.options import option, words
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, print_document, print_plan, read_yaml, warn, warn_of_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from equipoise.cli.rotation_live import RotationRequest
    from equipoise.cli.session import ClusterRequest


def simulate(
    cause: Annotated[
        Literal["all", "key-skew", "stale-counts", "connections", "noisy-node"],
        typer.Option(help="Cause of the imbalance."),
    ] = "all",
    seeds: Annotated[
        int, option("N", "Number of simulated workloads with a hot pod.", min=1, max=100_000)
    ] = 20,
    pods: Annotated[int, option("N", "Number of pods of the workload.", min=2, max=200)] = 6,
    setting: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Setting of the policy, such as topK=3; may be repeated.", "--set"),
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Simulate rotations for each cause of imbalance, and compare them with rotating fewer pods.

    Needs no cluster.
    """
    from equipoise.cli.rotation_study import document, print_tables, study
    from equipoise.core.documents import validated
    from equipoise.rotation.plan_file import set_options
    from equipoise.rotation.policy import RotationPolicy
    from equipoise.sim.experiment import IMBALANCES, Experiment

    settings = set_options(setting or ())
    validated(RotationPolicy, settings, "--set")
    question = Experiment(pods, settings)
    causes = IMBALANCES if cause == "all" else [cause.replace("-", " ")]
    found = [study(each, seeds, question) for each in causes]
    for studied, _ in found:
        if studied.worlds < seeds:
            warn(f"{studied.cause}: a pod was hot in {studied.worlds} of {studied.drawn} worlds only")
    if output is Format.TABLE:
        print_tables(question, found)
    else:
        print_document(document(question, found), output)


app = options.group("Rotate hot and cold pods of an autoscaled workload.")

Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD",
        envvar="DEPLOYMENT_NAME",
        show_envvar=False,
        help="Name of a workload, such as web or deployment/web; by default every workload with an HPA.",
    ),
]
Setting = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Setting of the policy, such as topK=3; overrides files and variables; may be repeated.",
        "--set",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationOptions:
    """The options of plan and apply."""

    scope: options.ScopeOptions
    output: options.Output = Format.TABLE
    journal: options.Journal = None
    kubernetes: options.OperatorOptions
    metrics_from: options.MetricsFrom = "auto"
    prometheus: options.PrometheusFlags

    def cluster(self) -> "ClusterRequest":
        return options.cluster_request(self.kubernetes, self.scope, self.prometheus, self.metrics_from)


@app.command()
@options.expanded
def plan(
    *,
    command: typer.Context,
    workloads: Workloads = None,
    file: Annotated[
        str | None,
        option("FILE", "Read the workload from a file, not from a cluster; - is standard input.", "--from"),
    ] = None,
    setting: Setting = None,
    live: RotationOptions,
) -> None:
    """Show which pods would be rotated, in which order, and why. Changes nothing."""
    if file is not None:
        from equipoise.rotation.plan_file import rotation_settings, set_options

        _refuse_beside_file(command)
        _plan_file(file, rotation_settings(), set_options(setting or ()), live)
        return
    _plan_live(_request(live, _settings(setting), workloads), live)


@app.command()
@options.expanded
def apply(
    *,
    workloads: Workloads = None,
    setting: Setting = None,
    is_dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Ask the API server which pods could be evicted now, without evicting any."
        ),
    ] = False,
    interval: Annotated[str, option("DURATION", "Time between two checks.")] = "10s",
    timeout: Annotated[str, option("DURATION", "Time limit for all waves and their verification.")] = "1h",
    live: RotationOptions,
) -> None:
    """Rotate hot pods in waves, verify each wave, and stop when no pod is hot."""
    settings = _settings(setting)
    interval_seconds = options.parse_span("--interval", interval, least=1)
    timeout_seconds = options.parse_span("--timeout", timeout, least=1)
    if is_dry_run:
        from equipoise.cli.rotation_live import warn_without_ledger

        warn_without_ledger(live.cluster())
        _plan_live(_request(live, settings, workloads), live)
        return
    from equipoise.cli.rotation_live import apply_rotation
    from equipoise.runtime.output import print_plan

    with journalled(live.journal) as records:
        request = _request(live, settings, workloads)
        done, failure = apply_rotation(request, interval_seconds, timeout_seconds, records)
    _warn_if_nothing(done, request)
    decisions, outcomes = [each.decision for each in done], [each.outcomes for each in done]
    print_plan("rotation", decisions, live.output, outcomes)
    if failure:
        raise WorldFailed(failure)


app.command()(simulate)


def _settings(setting: list[str] | None) -> dict[str, Any]:
    """Return the policy's settings: those of the environment, overridden by the command line."""
    from equipoise.core.documents import merged
    from equipoise.rotation.plan_file import rotation_settings, set_options

    return merged(rotation_settings(), set_options(setting or ()))


def _request(live: RotationOptions, settings: dict[str, Any], names: list[str] | None) -> "RotationRequest":
    from equipoise.cli.rotation_live import RotationRequest
    from equipoise.core.documents import validated
    from equipoise.rotation.policy import RotationPolicy

    cluster = live.cluster()
    cluster.expect_one_scope()
    return RotationRequest(cluster, validated(RotationPolicy, settings, "policy"), names or ())


def _plan_live(request: "RotationRequest", live: RotationOptions) -> None:
    from equipoise.cli.rotation_live import plan_rotation

    decisions, records = plan_rotation(request)
    _warn_if_nothing(decisions, request)
    where = live.scope.words()
    then = f"`{words('equipoise rotation apply', *request.names, *where)}` evicts these pods in waves"
    print_plan("rotation", decisions, live.output, then=then)
    write_records(live.journal, records)


def _warn_if_nothing(decided: "Sequence[object]", request: "RotationRequest") -> None:
    if not decided:
        warn_of_nothing("no workload with an HPA", is_everywhere=request.cluster.is_everywhere)


def _refuse_beside_file(command: typer.Context) -> None:
    """Raise BadInput for options without effect beside --from."""
    if name := options.first_given(command, ("workloads", *options.OF_CLUSTER)):
        what = "a workload" if name == "workloads" else f"--{name.replace('_', '-')}"
        raise BadInput(f"--from: expected it alone, without {what}: the file says what to decide for")


def _plan_file(file: str, below: dict[str, Any], above: dict[str, Any], live: RotationOptions) -> None:
    from equipoise.rotation.decide import decide
    from equipoise.rotation.plan_file import read_plan_file
    from equipoise.rotation.policy import policy_json

    policy, observation = read_plan_file(read_yaml(file), file, below, above)
    decision = decide(policy, observation).decision
    namespace, _, name = decision.subject.rpartition("/")
    scope = ("-n", namespace) if namespace else ()
    command = words("equipoise rotation apply", name, *scope, "--dry-run")
    then = f"`{command}` asks the cluster whether it allows this"
    print_plan("rotation", [decision], live.output, then=then)
    write_plan(live.journal, "rotation", policy_json(policy), observation, {}, decision)
