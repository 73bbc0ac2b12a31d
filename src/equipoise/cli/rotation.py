"""`equipoise rotation`: hot and cold pods.

`equipoise rotation simulate`: what rotating brings, by the cause of the imbalance; needs no cluster.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from equipoise.cli import options
from equipoise.cli.journal import journalled, write_plan, write_records
from equipoise.cli.options import option, words
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import (
    Format,
    document_of,
    print_document,
    print_plan,
    read_text,
    warn,
    warn_of_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from equipoise.cli.rotation_live import RotationRequest
    from equipoise.cli.session import ClusterRequest
    from equipoise.rotation.policy import RotationPolicy
    from equipoise.rotation.preconditions import Observation


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


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """What `kubectl top pod` does not print."""

    request: Annotated[
        str | None, option("CORES", "CPU request of a pod, for the output of kubectl top pod, such as 500m.")
    ] = None
    target: Annotated[
        str | None,
        option("TARGET", "CPU target of the HPA, for the same: percent such as 70, or cores such as 700m."),
    ] = None


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
        option(
            "FILE",
            "Read a plan file or the output of kubectl top pod, not a cluster; - is standard input.",
            "--from",
        ),
    ] = None,
    beside: UsageOptions,
    setting: Setting = None,
    live: RotationOptions,
) -> None:
    """Show which pods would be rotated, in which order, and why. Changes nothing."""
    if file is not None:
        _refuse_beside_file(command)
        _plan_file(file, _typed_names(command, workloads), beside, setting or [], live)
        return
    if beside.request is not None or beside.target is not None:
        name = "request" if beside.target is None else "target"
        raise BadInput(f"--{name}: expected it beside --from FILE only: the cluster knows")
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

    cluster = live.cluster()
    cluster.expect_one_scope()
    return RotationRequest(cluster, _policy(settings), names or ())


def _policy(settings: dict[str, Any]) -> "RotationPolicy":
    from equipoise.core.documents import validated
    from equipoise.rotation.policy import RotationPolicy

    return validated(RotationPolicy, settings, "policy")


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
    if name := options.first_given(command, options.OF_CLUSTER):
        _refuse_it(f"--{name.replace('_', '-')}")


def _refuse_it(what: str) -> NoReturn:
    raise BadInput(f"--from: expected it alone, without {what}: the file says what to decide for")


def _typed_names(command: typer.Context, workloads: list[str] | None) -> list[str]:
    """Return the workloads that were typed, and not those of an environment variable."""
    return list(workloads or ()) if options.first_given(command, ("workloads",)) else []


def _plan_file(
    file: str, names: list[str], beside: UsageOptions, setting: list[str], live: RotationOptions
) -> None:
    from equipoise.rotation.decide import decide
    from equipoise.rotation.policy import policy_json

    decided = [
        (policy, observation, decide(policy, observation).decision)
        for policy, observation in _read_file(file, names, beside, setting)
    ]
    decisions, then = [decision for _, _, decision in decided], ""
    if len(decisions) == 1:
        namespace, _, name = decisions[0].subject.rpartition("/")
        scope = ("-n", namespace) if namespace else ()
        command = words("equipoise rotation apply", name, *scope, "--dry-run")
        then = f"`{command}` asks the cluster whether it allows this"
    print_plan("rotation", decisions, live.output, then=then)
    for policy, observation, decision in decided:
        write_plan(live.journal, "rotation", policy_json(policy), observation, {}, decision)


def _read_file(
    file: str, names: list[str], beside: UsageOptions, setting: list[str]
) -> "list[tuple[RotationPolicy, Observation]]":
    """Return the workloads of a plan file, or of a file of usage, each with its policy."""
    from equipoise.core.file_forms import ROTATION, form_of_document, form_of_text, refuse_other_form
    from equipoise.rotation import usage_file
    from equipoise.rotation.plan_file import read_plan_file, rotation_settings, set_options

    text = read_text(file)
    has_top = usage_file.is_top(text)
    if not has_top and "," in text.split("\n", 1)[0] and text.lstrip()[:1] not in {"{", "["}:
        refuse_other_form(form_of_text(text), file, (ROTATION,))  # CSV, some of which is no YAML
    document = None if has_top else document_of(text, file)
    if has_top or usage_file.is_pod_metrics(document):
        policy = _policy(_settings(setting))
        target = usage_file.read_target(beside.request, beside.target, file)
        found = usage_file.read_top(text, file) if has_top else usage_file.read_pod_metrics(document, file)
        seen = usage_file.observations(found, target, names, file, policy.hpa_prefix)
        for line in usage_file.doubts(seen):
            warn(line)
        return [(policy, observation) for observation in seen]
    refuse_other_form(form_of_document(document), file, (ROTATION,))
    if names:
        _refuse_it("a workload")
    if beside.request is not None or beside.target is not None:
        _refuse_it("--request" if beside.target is None else "--target")
    return [read_plan_file(document, file, rotation_settings(), set_options(setting))]
