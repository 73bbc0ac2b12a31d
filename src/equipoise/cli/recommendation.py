"""`equipoise recommendation`: HPA and resource advice from history.

`plan` advises from a cluster or a file, `apply` makes the HPAs by server-side apply, `simulate` replays the
past week under today's settings and the advised ones.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from equipoise.cli import options
from equipoise.cli.help import FILE_OPTIONS
from equipoise.cli.journal import CommandJournal, journalled
from equipoise.cli.options import REPLICAS_MAX, SourceName, option
from equipoise.cli.plots import Plot, check_plot
from equipoise.cli.recommendation_options import AdviceOutput, by_name, price_of
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, counting, print_document, warn, warn_of_nothing

if TYPE_CHECKING:
    from equipoise.cli.recommendation_replay import HpaBounds
    from equipoise.cli.session import ClusterRequest
    from equipoise.cli.usage_files import FileRequest
    from equipoise.core.decision import Decision
    from equipoise.recommendation.observe import Observation
    from equipoise.recommendation.settings import AdviceRequest, RecommendationPolicy


_ASKED = "Protocol of the queries to Prometheus; auto uses the best one that it offers"
Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD",
        help="NAME, KIND/NAME or NAMESPACE/NAME of a workload; by default all. "
        "For a file of one workload, its name.",
    ),
]
Kind = Annotated[str, option("KIND", "Kind of the workload.", rich_help_panel=FILE_OPTIONS)]


@options.expanded
def apply(
    *,
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD", help="NAME, KIND/NAME or NAMESPACE/NAME of a workload; by default all."
        ),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the API server what would change, without changing it.")
    ] = False,
    settings: options.AdviceSettings,
    algorithm: options.Algorithm = "profile",
    source: Annotated[Literal["auto", "remote-read", "promql"], typer.Option(help=f"{_ASKED}.")] = "auto",
    scope: options.ScopeOptions,
    output: options.Output = Format.TABLE,
    journal: options.Journal = None,
    kubernetes: options.OperatorOptions,
    prometheus: options.PrometheusFlags,
) -> None:
    """Create the advised HPAs, or update those that Equipoise created. Other HPAs are not changed."""
    from equipoise.adapters.prometheus.history import HistorySource
    from equipoise.cli.recommendation_live import (
        RecommendationRequest,
        apply_recommendation,
        print_adopted,
        surprises,
    )
    from equipoise.recommendation.advisor import AdviceScope

    how = settings.how(algorithm)
    asked = AdviceScope(_read_settings(settings.setting or ()), None, workloads or (), how)
    cluster = options.cluster_request(kubernetes, scope, prometheus)
    request = RecommendationRequest(cluster, asked, HistorySource(source))
    with journalled(journal) as records:
        done = apply_recommendation(request, records, is_dry_run=is_dry_run)
    if not done:
        warn_of_nothing("no workload", is_everywhere=scope.all_namespaces)
    for line in surprises(done):
        warn(line)
    print_adopted(done, output, is_dry_run=is_dry_run)
    failed = [each for each in done if each.has_failed or (workloads and each.is_not_ours)]
    if failed:
        first, count = failed[0].decision, len(failed) - 1
        more = f" (and {count} more)" if count else ""
        raise WorldFailed(f"{first.subject}: {first.reason.sentence}{more}")


@options.expanded
def simulate(
    *,
    file: Annotated[
        str,
        option("FILE", f"{options.USAGE_FORMS}; - is standard input.", "--from"),
    ],
    workloads: Workloads = None,
    workload: options.WorkloadOptions,
    current_min: Annotated[
        int | None, option("N", "minReplicas of the current HPA; by default 1.", min=1, max=REPLICAS_MAX)
    ] = None,
    current_max: Annotated[
        int | None,
        option(
            "N",
            "maxReplicas of the current HPA; by default the replicas stay the same.",
            min=1,
            max=REPLICAS_MAX,
        ),
    ] = None,
    current_target: Annotated[
        int | None,
        option("PERCENT", "CPU target of the current HPA, in percent of the request.", min=1, max=1000),
    ] = None,
    settings: options.AdviceSettings,
    kind: Kind = "Deployment",
    algorithm: options.Algorithm = "profile",
    output: options.Output = Format.TABLE,
) -> None:
    """Replay the past week with the current and the advised HPA. Changes nothing."""
    today = _today(current_min, current_max, current_target)
    from equipoise.cli.recommendation_replay import print_table, replayed, report
    from equipoise.cli.usage_files import FileRequest, read_usage, warn_of_doubts
    from equipoise.recommendation.settings import AdviceRequest

    policy = _read_settings(settings.setting or ())
    request = FileRequest(file, workloads or (), kind, workload)
    read = read_usage(request)
    usage = read.observations
    question = AdviceRequest(policy, algorithm=settings.how(algorithm))
    # `decided` shows its own progress.
    parts = [(observation, _decided(question, observation)) for observation in usage]
    doubts = read.doubts_with([decision for _, decisions in parts for decision in decisions])
    parts = [(observation, [doubts.lowered(one) for one in decisions]) for observation, decisions in parts]
    runs = (run for observation, decisions in parts for run in replayed(observation, decisions, today))
    found = list(counting(runs, "replaying", sum(len(decisions) for _, decisions in parts)))
    if len(usage) > 1:
        found.sort(key=lambda run: by_name(run.decision))
    read.warn_of_requests(run.decision for run in found)
    warn_of_doubts(doubts)
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


app = options.group("Recommend HPA and resource settings from a week of usage and a forecast.")


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
            f"{options.USAGE_FORMS}, not from a cluster; - is standard input.",
            "--from",
        ),
    ] = None,
    workload: options.WorkloadOptions,
    settings: options.AdviceSettings,
    kind: Kind = "Deployment",
    about: Annotated[
        Literal["HPA", "Resource"] | None,
        typer.Option("--type", help="Advise on HPAs or on container requests; of a cluster both by default."),
    ] = None,
    algorithm: options.Algorithm = "profile",
    source: Annotated[SourceName, typer.Option(help=f"{_ASKED}. metrics-file is --from.")] = "auto",
    scope: options.ScopeOptions,
    plot: Plot = None,
    printed: AdviceOutput,
    journal: options.Journal = None,
    kubernetes: options.KubernetesOptions,
    prometheus: options.PrometheusFlags,
) -> None:
    """Show the HPA or the requests that each workload should have, and why. Changes nothing."""
    _refuse_of_the_other(command, source, is_file=file is not None)
    check_plot(plot)
    is_of_requests = printed.has_requests(about, is_file=file is not None)
    price = printed.read_price(about, has_requests=is_of_requests)
    from equipoise.cli.recommendation_output import Invocation, print_advice
    from equipoise.recommendation.settings import AdviceRequest, AdviceType

    how = settings.how(algorithm)
    type_, policy = AdviceType(about or "HPA"), _read_settings(settings.setting or ())
    is_both = is_of_requests and about is None
    question = AdviceRequest(policy, type_, how, has_containers=is_both, shows_refused=True)
    with journalled(journal) as records:
        kept = None if journal is None else records
        if file is None:
            cluster = printed.selected(options.cluster_request(kubernetes, scope, prometheus))
            decisions, intervals_seconds = _of_cluster(question, cluster, source, workloads or (), plot, kept)
        else:
            from equipoise.cli.usage_files import FileRequest

            share = policy.resource.cpu_percentile / 100
            request = FileRequest(file, workloads or (), kind, workload, share)
            decisions, intervals_seconds = _of_file(question, request, plot, kept)
    if not decisions and file is None:
        warn_of_nothing("no workload", is_everywhere=scope.all_namespaces)
    elif not decisions:
        warn(f"no workload was found; {file} has none")
    if price is None and file is None and decisions and is_of_requests:
        price = price_of(cluster)
    typed = Invocation(sys.argv[1:], file, kubernetes.context, kubernetes.kubeconfig)
    print_advice(decisions, intervals_seconds, printed, price, typed, is_resource=is_of_requests)


app.command()(apply)
app.command()(simulate)
OF_FILE = ("request", "replicas", "available", "pod_usage", "kind")
OF_CLUSTER = ("source", "selector", *options.OF_CLUSTER)


def _of_cluster(
    question: "AdviceRequest",
    cluster: "ClusterRequest",
    source: SourceName,
    names: Sequence[str],
    plot: str | None,
    journal: CommandJournal | None,
) -> "tuple[Sequence[Decision], Sequence[float]]":
    """Decide for a live cluster, and draw it where that is asked for; from samples so many seconds apart."""
    from equipoise.adapters.prometheus.history import HistorySource
    from equipoise.cli.recommendation_live import KeptHistories, RecommendationRequest, plan_recommendation
    from equipoise.recommendation.advisor import STEP_SECONDS, AdviceScope

    if source == "metrics-file":
        raise BadInput("--source metrics-file: expected --from FILE beside it")
    asked = AdviceScope.of(question, names)
    kept = None if plot is None else KeptHistories()
    decisions = plan_recommendation(
        RecommendationRequest(cluster, asked, HistorySource(source)), kept=kept, journal=journal
    )
    if kept is not None and plot is not None:
        from equipoise.cli.recommendation_plot import draw_advice

        rows = [kept.rows[one.subject, one.extra["kind"]] for one in decisions]
        draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return decisions, [STEP_SECONDS] * len(decisions)


def _of_file(
    question: "AdviceRequest", request: "FileRequest", plot: str | None, journal: CommandJournal | None
) -> "tuple[Sequence[Decision], Sequence[float]]":
    """Decide for the workloads of a file, and draw them where that is asked for."""
    from equipoise.cli.usage_files import read_usage, warn_of_doubts

    read = read_usage(request)
    found = [
        (decision, observation, row)
        for observation in read.observations
        for row, decision in enumerate(_decided(question, observation, journal))
    ]
    if len(read.observations) > 1:
        found.sort(key=lambda each: by_name(each[0]))
    doubts = read.doubts_with([decision for decision, _, _ in found])
    decisions = [doubts.lowered(decision) for decision, _, _ in found]
    read.warn_of_requests(decisions)
    warn_of_doubts(doubts)
    if plot is not None:
        from equipoise.cli.recommendation_plot import draw_advice

        rows = [observation.rows(slice(row, row + 1)) for _, observation, row in found]
        draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return decisions, [observation.interval_seconds for _, observation, _ in found]


def _refuse_of_the_other(command: typer.Context, source: SourceName, *, is_file: bool) -> None:
    """Refuse what was typed and would have no effect."""
    is_same = is_file and source == "metrics-file"
    names = [name for name in (OF_CLUSTER if is_file else OF_FILE) if name != "source" or not is_same]
    if name := options.first_given(command, names):
        what = f"--{name.replace('_', '-')}"
        if is_file:
            raise BadInput(f"--from: expected it without {what}: the file says what to decide for")
        hint = "; KIND/NAME chooses a workload" if name == "kind" else ""
        raise BadInput(f"{what}: expected it beside --from FILE only: the cluster knows{hint}")


def _read_settings(texts: Sequence[str]) -> "RecommendationPolicy":
    """Read `--set ehpa.KEY=VALUE` and `--set resource.KEY=VALUE`."""
    from equipoise.recommendation.settings import read_policy

    config = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise BadInput(
                f"--set {text}: expected ehpa.KEY=VALUE or resource.KEY=VALUE, such as "
                "ehpa.fluctuation-threshold=3"
            )
        config[key.strip()] = value.strip()
    return read_policy(config, "--set")


def _decided(
    question: "AdviceRequest", observation: "Observation", journal: CommandJournal | None = None
) -> "list[Decision]":
    """Return the decisions for the workloads of one step; many of them show a progress bar."""
    from equipoise.recommendation.decide import BATCH, decide_parts

    parts, batches = decide_parts(question, observation), -(-len(observation.subjects) // BATCH)
    counted = counting(parts, "deciding", batches) if batches > 1 else parts
    examined = [each for part in counted for each in part]
    if journal is not None:
        from equipoise.cli.recommendation_live import record_advice

        record_advice(journal, question, examined)
    return [each.decision for each in examined]
