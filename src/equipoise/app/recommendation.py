"""`equipoise recommendation`: HPA and resource advice from history."""

from typing import TYPE_CHECKING

import typer

from equipoise.app import options
from equipoise.app import recommendation_options as said
from equipoise.app.output import warn
from equipoise.app.plots import Plot, check_plot
from equipoise.app.recommendation_simulate import simulate
from equipoise.model.errors import BadInput

if TYPE_CHECKING:
    from equipoise.recommendation.history_file import Said
    from equipoise.recommendation.observation import Observation
    from equipoise.recommendation.policy import RecommendationPolicy

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
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Say how many replicas, at which target, a workload's HPA should have, and why. Changes nothing."""
    _refuse_of_the_other(command, is_file=file is not None)
    check_plot(plot)
    from equipoise.app.recommendation_output import print_advice
    from equipoise.recommendation.policy import AdviceType
    from equipoise.stats.predict import Algorithm as Named

    policy = _policy(setting or ())
    how, what = None if no_forecast else Named(algorithm), AdviceType(about)
    if file is None:
        from equipoise.app.recommendation_live import Request, plan_recommendation
        from equipoise.recommendation.loop import STEP_SECONDS, Asked

        asked = Asked(policy, namespace, workloads or (), how, what)
        decisions = plan_recommendation(Request.from_options(asked, command.params))
        interval_seconds = STEP_SECONDS
    else:
        if available is not None and replicas is not None and available > replicas:
            raise BadInput(f"--available: expected at most --replicas ({replicas}), got {available}")
        from equipoise.recommendation.decide import decide

        seen = _observe(file, pod_usage, workloads or [], _said(file, kind, request, replicas, available))
        decisions, interval_seconds = decide(policy, seen, how, what), seen.interval_seconds
        if plot is not None:
            from equipoise.app.recommendation_plot import draw_advice

            draw_advice(policy, seen, decisions, how, plot)
    if not decisions:
        where = "-n NAMESPACE or -A look elsewhere" if file is None else f"{file} has none"
        warn(f"no workload was found; {where}")
    print_advice(decisions, interval_seconds, output)


app.command()(simulate)
OF_FILE = ("request", "replicas", "available", "pod_usage", "kind", "plot")
OF_CLUSTER = ("source", "namespace", "all_namespaces", "kubeconfig", "context", "prometheus_url")


def _refuse_of_the_other(command: typer.Context, *, is_file: bool) -> None:
    """Refuse what was typed and would have no effect; variables may be there for other commands."""
    for name in OF_CLUSTER if is_file else OF_FILE:
        place = command.get_parameter_source(name)
        if place is not None and place.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            if is_file:
                raise BadInput(f"--from: expected it without {option}: the file says what to decide for")
            raise BadInput(f"{option}: expected it beside --from FILE only: the cluster knows")


def _policy(texts: "list[str] | tuple[()]") -> "RecommendationPolicy":
    from equipoise.recommendation.policy import read_policy

    config = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {text}: expected ehpa.KEY=VALUE, such as ehpa.fluctuation-threshold=3")
        config[key.strip()] = value.strip()
    return read_policy(config, "--set")


def _said(file: str, kind: str, request: str | None, replicas: int | None, available: int | None) -> "Said":
    from equipoise.model.quantity import parse_cores
    from equipoise.recommendation.history_file import Said

    cores = None
    if request is not None:
        try:
            cores = parse_cores(request)
        except ValueError as error:
            raise BadInput(f"--request: {error}") from error
    return Said(file, kind, cores, replicas, available)


def _observe(file: str, pod_usage: str | None, workloads: list[str], told: "Said") -> "Observation":
    from equipoise.adapters.sample_files import read_samples
    from equipoise.recommendation.history_file import named_subject, observe, of_workloads

    samples = read_samples(file)
    if samples.is_of_many:
        samples = of_workloads(samples, workloads, file)
    elif len(workloads) > 1:
        raise BadInput(
            f"{file}: expected at most one WORKLOAD, since the file is of one, got {len(workloads)}"
        )
    pods = None if pod_usage is None else read_samples(pod_usage)
    if pods is not None and "pod" not in pods.labels:
        raise BadInput(f"{pod_usage}: line 1: expected the columns timestamp,pod,value, without pod")
    if told.replicas is None and not samples.is_of_many:
        count = "the pods of --pod-usage" if pods is not None else "1"
        warn(f"--replicas was not given; {count} is taken")
    return observe(samples, told, named_subject(workloads, file), pods)
