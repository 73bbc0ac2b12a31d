"""`equipoise agent` runs the agent of a node; `equipoise retire` removes the agents of all nodes.

An agent needs its permissions to restore what it throttled. So before an uninstallation deletes them,
`retire` removes the DaemonSet and waits for the agents to end.
"""

import os
import re
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from equipoise.cli import options
from equipoise.cli.options import in_namespace, option
from equipoise.core.errors import BadInput, WorldFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from equipoise.adapters.kubernetes import Client
    from equipoise.runtime.agent.run import AgentSettings


RESTORED = frozenset({"Done", "Gone"})
PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of `equipoise agent`."""

    node: Annotated[
        str, typer.Option(metavar="NAME", envvar="NODE_NAME", help="Name of the node that the agent runs on.")
    ]
    interval: Annotated[str, option("DURATION", "Time between two rounds, at least 1s.")] = "10s"
    mode: Annotated[
        Literal["Preview", "Enforce"],
        typer.Option(
            envvar="EQUIPOISE_COMPAT_MODE",
            help="Preview records the actions without executing them; Enforce executes them.",
        ),
    ] = "Preview"
    crane: Annotated[
        Literal["auto", "on"],
        typer.Option(
            envvar="EQUIPOISE_COMPAT_CRANE",
            help="on also acts in a cluster with Crane's definitions; auto does not.",
        ),
    ] = "auto"
    state: Annotated[str, option("FILE", "File on the host that records the throttled containers.")] = (
        "/var/lib/equipoise/agent/state.json"
    )
    cgroups: Annotated[str, option("DIRECTORY", "Mount point of the cgroup filesystem.")] = "/sys/fs/cgroup"
    cgroup_parent: Annotated[str, option("PATH", "Parent cgroup of kubepods; by default it is detected.")] = (
        ""
    )
    proc: Annotated[str, option("DIRECTORY", "Mount point of the /proc of the host.")] = "/proc"
    usage_of: Annotated[
        Literal["machine", "pods"],
        typer.Option(help="Compare waterlines with the usage of the machine or of its pods."),
    ] = "machine"
    evictions_per_round: Annotated[
        int | None,
        option(
            "N",
            "Maximum number of evictions per round; by default 10% of the pods, at least 1.",
            min=0,
            max=10**6,
        ),
    ] = None
    excess: Annotated[int, option("PERCENT", "Widen every gap by this percentage.", min=0, max=1000)] = 0
    journal: Annotated[
        str | None,
        option("FILE", "Path of the journal; by default journal.db beside the state; '' writes none."),
    ] = None
    cleanup: Annotated[
        bool, typer.Option("--cleanup", help="Restore what an earlier agent throttled, then exit.")
    ] = False
    http_address: Annotated[str, option("[HOST]:PORT", "Address of the health and metrics endpoints.")] = (
        ":8081"
    )
    operator_namespace: options.OperatorNamespace = options.OPERATOR_NAMESPACE
    log_level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="Log level.")] = (
        "info"
    )
    log_format: Annotated[Literal["auto", "json", "console"], typer.Option(help="Log format.")] = "auto"
    kubernetes: options.KubernetesOptions

    def settings(self) -> "AgentSettings":
        """Return the options as the agent's settings; raises BadInput for one that is wrong."""
        from equipoise.runtime.agent.run import AgentSettings
        from equipoise.runtime.settings import Logs

        # In a field selector, an empty name would select the pods without a node.
        if not options.OBJECT.fullmatch(self.node):
            raise BadInput(f"--node: expected the name of a node, got {self.node!r}")
        interval_seconds = options.parse_span("--interval", self.interval)
        if not 1 <= interval_seconds <= 3600:  # noqa: PLR2004 - as in the message
            raise BadInput(f"--interval: expected from 1s to 1h, got {self.interval!r}")
        return AgentSettings(
            node=self.node,
            interval_seconds=interval_seconds,
            is_enforced=self.mode == "Enforce",
            takes_over=self.crane == "on",
            state_file=_file(self.state, "--state"),
            cgroups=self.cgroups,
            cgroup_parent=self.cgroup_parent,
            proc=self.proc,
            is_of_pods=self.usage_of == "pods",
            evictions_per_round=self.evictions_per_round,
            excess_percent=self.excess,
            http_address=_address(self.http_address),
            home=self.operator_namespace,
            kubeconfig=self.kubernetes.kubeconfig,
            context=self.kubernetes.context,
            journal=_journal(self.journal, self.state),
            logs=Logs(level=self.log_level, format=self.log_format),
        )


