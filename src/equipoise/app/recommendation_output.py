"""Advice on standard output: a table, a plan, manifests, or rows for a spreadsheet."""

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from equipoise.app.output import Format, print_document, warn
from equipoise.app.recommendation_options import AdviceFormat
from equipoise.app.recommendation_tables import containers_of, print_tables
from equipoise.model.decision import Decision, plan_document
from equipoise.recommendation.manifests import ehpa_manifest, hpa_manifest

HPA_COLUMNS = (
    "workload",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "targetUtilization",
    "coverage",
    "confidence",
    "predictable",
    "reason",
    "sentence",
)
RESOURCE_COLUMNS = (
    "workload",
    "container",
    "cpu",
    "memory",
    "currentCpu",
    "currentMemory",
    "coverage",
    "confidence",
    "reason",
    "sentence",
)


def print_advice(decisions: Sequence[Decision], interval_seconds: float, form: AdviceFormat) -> None:
    """Print the advice in the form that was asked for."""
    match form:
        case AdviceFormat.JSON | AdviceFormat.YAML:
            print_document(plan_document("recommendation", list(decisions)), Format(form))
        case AdviceFormat.HPA:
            _print_manifests(decisions, [hpa_manifest(decision) for decision in decisions])
        case AdviceFormat.EHPA:
            made = [ehpa_manifest(decision, interval_seconds) for decision in decisions]
            _print_manifests(decisions, made)
        case AdviceFormat.CSV:
            _print_rows(decisions)
        case AdviceFormat.TABLE:
            print_tables(decisions)


def _print_manifests(decisions: Sequence[Decision], manifests: Sequence[dict[str, Any] | None]) -> None:
    """Print what there is to apply; why there is nothing for the others goes to standard error."""
    import yaml

    made = [manifest for manifest in manifests if manifest is not None]
    for decision, manifest in zip(decisions, manifests, strict=True):
        if manifest is None:
            warn(f"{decision.subject}: {decision.reason.code.value}: {decision.reason.sentence}")
    if made:
        yaml.safe_dump_all(made, sys.stdout, sort_keys=False, allow_unicode=True, width=100)


def _print_rows(decisions: Sequence[Decision]) -> None:
    """Print one row for each workload, or for each container where requests are advised."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if any("containers" in (decision.extra["recommended"] or {}) for decision in decisions):
        writer.writerow(RESOURCE_COLUMNS)
        writer.writerows(row for decision in decisions for row in _container_rows(decision))
    else:
        writer.writerow(HPA_COLUMNS)
        writer.writerows(_row(decision) for decision in decisions)


def _container_rows(decision: Decision) -> Iterator[list[Any]]:
    numbers, reason = decision.reason.numbers, decision.reason
    for name, wanted, today in containers_of(decision):
        yield [
            decision.subject,
            name,
            *(requests.get(what, "") for requests in (wanted, today) for what in ("cpu", "memory")),
            f"{numbers['coverage']:.4g}",
            numbers["confidence"],
            reason.code.value,
            reason.sentence,
        ]


def _row(decision: Decision) -> list[Any]:
    recommended = decision.extra["recommended"] or {}
    numbers = decision.reason.numbers
    return [
        decision.subject,
        numbers["replicas"],
        *(recommended.get(name, "") for name in ("minReplicas", "maxReplicas", "targetUtilization")),
        f"{numbers['coverage']:.4g}",
        numbers["confidence"],
        str(decision.extra["prediction"]["predictable"]).lower(),
        decision.reason.code.value,
        decision.reason.sentence,
    ]
