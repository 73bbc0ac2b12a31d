"""Options of `equipoise recommendation`."""

from enum import StrEnum
from typing import Annotated

import typer

REPLICAS_MAX = 2**31 - 1
"""What the API server takes."""


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


class SourceName(StrEnum):
    """How histories are asked for."""

    AUTO = "auto"
    REMOTE_READ = "remote-read"
    PROMQL = "promql"
    METRICS_FILE = "metrics-file"


class LiveSourceName(StrEnum):
    """How the histories of a cluster are asked for."""

    AUTO = "auto"
    REMOTE_READ = "remote-read"
    PROMQL = "promql"


Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD",
        help="Only these: NAME, KIND/NAME or NAMESPACE/NAME; of a file with one workload, its name.",
    ),
]
LiveWorkloads = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORKLOAD", help="Only these: NAME, KIND/NAME or NAMESPACE/NAME."),
]
File = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="CSV or Parquet with CPU usage, instead of a cluster; - is standard input.",
    ),
]
Request = Annotated[
    str | None,
    typer.Option(metavar="CORES", help="Of a file: the CPU request of a pod, such as 1000m."),
]
Replicas = Annotated[
    int | None,
    typer.Option(min=0, max=REPLICAS_MAX, metavar="N", help="Of a file: how many replicas run now."),
]
Available = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=REPLICAS_MAX,
        metavar="N",
        help="Of a file: how many of them are available; by default all.",
    ),
]
PodUsage = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Usage by pod beside --from; by default a pod uses its share."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="ehpa.KEY=VALUE", help="A setting, such as ehpa.fluctuation-threshold=3."),
]
NoForecast = Annotated[bool, typer.Option("--no-forecast", help="Advise from the past only.")]
Kind = Annotated[str, typer.Option(metavar="KIND", help="Of a file: the workload's kind.")]
About = Annotated[TypeName, typer.Option("--type", help="Replicas and target, or requests.")]
_ASKED = "How Prometheus is asked: the best way it offers, or this one"
Source = Annotated[
    SourceName,
    typer.Option(help=f"{_ASKED}; for the peak of memory by a query always. metrics-file is --from."),
]
LiveSource = Annotated[LiveSourceName, typer.Option("--source", help=f"{_ASKED}.")]
"""Of `apply`: an HPA is made of what a cluster has, and not of memory."""
Output = Annotated[AdviceFormat, typer.Option("-o", "--output", help="How to print the advice.")]
