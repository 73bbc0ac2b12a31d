"""What a user writes: a `ScalingPolicy`, whose shorthand becomes the canonical form, and series of sizes.

container: {...}             containers: [{...}]
requests: / limits:          resources: {requests: [...], limits: [...]}
functions: {...} or [...]    one rule for each function
a mapping                    where the canonical form has a list of one

Each part's path in the document is stored, so that an error names the field that the user wrote. A series of
sizes is CSV with a column `timestamp` and one for each input.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from fractions import Fraction
from typing import Any, NamedTuple, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from equipoise.core.documents import explain, without_nulls
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.file_forms import SCALING, form_of_document, refuse_other_form
from equipoise.core.quantity import parse_moment
from equipoise.proportional.decide import SizeRow, moment_of, read_inputs
from equipoise.proportional.policy import SECTIONS, ScalingPolicySpec
from equipoise.proportional.smoothing import INPUTS

Path = tuple[str | int, ...]
Origins = dict[Path, Path]
"""The path in the document for canonical paths that differ from it."""


class Misplaced(ValueError):  # noqa: N818 - reads as a fact
    """A part at a path where it is not allowed."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def normalised(document: Any) -> tuple[Any, Origins]:
    """Return a spec in canonical form, and the paths of its parts; an invalid part stays unchanged."""
    if not isinstance(document, Mapping):
        return document, {}
    spec, origins = dict(document), Origins()
    if "container" in spec and "containers" in spec:
        raise Misplaced(("container",), "expected container or containers, got both")
    written = "container" if "container" in spec else "containers"
    spec.pop("container", None)
    if written in document:
        spec["containers"] = [
            _container(part, ("containers", number), path, origins)
            for number, (part, path) in enumerate(_listed(document[written], (written,)))
        ]
    return spec, origins


def written_path(path: Path, origins: Origins) -> Path:
    """Return the path in the document for a path of the canonical form."""
    for length in range(len(path), 0, -1):
        if (found := origins.get(path[:length])) is not None:
            return (*found, *path[length:])
    return path


def _listed(value: Any, at: Path) -> Iterator[tuple[Any, Path]]:
    """Yield the items with where each was written; a mapping is a list of one."""
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield item, (*at, number)
    elif isinstance(value, Mapping):
        yield value, at
    else:
        raise Misplaced(at, f"expected a list, or a mapping for a list of one, got {value!r:.60}")


def _container(part: Any, at: Path, written: Path, origins: Origins) -> Any:
    origins[at] = written
    if not isinstance(part, Mapping):
        return part
    container = dict(part)
    resources = container.get("resources", {})
    if not isinstance(resources, Mapping):
        return container
    resources = dict(resources)
    for section in SECTIONS:
        path = (*written, "resources", section)
        if section in container:
            if section in resources:
                raise Misplaced((*written, section), f"expected {section} or resources.{section}, got both")
            resources[section], path = container.pop(section), (*written, section)
        if section in resources:
            here = (*at, "resources", section)
            origins[here] = path
            resources[section] = list(_rules(resources[section], here, path, origins))
    if resources or "resources" in container:
        container["resources"] = resources
    if "quantization" in container:
        here = (*at, "quantization")
        container["quantization"] = [
            _segmented(item, (*here, number), path, origins)
            for number, (item, path) in enumerate(
                _listed(container["quantization"], (*written, "quantization"))
            )
        ]
    return container


def _rules(value: Any, at: Path, written: Path, origins: Origins) -> Iterator[Any]:
    """Yield the rules; one with several functions becomes several, of which the first has the bounds."""
    number = 0
    for item, path in _listed(value, written):
        origins[*at, number] = path
        if not isinstance(item, Mapping) or ("functions" not in item and "function" not in item):
            yield item
            number += 1
            continue
        rule = dict(item)
        if "functions" in rule and "function" in rule:
            raise Misplaced((*path, "functions"), "expected function or functions, got both")
        name = "functions" if "functions" in rule else "function"
        functions = rule.pop(name)
        if name == "function" and not isinstance(functions, Mapping):
            raise Misplaced((*path, name), f"expected a mapping, got {functions!r:.60}")
        for function, where in _listed(functions, (*path, name)):
            here = (*at, number)
            origins[here] = path
            yield rule | {"function": _segmented(function, (*here, "function"), where, origins)}
            rule = {key: part for key, part in rule.items() if key not in {"min", "max"}}
            number += 1


