"""`equipoise recommendation`: HPA and resource advice from history.

`equipoise recommendation apply`: advice becomes HPAs, by server-side apply.

`equipoise recommendation simulate`: the past week again, under today's settings and the advised ones.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from equipoise.cli import options
from equipoise.cli import options as said
from equipoise.cli.plots import Plot, check_plot
from equipoise.cli.recommendation_input import (
    FileOptions,
    answered,
    by_name,
    decided,
    read_settings,
    read_usage,
    warn_of_requests,
)
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, print_document, warn, warn_of_nothing

if TYPE_CHECKING:
    from equipoise.cli.recommendation_replay import Hpa
    from equipoise.core.decision import Decision, Record
    from equipoise.recommendation.adopt import Adopted
    from equipoise.recommendation.record import AdviceRequest


def apply(
    command: typer.Context,
    workloads: said.LiveWorkloads = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server say what would happen; change nothing.")
    ] = False,
    setting: said.Setting = None,
    no_forecast: said.NoForecast = False,
    algorithm: said.Algorithm = said.AlgorithmName.PROFILE,
    source: said.LiveSource = said.LiveSourceName.AUTO,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: Annotated[
        str | None, typer.Option(metavar="PATH", help="Add what was decided, and from what, to a journal.")
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
    prometheus_url: options.PrometheusUrl = None,
    prometheus_namespace: options.PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_label: options.PrometheusLabel = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Decide as plan does, and make the HPAs, or change those made before; others' are left alone."""
    from equipoise.cli.journal import write_records
    from equipoise.cli.recommendation_live import Request, apply_recommendation, print_adopted
    from equipoise.recommendation.advisor import AdviceScope
    from equipoise.stats.predict import Algorithm as Named

    how = None if no_forecast else Named(algorithm)
    asked = AdviceScope(read_settings(setting or ()), namespace, workloads or (), how)
    request = Request.from_options(asked, command.params)
    diary: list[Record] = []
    if journal is not None:
        write_records(journal, [])  # a journal that can't be written is said before anything is done
    try:
        done = apply_recommendation(request, operator_namespace, is_dry_run=is_dry_run, diary=diary)
    finally:
        if journal is not None:
            write_records(journal, diary)
    if not done:
        warn_of_nothing("no workload", is_everywhere=all_namespaces)
    for line in _surprises(done):
        warn(line)
    print_adopted(done, output, is_dry_run=is_dry_run)
    failed = [each for each in done if each.has_failed or (workloads and each.is_not_ours)]
    if failed:
        first, count = failed[0].decision, len(failed) - 1
        more = f" (and {count} more)" if count else ""
        raise WorldFailed(f"{first.subject}: {first.reason.sentence}{more}")


def _surprises(done: "Sequence[Adopted]") -> "Iterator[str]":
    """Return what an HPA does at once, and what it was made from little."""
    from equipoise.recommendation.explain import percent_known

    for each in done:
        decision = each.decision
        numbers, recommended = decision.reason.numbers, decision.extra["recommended"]
        if not decision.actions:
            continue
        if numbers["replicas"] > recommended["maxReplicas"]:
            yield (
                f"{decision.subject}: {numbers['replicas']} replicas are more than the HPA's maximum of "
                f"{recommended['maxReplicas']}, to which it scales down at once"
            )
        if numbers["confidence"] == "low":
            share = percent_known(numbers["coverage"])
            yield f"{decision.subject}: low confidence, since only {share} of the past seven days is known"


TODAY = "by default today's replicas stay"
File = Annotated[
    str,
    typer.Option("--from", metavar="FILE", help="CSV or Parquet with CPU usage; - is standard input."),
]


def simulate(
    file: File,
    workloads: said.Workloads = None,
    request: said.Request = None,
    replicas: said.Replicas = None,
    available: said.Available = None,
    pod_usage: said.PodUsage = None,
    current_min: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=said.REPLICAS_MAX, help="minReplicas of today's HPA; by default 1."
        ),
    ] = None,
    current_max: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=said.REPLICAS_MAX, help=f"maxReplicas of today's HPA; {TODAY}."),
    ] = None,
    current_target: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", min=1, max=1000, help="Its target, in percent of the request."),
    ] = None,
    setting: said.Setting = None,
    no_forecast: said.NoForecast = False,
    kind: said.Kind = "Deployment",
    algorithm: said.Algorithm = said.AlgorithmName.PROFILE,
    output: options.Output = Format.TABLE,
) -> None:
    """Replay the week by Kubernetes' HPA algorithm, as it is set today and as advised. Changes nothing."""
    today = _today(current_min, current_max, current_target)
    from equipoise.cli.recommendation_replay import document, print_table, replayed
    from equipoise.recommendation.record import AdviceRequest
    from equipoise.runtime.output import counting, warn
    from equipoise.stats.predict import Algorithm

    policy = read_settings(setting or ())
    told = FileOptions(file, pod_usage, workloads or (), kind, request, replicas, available)
    usage = read_usage(told)
    question = AdviceRequest(policy, algorithm=None if no_forecast else Algorithm(algorithm))
    parts = [(seen, decided(question, seen)) for seen in usage]  # which shows how far it is by itself
    runs = (run for seen, decisions in parts for run in replayed(seen, decisions, today))
    found = list(counting(runs, "replaying", sum(len(decisions) for _, decisions in parts)))
    if len(usage) > 1:
        found.sort(key=lambda run: by_name(run.decision))
    warn_of_requests((run.decision for run in found), told)
    if not found:
        warn(f"no workload was found; {file} has none")
    if output is Format.TABLE:
        print_table(found)
    else:
        print_document(document(found, min(seen.interval_seconds for seen in usage)), output)


