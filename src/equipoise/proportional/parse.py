"""The custom resource `ScalingPolicy`, and how its shorthand becomes the canonical form.

container: {...}             containers: [{...}]
requests: / limits:          resources: {requests: [...], limits: [...]}
functions: {...} or [...]    one rule for each function
a mapping                    where the canonical form has a list of one

Each part's path in the document is stored, so that an error names the field that the user wrote.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from equipoise.core.documents import explain, without_nulls
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import Amount, Count, Memory, Moment, SchemaPart, Text, UniqueBy
from equipoise.crd.status import ENTRIES_MAX, PolicyStatus, Reason, Sentence
from equipoise.proportional.policy import SECTIONS, ScalingPolicySpec

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


SlotName = Annotated[
    str,
    Text(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.(requests|limits)\.(cpu|memory)$",
        "a container's resource such as kube-dns.requests.cpu",
        280,
    ),
]
Ratio = Annotated[str, Text(r"^[0-9]{1,9}/[0-9]{1,9}$", "two counts such as 3/5", 19)]


class LastChange(SchemaPart):
    """When a value was last replaced."""

    at: Moment = Field(description="When.")
    before: Amount | None = Field(None, description="What was in force before; absent where unknown.")
    after: Amount = Field(description="What is in force since.")


class ResourceStatus(SchemaPart):
    """One resource of one container."""

    name: SlotName = Field(description="Which one: CONTAINER.requests.cpu.")
    current: Amount | None = Field(None, description="What is in force.")
    target: Amount | None = Field(None, description="What the cluster asked for last.")
    scale_up_below: Amount | None = Field(
        None, alias="scaleUpBelow", description="A value below this is scaled up now."
    )
    scale_down_above: Amount | None = Field(
        None, alias="scaleDownAbove", description="A value above this is scaled down now."
    )
    reason: Reason | None = Field(None, description="Why it was set or is held, as one code.")
    last_change: LastChange | None = Field(None, alias="lastChange", description="When it was last replaced.")


class WindowStatus(SchemaPart):
    """The targets that the smoothing looks at."""

    observations: Count = Field(0, description="How many are kept.")
    since: Moment | None = Field(None, description="When the first target under this policy was seen.")


class ScalingPolicyStatus(PolicyStatus):
    """What came of the policy."""

    resources: Annotated[tuple[ResourceStatus, ...], UniqueBy("name")] = Field(
        (), max_length=ENTRIES_MAX, description="The latest target of each resource, and why it is held."
    )
    window: WindowStatus | None = Field(None, description="The targets that the smoothing looks at.")
    pods_at_target: Ratio | None = Field(
        None, alias="podsAtTarget", description="How many pods have what is in force, of how many."
    )
    message: Sentence = Field("", description="What a change costs: whether it restarts anything.")
    memory: Memory = Field({}, description="What the next decision needs.")


SCALING_POLICY = DefinedKind(
    group="scalingpolicy.kope.io",
    version="v1alpha1",
    name="ScalingPolicy",
    plural="scalingpolicies",
    description="Lets a workload's requests and limits follow the size of the cluster, without flapping.",
    body={"spec": WrittenScalingPolicySpec, "status": ScalingPolicyStatus},
    required=("spec",),
    short_names=("scalpol",),
    columns=(
        Column("Kind", ".spec.scaleTargetRef.kind"),
        Column("Target", ".spec.scaleTargetRef.name"),
        Column("Reason", ".status.lastDecision.reason"),
        Column("Pods", ".status.podsAtTarget", description="Pods that have what is in force."),
        Column("Why", ".status.lastDecision.sentence", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