def _segmented(part: Any, at: Path, written: Path, origins: Origins) -> Any:
    origins[at] = written
    if not isinstance(part, Mapping) or "segments" not in part:
        return part
    found = list(_listed(part["segments"], (*written, "segments")))
    for number, (_, path) in enumerate(found):
        origins[*at, "segments", number] = path
    return dict(part) | {"segments": [item for item, _ in found]}


SECONDS = re.compile(r"[0-9]{1,11}(\.[0-9]{1,9})?")
TIMESTAMP = "timestamp"
LINES_MAX = 2_000_000
API_VERSION = "scalingpolicy.kope.io/v1alpha1"
KIND = "ScalingPolicy"


class WrittenScalingPolicySpec(ScalingPolicySpec):
    """Whose resources follow the cluster, and how."""

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, document: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """Validate the canonical form; errors name the fields that the user wrote."""
        del handler  # it would judge the shorthand
        try:
            plain, origins = normalised(without_nulls(document))
        except Misplaced as wrong:
            raise _refusal(document, wrong) from wrong
        try:
            if info.mode == "json":  # a manifest, read as the API server reads it
                return ScalingPolicySpec.model_validate_json(
                    json.dumps(plain), strict=True, by_alias=True, by_name=False
                )
            return ScalingPolicySpec.model_validate(plain, by_alias=True, by_name=False)
        except ValidationError as error:
            raise _in_written_words(error, origins) from error


class PolicyFile(NamedTuple):
    """A policy in a file, with its namespace and name where it has them."""

    spec: ScalingPolicySpec
    namespace: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        """How decisions name the workload."""
        target = self.spec.target_ref.name
        return f"{self.namespace}/{target}" if self.namespace else target


def read_spec(document: Any, source: str, at: str = "") -> ScalingPolicySpec:
    """Read a spec from a file: numbers may have fractions; the first bad field is named."""
    try:
        found: ScalingPolicySpec = WrittenScalingPolicySpec.model_validate(document)
    except DECODE_ERRORS as error:
        problem = explain(error)
        where = f"{at.removesuffix('.')}: " if problem.startswith("document: ") and at else at
        raise BadInput(f"{source}: {where}{problem.removeprefix('document: ') if at else problem}") from error
    return found


def read_policy_file(document: Any, source: str) -> PolicyFile:
    """Read a whole `ScalingPolicy`, or only its `spec`."""
    refuse_other_form(form_of_document(document), source, (SCALING,))
    if not isinstance(document, Mapping):
        raise BadInput(f"{source}: expected a mapping: a ScalingPolicy, or its spec")
    if not {"apiVersion", "kind", "spec", "metadata"} & set(document):
        return PolicyFile(read_spec(document, source))
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != expected:
            raise BadInput(f"{source}: {key}: expected {expected}, got {document.get(key)!r}")
    unknown = [key for key in document if key not in {"apiVersion", "kind", "metadata", "spec", "status"}]
    if unknown:
        raise BadInput(f"{source}: {unknown[0]}: unknown key")
    if document.get("spec") is None:
        raise BadInput(f"{source}: spec: missing")
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise BadInput(f"{source}: metadata: expected a mapping")
    names = [str(metadata.get(key) or "") for key in ("namespace", "name")]
    return PolicyFile(read_spec(document["spec"], source, "spec."), *names)


