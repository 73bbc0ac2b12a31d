"""`equipoise operator` and `equipoise config`."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.cli.help import PROMETHEUS
from equipoise.cli.options import option
from equipoise.core.errors import BadInput
from equipoise.runtime.output import Format, warn

if TYPE_CHECKING:
    from equipoise.runtime.layers import Effective, Path

Config = Annotated[
    str | None, option("FILE", "YAML file with settings; by default $EQUIPOISE_CONFIG.", "--config")
]
Set = Annotated[
    list[str] | None,
    option(
        "KEY=VALUE",
        "Setting, such as lease.name=blue; overrides files, variables and flags; may be repeated.",
        "--set",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFlags:
    """The flags of common settings of the operator; all others are set with `--set`.

    They have no variables: here the environment is a layer below them, with its own names.
    """

    balancer: Annotated[
        list[str] | None,
        option("LIST", "Balancers to run, such as rotation,proportional.", "--balancers", "--balancer"),
    ] = None
    http_address: Annotated[
        str | None, option("[HOST]:PORT", "Address of the health and metrics endpoints; by default :8080.")
    ] = None
    log_level: Annotated[str | None, option("LEVEL", "Log level: debug, info, warning or error.")] = None
    log_format: Annotated[str | None, option("FORMAT", "Log format: auto, json or console.")] = None
    namespace: Annotated[
        list[str] | None,
        option("NAME", "Namespace to watch; by default all of them; may be repeated.", "-n", "--namespace"),
    ] = None
    lease_namespace: Annotated[
        str | None, option("NAME", "Namespace of the Lease; by default that of the operator.")
    ] = None
    kubernetes: options.KubernetesOptions
    metrics_from: Annotated[
        str | None, option("SOURCE", "Source of pod usage: auto, prometheus or metrics-server.")
    ] = None
    prometheus_url: Annotated[
        str | None,
        option(
            "URL",
            "URL of Prometheus, Thanos, Mimir or VictoriaMetrics; by default "
            "it is discovered in the cluster.",
            rich_help_panel=PROMETHEUS,
        ),
    ] = None
    prometheus_namespace: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Namespace in which Prometheus is discovered, instead of "
            "monitoring and that of the operator; may be "
            "repeated.",
            rich_help_panel=PROMETHEUS,
        ),
    ] = None
    access: options.PrometheusAccess
    prometheus_timeout: Annotated[
        str | None, option("DURATION", "Timeout of one query.", rich_help_panel=PROMETHEUS)
    ] = None

    def given(self) -> "dict[tuple[str, Path], Any]":
        """Return the values of the flags that were used, by flag and path of the setting."""
        access = self.access
        flags: list[tuple[str, Path, Any]] = [
            ("--balancers", ("balancers",), self._balancers()),
            ("--namespace", ("namespaces",), self.namespace),
            ("--kubeconfig", ("kubernetes", "kubeconfig"), self.kubernetes.kubeconfig),
            ("--context", ("kubernetes", "context"), self.kubernetes.context),
            ("--lease-namespace", ("lease", "namespace"), self.lease_namespace),
            ("--http-address", ("http", "address"), self.http_address),
            ("--log-level", ("logs", "level"), self.log_level),
            ("--log-format", ("logs", "format"), self.log_format),
            ("--metrics-from", ("metricsFrom",), self.metrics_from),
            ("--prometheus-url", ("prometheus", "url"), self.prometheus_url),
            ("--prometheus-namespace", ("prometheus", "namespaces"), self.prometheus_namespace),
            ("--prometheus-token-file", ("prometheus", "tokenFile"), access.prometheus_token_file),
            ("--prometheus-user", ("prometheus", "user"), access.prometheus_user),
            ("--prometheus-password-file", ("prometheus", "passwordFile"), access.prometheus_password_file),
            ("--prometheus-ca", ("prometheus", "caFile"), access.prometheus_ca),
            ("--prometheus-header", ("prometheus", "headers"), access.prometheus_header),
            ("--prometheus-matcher", ("prometheus", "matchers"), access.prometheus_matcher),
            ("--prometheus-timeout", ("prometheus", "timeout"), self.prometheus_timeout),
        ]
        return {(flag, path): value for flag, path, value in flags if value}

    def _balancers(self) -> str:
        """Return the names of a repeated flag, each with one or more names, as one list."""
        from equipoise.runtime.settings import OPERATED

        names = ",".join(self.balancer or ())
        if self.balancer and not names.strip(", "):
            raise BadInput(f"--balancers: expected one or more of {', '.join(OPERATED)}")
        return names


@options.expanded
def operator(*, config: Config = None, set_: Set = None, flags: SettingFlags) -> None:
    """Run the balancers until SIGTERM. Acts only for policies whose mode is Enforce."""
    found = _effective(config, set_, flags)
    from equipoise.runtime.operator.wiring import run

    run(found)


@options.expanded
def config(
    *,
    config: Config = None,
    set_: Set = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = (Format.YAML),
    flags: SettingFlags,
) -> None:
    """Print the settings of `equipoise operator`, and where each value comes from."""
    from equipoise.runtime.layers import print_settings

    found = _effective(config, set_, flags)
    for warning in found.warnings:
        warn(warning)
    print_settings(found, output)


def _effective(config: str | None, sets: list[str] | None, flags: SettingFlags) -> "Effective":
    from equipoise.runtime.layers import effective

    return effective(config, os.environ, flags.given(), sets or ())
