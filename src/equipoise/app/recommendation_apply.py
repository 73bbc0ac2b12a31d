"""`equipoise recommendation apply`: advice becomes HPAs, by server-side apply."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app import options
from equipoise.app import recommendation_options as said
from equipoise.app.output import Format, warn, warn_of_nothing
from equipoise.app.recommendation_input import read_settings
from equipoise.model.errors import WorldFailed

if TYPE_CHECKING:
    from equipoise.model.decision import Record
    from equipoise.recommendation.adopt import Adopted


def apply(
    command: typer.Context,
    workloads: said.LiveWorkloads = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server say what would happen; change nothing.")
    ] = False,
    setting: said.Setting = None,
    no_forecast: said.NoForecast = False,
    algorithm: said.Algorithm = said.AlgorithmName.PROFILE,
    source: said.LiveSource = said.LiveSourceName.AUTO,
    namespace: options.Namespace = None,
    all_namespaces: options.AllNamespaces = False,
    output: options.Output = Format.TABLE,
    journal: Annotated[
        str | None, typer.Option(metavar="PATH", help="Add what was decided, and from what, to a journal.")
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    operator_namespace: options.OperatorNamespace = "equipoise-system",
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
    """Decide as plan does, and make the HPAs, or change those made before; others' are left alone."""
    from equipoise.app.journal import write_records
    from equipoise.app.recommendation_apply_output import print_adopted
    from equipoise.app.recommendation_live import Request, apply_recommendation
    from equipoise.recommendation.loop import Asked
    from equipoise.stats.predict import Algorithm as Named

    how = None if no_forecast else Named(algorithm)
    asked = Asked(read_settings(setting or ()), namespace, workloads or (), how)
    request = Request.from_options(asked, command.params)
    diary: list[Record] = []
    if journal is not None:
        write_records(journal, [])  # a journal that can't be written is said before anything is done
    try:
        done = apply_recommendation(request, operator_namespace, is_dry_run=is_dry_run, diary=diary)
    finally:
        if journal is not None:
            write_records(journal, diary)
    if not done:
        warn_of_nothing("no workload", is_everywhere=all_namespaces)
    for line in _surprises(done):
        warn(line)
    print_adopted(done, output, is_dry_run=is_dry_run)
    failed = [each for each in done if each.has_failed or (workloads and each.is_not_ours)]
    if failed:
        first, count = failed[0].decision, len(failed) - 1
        more = f" (and {count} more)" if count else ""
        raise WorldFailed(f"{first.subject}: {first.reason.sentence}{more}")


def _surprises(done: "Sequence[Adopted]") -> "Iterator[str]":
    """Say what an HPA does at once, and what it was made from little."""
    from equipoise.recommendation.explain import percent_known

    for each in done:
        decision = each.decision
        numbers, recommended = decision.reason.numbers, decision.extra["recommended"]
        if not decision.actions:
            continue
        if numbers["replicas"] > recommended["maxReplicas"]:
            yield (
                f"{decision.subject}: {numbers['replicas']} replicas are more than the HPA's maximum of "
                f"{recommended['maxReplicas']}, to which it scales down at once"
            )
        if numbers["confidence"] == "low":
            share = percent_known(numbers["coverage"])
            yield f"{decision.subject}: low confidence, since only {share} of the past seven days is known"
