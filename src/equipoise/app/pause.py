"""`equipoise pause` and `equipoise resume`: stop means stop."""

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app.output import plain

if TYPE_CHECKING:
    from equipoise.adapters.kubernetes import Client

# Not the shared option: a namespace from the environment must not make a stop smaller than it was meant.
Where = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="The namespace; by default everywhere.",
        callback=options.expect_namespace,
    ),
]


def pause(
    namespace: Where = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; it is shown wherever something is held.")
    ] = "",
    operator_namespace: options.OperatorNamespace = "equipoise-system",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Stop every action, agents included, within 5 seconds; without a namespace, everywhere."""
    from equipoise.adapters.kubernetes import pauses
    from equipoise.app.live import Neighbours

    who = f"{_user()}: {reason}" if reason else _user()
    client = Neighbours(kubeconfig, context).client()
    pauses.pause(client, namespace, who, operator_namespace=operator_namespace)
    again = f"equipoise resume{f' -n {namespace}' if namespace else ''}"
    print(plain(f"Every action {_in(namespace)} is paused ({who}); `{again}` ends it."))


def resume(
    namespace: Where = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """End what `pause` began."""
    from equipoise.adapters.kubernetes import pauses
    from equipoise.app.live import Neighbours

    client = Neighbours(kubeconfig, context).client()
    before = pauses.resume(client, namespace, operator_namespace=operator_namespace)
    done = f"is resumed (it was paused by {before})" if before else "was not paused"
    still = _still_paused(client, operator_namespace) if namespace else ""
    print(plain(f"Acting {_in(namespace)} {done}{still}."))


def _still_paused(client: "Client", operator_namespace: str) -> str:
    """Warn of the larger pause, as far as we may see it."""
    from equipoise.adapters.kubernetes import pauses
    from equipoise.model.errors import WorldFailed

    try:
        everywhere = pauses.paused_everywhere(client, operator_namespace)
    except WorldFailed:
        return ""
    return f", but everything is still paused ({everywhere})" if everywhere else ""


def _in(namespace: str | None) -> str:
    return f"in namespace {namespace}" if namespace else "everywhere"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "somebody"
