"""Options that several commands share, each defined once.

Options of `equipoise recommendation`.

Options that every command on the pools has.
"""

import re
from enum import StrEnum
from typing import Annotated

import typer

from equipoise.core.errors import BadInput
from equipoise.runtime.output import Format

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def expect_namespace(name: str | None) -> str | None:
    """Refuse what is no namespace before anybody is asked: an empty one would mean all, or none."""
    if name is not None and not NAMESPACE.fullmatch(name):
        raise BadInput(f"namespace {name[:80]!r}: expected at most 63 small letters, digits and -")
    return name


def expect_namespaces(names: list[str] | None) -> list[str]:
    """Return the namespaces of an option that may be repeated, each of which may be several with commas."""
    found = [name.strip() for text in names or () for name in text.split(",") if name.strip()]
    for name in found or names or ():
        expect_namespace(name)
    return found


def expect_object(name: str) -> str:
    """Refuse what is no object's name before anybody is asked."""
    if not OBJECT.fullmatch(name):
        raise BadInput(f"name {name[:80]!r}: expected at most 253 small letters, digits, - and .")
    return name


Output = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAME",
        envvar="KUBE_NAMESPACE",
        help="The namespace; by default the context's.",
        show_envvar=False,
        callback=expect_namespace,
    ),
]
AnyNamespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="The namespace; by default all of them.",
        callback=expect_namespace,
    ),
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Every namespace.")]
OperatorNamespace = Annotated[
    str, typer.Option(metavar="NAME", help="Where Equipoise is installed.", callback=expect_namespace)
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The kubeconfig; by default $KUBECONFIG, then the pod's own, then ~/.kube/config.",
    ),
]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="The kubeconfig's context.")]
MetricsFrom = Annotated[
    str,
    typer.Option(metavar="SOURCE", help="Where usage comes from: auto, prometheus or metrics-server."),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar=["EQUIPOISE_PROMETHEUS_URL", "PROMETHEUS_ENDPOINT"],
        show_envvar=False,
        help="Prometheus, Thanos, Mimir or VictoriaMetrics; found in the cluster when not given.",
    ),
]
PrometheusNamespace = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        envvar="EQUIPOISE_PROMETHEUS_NAMESPACES",
        show_envvar=False,
        help="Where one is looked for without a URL, instead of monitoring; may be repeated.",
        callback=expect_namespaces,
    ),
]
PrometheusTokenFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="A file with a bearer token for it.")
]
PrometheusUser = Annotated[str | None, typer.Option(metavar="NAME", help="A user for basic authentication.")]
PrometheusPasswordFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="A file with that user's password.")
]
PrometheusCa = Annotated[
    str | None, typer.Option(metavar="FILE", help="A file with the CA that signed its certificate.")
]
PrometheusHeader = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Sent with every query, such as X-Scope-OrgID=team."),
]
PrometheusMatcher = Annotated[
    list[str] | None,
    typer.Option(metavar="LABEL=VALUE", help="Added to every query, such as cluster=eu-1."),
]
PrometheusLabel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHAT=LABEL",
        help="How a label is called there: namespace, pod or container, such as pod=pod_name.",
    ),
]
PrometheusTimeout = Annotated[
    str,
    typer.Option(
        metavar="SPAN",
        envvar="PROMETHEUS_TIMEOUT",
        show_envvar=False,
        help="How long one query may take.",
    ),
]


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
AdviceOutput = Annotated[AdviceFormat, typer.Option("-o", "--output", help="How to print the advice.")]


RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="EQUIPOISE_REDIS_URL",
        show_envvar=False,
        help="redis://, rediss:// or unix://; by default an embedded server of your own.",
    ),
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="What every key begins with; {voice} on a Redis Cluster.")
]
AcceptEviction = Annotated[
    bool,
    typer.Option(
        "--accept-eviction",
        envvar="EQUIPOISE_ACCEPT_EVICTION",
        show_envvar=False,
        help="Serve from a Redis that may evict keys: calls that go on could lose their pods.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
