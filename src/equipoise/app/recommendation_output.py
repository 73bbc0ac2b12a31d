"""Advice on standard output: a table, a plan, manifests, or rows for a spreadsheet."""

import csv
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from equipoise.app.output import Format, is_any_letter_printed, print_document, warn
from equipoise.app.recommendation_options import AdviceFormat
from equipoise.app.recommendation_tables import containers_of, print_tables
from equipoise.model.decision import Decision, plan_document
from equipoise.model.documents import dump
from equipoise.model.errors import BadInput
from equipoise.model.references import API_VERSIONS
from equipoise.recommendation.manifests import UNSCALED, ehpa_manifest, hpa_manifest

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
FORMULA = ("=", "+", "-", "@")
"""What begins so is no text for a spreadsheet, and no name for Kubernetes."""
NAMES = {
    "name": (
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        253,
        "small letters, digits, - and .",
    ),
    "namespace": (r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63, "small letters, digits and -"),
}
"""The form of an object's names, how long they may be, and both in words."""


def print_advice(
    decisions: Sequence[Decision],
    intervals_seconds: Sequence[float],
    form: AdviceFormat,
    *,
    is_resource: bool = False,
) -> None:
    """Print the advice, which may be about requests, in the form that was asked for."""
    match form:
        case AdviceFormat.JSON | AdviceFormat.YAML:
            print_document(plan_document("recommendation", list(decisions)), Format(form))
        case AdviceFormat.HPA:
            _print_manifests(decisions, [hpa_manifest(decision) for decision in decisions], form)
        case AdviceFormat.EHPA:
            pairs = zip(decisions, intervals_seconds, strict=True)
            _print_manifests(decisions, [ehpa_manifest(*pair) for pair in pairs], form)
        case AdviceFormat.CSV:
            _print_rows(decisions, is_resource=is_resource)
        case AdviceFormat.TABLE:
            print_tables(decisions)


def _print_manifests(
    decisions: Sequence[Decision], manifests: Sequence[dict[str, Any] | None], form: AdviceFormat
) -> None:
    """Print what there is to apply; why there is nothing for the others goes to standard error."""
    made = [manifest for manifest in manifests if manifest is not None]
    for one in made:
        _expect_names(one["metadata"], form)
    _expect_kinds({one["spec"]["scaleTargetRef"]["kind"] for one in made}, form)
    for decision, manifest in zip(decisions, manifests, strict=True):
        if manifest is None:
            warn(f"{decision.subject}: {decision.reason.code.value}: {decision.reason.sentence}")
    if made:
        sys.stdout.write("---\n".join(dump(one, allow_unicode=is_any_letter_printed()) for one in made))


def _expect_kinds(kinds: Collection[str], form: AdviceFormat) -> None:
    """Refuse what no HPA can scale; of a kind that is not Kubernetes' own, a part is left to the reader."""
    for kind in sorted(kinds):
        if kind in UNSCALED:
            raise BadInput(f"-o {form.value}: --kind: expected one that an HPA can scale, got {kind}")
        if kind not in API_VERSIONS:
            warn(f"the apiVersion of a {kind} is not known: add it to scaleTargetRef before you apply this")


def _expect_names(metadata: dict[str, str], form: AdviceFormat) -> None:
    """Refuse what a file calls a workload and no API server would."""
    for field, name in metadata.items():
        pattern, length_max, words = NAMES[field]
        if len(name) > length_max or not re.fullmatch(pattern, name):
            what = "workload" if field == "name" else field
            wanted = f"expected a name that Kubernetes takes, of at most {length_max} {words}"
            raise BadInput(f"-o {form.value}: {what} {name[:60]!r}: {wanted}")


def _print_rows(decisions: Sequence[Decision], *, is_resource: bool) -> None:
    """Print one row for each workload, or for each container where requests are advised."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if is_resource:
        writer.writerow(RESOURCE_COLUMNS)
        writer.writerows(row for decision in decisions for row in _container_rows(decision))
    else:
        writer.writerow(HPA_COLUMNS)
        writer.writerows(_row(decision) for decision in decisions)


def _container_rows(decision: Decision) -> Iterator[list[Any]]:
    numbers, reason = decision.reason.numbers, decision.reason
    for name, wanted, today in containers_of(decision):
        yield [
            _cell(decision.subject),
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
        _cell(decision.subject),
        numbers["replicas"],
        *(recommended.get(name, "") for name in ("minReplicas", "maxReplicas", "targetUtilization")),
        f"{numbers['coverage']:.4g}",
        numbers["confidence"],
        str(decision.extra["prediction"]["predictable"]).lower(),
        decision.reason.code.value,
        decision.reason.sentence,
    ]


def _cell(name: str) -> str:
    """Give a name, which a file may have from anywhere, as text that no spreadsheet calculates."""
    return f"'{name}" if name.startswith(FORMULA) else name
