"""Options that several commands share, each defined once.

typer reads one parameter for each option, so a command that talks to Kubernetes and Prometheus has twenty
and more, and would pass each of them on. Here they are fields of dataclasses: `expanded` shows typer the
fields of each, and passes the dataclass to the command.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from equipoise.cli.help import CLUSTER, FILE_OPTIONS, PROMETHEUS, Application, expanded
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_seconds
from equipoise.runtime.output import Format

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from equipoise.adapters.kubernetes import Client
    from equipoise.adapters.redis import RedisPools
    from equipoise.cli.session import ClusterRequest
    from equipoise.core.pools import PoolsSnapshot
    from equipoise.pools.policy import TierPolicy
    from equipoise.runtime.metrics_source import PrometheusOptions
    from equipoise.stats.predict import Algorithm as ForecastAlgorithm

__all__ = ["expanded"]
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
OBJECT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""The form of names that the API server accepts."""
OPERATOR_NAMESPACE = "equipoise-system"
REPLICAS_MAX = 2**31 - 1
USAGE_FORMS = "CPU usage as CSV, Prometheus' JSON or Parquet"


def expect_namespace(name: str | None) -> str | None:
    """Return a valid namespace; raises BadInput for an empty one, which would mean all or none."""
    if name is not None and not NAMESPACE.fullmatch(name):
        raise BadInput(f"namespace {name[:80]!r}: expected at most 63 small letters, digits and -")
    return name


def expect_namespaces(names: list[str] | None) -> list[str]:
    """Return the namespaces of a repeated option, each with one or more names separated by commas."""
    found = [name.strip() for text in names or () for name in text.split(",") if name.strip()]
    for name in found or names or ():
        expect_namespace(name)
    return found


def expect_object(name: str) -> str:
    if not OBJECT.fullmatch(name):
        raise BadInput(f"name {name[:80]!r}: expected at most 253 small letters, digits, - and .")
    return name


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option that takes a value; its help does not show the variable that sets it."""
    return typer.Option(*names, metavar=metavar, help=text, show_envvar=False, **more)


def words(command: str, *more: str) -> str:
    """Return a command line; words with special characters are quoted."""
    return " ".join((command, *map(shlex.quote, more)))


def in_namespace(text: str, **more: Any) -> Any:
    """Return the option of a namespace, which must be a valid name."""
    return option("NAME", text, "-n", "--namespace", callback=expect_namespace, **more)


def group(text: str) -> Application:
    """Return a group of commands."""
    return Application(text)


Output = Annotated[Format, typer.Option("-o", "--output", help="Output format.")]
Namespace = Annotated[
    str | None,
    in_namespace(
        "Namespace of the workloads; by default that of the kubeconfig's context.", envvar="KUBE_NAMESPACE"
    ),
]
OperatorNamespace = Annotated[
    str,
    option(
        "NAME",
        "Namespace in which Equipoise is installed.",
        callback=expect_namespace,
        rich_help_panel=CLUSTER,
    ),
]
Journal = Annotated[
    str | None,
    option("FILE", "Add each decision and its inputs to this journal, which is created if missing."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be changed, without changing it.")]
MetricsFrom = Annotated[str, option("SOURCE", "Source of pod usage: auto, prometheus or metrics-server.")]


@dataclass(frozen=True, slots=True)
class ScopeOptions:
    """Which namespaces a command is about."""

    namespace: Namespace = None
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="Use every namespace.")] = (
        False
    )

    def words(self) -> tuple[str, ...]:
        """Return the options as they are typed."""
        if self.all_namespaces:
            return ("-A",)
        return ("-n", self.namespace) if self.namespace else ()


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Which cluster a command talks to."""

    kubeconfig: Annotated[
        str | None,
        option(
            "FILE",
            "Path to the kubeconfig; by default $KUBECONFIG, the service "
            "account of the pod, or ~/.kube/config.",
            rich_help_panel=CLUSTER,
        ),
    ] = None
    context: Annotated[
        str | None, option("NAME", "Context of the kubeconfig to use.", rich_help_panel=CLUSTER)
    ] = None

    def connect(self) -> "Client":
        from equipoise.adapters.kubernetes import connect

        return connect(self.kubeconfig, self.context)