@options.expanded
def agent(*, agent: AgentOptions) -> None:
    """Run the agent of one node, which throttles and evicts pods above its waterlines.

    At SIGTERM it restores everything that it throttled.
    """
    from equipoise.runtime.agent.run import clean_up, run_agent

    settings = agent.settings()
    if not agent.cleanup:
        run_agent(settings)
        return
    outcomes = clean_up(settings)
    for outcome in outcomes:
        detail = f": {outcome.detail}" if outcome.detail else ""
        print(f"{outcome.action.pod or agent.node}: {outcome.result}{detail}")
    not_restored = sum(outcome.result not in RESTORED for outcome in outcomes)
    print(f"{len(outcomes) - not_restored} given back on {agent.node}.")
    if not_restored:
        raise WorldFailed(f"node {agent.node}: {not_restored} could not be given back; --cleanup tries again")


def _file(path: str, flag: str) -> str:
    if not Path(path).name or "\0" in path or _is_used_folder(path):
        raise BadInput(f"{flag}: expected a file, got {path!r}")
    return path


def _is_used_folder(path: str) -> bool:
    """Return whether the path is a folder that is not empty; an empty one is replaced by the file."""
    try:
        with os.scandir(path) as entries:
            return any(True for _ in entries)
    except NotADirectoryError:
        return False
    except OSError:
        return os.path.isdir(path)  # noqa: PTH112 - never raises


def _journal(path: str | None, state: str) -> str:
    if path is None:
        return str(Path(state).with_name("journal.db"))
    if path and Path(_file(path, "--journal")).absolute() == Path(state).absolute():
        raise BadInput("--journal: expected another file than --state")
    return path


def _address(text: str) -> str:
    _, colon, port = text.rpartition(":")
    if not colon or not PORT.fullmatch(port) or int(port) > 65535:  # noqa: PLR2004 - the last port
        raise BadInput(f"--http-address: expected [HOST]:PORT such as :8081, got {text!r}")
    return text


POLL_SECONDS = 0.5
REQUEST_SECONDS_MIN = 2.0
"""The minimum time-out of a request, even after the deadline."""
NAMED_MAX = 5
"""The maximum number of agents named in an error."""


@options.expanded
def retire(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="DAEMONSET", help="Name of the DaemonSet of the agents.", callback=options.expect_object
        ),
    ] = "equipoise-agent",
    namespace: Annotated[
        str, in_namespace("Namespace in which Equipoise is installed.")
    ] = options.OPERATOR_NAMESPACE,
    timeout: Annotated[str, option("DURATION", "Time limit for the agents to end.")] = "60s",
    kubernetes: options.KubernetesOptions,
) -> None:
    """Delete the node agents, and wait until each has restored what it throttled and removed its taint."""
    from equipoise.adapters.kubernetes.actions import pods_of_daemon_set, remove_daemon_set

    until = time.monotonic() + options.parse_span("--timeout", timeout)
    client = kubernetes.connect()
    with _until(until, client) as session:
        was_removed = remove_daemon_set(session, namespace, name)
    print(f"DaemonSet {namespace}/{name} {'is removed' if was_removed else 'is not there'}.", flush=True)
    while True:
        with _until(until, client) as session:
            remaining = pods_of_daemon_set(session, namespace, name)
        if not remaining:
            break
        if time.monotonic() >= until:
            named = ", ".join(f"{pod.name} on {pod.node or 'no node'}" for pod in remaining[:NAMED_MAX])
            more = f" and {len(remaining) - NAMED_MAX} more" if len(remaining) > NAMED_MAX else ""
            raise WorldFailed(
                f"namespace {namespace}: after {timeout} some agents are still there, so that their nodes "
                f"may be throttled or tainted: {named}{more}"
            )
        time.sleep(POLL_SECONDS)
    print("No agent is left: what they throttled is given back.")


@contextmanager
def _until(until: float, client: "Client") -> "Iterator[Client]":
    """Yield a session whose requests end by the deadline, even if the server does not answer."""
    remaining_seconds, usual = max(until - time.monotonic(), REQUEST_SECONDS_MIN), client.limits
    names = ("connect_seconds", "read_seconds", "answer_seconds")
    limits = replace(usual, **{name: min(getattr(usual, name), remaining_seconds) for name in names})
    in_all_seconds = min(client.backoff.total_max_seconds, remaining_seconds)
    backoff = replace(client.backoff, total_max_seconds=in_all_seconds)
    with closing(client.with_own_connections(backoff=backoff, limits=limits)) as session:
        yield session
