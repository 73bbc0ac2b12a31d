"""From models to structural schemas, and the checks that need no server."""

import copy
from collections.abc import Callable
from typing import Annotated, Any, Optional

import pytest
from pydantic import BaseModel, Field

from equipoise.cli.manifests import KINDS
from equipoise.crd.definition import DefinedKind, definition, structural
from equipoise.crd.fields import Span
from equipoise.rotation.policy import ROTATION_POLICY
from tests.support.crd.structure import violations

Change = Callable[[dict[str, Any]], object]


class _Inner(BaseModel):
    size: int = Field(ge=1)


class _Sample(BaseModel):
    """What it is."""

    share: float = Field(0.5, gt=0, lt=1, description="How much.")
    inner: _Inner | None = None
    items: list[_Inner] = Field([], max_length=3)
    span: Annotated[float, Span(1)] = 90


def test_a_model_becomes_one_tree_without_references() -> None:
    """Exclusive bounds are flags, optional means absent, empty defaults are left out, spans have units."""
    inner = {
        "type": "object",
        "required": ["size"],
        "properties": {"size": {"type": "integer", "minimum": 1}},
    }
    schema = structural(_Sample)
    span = schema["properties"].pop("span")
    assert schema == {
        "description": "What it is.",
        "type": "object",
        "properties": {
            "share": {
                "description": "How much.",
                "type": "number",
                "default": 0.5,
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1,
                "exclusiveMaximum": True,
            },
            "inner": inner,
            "items": {"type": "array", "maxItems": 3, "items": inner},
        },
    }
    assert (span["default"], span["x-kubernetes-int-or-string"]) == ("1m30s", True)


class _Tree(BaseModel):
    left: Optional["_Tree"] = None


class _Choice(BaseModel):
    value: int | str


class _Anything(BaseModel):
    value: dict[str, Any]


class _Pair(BaseModel):
    value: tuple[int, str]


@pytest.mark.parametrize("model", [_Tree, _Choice, _Anything, _Pair], ids=lambda model: model.__name__)
def test_a_model_without_a_structural_form_is_an_error(model: type[BaseModel]) -> None:
    """Found when it is written, not on somebody's cluster."""
    with pytest.raises(TypeError, match=rf"^{model.__name__}\.(left|value).*: "):
        structural(model)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_our_definitions_are_structural_and_bounded(kind: DefinedKind) -> None:
    """Nothing that the API server would complain about."""
    assert violations(definition(kind)) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_is_described(kind: DefinedKind) -> None:
    """`kubectl explain` has something to say."""

    def silent(node: dict[str, Any], path: str) -> list[str]:
        found = [] if "description" in node else [path]
        for name, part in node.get("properties", {}).items():
            found += silent(part, f"{path}.{name}")
        return found + (silent(node["items"], f"{path}[]") if node.get("items", {}).get("properties") else [])

    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    given = {f".{name}" for name in ("apiVersion", "kind", "metadata")}
    assert set(silent(schema, "")) == given


def _schema(document: dict[str, Any]) -> dict[str, Any]:
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert isinstance(schema, dict)
    return schema


def _spec(document: dict[str, Any]) -> dict[str, Any]:
    properties = _schema(document)["properties"]["spec"]["properties"]
    assert isinstance(properties, dict)
    return properties


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["metadata"].update(name="other"), "expected rotationpolicies.equipoise.dev"),
        (lambda d: _schema(d).update(type="array"), "the whole to be an object"),
        (lambda d: _spec(d)["topK"].pop("type"), "expected one type"),
        (lambda d: _spec(d)["topK"].update(type=["integer", "null"]), "expected one type"),
        (lambda d: _spec(d)["topK"].update({"$ref": "#/x"}), "$ref is forbidden"),
        (lambda d: _spec(d)["topK"].update(default=0), "the default is refused"),
        (lambda d: _spec(d)["kafkaLag"].update(default={"on": 1}), "the default is refused"),
        (lambda d: _spec(d)["cooldown"].update(type="string"), "int-or-string has no type"),
        (lambda d: _spec(d)["windows"].pop("maxItems"), "a list needs maxItems"),
        (lambda d: _spec(d)["windows"].pop("items"), "a list needs items"),
        (lambda d: _spec(d)["windows"].update(uniqueItems=True), "uniqueItems is forbidden"),
        (lambda d: _spec(d)["hpaPrefix"].pop("maxLength"), "a text needs maxLength"),
        (lambda d: _spec(d)["kafkaLag"].update(additionalProperties=False), "exclude each other"),
        (lambda d: _spec(d)["topK"].update(anyOf=[{"type": "integer"}]), "type is forbidden inside anyOf"),
        (lambda d: _spec(d)["kafkaLag"].update(oneOf=[{"properties": {"x": {}}}]), "x is said inside oneOf"),
        (
            lambda d: _schema(d)["properties"]["status"]["properties"]["conditions"]["items"][
                "required"
            ].remove("type"),
            "the key type must be a required property",
        ),
        (
            lambda d: d["spec"]["versions"][0]["additionalPrinterColumns"][0].update(jsonPath="spec.mode"),
            "begins with a dot",
        ),
    ],
)
def test_a_broken_definition_is_caught_without_a_server(change: Change, message: str) -> None:
    """Each mistake by its own sentence."""
    broken = copy.deepcopy(definition(ROTATION_POLICY))
    change(broken)
    assert any(message in problem.message for problem in violations(broken))
