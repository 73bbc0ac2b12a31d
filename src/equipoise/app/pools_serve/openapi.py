"""What can be asked over HTTP, as an OpenAPI document."""

from typing import Any

from equipoise import __version__
from equipoise.app import shapes_pools
from equipoise.app.pools_serve.operations import OPERATIONS, Operation
from equipoise.model.names import LENGTH_MAX, NAME

Shape = dict[str, Any]
FIELDS: dict[str, Shape] = {
    "call": {
        "type": "string",
        "minLength": 1,
        "maxLength": 256,
        "description": "Names the call. The same call is the same request, however often it is sent.",
    },
    "pod": {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": LENGTH_MAX},
    "tier": {"type": "string", "description": "Only from this tier; by default the chain."},
    "uid": {"type": "string", "description": "Only this incarnation of the pod."},
}
NO = {
    "400": "What was sent makes no sense; the sentence names the field. Nothing happened.",
    "401": "A bearer token is missing or wrong. Nothing happened.",
    "403": "Without tokens: it may be the request of a web page of another origin. Nothing happened.",
    "404": "There is no such pod or call. Nothing happened.",
    "408": "The body did not come in time. Nothing happened.",
    "409": "It was refused as things stand: no pod is free, or it is somebody else's. Nothing happened.",
    "413": "The body is too long. Nothing happened.",
    "415": "Without tokens: the body is not said to be JSON. Nothing happened.",
    "503": "With the outcome `no` nothing happened. With `unknown` nobody knows: ask for the same again, "
    "which is safe, and tells.",
}


def openapi() -> Shape:
    """Give the document."""
    paths = {f"/v1/{operation.name}": {"post": _operation(operation)} for operation in OPERATIONS}
    status = {"operationId": "status", "summary": "Every tier: its target, its pods and their calls."}
    answers = {
        "200": _response("The tiers.", "Status"),
        **{code: _no(code) for code in ("401", "403", "503")},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise pools",
            "version": __version__,
            "description": "Gives pods of tiers to calls. Every request may be sent again.",
        },
        "security": [{"token": []}],
        "paths": paths | {"/v1/status": {"get": status | {"responses": answers}}},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Answer": _answer(), "Refusal": _refusal(), "Status": shapes_pools.status()},
        },
    }


def _operation(operation: Operation) -> Shape:
    names = (operation.needs, *operation.takes)
    body = {
        "type": "object",
        "required": [operation.needs],
        "properties": {name: FIELDS[name] for name in names},
        "additionalProperties": False,
    }
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _response("It is so.", "Answer")} | {code: _no(code) for code in NO},
    }


def _response(description: str, schema: str) -> Shape:
    ref = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": ref}}}


def _no(code: str) -> Shape:
    return _response(NO[code], "Refusal")


def _answer() -> Shape:
    fields = dict.fromkeys(("call", "pod", "tier", "detail", "sentence"), shapes_pools.TEXT)
    return {
        "type": "object",
        "required": ["outcome", "result", *fields],
        "properties": {"outcome": {"const": "yes"}, "result": shapes_pools.CODE} | fields,
    }


def _refusal() -> Shape:
    fields = dict.fromkeys(("call", "pod", "tier", "detail"), shapes_pools.TEXT)
    known = {"outcome": {"enum": ["no", "unknown"]}, "result": shapes_pools.TEXT}
    return {
        "type": "object",
        "required": ["outcome", "result", "sentence"],
        "properties": known | {"sentence": shapes_pools.TEXT} | fields,
    }
