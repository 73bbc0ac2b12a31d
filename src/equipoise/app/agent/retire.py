"""`equipoise retire`: the node agents go, and give everything back before anybody takes their rights."""

import time
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.model.errors import BadInput, WorldFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from equipoise.adapters.kubernetes import Client
    from equipoise.adapters.kubernetes.daemons import DaemonPod

POLL_SECONDS = 0.5
LAST_LOOK_SECONDS = 2.0
"""A request has so long, even when the time is over."""
TOLD_MAX = 5
"""So many agents are named in an error."""

Name = Annotated[
    str,
    typer.Argument(metavar="DAEMONSET", help="The agents' DaemonSet.", callback=options.expect_object),
]
Home = Annotated[
    str,
    typer.Option(
        "-n",
        "--namespace",
        metavar="NAME",
        help="Where Equipoise is installed.",
        callback=options.expect_namespace,
    ),
]
Timeout = Annotated[str, typer.Option(metavar="SPAN", help="How long to wait for the agents.")]


def retire(
    name: Name = "equipoise-agent",
    namespace: Home = "equipoise-system",
    timeout: Timeout = "60s",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Remove the node agents, and wait until each has given back what it throttled and its taint."""
    from equipoise.adapters.kubernetes import connect
    from equipoise.adapters.kubernetes.daemons import pods_of_daemon_set, remove_daemon_set

    until = time.monotonic() + _seconds(timeout)
    client = connect(kubeconfig, context)
    with _until(until, client) as session:
        was_there = remove_daemon_set(session, namespace, name)
    print(f"DaemonSet {namespace}/{name} {'is removed' if was_there else 'is not there'}.", flush=True)
    while True:
        with _until(until, client) as session:
            left = pods_of_daemon_set(session, namespace, name)
        if not left:
            break
        if time.monotonic() >= until:
            raise WorldFailed(_still_there(left, namespace, timeout))
        time.sleep(POLL_SECONDS)
    print("No agent is left: what they throttled is given back.")


@contextmanager
def _until(until: float, client: "Client") -> "Iterator[Client]":
    """Give a session whose requests end when the time does, however silent the server is."""
    left, usual = max(until - time.monotonic(), LAST_LOOK_SECONDS), client.limits
    limits = replace(
        usual,
        connect_seconds=min(usual.connect_seconds, left),
        read_seconds=min(usual.read_seconds, left),
        answer_seconds=min(usual.answer_seconds, left),
    )
    backoff = replace(client.backoff, total_max_seconds=min(client.backoff.total_max_seconds, left))
    with closing(client.twin(backoff=backoff, limits=limits)) as session:
        yield session


def _still_there(left: "list[DaemonPod]", namespace: str, timeout: str) -> str:
    named = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in left[:TOLD_MAX])
    more = f" and {len(left) - TOLD_MAX} more" if len(left) > TOLD_MAX else ""
    return (
        f"namespace {namespace}: after {timeout} some agents are still there, so that their nodes may be "
        f"throttled or tainted: {named}{more}"
    )


def _seconds(text: str) -> float:
    from equipoise.model.duration import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"--timeout: {error}") from error
