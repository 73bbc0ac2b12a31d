"""A policy as people write it: shorthand accepted, judged, and given back in canonical form."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from equipoise.model.errors import DECODE_ERRORS, BadInput
from equipoise.model.validation import explain
from equipoise.proportional.normalise import Misplaced, Origins, normalised, written_path
from equipoise.proportional.policy import ScalingPolicySpec

API_VERSION = "scalingpolicy.kope.io/v1alpha1"
KIND = "ScalingPolicy"


class WrittenScalingPolicySpec(ScalingPolicySpec):
    """Whose resources follow the cluster, and how."""

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, document: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """Judge the canonical form, and speak of what was written."""
        del handler  # it would judge the shorthand
        try:
            plain, origins = normalised(_without_nulls(document))
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
    """A policy in a file, with the namespace that it says it lives in."""

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
        said = explain(error)
        where = f"{at.removesuffix('.')}: " if said.startswith("document: ") and at else at
        raise BadInput(f"{source}: {where}{said.removeprefix('document: ') if at else said}") from error
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


def _without_nulls(value: Any) -> Any:
    """Take a null for a key that is not there, as Kubernetes does."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _refusal(document: Any, wrong: Misplaced) -> ValidationError:
    detail = InitErrorDetails(type="value_error", loc=wrong.path, input=document, ctx={"error": wrong})
    return ValidationError.from_exception_data(KIND, [detail])


def _in_written_words(error: ValidationError, origins: Origins) -> ValidationError:
    """Name each bad field by where it was written."""
    details = []
    for detail in error.errors(include_url=False):
        place = detail["loc"][:-1] if detail["loc"][-1:] == ("[key]",) else detail["loc"]
        details.append(
            InitErrorDetails(
                type=detail["type"],
                loc=written_path(place, origins),
                input=detail["input"],
                ctx=detail.get("ctx", {}),
            )
        )
    return ValidationError.from_exception_data(error.title, details)