@dataclass(frozen=True, slots=True)
class OperatorOptions(KubernetesOptions):
    """Which cluster a command acts in, and the namespace of the global pause."""

    operator_namespace: OperatorNamespace = OPERATOR_NAMESPACE


def _prometheus(metavar: str, text: str, **more: Any) -> Any:
    return option(metavar, text, rich_help_panel=PROMETHEUS, **more)


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """How a Prometheus is queried."""

    prometheus_token_file: Annotated[
        str | None, _prometheus("FILE", "File with a bearer token for Prometheus.")
    ] = None
    prometheus_user: Annotated[str | None, _prometheus("NAME", "User for basic authentication.")] = None
    prometheus_password_file: Annotated[
        str | None, _prometheus("FILE", "File with the password of that user.")
    ] = None
    prometheus_ca: Annotated[
        str | None, _prometheus("FILE", "File with the CA certificate of Prometheus.")
    ] = None
    prometheus_header: Annotated[
        list[str] | None,
        _prometheus(
            "NAME=VALUE", "HTTP header for every query, such as X-Scope-OrgID=team; may be repeated."
        ),
    ] = None
    prometheus_matcher: Annotated[
        list[str] | None,
        _prometheus("LABEL=VALUE", "Label matcher for every query, such as cluster=eu-1; may be repeated."),
    ] = None


@dataclass(frozen=True, slots=True)
class PrometheusFlags:
    """Which Prometheus a command queries, and how."""

    prometheus_url: Annotated[
        str | None,
        _prometheus(
            "URL",
            "URL of Prometheus, Thanos, Mimir or VictoriaMetrics; by default "
            "it is discovered in the cluster.",
            envvar=["EQUIPOISE_PROMETHEUS_URL", "PROMETHEUS_ENDPOINT"],
        ),
    ] = None
    prometheus_namespace: Annotated[
        list[str] | None,
        _prometheus(
            "NAME",
            "Namespace in which Prometheus is discovered, instead of monitoring; may be repeated.",
            envvar="EQUIPOISE_PROMETHEUS_NAMESPACES",
            callback=expect_namespaces,
        ),
    ] = None
    access: PrometheusAccess = PrometheusAccess()
    prometheus_label: Annotated[
        list[str] | None,
        _prometheus(
            "NAME=LABEL",
            "Name of the label namespace, pod or container in this Prometheus, such as pod=pod_name.",
        ),
    ] = None
    prometheus_timeout: Annotated[
        str, _prometheus("DURATION", "Timeout of one query.", envvar="PROMETHEUS_TIMEOUT")
    ] = "30s"

    def connection(self) -> "PrometheusOptions":
        from equipoise.runtime.metrics_source import PrometheusOptions

        access = self.access
        return PrometheusOptions(
            url=self.prometheus_url,
            namespaces=tuple(self.prometheus_namespace or ()),
            token_file=access.prometheus_token_file,
            user=access.prometheus_user,
            password_file=access.prometheus_password_file,
            ca_file=access.prometheus_ca,
            headers=tuple(access.prometheus_header or ()),
            matchers=tuple(access.prometheus_matcher or ()),
            timeout=self.prometheus_timeout,
            labels=tuple(self.prometheus_label or ()),
        )


def cluster_request(
    kubernetes: KubernetesOptions,
    scope: ScopeOptions,
    prometheus: PrometheusFlags | None = None,
    metrics_from: str = "auto",
) -> "ClusterRequest":
    """Return which cluster, which of its namespaces and which metrics a command is about."""
    from equipoise.cli.session import ClusterRequest

    own = kubernetes.operator_namespace if isinstance(kubernetes, OperatorOptions) else OPERATOR_NAMESPACE
    return ClusterRequest(
        kubeconfig=kubernetes.kubeconfig,
        context=kubernetes.context,
        namespace=scope.namespace,
        is_everywhere=scope.all_namespaces,
        metrics_from=metrics_from,
        prometheus=(prometheus or PrometheusFlags()).connection(),
        operator_namespace=own,
    )


