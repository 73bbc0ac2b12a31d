"""`equipoise recommendation simulate`: the past week again, under today's settings and the advised ones."""

from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app import recommendation_options as said
from equipoise.app.output import Format, print_document
from equipoise.app.recommendation_input import (
    FileOptions,
    by_name,
    decided,
    read_settings,
    read_usage,
    warn_of_requests,
)
from equipoise.model.errors import BadInput

if TYPE_CHECKING:
    from equipoise.app.recommendation_replay import Hpa

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
    from equipoise.app.output import warn
    from equipoise.app.progress import counting
    from equipoise.app.recommendation_replay import replayed
    from equipoise.app.recommendation_simulate_output import document, print_table
    from equipoise.recommendation.record import Question
    from equipoise.stats.predict import Algorithm

    policy = read_settings(setting or ())
    told = FileOptions(file, pod_usage, workloads or (), kind, request, replicas, available)
    usage = read_usage(told)
    question = Question(policy, algorithm=None if no_forecast else Algorithm(algorithm))
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
    """Give today's HPA; None where there is none."""
    from equipoise.app.recommendation_replay import Hpa

    if low is None and high is None and target is None:
        return None
    if high is None or target is None:
        missing = "--current-max" if high is None else "--current-target"
        raise BadInput(f"{missing}: expected it too, since today's HPA has both a maximum and a target")
    if (low or 1) > high:
        raise BadInput(f"--current-max: expected at least --current-min ({low}), got {high}")
    return Hpa(low or 1, high, target)
