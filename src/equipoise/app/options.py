"""Options that several commands share, each defined once."""

import re
from typing import Annotated

import typer

from equipoise.app.output import Format
from equipoise.model.errors import BadInput

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
