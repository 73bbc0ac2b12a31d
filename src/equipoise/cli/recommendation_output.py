"""Advice on standard output: a table, a page, a plan, manifests, or rows for a spreadsheet."""

import csv
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from equipoise.cli.recommendation_documents import RecommendationPlan
from equipoise.cli.recommendation_options import AdviceFormat, AdviceOutput, Price
from equipoise.cli.recommendation_rows import (
    AdviceRow,
    has_requests,
    hpa_of,
    ordered,
    rows_of,
    total_of,
    with_costs,
)
from equipoise.core.cluster import API_VERSIONS, MORE_API_VERSIONS
from equipoise.core.decision import Decision, plan_document
from equipoise.core.documents import dump
from equipoise.core.errors import BadInput
from equipoise.recommendation.adopt import UNSCALED, ehpa_manifest, hpa_manifest
from equipoise.recommendation.explain import AdviceDetails
from equipoise.runtime.output import Format, is_any_letter_printed, plain, print_document, warn

HPA_HEADER = (
    "workload,replicas,minReplicas,maxReplicas,targetUtilization,"
    "coverage,confidence,predictable,reason,sentence,wouldMinReplicas,wouldMaxReplicas,wouldTargetUtilization"
)
_WOULD = "wouldMinReplicas,wouldMaxReplicas,wouldTargetUtilization"
RESOURCE_HEADER = (
    "workload,container,cpu,memory,currentCpu,currentMemory,coverage,confidence,reason,sentence,"
    "kind,replicas,minReplicas,maxReplicas,targetUtilization,"
    f"{_WOULD},cpuLimit,memoryLimit,currentCpuLimit,currentMemoryLimit,"
    "cpuDifferenceCores,memoryDifferenceBytes,severity"
)
COST_HEADER = "monthlyCost,recommendedMonthlyCost,monthlyCostDifference"
"""Further columns, where a price is known."""
TOTAL = "TOTAL"
"""The workload of the last row of a spreadsheet with money; no name in Kubernetes has large letters."""
FORMULA = ("=", "+", "-", "@")
"""Characters that begin a formula in a spreadsheet, and no name in Kubernetes."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAMES = {
    "name": (rf"{_LABEL}(\.{_LABEL})*", 253, "small letters, digits, - and ."),
    "namespace": (_LABEL, 63, "small letters, digits and -"),
}
"""The pattern and the maximum length of an object's name, and both in words."""


class CostDocument(Struct):
    """What requests cost in a month of 730 hours."""

    current: float
    recommended: float
    difference: float


class PriceDocument(Struct):
    """What a core and a GiB cost in an hour, and where that is from."""

    cpu_core_hour: float
    memory_gib_hour: float
    currency: str | None
    hours_per_month: int
    source: str


class TotalDocument(Struct):
    """The requests of all replicas of all workloads added up."""

    workloads: int
    advised: int
    cpu_cores: dict[str, float]
    memory_bytes: dict[str, int]
    monthly_cost: CostDocument | UnsetType = UNSET


class AdvicePlan(RecommendationPlan):
    """The decisions, and where requests are known, their total."""

    total: TotalDocument | UnsetType = UNSET
    price: PriceDocument | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Invocation:
    """The command as it was typed, as far as a next command repeats it."""

    words: Sequence[str] = ()
    """The words after `equipoise`."""
    file: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


def print_advice(
    decisions: Sequence[Decision],
    intervals_seconds: Sequence[float],
    printed: AdviceOutput,
    price: Price | None = None,
    invocation: Invocation | None = None,
    *,
    is_resource: bool = False,
) -> None:
    """Print in the asked form and order; `is_resource` where there is advice on requests alone."""
    places, form = ordered(decisions, printed.order, price), printed.output
    decisions = [decisions[place] for place in places]
    match form:
        case "json" | "yaml":
            document = plan_document("recommendation", decisions)
            print_document(with_costs(document, decisions, price), Format(form))
        case "hpa":
            hpas = [_manifest(one, hpa_manifest) for one in decisions]
            _print_manifests(decisions, hpas, form)
        case "ehpa":
            pairs = zip(decisions, (intervals_seconds[place] for place in places), strict=True)
            ehpas = [_manifest(one, ehpa_manifest, interval) for one, interval in pairs]
            _print_manifests(decisions, ehpas, form)
        case "csv":
            _print_rows(decisions, price, is_resource=is_resource)
        case "html":
            from equipoise.cli.recommendation_html import html_page

            sys.stdout.write(html_page(decisions, price, time.time()))
        case "name":
            for one in decisions:
                print(plain(f"{_kind_name(one)}/{one.subject.rpartition('/')[2]}"))
        case "table" | "wide":
            from equipoise.cli.recommendation_table import print_tables

            print_tables(
                decisions, price, next_step(decisions, invocation or Invocation()), is_wide=form == "wide"
            )


