"""`equipoise operator` and `equipoise config`."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.core.errors import BadInput
from equipoise.runtime.output import Format, warn

if TYPE_CHECKING:
    from equipoise.runtime.layers import Effective

# Without the variables of the shared options: here the environment is a layer below, with its own names.
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A YAML file of settings; else $EQUIPOISE_CONFIG.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, such as lease.name=blue; wins over all.",
    ),
]
Balancers = Annotated[
    list[str] | None,
    typer.Option(
        "--balancers",
        "--balancer",
        metavar="LIST",
        help="Which loops to run, such as rotation,proportional.",
    ),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("-n", "--namespace", metavar="NAME", help="Where to look; by default everywhere."),
]
LeaseNamespace = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where the Lease is; by default the operator's own."),
]
HttpAddress = Annotated[
    str | None,
    typer.Option(metavar="[HOST]:PORT", help="Where to answer; by default :8080."),
]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")]
LogFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, json or console.")]
MetricsFrom = Annotated[
    str | None,
    typer.Option(metavar="SOURCE", help="auto, prometheus or metrics-server."),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Found in the cluster when not given."),
]
PrometheusNamespace = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Where one is looked for without a URL, instead of monitoring and the operator's own namespace.",
    ),
]
PrometheusTimeout = Annotated[str | None, typer.Option(metavar="SPAN", help="How long one query may take.")]
ConfigOutput = Annotated[Format, typer.Option("-o", "--output", help="How to print the settings.")]

FLAGS = {
    "balancer": ("--balancers", ("balancers",)),
    "namespace": ("--namespace", ("namespaces",)),
    "kubeconfig": ("--kubeconfig", ("kubernetes", "kubeconfig")),
    "context": ("--context", ("kubernetes", "context")),
    "lease_namespace": ("--lease-namespace", ("lease", "namespace")),
    "http_address": ("--http-address", ("http", "address")),
    "log_level": ("--log-level", ("logs", "level")),
    "log_format": ("--log-format", ("logs", "format")),
    "metrics_from": ("--metrics-from", ("metricsFrom",)),
    "prometheus_url": ("--prometheus-url", ("prometheus", "url")),
    "prometheus_namespace": ("--prometheus-namespace", ("prometheus", "namespaces")),
    "prometheus_token_file": ("--prometheus-token-file", ("prometheus", "tokenFile")),
    "prometheus_user": ("--prometheus-user", ("prometheus", "user")),
    "prometheus_password_file": ("--prometheus-password-file", ("prometheus", "passwordFile")),
    "prometheus_ca": ("--prometheus-ca", ("prometheus", "caFile")),
    "prometheus_header": ("--prometheus-header", ("prometheus", "headers")),
    "prometheus_matcher": ("--prometheus-matcher", ("prometheus", "matchers")),
    "prometheus_timeout": ("--prometheus-timeout", ("prometheus", "timeout")),
}
"""The setting that each flag gives; all others are given by `--set`."""


def operator(
    command: typer.Context,
    config: Config = None,
    set_: Set = None,
    balancer: Balancers = None,
    http_address: HttpAddress = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    namespace: Namespaces = None,
    lease_namespace: LeaseNamespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    metrics_from: MetricsFrom = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_namespace: PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_timeout: PrometheusTimeout = None,
) -> None:
    """Run the balancers' loops until SIGTERM; acts only for policies whose mode is Enforce."""
    found = _effective(command.params)
    from equipoise.runtime.operator.wiring import run

    run(found)


def config(
    command: typer.Context,
    config: Config = None,
    set_: Set = None,
    output: ConfigOutput = Format.YAML,
    balancer: Balancers = None,
    http_address: HttpAddress = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    namespace: Namespaces = None,
    lease_namespace: LeaseNamespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    metrics_from: MetricsFrom = None,
    prometheus_url: PrometheusUrl = None,
    prometheus_namespace: PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_timeout: PrometheusTimeout = None,
) -> None:
    """Print the settings that `equipoise operator` would run with, and where each came from."""
    from equipoise.runtime.layers import print_settings

    found = _effective(command.params)
    for warning in found.warnings:
        warn(warning)
    print_settings(found, output)


def _effective(parameters: dict[str, Any]) -> "Effective":
    from equipoise.runtime.layers import effective
    from equipoise.runtime.settings import OPERATED

    if parameters["balancer"]:  # several flags, several names in each
        names = ",".join(parameters["balancer"])
        if not names.strip(", "):
            raise BadInput(f"--balancers: expected one or more of {', '.join(OPERATED)}")
        parameters = parameters | {"balancer": names}
    flags = {FLAGS[name]: value for name, value in parameters.items() if name in FLAGS and value}
    return effective(parameters["config"], os.environ, flags, parameters["set_"] or ())