def _today(low: int | None, high: int | None, target: int | None) -> "Hpa | None":
    """Return today's HPA; None where there is none."""
    from equipoise.cli.recommendation_replay import Hpa

    if low is None and high is None and target is None:
        return None
    if high is None or target is None:
        missing = "--current-max" if high is None else "--current-target"
        raise BadInput(f"{missing}: expected it too, since today's HPA has both a maximum and a target")
    if (low or 1) > high:
        raise BadInput(f"--current-max: expected at least --current-min ({low}), got {high}")
    return Hpa(low or 1, high, target)


app = typer.Typer(
    help="HPA and resource settings, from a week of history and a forecast.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def plan(
    command: typer.Context,
    workloads: said.Workloads = None,
    file: said.File = None,
    request: said.Request = None,
    replicas: said.Replicas = None,
    available: said.Available = None,
    pod_usage: said.PodUsage = None,
    setting: said.Setting = None,
    no_forecast: said.NoForecast = False,
    kind: said.Kind = "Deployment",
    about: said.About = said.TypeName.HPA,
    algorithm: said.Algorithm = said.AlgorithmName.PROFILE,
    source: said.Source = said.SourceName.AUTO,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    plot: Plot = None,
    output: said.AdviceOutput = said.AdviceFormat.TABLE,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    prometheus_url: options.PrometheusUrl = None,
    prometheus_namespace: options.PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_label: options.PrometheusLabel = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Say how many replicas, at which target, a workload's HPA should have, and why. Changes nothing."""
    _refuse_of_the_other(command, is_file=file is not None)
    check_plot(plot)
    if about is said.TypeName.RESOURCE and output in {said.AdviceFormat.HPA, said.AdviceFormat.EHPA}:
        raise BadInput(f"-o {output.value}: expected --type HPA, since requests are no autoscaler")
    from equipoise.cli.recommendation_output import print_advice
    from equipoise.recommendation.policy import AdviceType
    from equipoise.recommendation.record import AdviceRequest
    from equipoise.stats.predict import Algorithm as Named

    how, what = None if no_forecast else Named(algorithm), AdviceType(about)
    question = AdviceRequest(read_settings(setting or ()), what, how)
    if file is None:
        found = _of_cluster(question, command, namespace, workloads or (), plot)
    else:
        told = FileOptions(file, pod_usage, workloads or (), kind, request, replicas, available)
        found = _of_file(question, told, plot)
    if not found.decisions:
        if file is None:
            warn_of_nothing("no workload", is_everywhere=all_namespaces)
        else:
            warn(f"no workload was found; {file} has none")
    print_advice(
        found.decisions, found.intervals_seconds, output, is_resource=about is said.TypeName.RESOURCE
    )


app.command()(apply)
app.command()(simulate)
OF_FILE = ("request", "replicas", "available", "pod_usage", "kind")
OF_CLUSTER = (
    *("source", "namespace", "all_namespaces", "kubeconfig", "context"),
    *("prometheus_url", "prometheus_namespace"),
)


class Found(NamedTuple):
    """What was decided, from samples so far apart."""

    decisions: "Sequence[Decision]"
    intervals_seconds: Sequence[float]


def _of_cluster(
    question: "AdviceRequest",
    command: typer.Context,
    namespace: str | None,
    names: Sequence[str],
    plot: str | None,
) -> Found:
    """Decide for a live cluster, and draw it where that is asked for."""
    from equipoise.cli.recommendation_live import Kept, Request, plan_recommendation
    from equipoise.recommendation.advisor import STEP_SECONDS, AdviceScope

    asked = AdviceScope(question.policy, namespace, names, question.algorithm, question.about)
    live = Request.from_options(asked, command.params)
    if plot is None:
        planned = plan_recommendation(live)
        return Found(planned, [STEP_SECONDS] * len(planned))
    from equipoise.cli.recommendation_plot import WORKLOADS_MAX, draw_advice

    kept = Kept()
    decisions = plan_recommendation(live, kept=kept, workloads_max=WORKLOADS_MAX)
    rows = [kept.rows[one.subject, one.extra["kind"]] for one in decisions]
    draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return Found(decisions, [STEP_SECONDS] * len(decisions))


def _of_file(question: "AdviceRequest", told: FileOptions, plot: str | None) -> Found:
    """Decide for the workloads of a file, and draw them where that is asked for."""
    found = answered(question, read_usage(told))
    decisions = [each.decision for each in found]
    warn_of_requests(decisions, told)
    if plot is not None:
        from equipoise.cli.recommendation_plot import draw_advice

        rows = [each.seen.rows(slice(each.row, each.row + 1)) for each in found]
        draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return Found(decisions, [each.seen.interval_seconds for each in found])


def _refuse_of_the_other(command: typer.Context, *, is_file: bool) -> None:
    """Refuse what was typed and would have no effect; variables may be there for other commands."""
    for name in OF_CLUSTER if is_file else OF_FILE:
        place = command.get_parameter_source(name)
        is_same = is_file and command.params[name] is said.SourceName.METRICS_FILE
        if place is not None and place.name == "COMMANDLINE" and not is_same:
            option = f"--{name.replace('_', '-')}"
            if is_file:
                raise BadInput(f"--from: expected it without {option}: the file says what to decide for")
            hint = "; KIND/NAME chooses a workload" if name == "kind" else ""
            raise BadInput(f"{option}: expected it beside --from FILE only: the cluster knows{hint}")