RedisUrl = Annotated[
    str | None,
    option(
        "URL",
        "URL of Redis (redis://, rediss:// or unix://); by default an "
        "embedded server with data in your state "
        "folder.",
        "--redis",
        envvar="EQUIPOISE_REDIS_URL",
    ),
]
Prefix = Annotated[
    str, option("TEXT", "Prefix of every key; on a Redis Cluster with braces, such as {voice}.")
]


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Which server has the pools, and under which keys."""

    redis: RedisUrl = None
    prefix: Prefix = "voice"

    def opened(self, *, is_dry: bool = False) -> "AbstractContextManager[RedisPools]":
        from equipoise.runtime.redis import opened

        return opened(self.redis, self.prefix, is_dry=is_dry)

    @property
    def config_key(self) -> str:
        """The key of the tiers' config."""
        return f"{self.prefix}:tier:config"

    def read(self) -> "tuple[TierPolicy, PoolsSnapshot]":
        """Return the config and the pools as they are now."""
        from equipoise.pools.policy import read_policy

        with self.opened() as pools:
            snapshot = pools.snapshot()
        return read_policy(snapshot.config, self.config_key), snapshot


@contextmanager
def values_of(option: str) -> Iterator[None]:
    """Name the option in front of what is wrong with its value: a ValueError becomes BadInput."""
    try:
        yield
    except ValueError as error:
        raise BadInput(f"{option}{error}") from error


def parse_span(option: str, text: str, least: float = 0.0) -> float:
    """Return the seconds of an option such as 90s or 1h30m, of which `least` are expected."""
    with values_of(f"{option}: "):
        seconds = parse_seconds(text)
    if seconds < least:
        raise BadInput(f"{option}: expected at least {least:g}s, got {text!r}")
    return seconds


OF_CLUSTER = (
    *(field.name for kind in (ScopeOptions, KubernetesOptions) for field in fields(kind)),
    *("prometheus_url", "prometheus_namespace"),
)
"""The options that say where a live cluster is, which a file takes the place of."""


def first_given(command: typer.Context, names: Iterable[str]) -> str:
    """Return the first of these on the command line, or ""; a variable may be meant for other commands."""
    for name in names:
        source = command.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            return name
    return ""


AlgorithmName = Literal["profile", "dsp"]
SourceName = Literal["auto", "remote-read", "promql", "metrics-file"]
Algorithm = Annotated[
    AlgorithmName, typer.Option(help="Forecast by a daily profile, or by Crane's signal processing (dsp).")
]


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """The facts about a workload that a file of usage does not contain."""

    request: Annotated[
        str | None, option("CORES", "CPU request of a pod, such as 500m or 2.", rich_help_panel=FILE_OPTIONS)
    ] = None
    replicas: Annotated[
        int | None,
        option("N", "Current replicas.", min=0, max=REPLICAS_MAX, rich_help_panel=FILE_OPTIONS),
    ] = None
    available: Annotated[
        int | None,
        option(
            "N", "Available replicas; by default all.", min=0, max=REPLICAS_MAX, rich_help_panel=FILE_OPTIONS
        ),
    ] = None
    pod_usage: Annotated[
        str | None,
        option(
            "FILE",
            "Usage of each pod; by default, the total is divided by the replicas.",
            rich_help_panel=FILE_OPTIONS,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class AdviceSettings:
    """How advice is made."""

    setting: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "Setting such as ehpa.fluctuation-threshold=3 or resource.cpu-margin=15%; may be repeated.",
            "--set",
        ),
    ] = None
    no_forecast: Annotated[
        bool, typer.Option("--no-forecast", help="Use past usage only, without a forecast.")
    ] = False

    def how(self, algorithm: AlgorithmName) -> "ForecastAlgorithm | None":
        """Return the settings of the forecast; None without one."""
        from equipoise.stats.predict import Algorithm as ForecastAlgorithm

        return None if self.no_forecast else ForecastAlgorithm(algorithm)
