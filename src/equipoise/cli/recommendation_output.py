"""Advice on standard output: tables, a plan, manifests, or rows for a spreadsheet.

Of the tables for people, one fits a narrow terminal, and one has every number.
"""

import csv
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from equipoise.cli.options import AdviceFormat
from equipoise.core.cluster import API_VERSIONS
from equipoise.core.decision import Decision
from equipoise.core.documents import dump
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_bytes
from equipoise.recommendation.adopt import UNSCALED, ehpa_manifest, hpa_manifest
from equipoise.recommendation.explain import AdviceDetails, coverage_text
from equipoise.runtime.output import Format, is_any_letter_printed, plain, print_plan, warn

if TYPE_CHECKING:
    from rich.table import Table

    from equipoise.runtime.console import Console


WIDTH_FOR_COLUMNS = 100
"""On a narrower terminal, the numbers are in fewer columns."""
WIDTH_FOR_SENTENCES = 160
"""On a narrower terminal, the sentences are below the table."""
SENTENCES_MAX = 20
ROWS_LAID_OUT_MAX = 1000
"""A longer table is printed as plain lines: the layout of a row takes half a millisecond."""
NAMED = ("WORKLOAD", "CONTAINER")
WHOLE_POD = "*"
"""The container name for advice from a file, which has no containers."""


def print_tables(decisions: Sequence[Decision]) -> None:
    from equipoise.runtime.console import Console

    console = Console()
    if not decisions:
        console.print("There is nothing to decide.")
        return
    is_wide = console.width >= WIDTH_FOR_SENTENCES
    if any("containers" in (decision.extra["recommended"] or {}) for decision in decisions):
        _print(console, _requests(decisions))
        is_wide = False
    else:
        _print(console, _replicas(decisions, console.width))
    console.print()
    # A row of requests contains all that its sentence does.
    without_requests = [one for one in decisions if "containers" not in (one.extra["recommended"] or {})]
    if not is_wide:
        print_reasons(console, without_requests, "-o csv and -o json have all")
    advised = sum(decision.extra["recommended"] is not None for decision in decisions)
    console.print(f"{len(decisions)} looked at, advice for {advised}. Nothing was changed.")


def print_reasons(console: "Console", decisions: Sequence[Decision], where: str = "-o json has all") -> None:
    """Print the sentences of decisions, the first ones of many."""
    for decision in decisions[:SENTENCES_MAX]:
        console.print(f"{decision.subject}: {decision.reason.sentence}")
    if (more := len(decisions) - SENTENCES_MAX) > 0:
        console.print(f"(and {more} more sentences; {where})")


def _print(console: "Console", table: "Table") -> None:
    """Print a table; a long one without colours and wrapping."""
    if table.row_count <= ROWS_LAID_OUT_MAX:
        console.print(table)
        return
    from rich.cells import cell_len

    padded = []
    for column in table.columns:
        cells = [plain(str(cell)) for cell in (column.header, *column.cells)]
        width, is_right = max(map(cell_len, cells)), column.justify == "right"
        pairs = [(cell, " " * (width - cell_len(cell))) for cell in cells]
        padded.append([blank + cell if is_right else cell + blank for cell, blank in pairs])
    for row in zip(*padded, strict=True):
        print("  ".join(row).rstrip())


def containers_of(decision: Decision) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """Yield each container's name, advised requests and current requests."""
    current = decision.extra.get("current", {}).get("containers", [])
    today = {container["name"]: container["requests"] for container in current}
    wanted = (decision.extra["recommended"] or {}).get("containers")
    if wanted is None:
        yield "", {}, {}
    for container in wanted or ():
        yield container["name"], container["requests"], today.get(container["name"], {})


def _table(*names: str, right: Sequence[str] = ()) -> "Table":
    from equipoise.runtime.console import table

    laid_out = table(*names, right=right, folded=NAMED)
    for column, name in zip(laid_out.columns, names, strict=True):
        column.min_width = len(name) if name in NAMED else None
    return laid_out


def _replicas(decisions: Sequence[Decision], width: int) -> "Table":
    """Return a table of replicas and targets, in as many columns as fit."""
    from rich.text import Text

    is_narrow, has_sentences = width < WIDTH_FOR_COLUMNS, width >= WIDTH_FOR_SENTENCES
    has_hpas = any(_todays(decision) != "-" for decision in decisions)
    right = ("NOW", "MIN", "MAX", "TARGET", "COVERAGE")
    if is_narrow:
        table = _table("WORKLOAD", "NOW", "ADVICE", "COVERAGE", "REASON", right=("NOW",))
    else:
        names = ["WORKLOAD", "NOW", "MIN", "MAX", "TARGET", "COVERAGE", "CONFIDENCE", "REASON"]
        if has_hpas:
            names.insert(2, "HPA NOW")
        table = _table(*names, right=right)
    if has_sentences:
        table.add_column("WHY", ratio=1, overflow="fold")
    for decision in decisions:
        numbers = decision.reason.numbers
        coverage = coverage_text(numbers["coverage"])
        hpa = decision.extra["recommended"]
        cells = [str(numbers["replicas"])]
        if is_narrow:
            cells += ["-" if hpa is None else _settings(hpa), f"{coverage} {numbers['confidence']}"]
        else:
            cells += [_todays(decision)] if has_hpas else []
            bounds = ["-", "-", "-"]
            if hpa is not None:
                bounds = [f"{hpa['minReplicas']}", f"{hpa['maxReplicas']}", f"{hpa['targetUtilization']} %"]
            cells += [*bounds, coverage, numbers["confidence"]]
        why = [Text(decision.reason.sentence)] if has_sentences else []
        table.add_row(Text(decision.subject), *cells, _reason(decision), *why)
    return table


