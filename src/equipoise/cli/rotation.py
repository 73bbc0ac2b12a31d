"""`equipoise rotation`: hot and cold pods.

`equipoise rotation simulate`: what rotating brings, by the cause of the imbalance; needs no cluster.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import Format, print_document, print_plan, stepping, warn, warn_of_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from equipoise.cli.rotation_live import Request
    from equipoise.core.decision import Record
    from equipoise.sim.futility import Futility
    from equipoise.sim.study import CauseStudied, Question


Told = Callable[[int], object]


class Cause(StrEnum):
    """Why pods of a workload are unequal."""

    ALL = "all"
    KEY_SKEW = "key-skew"
    STALE_COUNTS = "stale-counts"
    CONNECTIONS = "connections"
    NOISY_NODE = "noisy-node"

    @property
    def words(self) -> str:
        """The name that the simulator knows it by."""
        return self.value.replace("-", " ")


def simulate(
    cause: Annotated[Cause, typer.Option(help="Why the pods are unequal.")] = Cause.ALL,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="In how many worlds a pod is hot.")
    ] = 20,
    pods: Annotated[
        int, typer.Option(metavar="N", min=2, max=200, help="How many pods the workload has.")
    ] = 6,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the policy, such as topK=3."),
    ] = None,
    output: options.Output = Format.TABLE,
) -> None:
    """Say what rotating would bring, and what fewer pods would, by cause. Needs no cluster."""
    from equipoise.cli.rotation_simulate_output import document, print_tables
    from equipoise.core.documents import validated
    from equipoise.rotation.plan_file import set_options
    from equipoise.rotation.policy import RotationPolicy
    from equipoise.sim.study import Question

    settings = set_options(setting or ())
    validated(RotationPolicy, settings, "--set")
    question = Question(pods, settings)
    causes = [each for each in Cause if each is not Cause.ALL] if cause is Cause.ALL else [cause]
    found = [_studied(each, seeds, question) for each in causes]
    for studied, _ in found:
        if studied.worlds < seeds:
            warn(f"{studied.cause}: a pod was hot in {studied.worlds} of {studied.drawn} worlds only")
    if output is Format.TABLE:
        print_tables(question, found)
    else:
        print_document(document(question, found), output)


def _studied(cause: Cause, seeds: int, question: "Question") -> "tuple[CauseStudied, Futility | None]":
    """Study one cause; where the load itself is unequal, also whether the loop ever gives up."""
    from equipoise.sim.futility import futility
    from equipoise.sim.study import study

    with stepping(f"{cause.words}: rotating", seeds) as told:
        studied = study(cause.words, seeds, question, told=told)
    if cause is not Cause.KEY_SKEW or not studied.worlds:
        return studied, None
    with stepping(f"{cause.words}: going on", studied.worlds) as told:
        return studied, futility(cause.words, studied.worlds, question, told=told)


app = typer.Typer(
    help="Hot and cold pods of an autoscaled workload.", no_args_is_help=True, rich_markup_mode=None
)

Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORKLOAD",
        envvar="DEPLOYMENT_NAME",
        show_envvar=False,
        help="Names, such as web or deployment/web; by default all that an HPA scales.",
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the policy, such as topK=3; wins over all."
    ),
]
JournalFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="Add what was decided, and from what, to a journal.")
]


@app.command()
def plan(
    command: typer.Context,
    workloads: Workloads = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="Decide from a file instead of a cluster; - is standard input."
        ),
    ] = None,
    setting: Setting = None,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: JournalFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
    metrics_from: options.MetricsFrom = "auto",
    prometheus_url: options.PrometheusUrl = None,
    prometheus_namespace: options.PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_label: options.PrometheusLabel = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Say which pods would be rotated, in which order, and why. Changes nothing."""
    if file is not None:
        from equipoise.rotation.plan_file import rotation_settings, set_options

        _refuse_beside_file(command)
        _plan_file(file, rotation_settings(), set_options(setting or ()), journal, output)
        return
    _plan_live(_request(command), journal, output)


