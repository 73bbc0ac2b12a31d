"""`equipoise recommendation`: HPA and resource advice from history.

`plan` advises from a cluster or a file, `apply` makes the HPAs by server-side apply, `simulate` replays the
past week under today's settings and the advised ones.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from equipoise.cli import options
from equipoise.cli.options import AdviceFormat, AlgorithmName, SourceName, TypeName
from equipoise.cli.plots import Plot, check_plot
from equipoise.cli.recommendation_input import (
    FileRequest,
    answered,
    by_name,
    decided,
    read_settings,
    read_usage,
    warn_of_requests,
)
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, counting, print_document, warn, warn_of_nothing

if TYPE_CHECKING:
    from equipoise.cli.recommendation_replay import HpaBounds
    from equipoise.cli.session import ClusterRequest
    from equipoise.core.decision import Decision
    from equipoise.recommendation.adopt import Adopted
    from equipoise.recommendation.policy import AdviceRequest


class LiveSourceName(StrEnum):
    """How the histories of a cluster are asked for."""

    AUTO = "auto"
    REMOTE_READ = "remote-read"
    PROMQL = "promql"


_ASKED = "How Prometheus is asked: the best way it offers, or this one"
Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD",
        help="Only these: NAME, KIND/NAME or NAMESPACE/NAME; of a file with one workload, its name.",
    ),
]
Kind = Annotated[str, typer.Option(metavar="KIND", help="Of a file: the workload's kind.")]


@options.expanded
def apply(
    *,
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKLOAD", help="Only these: NAME, KIND/NAME or NAMESPACE/NAME."),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server say what would happen; change nothing.")
    ] = False,
    settings: options.AdviceSettings,
    algorithm: options.Algorithm = AlgorithmName.PROFILE,
    source: Annotated[LiveSourceName, typer.Option(help=f"{_ASKED}.")] = LiveSourceName.AUTO,
    scope: options.ScopeOptions,
    output: options.Output = Format.TABLE,
    journal: options.Journal = None,
    kubernetes: options.OperatorOptions,
    prometheus: options.PrometheusFlags,
) -> None:
    """Decide as plan does, and make the HPAs, or change those made before; others' are left alone."""
    from equipoise.adapters.prometheus.history import HistorySource
    from equipoise.cli.journal import journalled
    from equipoise.cli.recommendation_live import RecommendationRequest, apply_recommendation, print_adopted
    from equipoise.recommendation.advisor import AdviceScope

    how = settings.how(algorithm)
    asked = AdviceScope(read_settings(settings.setting or ()), None, workloads or (), how)
    cluster = options.cluster_request(kubernetes, scope, prometheus)
    request = RecommendationRequest(cluster, asked, HistorySource(source.value))
    with journalled(journal) as records:
        done = apply_recommendation(request, records, is_dry_run=is_dry_run)
    if not done:
        warn_of_nothing("no workload", is_everywhere=scope.all_namespaces)
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
    from equipoise.recommendation.explain import coverage_text

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
            share = coverage_text(numbers["coverage"])
            yield f"{decision.subject}: low confidence, since only {share} of the past seven days is known"


TODAY = "by default today's replicas stay"


@options.expanded
def simulate(
    *,
    file: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="CSV or Parquet with CPU usage; - is standard input."),
    ],
    workloads: Workloads = None,
    workload: options.WorkloadOptions,
    current_min: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=options.REPLICAS_MAX, help="minReplicas of today's HPA; by default 1."
        ),
    ] = None,
    current_max: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=options.REPLICAS_MAX, help=f"maxReplicas of today's HPA; {TODAY}."
        ),
    ] = None,
    current_target: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", min=1, max=1000, help="Its target, in percent of the request."),
    ] = None,
    settings: options.AdviceSettings,
    kind: Kind = "Deployment",
    algorithm: options.Algorithm = AlgorithmName.PROFILE,
    output: options.Output = Format.TABLE,
) -> None:
    """Replay the week by Kubernetes' HPA algorithm, as it is set today and as advised. Changes nothing."""
    today = _today(current_min, current_max, current_target)
    from equipoise.cli.recommendation_replay import print_table, replayed, report
    from equipoise.recommendation.policy import AdviceRequest

    policy = read_settings(settings.setting or ())
    request = FileRequest(file, workloads or (), kind, workload)
    usage = read_usage(request)
    question = AdviceRequest(policy, algorithm=settings.how(algorithm))
    # `decided` shows its own progress.
    parts = [(observation, decided(question, observation)) for observation in usage]
    runs = (run for observation, decisions in parts for run in replayed(observation, decisions, today))
    found = list(counting(runs, "replaying", sum(len(decisions) for _, decisions in parts)))
    if len(usage) > 1:
        found.sort(key=lambda run: by_name(run.decision))
    warn_of_requests((run.decision for run in found), request)
    if not found:
        warn(f"no workload was found; {file} has none")
    if output is Format.TABLE:
        print_table(found)
    else:
        print_document(report(found, min(observation.interval_seconds for observation in usage)), output)


def _today(low: int | None, high: int | None, target: int | None) -> "HpaBounds | None":
    """Return today's HPA; None where there is none."""
    from equipoise.cli.recommendation_replay import HpaBounds

    if low is None and high is None and target is None:
        return None
    if high is None or target is None:
        missing = "--current-max" if high is None else "--current-target"
        raise BadInput(f"{missing}: expected it too, since today's HPA has both a maximum and a target")
    if (low or 1) > high:
        raise BadInput(f"--current-max: expected at least --current-min ({low}), got {high}")
    return HpaBounds(low or 1, high, target)