def _settings(hpa: Mapping[str, Any]) -> str:
    target = hpa["targetUtilization"]
    aim = "" if target is None else f" at {target} %"
    return f"{hpa['minReplicas']}-{hpa['maxReplicas']}{aim}"


def _todays(decision: Decision) -> str:
    hpas = decision.extra.get("current", {}).get("hpas", [])
    return ", ".join(_settings(hpa) for hpa in hpas) or "-"


def _reason(decision: Decision) -> Any:
    from rich.text import Text

    is_advice = decision.extra["recommended"] is not None
    return Text(decision.reason.code.value, style="bold yellow" if is_advice else "dim")


def _requests(decisions: Sequence[Decision]) -> "Table":
    """Return a table of requests, one row per container: current and advised."""
    from rich.text import Text

    table = _table("WORKLOAD", "CONTAINER", "CPU", "MEMORY", "COVERAGE", "REASON")
    for decision in decisions:
        numbers = decision.reason.numbers
        for turn, (name, wanted, today) in enumerate(containers_of(decision)):
            first = turn == 0
            table.add_row(
                Text(decision.subject if first else ""),
                Text("(pod)" if name == WHOLE_POD else name or "-"),
                _change(today.get("cpu"), wanted.get("cpu")),
                _change(_rounded(today.get("memory")), _rounded(wanted.get("memory"))),
                f"{coverage_text(numbers['coverage'])} {numbers['confidence']}" if first else "",
                _reason(decision) if first else "",
            )
    return table


def _change(before: str | None, after: str | None) -> str:
    if after is None:
        return "-"
    return after if before is None else f"{before} → {after}"


def _rounded(memory: str | None) -> str | None:
    """Return bytes in a readable unit; the exact number is in -o json."""
    if memory is None:
        return None
    size = parse_bytes(memory)
    for unit, power in (("Gi", 3), ("Mi", 2), ("Ki", 1)):
        if size >= 10 * 1024.0**power:
            return f"{size / 1024.0**power:.0f}{unit}"
    return f"{size:.0f}"


HPA_HEADER = (
    "workload,replicas,minReplicas,maxReplicas,targetUtilization,"
    "coverage,confidence,predictable,reason,sentence"
)
RESOURCE_HEADER = "workload,container,cpu,memory,currentCpu,currentMemory,coverage,confidence,reason,sentence"
FORMULA = ("=", "+", "-", "@")
"""Characters that begin a formula in a spreadsheet, and no name in Kubernetes."""
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAMES = {
    "name": (rf"{_LABEL}(\.{_LABEL})*", 253, "small letters, digits, - and ."),
    "namespace": (_LABEL, 63, "small letters, digits and -"),
}
"""The pattern and the maximum length of an object's name, and both in words."""


def print_advice(
    decisions: Sequence[Decision],
    intervals_seconds: Sequence[float],
    form: AdviceFormat,
    *,
    is_resource: bool = False,
) -> None:
    match form:
        case "json" | "yaml":
            print_plan("recommendation", decisions, Format(form))
        case "hpa":
            hpas = [hpa_manifest(one.subject, AdviceDetails.of(one)) for one in decisions]
            _print_manifests(decisions, hpas, form)
        case "ehpa":
            pairs = zip(decisions, intervals_seconds, strict=True)
            ehpas = [ehpa_manifest(one.subject, AdviceDetails.of(one), interval) for one, interval in pairs]
            _print_manifests(decisions, ehpas, form)
        case "csv":
            _print_rows(decisions, is_resource=is_resource)
        case "table":
            print_tables(decisions)


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


def _print_rows(decisions: Sequence[Decision], *, is_resource: bool) -> None:
    print(RESOURCE_HEADER if is_resource else HPA_HEADER)
    rows = _container_rows if is_resource else _replica_rows
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(row for decision in decisions for row in rows(decision))


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


def _replica_rows(decision: Decision) -> Iterator[list[Any]]:
    recommended = decision.extra["recommended"] or {}
    numbers = decision.reason.numbers
    yield [
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
    """Return a name so that no spreadsheet evaluates it: names in files are untrusted."""
    return f"'{name}" if name.startswith(FORMULA) else name
