"""Writes what is generated: references of kinds, metrics and commands, and the chart's definitions.

Run `.venv/bin/python docs/reference/make.py`; a test says when somebody forgot to.
"""

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from equipoise.cli.cluster import as_yaml
from equipoise.cli.commands import app
from equipoise.cli.manifests import KINDS
from equipoise.core.reason import explanations
from equipoise.crd.definition import DefinedKind, definition, schema_of
from equipoise.proportional.status import SCALING_POLICY
from equipoise.qos.status import AVOIDANCE_ACTION, NODE_QOS_ENSURANCE_POLICY, POD_QOS
from equipoise.recommendation.policy import ANALYTICS, RECOMMENDATION
from equipoise.rotation.policy import ROTATION_POLICY

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))

from tools.metric_table import metric_table  # noqa: E402

BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
COUNTLESS = 10**6
"""A bound from here on tells a reader nothing."""
QUANTITY_BEGINS = ("^[+-]?(", "^[+]?(")
REFERENCES = {
    ROOT / "docs" / "reference" / "analytics.md": ANALYTICS,
    ROOT / "docs" / "reference" / "avoidanceaction.md": AVOIDANCE_ACTION,
    ROOT / "docs" / "reference" / "nodeqosensurancepolicy.md": NODE_QOS_ENSURANCE_POLICY,
    ROOT / "docs" / "reference" / "podqos.md": POD_QOS,
    ROOT / "docs" / "reference" / "recommendation.md": RECOMMENDATION,
    ROOT / "docs" / "reference" / "rotationpolicy.md": ROTATION_POLICY,
    ROOT / "docs" / "reference" / "scalingpolicy.md": SCALING_POLICY,
}
REASONS = ROOT / "docs" / "reference" / "reasons.md"
METRICS = ROOT / "docs" / "reference" / "metrics.md"
GROUP_NOTES = {
    "Guards": "A guard holds actions and never adds one. If it holds all actions, its reason is the "
    "decision's.\n\n",
}
OPTIONS = ROOT / "docs" / "reference" / "options.md"


def outputs() -> dict[Path, str]:
    """Give what every generated file should hold."""
    charts = {
        ROOT / "charts" / "equipoise" / "crds" / f"{kind.definition_name}.yaml": as_yaml([definition(kind)])
        for kind in KINDS
    }
    references = {path: _page(path.read_text(), _tables(kind)) for path, kind in REFERENCES.items()}
    commands = "".join(_commands(typer.main.get_command(app), "equipoise"))
    others = {METRICS: _metrics(), OPTIONS: f"{commands}\n", REASONS: _reasons()}
    return charts | references | {path: _page(path.read_text(), text) for path, text in others.items()}


def _page(text: str, generated: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{generated}{END}{after}"


def _metrics() -> str:
    """Give a table for each process."""
    parts, process = [], ""
    for shown in metric_table():
        if shown.process != process:
            process = shown.process
            parts.append(
                f"\n### equipoise {process}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
            )
        labels = ", ".join(shown.labels)
        parts.append(f"| `{shown.name}` | {shown.type} | {labels} | {shown.meaning} |\n")
    return "".join(parts) + "\n"


def _reasons() -> str:
    """Return a table for each group of reasons."""
    parts, group = [], ""
    for one in explanations():
        if one.group != group:
            group = one.group
            head = "| reason | meaning | example | what to do |\n|---|---|---|---|\n"
            parts.append(f"\n## {group}\n\n{GROUP_NOTES.get(group, '')}{head}")
        cells = (one.meaning, one.example, one.remedy)
        parts.append(
            f"| `{one.code.value}` | {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        )
    return "".join(parts) + "\n"


def _commands(command: Any, called: str) -> Iterator[str]:
    """Give a table for each command that can be run, with those below it."""
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(inner, f"{called} {name}")
    if hasattr(command, "commands"):
        return
    yield f"\n## {called}\n\n{' '.join(command.help.split())}\n"
    if command.params:
        yield "\n| word or option | value | default | meaning |\n|---|---|---|---|\n"
    for one in command.params:
        names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
        word = names if one.param_type_name == "option" else f"`{one.metavar or one.name.upper()}`"
        cells = (word, *_meaning(one))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _meaning(one: Any) -> tuple[str, str, str]:
    """Give the value that an option takes, its default, and what it means."""
    annotation = one.type_descriptor.annotation
    kinds = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
    values: list[Any] = list(get_args(annotation)) if get_origin(annotation) is Literal else []
    values = values or [choice.value for kind in kinds if issubclass(kind, Enum) for choice in kind]
    choices = [f"`{value}`" for value in values]
    metavar = one.metavar if one.param_type_name == "option" else None
    value = " or ".join(choices) or (f"`{metavar}`" if metavar else "")
    default = one.default.value if isinstance(one.default, Enum) else one.default
    is_said = default not in (None, False, "", (), []) and not callable(default)
    variables = [one.envvar] if isinstance(one.envvar, str) else list(one.envvar or ())
    also = f" Also by {' or '.join(f'`{name}`' for name in variables)}." if variables else ""
    return value, f"`{default}`" if is_said else "", f"{one.help or ''}{also}"


def _tables(kind: DefinedKind) -> str:
    schema = schema_of(kind)
    parts = []
    for part in kind.body:
        parts.append(f"\n### {part}\n\n| field | what it may be | default | meaning |\n|---|---|---|---|\n")
        parts += [f"| {' | '.join(row)} |\n" for row in _rows(schema["properties"][part], "")]
        parts += [f"\nRule: {rule}.\n" for rule in _rules(schema["properties"][part])]
    return "".join(parts) + "\n"


def _rows(node: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    for name, part in node.get("properties", {}).items():
        here = f"{path}{name}"
        is_needed = name in node.get("required", ())
        default = "required" if is_needed else _default(part)
        yield f"`{here}`", _form(part), default, part.get("description", "")
        inner = part.get("items", part)
        yield from _rows(inner, f"{here}{'[]' if 'items' in part else ''}.")


def _default(part: dict[str, Any]) -> str:
    match part.get("default"):
        case None | dict():
            return ""
        case bool() as claim:
            return f"`{str(claim).lower()}`"
        case value:
            return f"`{value}`"


def _form(part: dict[str, Any]) -> str:
    if part.get("x-kubernetes-int-or-string"):
        if part["pattern"].startswith(QUANTITY_BEGINS):
            return "quantity, such as `20`, `250m`, `1Gi`"
        return "seconds, or a span such as `90s`, `5m`, `1h30m`"
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    if part.get("format") == "date-time":
        return "time"
    if "type" not in part:
        return f"list of up to {part['maxItems']}, or its only item" if "items" in part else "shorthand"
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "`true` or `false`"}
    form = words.get(part["type"], str(part["type"]))
    if "maxItems" in part:
        form += f" of up to {part['maxItems']}"
    if "minimum" in part:
        form += f" {'above' if part.get('exclusiveMinimum') else 'from'} {part['minimum']}"
    if part.get("maximum", COUNTLESS) < COUNTLESS:
        form += f" to {part['maximum']}"
    return form


def _rules(node: dict[str, Any]) -> Iterator[str]:
    for rule in node.get("x-kubernetes-validations", ()):
        where = rule.get("fieldPath", "").removeprefix(".")
        yield f"{f'`{where}`: ' if where else ''}{rule['message']}"
    inner = [node["items"]] if "items" in node else []
    for part in [*node.get("properties", {}).values(), *inner]:
        yield from _rules(part)


def main() -> None:
    """Write every file."""
    for path, text in outputs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
