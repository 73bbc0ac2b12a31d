"""`equipoise schema`: the JSON Schema of every document that we read or write.

What is printed is a struct where it can be one, and its schema is made from it (`docs/decisions/0017`).
Manifests and the file of a rotation are pydantic models, whose schemas pydantic makes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from equipoise.cli.manifests import KINDS
from equipoise.core.quantity import parse_cores, parse_seconds
from equipoise.crd import definition
from equipoise.crd.definition import DefinedKind, schema_of
from equipoise.rotation.plan_file import PlanFile
from equipoise.rotation.policy import RotationPolicy
from equipoise.runtime.allocator import operations

Shape = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _AsWritten(GenerateJsonSchema):
    """Says what a reader accepts before it becomes a number: quantities and spans are text as well."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        if schema["function"]["function"] in {parse_cores, parse_seconds}:
            return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
        return super().function_before_schema(schema)


def _plan_file() -> Shape:
    shape = PlanFile.model_json_schema(schema_generator=_AsWritten)
    policy = RotationPolicy.model_json_schema(schema_generator=_AsWritten)
    shape["$defs"] |= policy.pop("$defs")
    shape["properties"]["policy"] = _json_schema(policy)
    shape["$defs"] = {name: _json_schema(part) for name, part in shape["$defs"].items()}
    del shape["title"]
    return shape


def _manifest(kind: DefinedKind) -> Shape:
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
    """Translate a structural schema of the API server into JSON Schema."""
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


_PRINTED = {
    "crds-apply": ("crds apply", "cli.manifests:InstallReport"),
    "doctor": ("doctor", "cli.checks:CheckReport"),
    "forecast": ("forecast", "cli.documents:ForecastDocument"),
    "forecast-backtest": ("forecast --backtest SPAN", "cli.documents:Backtest"),
    "plan": ("BALANCER plan", "cli.documents:PlanDocument"),
    "pools-answer": ("pools allocate|release|drain|register|...", "cli.pools_output:WriterReport"),
    "pools-fsck": ("pools fsck", "cli.pools_output:FsckReport"),
    "pools-status": ("pools status", "runtime.allocator.operations:PoolsStatus"),
    "proportional-plan": ("proportional plan", "cli.documents:ProportionalPlan"),
    "proportional-simulation": ("proportional simulate", "cli.proportional_study:StudyReport"),
    "qos-plan": ("qos plan", "cli.documents:QosPlan"),
    "recommendation-apply": ("recommendation apply", "cli.recommendation_documents:AppliedPlan"),
    "recommendation-plan": ("recommendation plan", "cli.recommendation_output:AdvicePlan"),
    "recommendation-simulation": ("recommendation simulate", "cli.recommendation_replay:ReplayReport"),
    "validate": ("validate", "cli.manifests:ValidationReport"),
}
"""The commands that print a document, and the struct that its schema is made from, imported on demand."""
Source = str | Callable[[], Shape]
_DOCUMENTS: dict[str, tuple[str, Source]] = {
    **{name: (f"What `equipoise {command} -o json` prints", of) for name, (command, of) in _PRINTED.items()},
    "decision": ("One decision of a plan", "cli.documents:DecisionDocument"),
    "pools-config": (
        "What `equipoise pools config get|set -o json` prints, and `set --from` reads",
        "cli.pools_output:PoolsConfig",
    ),
    "pools-openapi": ("The OpenAPI document of `equipoise pools serve`", operations.openapi),
    "qos-plan-file": ("What `equipoise qos plan --from FILE` reads", "cli.documents:QosPlanFile"),
    "rotation-plan-file": ("What `equipoise rotation plan --from FILE` reads", _plan_file),
}
_MANIFESTS: dict[str, tuple[str, Source]] = {
    kind.name.lower(): (
        f"{'An' if kind.name[0] == 'A' else 'A'} {kind.name} manifest",
        partial(_manifest, kind),
    )
    for kind in KINDS
}
SCHEMAS: Mapping[str, tuple[str, Source]] = _DOCUMENTS | _MANIFESTS
"""The title of each schema, and the struct or the function that makes it."""


def json_schema(name: str) -> Shape:
    assert len(SCHEMAS) == len(_DOCUMENTS) + len(_MANIFESTS), "a document is named like a kind"
    title, source = SCHEMAS[name]
    if isinstance(source, str):
        shape = definition.json_schema(resolve_name(f"equipoise.{source}"))
    else:
        shape = source()
    return shape if "openapi" in shape else {"$schema": DIALECT, "title": title, **shape}