def _manifest(
    decision: Decision, make: Callable[..., dict[str, Any] | None], *more: float
) -> dict[str, Any] | None:
    """Return the manifest of advised replicas; None where there is no such advice, or an error ended it."""
    if decision.extra["recommended"] is None:
        return None
    return make(decision.subject, AdviceDetails.of(decision), *more)


def _kind_name(decision: Decision) -> str:
    """Return the kind as kubectl writes it before a name, such as `deployment.apps`."""
    kind = decision.extra["kind"]
    group = (API_VERSIONS | MORE_API_VERSIONS).get(kind, "").rpartition("/")[0]
    return f"{kind.lower()}.{group}" if group else kind.lower()


SET_BY_KUBECTL = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController"})
"""Kinds of which kubectl changes requests in the pod template."""


def next_step(decisions: Sequence[Decision], invocation: Invocation) -> str:
    """Return the command that tries the first advice; empty where no single command does."""
    for decision in decisions:
        hpa, is_advice = hpa_of(decision)
        if invocation.file is not None:
            if hpa is not None and is_advice and invocation.file != "-":
                return _manifest_step(invocation)
            continue
        if step := _resources_step(decision, invocation):
            return step
        if hpa is not None and is_advice:
            return _hpa_step(decision, invocation)
    return ""


def _manifest_step(invocation: Invocation) -> str:
    """Return this command with -o hpa, and what applies its manifests."""
    words, rest = [], list(invocation.words)
    while rest:
        word = rest.pop(0)
        if word in {"-o", "--output", "--price", "--sort-by"}:
            del rest[:1]
        elif not re.match(r"(-o|--(output|price|sort-by)=|--no-headers$)", word):
            words.append(word)
    return f"{shlex.join(['equipoise', *words, '-o', 'hpa'])} | kubectl apply --dry-run=server -f -"


def _hpa_step(decision: Decision, invocation: Invocation) -> str:
    namespace, _, name = decision.subject.rpartition("/")
    words = [
        "equipoise",
        "recommendation",
        "apply",
        f"{decision.extra['kind'].lower()}/{name}",
        "-n",
        namespace,
    ]
    return f"{shlex.join([*words, *_where(invocation)])} --dry-run"


def _where(invocation: Invocation) -> list[str]:
    named = {"--context": invocation.context, "--kubeconfig": invocation.kubeconfig}
    return [word for name, value in named.items() if value is not None for word in (name, value)]


def _resources_step(decision: Decision, invocation: Invocation) -> str:
    """Return the kubectl command that sets the advised requests and limits; it rolls out new pods."""
    kind, (namespace, _, name) = decision.extra["kind"], decision.subject.rpartition("/")
    rows = [row for row in rows_of(decision) if row.has_requests and _changes(row)]
    if kind not in SET_BY_KUBECTL or not rows:
        return ""
    target = ["-n", namespace, *_where(invocation)]
    changes = {row.container: _resources(row) for row in rows}
    (first, parts), *others = changes.items()
    if not others and None not in parts.get("limits", {}).values():
        amounts = [
            f"--{part}={','.join(f'{k}={v}' for k, v in sizes.items())}" for part, sizes in parts.items()
        ]
        words = ["kubectl", "set", "resources", f"{kind.lower()}/{name}", *target, "-c", first, *amounts]
    else:
        containers = [{"name": container, "resources": each} for container, each in changes.items()]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        text = json.dumps(patch, separators=(",", ":"))
        words = ["kubectl", "patch", f"{kind.lower()}/{name}", *target, "-p", text]
    return f"{shlex.join(words)} --dry-run=server"


def _changes(row: AdviceRow) -> bool:
    return any(parts != {} for parts in _resources(row).values())


def _resources(row: AdviceRow) -> dict[str, dict[str, str | None]]:
    """Return the requests and limits that change; None for a limit that is to be removed."""
    requests: dict[str, str | None] = {}
    limits: dict[str, str | None] = {}
    for change in (row.cpu, row.memory):
        if change.advised is None:
            continue
        if change.advised != change.request:
            requests[change.resource] = change.advised
        if change.advised_limit != change.limit:
            limits[change.resource] = change.advised_limit
    parts = {"requests": requests, "limits": limits}
    return {name: part for name, part in parts.items() if part}


