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


def _of(name: str) -> Shape:
    """Return the schema of a struct of this package, imported on demand."""
    return definition.json_schema(resolve_name(f"equipoise.cli.{name}"))


_DOCUMENTS: dict[str, tuple[str, Callable[[], Shape]]] = {
    "crds-apply": ("What `equipoise crds apply -o json` prints", partial(_of, "manifests:InstallReport")),
    "decision": ("One decision of a plan", partial(_of, "documents:DecisionDocument")),
    "doctor": ("What `equipoise doctor -o json` prints", partial(_of, "checks:CheckReport")),
    "forecast": ("What `equipoise forecast -o json` prints", partial(_of, "documents:ForecastDocument")),
    "forecast-backtest": (
        "What `equipoise forecast --backtest SPAN -o json` prints",
        partial(_of, "documents:Backtest"),
    ),
    "plan": ("What `equipoise BALANCER plan -o json` prints", partial(_of, "documents:PlanDocument")),
    "pools-answer": (
        "What `equipoise pools allocate|release|drain|register|... -o json` prints",
        partial(_of, "pools_output:WriterReport"),
    ),
    "pools-config": (
        "What `equipoise pools config get|set -o json` prints, and `set --from` reads",
        partial(_of, "pools_output:PoolsConfig"),
    ),
    "pools-fsck": ("What `equipoise pools fsck -o json` prints", partial(_of, "pools_output:FsckReport")),
    "pools-openapi": ("The OpenAPI document of `equipoise pools serve`", operations.openapi),
    "pools-status": (
        "What `equipoise pools status -o json` prints",
        lambda: definition.json_schema(operations.PoolsStatus),
    ),
    "proportional-plan": (
        "What `equipoise proportional plan -o json` prints",
        partial(_of, "documents:ProportionalPlan"),
    ),
    "proportional-simulation": (
        "What `equipoise proportional simulate -o json` prints",
        partial(_of, "proportional_study:StudyReport"),
    ),
    "qos-plan": ("What `equipoise qos plan -o json` prints", partial(_of, "documents:QosPlan")),
    "qos-plan-file": ("What `equipoise qos plan --from FILE` reads", partial(_of, "documents:QosPlanFile")),
    "recommendation-apply": (
        "What `equipoise recommendation apply -o json` prints",
        partial(_of, "documents:AppliedPlan"),
    ),
    "recommendation-plan": (
        "What `equipoise recommendation plan -o json` prints",
        partial(_of, "documents:RecommendationPlan"),
    ),
    "recommendation-simulation": (
        "What `equipoise recommendation simulate -o json` prints",
        partial(_of, "recommendation_replay:ReplayReport"),
    ),
    "rotation-plan-file": ("What `equipoise rotation plan --from FILE` reads", _plan_file),
    "validate": ("What `equipoise validate -o json` prints", partial(_of, "manifests:ValidationReport")),
}
_MANIFESTS: dict[str, tuple[str, Callable[[], Shape]]] = {
    kind.name.lower(): (
        f"{'An' if kind.name[0] == 'A' else 'A'} {kind.name} manifest",
        partial(_manifest, kind),
    )
    for kind in KINDS
}
SCHEMAS: Mapping[str, tuple[str, Callable[[], Shape]]] = _DOCUMENTS | _MANIFESTS
"""The title and the function of each schema."""


def json_schema(name: str) -> Shape:
    assert len(SCHEMAS) == len(_DOCUMENTS) + len(_MANIFESTS), "a document is named like a kind"
    title, make = SCHEMAS[name]
    shape = make()
    return shape if "openapi" in shape else {"$schema": DIALECT, "title": title, **shape}
