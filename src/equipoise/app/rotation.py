"""`equipoise rotation`: hot and cold pods."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app import options
from equipoise.app.output import Format, print_plan, warn
from equipoise.model.errors import BadInput

if TYPE_CHECKING:
    from equipoise.model.decision import Decision
    from equipoise.rotation.observation import Observation
    from equipoise.rotation.policy import RotationPolicy

app = typer.Typer(
    help="Hot and cold pods of an autoscaled workload.", no_args_is_help=True, rich_markup_mode=None
)

JournalFile = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Add what was decided, and from what, to a journal (--from only)."),
]


@app.command()
def plan(
    command: typer.Context,
    workloads: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            envvar="DEPLOYMENT_NAME",
            show_envvar=False,
            help="Names, such as web or deployment/web; by default all that an HPA scales.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE", help="Decide from a file instead of a cluster; - is standard input."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the policy, such as topK=3; wins over all."
        ),
    ] = None,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: JournalFile = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    metrics_from: options.MetricsFrom = "auto",
    prometheus_url: options.PrometheusUrl = None,
    prometheus_token_file: options.PrometheusTokenFile = None,
    prometheus_user: options.PrometheusUser = None,
    prometheus_password_file: options.PrometheusPasswordFile = None,
    prometheus_ca: options.PrometheusCa = None,
    prometheus_header: options.PrometheusHeader = None,
    prometheus_matcher: options.PrometheusMatcher = None,
    prometheus_timeout: options.PrometheusTimeout = "30s",
) -> None:
    """Say which pods would be rotated, in which order, and why. Changes nothing."""
    from equipoise.app.settings import rotation_settings, set_options

    below, above = rotation_settings(), set_options(setting or ())
    if file is not None:
        _refuse_beside_file(command)
        _plan_file(file, below, above, journal, output)
        return
    if journal is not None:
        raise BadInput("--journal: expected --from FILE beside it")
    from equipoise.app.live import Neighbours, plan_rotation
    from equipoise.model.validation import merged

    neighbours = Neighbours.from_options(command.params)
    decisions = plan_rotation(merged(below, above), neighbours, namespace, all_namespaces, workloads or ())
    if not decisions:
        warn("no workload with an HPA was found; -n NAMESPACE or -A look elsewhere")
    print_plan("rotation", decisions, output)


def _refuse_beside_file(command: typer.Context) -> None:
    """Refuse what was typed beside --from and would have no effect; variables may be there for other runs."""
    for name in ("workloads", "namespace", "all_namespaces", "kubeconfig", "context", "prometheus_url"):
        source = command.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            said = "a workload" if name == "workloads" else f"--{name.replace('_', '-')}"
            raise BadInput(f"--from: expected it alone, without {said}: the file says what to decide for")


def _plan_file(
    file: str, below: dict[str, Any], above: dict[str, Any], journal: str | None, output: Format
) -> None:
    from equipoise.app.files import read_yaml
    from equipoise.rotation.decide import decide
    from equipoise.rotation.plan_file import read_plan_file

    policy, seen = read_plan_file(read_yaml(file), file, below, above)
    decision = decide(policy, seen)
    print_plan("rotation", [decision], output)
    if journal is not None:
        _keep(journal, policy, seen, decision)


def _keep(path: str, policy: "RotationPolicy", seen: "Observation", decision: "Decision") -> None:
    import secrets
    import time

    from equipoise.adapters.journal.ids import CHANCE_BITS, RecordIds
    from equipoise.app.journal import write_records
    from equipoise.rotation.record import record

    at = time.time()
    ids = RecordIds(secrets.randbits(CHANCE_BITS))
    write_records(path, [record(policy, seen, {}, decision, at, ids.next(at))])
