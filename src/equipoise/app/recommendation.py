"""`equipoise recommendation`: HPA and resource advice from history."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from equipoise.app import options
from equipoise.app import recommendation_options as said
from equipoise.app.output import warn, warn_of_nothing
from equipoise.app.plots import Plot, check_plot
from equipoise.app.recommendation_apply import apply
from equipoise.app.recommendation_input import (
    FileOptions,
    answered,
    read_settings,
    read_usage,
    warn_of_requests,
)
from equipoise.app.recommendation_simulate import simulate
from equipoise.model.errors import BadInput

if TYPE_CHECKING:
    from equipoise.model.decision import Decision
    from equipoise.recommendation.record import Question

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
    output: said.Output = said.AdviceFormat.TABLE,
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
    from equipoise.app.recommendation_output import print_advice
    from equipoise.recommendation.policy import AdviceType
    from equipoise.recommendation.record import Question
    from equipoise.stats.predict import Algorithm as Named

    how, what = None if no_forecast else Named(algorithm), AdviceType(about)
    question = Question(read_settings(setting or ()), what, how)
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
    question: "Question",
    command: typer.Context,
    namespace: str | None,
    names: Sequence[str],
    plot: str | None,
) -> Found:
    """Decide for a live cluster, and draw it where that is asked for."""
    from equipoise.app.recommendation_live import Kept, Request, plan_recommendation
    from equipoise.recommendation.loop import STEP_SECONDS, Asked

    asked = Asked(question.policy, namespace, names, question.algorithm, question.about)
    live = Request.from_options(asked, command.params)
    if plot is None:
        planned = plan_recommendation(live)
        return Found(planned, [STEP_SECONDS] * len(planned))
    from equipoise.app.recommendation_plot import WORKLOADS_MAX, draw_advice

    kept = Kept()
    decisions = plan_recommendation(live, kept=kept, workloads_max=WORKLOADS_MAX)
    rows = [kept.rows[one.subject, one.extra["kind"]] for one in decisions]
    draw_advice(question.policy, rows, decisions, question.algorithm, plot)
    return Found(decisions, [STEP_SECONDS] * len(decisions))


def _of_file(question: "Question", told: FileOptions, plot: str | None) -> Found:
    """Decide for the workloads of a file, and draw them where that is asked for."""
    found = answered(question, read_usage(told))
    decisions = [each.decision for each in found]
    warn_of_requests(decisions, told)
    if plot is not None:
        from equipoise.app.recommendation_plot import draw_advice

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