def _print_manifests(
    decisions: Sequence[Decision], manifests: Sequence[dict[str, Any] | None], form: AdviceFormat
) -> None:
    """Print the manifests to apply; why other workloads have none is printed on standard error."""
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
    """Check that an HPA can scale the kind; a custom kind's API version is left to the user."""
    for kind in sorted(kinds):
        if kind in UNSCALED:
            raise BadInput(f"-o {form}: --kind: expected one that an HPA can scale, got {kind}")
        if kind not in API_VERSIONS:
            warn(f"the apiVersion of a {kind} is not known: add it to scaleTargetRef before you apply this")


def _expect_names(metadata: dict[str, str], form: AdviceFormat) -> None:
    """Raise BadInput for a workload's name that the API server would reject."""
    for field, name in metadata.items():
        pattern, length_max, words = NAMES[field]
        if len(name) > length_max or not re.fullmatch(pattern, name):
            what = "workload" if field == "name" else field
            wanted = f"expected a name that Kubernetes takes, of at most {length_max} {words}"
            raise BadInput(f"-o {form}: {what} {name[:60]!r}: {wanted}")


def _print_rows(decisions: Sequence[Decision], price: Price | None, *, is_resource: bool) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if not is_resource and not has_requests(decisions):
        print(HPA_HEADER)
        writer.writerows(row for decision in decisions for row in _replica_rows(decision))
        return
    print(RESOURCE_HEADER if price is None else f"{RESOURCE_HEADER},{COST_HEADER}")
    for decision in decisions:
        for row in rows_of(decision):
            writer.writerow(
                [*_container_cells(row), *([] if price is None else row.cost(price).document.values())]
            )
    if price is not None:
        writer.writerow(_total_cells(decisions, price))


def _container_cells(row: AdviceRow) -> Iterator[Any]:
    decision = row.decision
    numbers, changes = decision.reason.numbers, (row.cpu, row.memory)
    yield from (_cell(decision.subject), row.container)
    yield from (each.advised or "" for each in changes)
    yield from (each.request or "" for each in changes)
    yield from (_share(decision), numbers.get("confidence", ""))
    yield from (decision.reason.code.value, decision.reason.sentence)
    yield from (decision.extra["kind"], numbers.get("replicas", ""))
    yield from _bounds(decision, "recommended")
    yield from _bounds(decision, "wouldRecommend")
    yield from (each.advised_limit or "" for each in changes)
    yield from (each.limit or "" for each in changes)
    yield from (
        (f"{round(row.cpu_difference, 4) + 0.0:.12g}", round(row.memory_difference))
        if row.has_requests
        else ("", "")
    )
    yield str(row.severity) if row.severity else ""


def _total_cells(decisions: Sequence[Decision], price: Price) -> list[Any]:
    """Return the last row of a spreadsheet: only what can be added up."""
    total = total_of(decisions, price)
    assert total.cost is not None, "with a price, the total has money"
    added = {
        "workload": TOTAL,
        "cpuDifferenceCores": f"{round(total.cpu[1] - total.cpu[0], 4) + 0.0:.12g}",
        "memoryDifferenceBytes": round(total.memory[1] - total.memory[0]),
    }
    return [*(added.get(name, "") for name in RESOURCE_HEADER.split(",")), *total.cost.document.values()]


def _bounds(decision: Decision, field: str) -> list[Any]:
    found = decision.extra.get(field) or {}
    return [found.get(name, "") for name in ("minReplicas", "maxReplicas", "targetUtilization")]


def _share(decision: Decision) -> str:
    coverage = decision.reason.numbers.get("coverage")
    return "" if coverage is None else f"{coverage:.4g}"


def _replica_rows(decision: Decision) -> Iterator[list[Any]]:
    numbers = decision.reason.numbers
    yield [
        _cell(decision.subject),
        numbers.get("replicas", ""),
        *_bounds(decision, "recommended"),
        _share(decision),
        numbers.get("confidence", ""),
        str(decision.extra["prediction"].get("predictable", "")).lower(),
        decision.reason.code.value,
        decision.reason.sentence,
        *_bounds(decision, "wouldRecommend"),
    ]


def _cell(name: str) -> str:
    """Return a name so that no spreadsheet evaluates it: names in files are untrusted."""
    return f"'{name}" if name.startswith(FORMULA) else name