app = typer.Typer(
    help="HPA and resource settings, from a week of history and a forecast.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@options.expanded
def plan(
    *,
    command: typer.Context,
    workloads: Workloads = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="CSV or Parquet with CPU usage, instead of a cluster; - is standard input.",
        ),
    ] = None,
    workload: options.WorkloadOptions,
    settings: options.AdviceSettings,
    kind: Kind = "Deployment",
    about: Annotated[TypeName, typer.Option("--type", help="Replicas and target, or requests.")] = (
        TypeName.HPA
    ),
    algorithm: options.Algorithm = AlgorithmName.PROFILE,
    source: Annotated[
        SourceName,
        typer.Option(help=f"{_ASKED}; for the peak of memory by a query always. metrics-file is --from."),
    ] = SourceName.AUTO,
    scope: options.ScopeOptions,
    plot: Plot = None,
    output: Annotated[
        AdviceFormat, typer.Option("-o", "--output", help="How to print the advice.")
    ] = AdviceFormat.TABLE,
    kubernetes: options.KubernetesOptions,
    prometheus: options.PrometheusFlags,
) -> None:
    """Say how many replicas, at which target, a workload's HPA should have, and why. Changes nothing."""
    _refuse_of_the_other(command, source, is_file=file is not None)
    check_plot(plot)
    if about is TypeName.RESOURCE and output in {AdviceFormat.HPA, AdviceFormat.EHPA}:
        raise BadInput(f"-o {output.value}: expected --type HPA, since requests are no autoscaler")
    from equipoise.cli.recommendation_output import print_advice
    from equipoise.recommendation.policy import AdviceRequest, AdviceType

    how = settings.how(algorithm)
    question = AdviceRequest(read_settings(settings.setting or ()), AdviceType(about), how)
    if file is None:
        cluster = options.cluster_request(kubernetes, scope, prometheus)
        found = _of_cluster(question, cluster, source, workloads or (), plot)
    else:
        found = _of_file(question, FileRequest(file, workloads or (), kind, workload), plot)
    if not found.decisions:
        if file is None:
            warn_of_nothing("no workload", is_everywhere=scope.all_namespaces)
        else:
            warn(f"no workload was found; {file} has none")
    print_advice(found.decisions, found.intervals_seconds, output, is_resource=about is TypeName.RESOURCE)


app.command()(apply)
app.command()(simulate)
OF_FILE = ("request", "replicas", "available", "pod_usage", "kind")
OF_CLUSTER = (
    *("source", "namespace", "all_namespaces", "kubeconfig", "context"),
    *("prometheus_url", "prometheus_namespace"),
)


class DecidedSamples(NamedTuple):
    """What was decided, from samples so far apart."""

    decisions: "Sequence[Decision]"
    intervals_seconds: Sequence[float]


def _of_cluster(
    question: "AdviceRequest",
    cluster: "ClusterRequest",
    source: SourceName,
    names: Sequence[str],
    plot: str | None,
) -> DecidedSamples:
    """Decide for a live cluster, and draw it where that is asked for."""
    from equipoise.adapters.prometheus.history import HistorySource
    from equipoise.cli.recommendation_live import KeptHistories, RecommendationRequest, plan_recommendation
    from equipoise.recommendation.advisor import STEP_SECONDS, AdviceScope

    if source is SourceName.METRICS_FILE:
        raise BadInput("--source metrics-file: expected --from FILE beside it")
    asked = AdviceScope(question.policy, None, names, question.algorithm, question.about)
    request = RecommendationRequest(cluster, asked, HistorySource(source.value))
    if plot is None:
        planned = plan_recommendation(request)
        return DecidedSamples(planned, [STEP_SECONDS] * len(planned))
    from equipoise.cli.recommendation_plot import WORKLOADS_MAX, draw_advice

    kept = KeptHistories()
    decisions = plan_recommendation(request, kept=kept, workloads_max=WORKLOADS_MAX)
    rows = [kept.rows[one.subject, one.extra["kind"]] for one in decisions]
    draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return DecidedSamples(decisions, [STEP_SECONDS] * len(decisions))


def _of_file(question: "AdviceRequest", request: FileRequest, plot: str | None) -> DecidedSamples:
    """Decide for the workloads of a file, and draw them where that is asked for."""
    found = answered(question, read_usage(request))
    decisions = [each.decision for each in found]
    warn_of_requests(decisions, request)
    if plot is not None:
        from equipoise.cli.recommendation_plot import draw_advice

        rows = [each.observation.rows(slice(each.row, each.row + 1)) for each in found]
        draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return DecidedSamples(decisions, [each.observation.interval_seconds for each in found])


def _refuse_of_the_other(command: typer.Context, source: SourceName, *, is_file: bool) -> None:
    """Refuse what was typed and would have no effect; variables may be there for other commands."""
    for name in OF_CLUSTER if is_file else OF_FILE:
        is_same = is_file and name == "source" and source is SourceName.METRICS_FILE
        if options.given(command, name) and not is_same:
            option = f"--{name.replace('_', '-')}"
            if is_file:
                raise BadInput(f"--from: expected it without {option}: the file says what to decide for")
            hint = "; KIND/NAME chooses a workload" if name == "kind" else ""
            raise BadInput(f"{option}: expected it beside --from FILE only: the cluster knows{hint}")