@app.command()
def apply(
    command: typer.Context,
    workloads: Workloads = None,
    setting: Setting = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the server what would go now; change nothing.")
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="SPAN", help="How long to wait between two looks.")
    ] = "10s",
    timeout: Annotated[
        str, typer.Option(metavar="SPAN", help="How long all waves and their verification may take.")
    ] = "1h",
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: JournalFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
    metrics_from: options.MetricsFrom = "auto",
    prometheus_url: options.PrometheusUrl = None,
    prometheus_namespace: options.PrometheusNamespace = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_label: options.PrometheusLabel = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Rotate in waves, verify each, and stop when no pod is hot any more."""
    request = _request(command)
    interval_seconds, timeout_seconds = _span("--interval", interval), _span("--timeout", timeout)
    if is_dry_run:
        from equipoise.cli.rotation_live import warn_without_ledger

        warn_without_ledger(request)
        _plan_live(request, journal, output)
        return
    from equipoise.cli.rotation_live import CommandJournal, apply_rotation
    from equipoise.runtime.output import print_done

    _write(journal, [])  # a journal that can't be written is said before anything is done
    diary = CommandJournal()
    try:
        done, failure = apply_rotation(request, interval_seconds, timeout_seconds, diary)
    finally:
        _write(journal, diary.records)
    _warn_if_nothing(done, request)
    print_done("rotation", [each.decision for each in done], [each.outcomes for each in done], output)
    if failure:
        raise WorldFailed(failure)


app.command()(simulate)


def _span(option: str, text: str) -> float:
    from equipoise.core.quantity import parse_seconds

    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
    if seconds < 1:
        raise BadInput(f"{option}: expected at least 1s, got {text!r}")
    return seconds


def _request(command: typer.Context) -> "Request":
    from equipoise.cli.rotation_live import Request
    from equipoise.core.documents import merged
    from equipoise.rotation.plan_file import rotation_settings, set_options
    from equipoise.runtime.session import Neighbours

    said = command.params
    return Request(
        settings=merged(rotation_settings(), set_options(said["setting"] or ())),
        neighbours=Neighbours.from_options(said),
        namespace=said["namespace"],
        is_everywhere=said["all_namespaces"],
        names=said["workloads"] or (),
        operator_namespace=said["operator_namespace"],
    )


def _plan_live(request: "Request", journal: str | None, output: Format) -> None:
    from equipoise.cli.rotation_live import plan_rotation

    decisions, records = plan_rotation(request)
    _warn_if_nothing(decisions, request)
    print_plan("rotation", decisions, output)
    _write(journal, records)


def _warn_if_nothing(decided: "Sequence[object]", request: "Request") -> None:
    if not decided:
        warn_of_nothing("no workload with an HPA", is_everywhere=request.is_everywhere)


def _write(journal: str | None, records: "list[Record]") -> None:
    if journal is not None:
        from equipoise.cli.journal import write_records

        write_records(journal, records)


def _refuse_beside_file(command: typer.Context) -> None:
    """Refuse what was typed beside --from and would have no effect; variables may be there for other runs."""
    of_cluster = ("workloads", "namespace", "all_namespaces", "kubeconfig", "context")
    for name in (*of_cluster, "prometheus_url", "prometheus_namespace"):
        source = command.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            said = "a workload" if name == "workloads" else f"--{name.replace('_', '-')}"
            raise BadInput(f"--from: expected it alone, without {said}: the file says what to decide for")


def _plan_file(
    file: str, below: dict[str, Any], above: dict[str, Any], journal: str | None, output: Format
) -> None:
    from equipoise.rotation.decide import decide
    from equipoise.rotation.plan_file import read_plan_file
    from equipoise.runtime.output import read_yaml

    policy, seen = read_plan_file(read_yaml(file), file, below, above)
    decision = decide(policy, seen).decision
    print_plan("rotation", [decision], output)
    if journal is not None:
        import secrets
        import time

        from equipoise.adapters.journal.records import CHANCE_BITS, RecordIds
        from equipoise.engine.recording import record
        from equipoise.rotation.progress import BALANCER
        from equipoise.rotation.record import policy_json

        at = time.time()
        ids = RecordIds(secrets.randbits(CHANCE_BITS))
        _write(journal, [record(BALANCER, policy_json(policy), seen, {}, decision, at, ids.next(at))])
