"""The shapes of the documents that we read and write, as JSON Schema."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from equipoise.cli import shapes_proportional, shapes_qos, shapes_recommendation
from equipoise.cli.manifests import KINDS
from equipoise.core.quantity import parse_cores, parse_seconds
from equipoise.core.reason import Code
from equipoise.crd.definition import Kind, schema_of
from equipoise.rotation.plan_file import PlanFile
from equipoise.rotation.policy import RotationPolicy
from equipoise.runtime.allocator import operations
from equipoise.runtime.allocator.operations import openapi

Shape = dict[str, Any]
TEXT: Shape = {"type": "string"}
LIST_OF_TEXT: Shape = {"type": "array", "items": TEXT}


def _record(fields: Mapping[str, Shape], *, optional: tuple[str, ...] = ()) -> Shape:
    """Return an object with these fields. More may be added one day, so more are allowed."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "required": required, "properties": dict(fields)}


def _list_of(shape: Shape) -> Shape:
    return {"type": "array", "items": shape}


def _decision() -> Shape:
    code = {"type": "string", "enum": [code.value for code in Code]}
    action = _record(
        {"kind": TEXT, "pod": TEXT, "namespace": TEXT, "uid": TEXT}, optional=("pod", "namespace", "uid")
    )
    held = _record({"kind": TEXT, "reason": code, "pod": TEXT}, optional=("pod",))
    return _record(
        {
            "subject": TEXT,
            "reason": code,
            "sentence": TEXT,
            "actions": _list_of(action),
            "held": _list_of(held),
            "numbers": {"type": "object"},
        }
    )


def _plan() -> Shape:
    return _record({"balancer": TEXT, "decisions": _list_of(_decision())})


def _doctor() -> Shape:
    status = {"type": "string", "enum": ["ok", "warn", "fail"]}
    return _record(
        {"checks": _list_of(_record({"name": TEXT, "status": status, "sentence": TEXT, "remedy": TEXT}))}
    )


def _validate() -> Shape:
    finding = _record(
        {
            "file": TEXT,
            "document": {"type": "integer", "minimum": 1},
            "kind": TEXT,
            "name": TEXT,
            "path": TEXT,
            "message": TEXT,
        }
    )
    return _record(
        {
            "valid": {"type": "boolean"},
            "findings": _list_of(finding),
            "checked": {"type": "integer", "minimum": 0},
            "notOurs": LIST_OF_TEXT,
        }
    )


def _crds_apply() -> Shape:
    result = {"type": "string", "enum": ["Created", "Updated", "Unchanged", "Foreign", "Failed"]}
    return _record(
        {
            "dryRun": {"type": "boolean"},
            "definitions": _list_of(_record({"name": TEXT, "result": result, "sentence": TEXT})),
        }
    )


class _AsWritten(GenerateJsonSchema):
    """Says what a reader accepts before it becomes a number: quantities and spans are text as well."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        if schema["function"]["function"] in {parse_cores, parse_seconds}:
            return {"anyOf": [{"type": "number", "minimum": 0}, TEXT]}
        return super().function_before_schema(schema)


def _plan_file() -> Shape:
    shape = PlanFile.model_json_schema(schema_generator=_AsWritten)
    policy = RotationPolicy.model_json_schema(schema_generator=_AsWritten)
    shape["$defs"] |= policy.pop("$defs")
    shape["properties"]["policy"] = _json_schema(policy)
    shape["$defs"] = {name: _json_schema(part) for name, part in shape["$defs"].items()}
    del shape["title"]
    return shape


def _manifest(kind: Kind) -> Shape:
    """Return the schema of a whole manifest, for editors; rules across fields stay with `validate`."""
    shape: Shape = _json_schema(schema_of(kind))
    shape["required"] = ["apiVersion", "kind", "metadata", *shape.get("required", ())]
    shape["properties"] |= {
        "apiVersion": {"const": kind.api_version},
        "kind": {"const": kind.name},
        "metadata": {"type": "object"},
    }
    return shape


def _json_schema(node: Any) -> Any:
    """Turn the API server's words into those of JSON Schema."""
    if isinstance(node, list):
        return [_json_schema(part) for part in node]
    if not isinstance(node, dict):
        return node
    shape = {
        key: {name: _json_schema(part) for name, part in value.items()}
        if key == "properties"
        else value
        if key in {"default", "enum"}
        else _json_schema(value)
        for key, value in node.items()
        if not key.startswith("x-kubernetes-")
    }
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if shape.get(flag) is True:
            shape[flag] = shape.pop(bound)
    if node.get("x-kubernetes-int-or-string"):
        shape["type"] = ["integer", "string"]
    if "properties" in node and "additionalProperties" not in node:
        shape["additionalProperties"] = False
    return shape


SHAPES: Mapping[str, Callable[[], Shape]] = {
    "crds-apply": _crds_apply,
    "decision": _decision,
    "doctor": _doctor,
    "forecast": shapes_recommendation.forecast,
    "forecast-backtest": shapes_recommendation.backtest,
    "plan": _plan,
    "pools-answer": operations.answer,
    "pools-config": operations.config,
    "pools-fsck": operations.fsck,
    "pools-openapi": openapi,
    "pools-status": operations.status_schema,
    "proportional-plan": shapes_proportional.plan,
    "proportional-simulation": shapes_proportional.simulation,
    "qos-plan": shapes_qos.plan,
    "qos-plan-file": shapes_qos.plan_file,
    "recommendation-apply": shapes_recommendation.applied_plan,
    "recommendation-plan": shapes_recommendation.advice_plan,
    "recommendation-simulation": shapes_recommendation.simulation,
    "rotation-plan-file": _plan_file,
    "validate": _validate,
} | {kind.name.lower(): (lambda kind=kind: _manifest(kind)) for kind in KINDS}
"""Every shape by its name."""
