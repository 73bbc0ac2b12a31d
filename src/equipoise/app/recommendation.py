"""`equipoise recommendation`: HPA and resource advice from history."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

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


class AdviceFormat(StrEnum):
    """How advice is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    HPA = "hpa"
    EHPA = "ehpa"
    CSV = "csv"


class AlgorithmName(StrEnum):
    """How the future is found."""

    PROFILE = "profile"
    DSP = "dsp"


class TypeName(StrEnum):
    """What the advice is about."""

    HPA = "HPA"
    RESOURCE = "Resource"


Algorithm = Annotated[
    AlgorithmName, typer.Option(help="How the future is found: our profile, or Crane's signal processing.")
]


@app.command()
def plan(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="Of a file with many, only these (NAMESPACE/NAME or NAME); of a file with one, its name.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="CSV or Parquet with CPU usage; - is standard input."),
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="CORES", help="The CPU request of a pod, such as 1000m.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="How many replicas run now.")
    ] = None,
    available: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="How many of them are available; by default all.")
    ] = None,
    pod_usage: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Usage by pod; by default a pod uses its share of the total."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="ehpa.KEY=VALUE", help="A setting, such as ehpa.fluctuation-threshold=3."
        ),
    ] = None,
    no_forecast: Annotated[bool, typer.Option("--no-forecast", help="Advise from the past only.")] = False,
    kind: Annotated[str, typer.Option(metavar="KIND", help="The workload's kind.")] = "Deployment",
    about: Annotated[
        TypeName, typer.Option("--type", help="Replicas and target, or requests.")
    ] = TypeName.HPA,
    algorithm: Algorithm = AlgorithmName.PROFILE,
    output: Annotated[
        AdviceFormat, typer.Option("-o", "--output", help="How to print the advice.")
    ] = AdviceFormat.TABLE,
) -> None:
    """Say how many replicas, at which target, a workload's HPA should have, and why. Changes nothing."""
    if file is None:
        raise BadInput("--from: expected a FILE with CPU usage: this version advises from files")
    if available is not None and replicas is not None and available > replicas:
        raise BadInput(f"--available: expected at most --replicas ({replicas}), got {available}")
    from equipoise.app.output import warn
    from equipoise.app.recommendation_output import print_advice
    from equipoise.recommendation.decide import decide
    from equipoise.recommendation.policy import AdviceType
    from equipoise.stats.predict import Algorithm as Named

    policy = _policy(setting or ())
    seen = _observe(file, pod_usage, workloads or [], _said(file, kind, request, replicas, available))
    decisions = decide(policy, seen, None if no_forecast else Named(algorithm), AdviceType(about))
    if not decisions:
        warn(f"{file}: no workload was found")
    print_advice(decisions, kind, seen.interval_seconds, output)


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


def _observe(file: str, pod_usage: str | None, workloads: list[str], said: "Said") -> "Observation":
    from equipoise.adapters.sample_files import read_samples
    from equipoise.app.output import warn
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
    if said.replicas is None and not samples.is_of_many:
        count = "the pods of --pod-usage" if pods is not None else "1"
        warn(f"--replicas was not given; {count} is taken")
    return observe(samples, said, named_subject(workloads, file), pods)
