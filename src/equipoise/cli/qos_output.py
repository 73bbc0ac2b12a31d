"""Prints the plan of a node as a table or a document."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from equipoise.runtime.output import Format, print_document

if TYPE_CHECKING:
    from equipoise.core.decision import Action, Decision

VERBS = {
    "EvictPod": "evict",
    "ThrottlePod": "throttle",
    "RestorePod": "restore",
    "DisableScheduling": "no new pods",
    "EnableScheduling": "new pods again",
}
STYLES = {"EvictPod": "bold red", "ThrottlePod": "bold yellow", "RestorePod": "bold green"}
STATES = {"Crossed": "bold yellow", "Unknown": "yellow"}
RIGHT = {"#", "USAGE", "WATERLINE", "ROUNDS", "RELEASES", "GAP AFTER"}


def print_qos(decision: "Decision", form: Format) -> None:
    if form is not Format.TABLE:
        from equipoise.core.decision import plan_document

        print_document(plan_document("qos", [decision]), form)
        return
    from rich.text import Text

    from equipoise.runtime.console import Console

    console = Console()
    if decision.reason.numbers["rules"]:
        console.print(_rules(decision.reason.numbers["rules"]))
        console.print()
    if decision.actions or decision.held:
        console.print(_plan(decision))
        console.print()
    style = "bold yellow" if decision.actions else "dim"
    line = Text.assemble(
        f"{decision.subject}: ", (decision.reason.code.value, style), f". {decision.reason.sentence}"
    )
    console.print(line)
    console.print("Nothing was changed.")


def _rules(rules: Mapping[str, Mapping[str, Any]]) -> Any:
    from rich.text import Text

    from equipoise.runtime.console import table

    laid_out = table(
        "RULE", "METRIC", "USAGE", "WATERLINE", "STATE", "ROUNDS", "ACTION", right=RIGHT, padding=(0, 1, 0, 0)
    )
    for key, rule in rules.items():
        rounds = rule["breaches"] if rule["state"] == "Crossed" else rule["clear"]
        state = "Preview" if rule["preview"] and rule["state"] == "Crossed" else rule["state"]
        laid_out.add_row(
            Text(key),
            rule["metric"],
            _value(rule["metric"], rule["usage"]),
            _value(rule["metric"], rule["waterline"]),
            Text(state, style=STATES.get(rule["state"], "dim")),
            str(rounds),
            Text(rule["action"]),
        )
    return laid_out


def _plan(decision: "Decision") -> Any:
    from rich.text import Text

    from equipoise.runtime.console import table

    laid_out = table(
        "#", "DO", "POD", "FOR", "RELEASES", "GAP AFTER", "QUOTA", right=RIGHT, padding=(0, 1, 0, 0)
    )
    for turn, action in enumerate(decision.actions, 1):
        kind = type(action).__name__
        laid_out.add_row(str(turn), Text(VERBS[kind], style=STYLES.get(kind, "bold")), *_cells(action))
    for held in decision.held:
        verb = f"{VERBS[type(held.action).__name__]} ({held.reason.value})"
        laid_out.add_row("-", Text(verb, style="dim"), *_cells(held.action))
    return laid_out


def _cells(action: "Action") -> list[Any]:
    from rich.text import Text

    metric: str = getattr(action, "metric", "")
    gaps: Mapping[str, float | None] = getattr(action, "gap_after", None) or {}
    quota: Mapping[str, int] = getattr(action, "quota", None) or {}
    quotas = [f"{name} {'unlimited' if value < 0 else value}" for name, value in quota.items()]
    return [
        Text(action.pod or getattr(action, "node", "")),
        _short(metric),
        _amount(metric, getattr(action, "release", None)),
        "\n".join(_amount(name, gap) for name, gap in gaps.items()) or "-",
        Text("\n".join(quotas) or "-"),
    ]


def _short(metric: str) -> str:
    """Name what is acted on for it; the rules above have the whole name."""
    from equipoise.qos.observation import METRICS

    if metric in METRICS and METRICS[metric].is_quantifiable:
        return METRICS[metric].resource.value
    return metric or "-"


def _amount(metric: str, value: float | None) -> str:
    from equipoise.qos.explain import amount
    from equipoise.qos.observation import METRICS

    if value is None or metric not in METRICS:
        return "-"
    return amount(METRICS[metric].resource, Fraction(value))


def _value(metric: str, value: float | None) -> str:
    from equipoise.qos.explain import value_of
    from equipoise.qos.observation import METRICS

    return "unknown" if value is None else value_of(METRICS[metric], Fraction(value))
