"""The HTTP operations of the allocator: request fields, answers, and the OpenAPI document."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from starlette.status import (
    HTTP_200_OK,
    HTTP_400_BAD_REQUEST,
    HTTP_404_NOT_FOUND,
    HTTP_409_CONFLICT,
    HTTP_503_SERVICE_UNAVAILABLE,
)

from equipoise import __version__
from equipoise.adapters.redis import RedisPools
from equipoise.core.pools import LENGTH_MAX, NAME, PoolAnswer, PoolCode
from equipoise.crd.definition import json_schema
from equipoise.pools.policy import TierType
from equipoise.runtime.redis import call_id, pod_name


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may say; which of it is needed depends on the operation."""

    call: str = ""
    pod: str = ""
    tier: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API."""

    name: str
    summary: str
    needs: str
    """The required field."""
    takes: tuple[str, ...]
    ask: Callable[[RedisPools, Question], PoolAnswer]


OPERATIONS = (
    Operation(
        "allocate",
        "Give a free pod to a call. The same call gets the same pod again.",
        "call",
        ("tier",),
        lambda pools, question: pools.allocate(question.call, question.tier),
    ),
    Operation(
        "release",
        "End a call; its pod is free again. A call that has ended already is no error.",
        "call",
        ("pod",),
        lambda pools, question: pools.release(question.call, question.pod),
    ),
    Operation(
        "heartbeat",
        "Say that a call goes on, so that its lease does not end.",
        "call",
        (),
        lambda pools, question: pools.heartbeat(question.call),
    ),
    Operation(
        "drain",
        "Give a pod no more calls; those it has go on.",
        "pod",
        ("uid",),
        lambda pools, question: pools.drain(question.pod, question.uid),
    ),
    Operation(
        "undrain",
        "Give a drained pod calls again.",
        "pod",
        ("uid",),
        lambda pools, question: pools.undrain(question.pod, question.uid),
    ),
)
STATUS: dict[PoolCode, int] = {
    PoolCode.NONE_FREE: HTTP_409_CONFLICT,
    PoolCode.CALL_TAKEN: HTTP_409_CONFLICT,
    PoolCode.NOT_OWNER: HTTP_409_CONFLICT,
    PoolCode.LEASE_LOST: HTTP_409_CONFLICT,
    PoolCode.OTHER_UID: HTTP_409_CONFLICT,
    PoolCode.MERCHANT: HTTP_409_CONFLICT,
    PoolCode.UNSOUND: HTTP_409_CONFLICT,
    PoolCode.NO_TIER: HTTP_400_BAD_REQUEST,
    PoolCode.NOT_THERE: HTTP_404_NOT_FOUND,
    PoolCode.CONFIG_CHANGED: HTTP_503_SERVICE_UNAVAILABLE,
}
"""The HTTP status of negative answers; every other answer is 200."""
_QUESTIONS = msgspec.json.Decoder(Question)


def read_question(operation: Operation, body: bytes) -> Question:
    """Return the decoded body of a request; raises ValueError or BadInput, which name the field."""
    question = _QUESTIONS.decode(body)
    fields = {name for name in Question.__struct_fields__ if getattr(question, name)}
    if operation.needs not in fields:
        raise ValueError(f"{operation.needs}: expected a text")
    unexpected = sorted(fields - {operation.needs, *operation.takes})
    if unexpected:
        raise ValueError(
            f"{unexpected[0]}: {operation.name} takes {', '.join((operation.needs, *operation.takes))}"
        )
    if question.call:
        call_id(question.call, "call")
    for name in ("pod", "tier"):
        if getattr(question, name):
            pod_name(getattr(question, name), name)
    return question


def status_of(operation: Operation, code: PoolCode) -> int:
    if operation.name == "heartbeat" and code is PoolCode.UNKNOWN_CALL:
        return HTTP_404_NOT_FOUND
    return STATUS.get(code, HTTP_200_OK)


def answer_document(answer: PoolAnswer, status: int, sentence: str, call: str) -> dict[str, Any]:
    return {
        "outcome": "yes" if status == HTTP_200_OK else "no",
        "result": answer.code.value,
        "call": call,
        "pod": answer.pod,
        "tier": answer.tier,
        "detail": answer.detail,
        "sentence": sentence,
    }


Shape = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=0)]


class TierPod(msgspec.Struct, rename="camel"):
    """One pod of a tier."""

    pod: str
    state: Literal["idle", "busy", "draining"]
    calls: Count
    pending_tier: str | msgspec.UnsetType = msgspec.UNSET


class TierStatus(msgspec.Struct, rename="camel"):
    """One tier and its pods."""

    tier: str
    type: TierType
    in_chain: bool
    target: Count
    assigned: Count
    available: Count
    busy: Count
    draining: Count
    calls: Count
    diff: int
    pods: list[TierPod]


class PoolsStatus(msgspec.Struct, rename="camel"):
    """Every tier; `pools.observe.status_document` makes it."""

    prefix: str
    config_version: str
    epoch: int | None
    tiers: list[TierStatus]
    warnings: list[str]


class YesAnswer(msgspec.Struct):
    """What was done."""

    outcome: Literal["yes"]
    result: PoolCode
    call: str
    pod: str
    tier: str
    detail: str
    sentence: str


class NoAnswer(msgspec.Struct):
    """What was not done, or may have been."""

    outcome: Literal["no", "unknown"]
    result: str
    sentence: str
    call: str | msgspec.UnsetType = msgspec.UNSET
    pod: str | msgspec.UnsetType = msgspec.UNSET
    tier: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET


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
            "schemas": {
                "Answer": json_schema(YesAnswer),
                "Refusal": json_schema(NoAnswer),
                "Status": json_schema(PoolsStatus),
            },
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