def _refusal(document: Any, wrong: Misplaced) -> ValidationError:
    detail = InitErrorDetails(type="value_error", loc=wrong.path, input=document, ctx={"error": wrong})
    return ValidationError.from_exception_data(KIND, [detail])


def _in_written_words(error: ValidationError, origins: Origins) -> ValidationError:
    """Return the error with the path in the document of each invalid field."""
    details = []
    for detail in error.errors(include_url=False):
        place = detail["loc"][:-1] if detail["loc"][-1:] == ("[key]",) else detail["loc"]
        loc, ctx = written_path(place, origins), detail.get("ctx", {})
        details.append(InitErrorDetails(type=detail["type"], loc=loc, input=detail["input"], ctx=ctx))
    return ValidationError.from_exception_data(error.title, details)


def read_observations(
    text: str, source: str, needed: Iterable[str], constant: Mapping[str, str] | None = None
) -> list[SizeRow]:
    """Return all rows of the file; an input without a column must be one of the constants."""
    lines = csv.reader(text.splitlines(), strict=True)
    try:
        names = _header(next(lines, []), source)
        constants = _constants(constant or {}, names, source)
        if missing := sorted(set(needed) - set(names) - set(constants)):
            raise BadInput(
                f"{source}: line 1: expected a column {missing[0]}, which the policy's functions use "
                f"(or --input {missing[0]}=SIZE)"
            )
        rows = list(_rows(lines, names, constants, source))
    except csv.Error as error:
        raise BadInput(f"{source}: line {lines.line_num}: expected CSV: {error}") from error
    if not rows:
        raise BadInput(f"{source}: expected at least one line below the header")
    return rows


def _header(cells: list[str], source: str) -> list[str]:
    names = [TIMESTAMP if cell.strip().lower() == "ts" else cell.strip().lower() for cell in cells]
    allowed = (TIMESTAMP, *INPUTS)
    if unknown := next((name for name in names if name not in allowed), None):
        raise BadInput(f"{source}: line 1: expected columns of {', '.join(allowed)}, got {unknown!r}")
    if TIMESTAMP not in names or len(set(names)) < len(names):
        raise BadInput(f"{source}: line 1: expected {TIMESTAMP} and each column once")
    return names


def _constants(constant: Mapping[str, str], names: list[str], source: str) -> dict[str, int]:
    try:
        constants = read_inputs(constant)
    except ValueError as error:
        raise BadInput(f"--input {error}") from error
    if duplicate := next((name for name in constants if name in names), None):
        raise BadInput(f"--input {duplicate}: expected it once because {source} has a column of that name")
    return constants


def _rows(
    lines: Iterator[list[str]], names: list[str], constants: Mapping[str, int], source: str
) -> Iterator[SizeRow]:
    last = None
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        where = f"{source}: line {number}"
        if number > LINES_MAX:
            raise BadInput(f"{where}: expected at most {LINES_MAX} lines")
        if len(cells) != len(names):
            raise BadInput(f"{where}: expected {len(names)} cells, got {len(cells)}")
        line = dict(zip(names, (cell.strip() for cell in cells), strict=True))
        written = line.pop(TIMESTAMP)
        try:
            at = _moment(written)
            inputs = read_inputs(line)
        except ValueError as error:
            raise BadInput(f"{where}: {error}") from error
        if last is not None and at <= last:
            raise BadInput(f"{where}: {TIMESTAMP}: expected times that grow from line to line, got {written}")
        last = at
        yield SizeRow(_number(written), at, {**inputs, **constants})


def _moment(text: str) -> int:
    if SECONDS.fullmatch(text):
        return moment_of(Fraction(text))
    try:
        return round(parse_moment(text, UTC) * 1000)
    except DECODE_ERRORS:
        message = f"{TIMESTAMP}: expected seconds or a time such as 2026-01-31T08:00:00Z, got {text!r:.60}"
        raise ValueError(message) from None


def _number(text: str) -> int | float | str:
    if not SECONDS.fullmatch(text):
        return text
    return int(text) if "." not in text else float(text)
