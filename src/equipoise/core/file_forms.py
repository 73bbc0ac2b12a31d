"""What a file is that a command cannot use, and which command takes it.

Every balancer reads files of its own. A file that is given to another's command is recognised by its content,
so that the error names the command that takes it; the file's name never counts.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from equipoise.core.errors import DECODE_ERRORS, BadInput

MANIFESTS = frozenset(
    {
        "RotationPolicy", "Analytics", "Recommendation", "NodeQOS", "NodeQOSEnsurancePolicy", "PodQOS",
        "AvoidanceAction", "PoolsPolicy",
    }
)  # fmt: skip
READINGS = frozenset({"PodMetricsList", "PodMetrics"})
KINDS = MANIFESTS | READINGS | {"ScalingPolicy"}
KEYS_LINE = re.compile(r"^[\"']?([A-Za-z_]\w*)[\"']?\s*:(?:\s|$)", re.MULTILINE)
KIND_LINE = re.compile(r"^kind:\s*[\"']?(\w+)", re.MULTILINE)
TOP_LINE = re.compile(
    r"(?:^|\n)\s*(?:NAMESPACE\s+)?(?:POD\s+)?NAME\s+CPU\(cores\)\s+(?:CPU%|MEMORY\(bytes\))"
)
TIME_NAMES = frozenset({"timestamp", "ts", "time", "date", "datetime"})
OBSERVED = frozenset({"cores", "memory", "nodes", "pods"})
"""The inputs of `proportional plan --observations`, each a column."""


class FileForm(NamedTuple):
    """A form of file, and the command that takes it."""

    name: str
    command: str
    """Ends where the file's name has to follow."""
    more: str = ""
    """What the command takes after the file's name."""


ROTATION = FileForm("a rotation plan", "equipoise rotation plan --from")
QOS = FileForm("a qos plan", "equipoise qos plan --from")
SCALING = FileForm("a ScalingPolicy", "equipoise proportional plan --policy")
OBSERVATIONS = FileForm(
    "the observations of a cluster's size", "equipoise proportional plan --policy POLICY --observations"
)
TIERS = FileForm("tiers of pools", "equipoise pools config set --from")
USAGE = FileForm("samples of CPU usage", "equipoise recommendation plan --from")
TOP = FileForm(
    "the usage of pods at one time", "equipoise rotation plan --from", " --request CORES --target 70"
)


def form_of_keys(keys: Collection[str], kind: str = "") -> FileForm | None:
    """Return the form of a document with these keys at its top; None for one that is not known."""
    held = set(keys)
    if kind in READINGS or (kind == "List" and "items" in held):
        return TOP
    if (
        kind == "ScalingPolicy"
        or {"scaleTargetRef", "containers"} <= held
        or {"containers", "smoothing"} <= held
    ):
        return SCALING
    if kind in MANIFESTS:
        return FileForm(f"a manifest of the kind {kind}", "equipoise validate")
    if {"resultType", "result"} <= held or {"status", "data"} <= held:
        return USAGE
    if "pods" in held and held & {"node", "policies"}:
        return QOS
    if "pods" in held and held <= {"workload", "hpa", "pods", "policy"}:
        return ROTATION
    return TIERS if "tiers" in held else None


def form_of_text(text: str) -> FileForm | None:
    """Return the form of a text by its beginning."""
    if TOP_LINE.match(text.lstrip()[:4096]):
        return TOP
    if text.lstrip()[:1] in {"{", "["}:
        return form_of_document(_json(text))
    columns = [name.strip().strip('"').lower() for name in text.lstrip().split("\n", 1)[0].split(",")]
    if len(columns) > 1 and TIME_NAMES & set(columns):
        others = set(columns) - TIME_NAMES
        return OBSERVATIONS if others <= OBSERVED and others & {"nodes", "pods"} else USAGE
    kinds = [kind for kind in KIND_LINE.findall(text) if kind in KINDS]
    return form_of_keys(KEYS_LINE.findall(text), kinds[0] if kinds else "")


def form_of_document(document: object) -> FileForm | None:
    """Return the form of a document that was read; text is what YAML makes of a file without keys."""
    if isinstance(document, str):
        return form_of_text(document)
    if isinstance(document, list) and document and isinstance(document[0], Mapping):
        return USAGE if "metric" in document[0] else None
    if not isinstance(document, Mapping):
        return None
    keys = [key for key, value in document.items() if key != "pods" or isinstance(value, list)]
    return form_of_keys(keys, str(document.get("kind", "")))


def _json(text: str) -> object:
    try:
        found: object = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None
    return found


def refuse_other_form(form: FileForm | None, source: str, own: Collection[FileForm]) -> None:
    """Raise BadInput with the command that takes the file, unless its form is one of these or not known."""
    if form is not None and form not in own:
        raise BadInput(f"{source}: this looks like {form.name}: use `{form.command} {source}{form.more}`")
