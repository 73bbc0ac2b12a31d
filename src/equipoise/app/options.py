"""Options that several commands share, each defined once."""

from typing import Annotated

import typer

from equipoise.app.output import Format

CLUSTER = "Cluster"
METRICS = "Metrics"

Output = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        envvar="KUBE_NAMESPACE",
        help="The namespace; by default the context's.",
        rich_help_panel=CLUSTER,
        show_envvar=False,
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="Every namespace.", rich_help_panel=CLUSTER)
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(
        help="The kubeconfig; by default $KUBECONFIG, then the pod's own, then ~/.kube/config.",
        rich_help_panel=CLUSTER,
    ),
]
Context = Annotated[str | None, typer.Option(help="The kubeconfig's context.", rich_help_panel=CLUSTER)]
MetricsFrom = Annotated[
    str,
    typer.Option(help="Where usage comes from: auto, prometheus or metrics-server.", rich_help_panel=METRICS),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        envvar=["EQUIPOISE_PROMETHEUS_URL", "PROMETHEUS_ENDPOINT"],
        show_envvar=False,
        rich_help_panel=METRICS,
        help="Prometheus, Thanos, Mimir or VictoriaMetrics; found in the cluster when not given.",
    ),
]
PrometheusTokenFile = Annotated[
    str | None, typer.Option(help="A file with a bearer token for it.", rich_help_panel=METRICS)
]
PrometheusUser = Annotated[
    str | None, typer.Option(help="A user for basic authentication.", rich_help_panel=METRICS)
]
PrometheusPasswordFile = Annotated[
    str | None, typer.Option(help="A file with that user's password.", rich_help_panel=METRICS)
]
PrometheusCa = Annotated[
    str | None, typer.Option(help="A file with the CA that signed its certificate.", rich_help_panel=METRICS)
]
PrometheusHeader = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=VALUE sent with every query, such as X-Scope-OrgID=team.", rich_help_panel=METRICS
    ),
]
PrometheusMatcher = Annotated[
    list[str] | None,
    typer.Option(help="LABEL=VALUE added to every query, such as cluster=eu-1.", rich_help_panel=METRICS),
]
PrometheusTimeout = Annotated[
    str,
    typer.Option(
        envvar="PROMETHEUS_TIMEOUT",
        show_envvar=False,
        rich_help_panel=METRICS,
        help="How long one query may take.",
    ),
]
