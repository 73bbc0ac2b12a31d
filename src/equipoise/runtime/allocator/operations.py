"""The HTTP operations of the allocator: request fields, answers, and the OpenAPI document."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from starlette import status as codes

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
    method: Callable[..., PoolAnswer]
    """The method of `RedisPools` that takes these fields, in this order."""

    @property
    def fields(self) -> tuple[str, ...]:
        return self.needs, *self.takes

    def ask(self, pools: RedisPools, question: Question) -> PoolAnswer:
        return self.method(pools, *(getattr(question, name) for name in self.fields))


OPERATIONS = (
    Operation(
        "allocate",
        "Allocate a free pod to a call. A repeated request returns the same pod.",
        "call",
        ("tier",),
        RedisPools.allocate,
    ),
    Operation(
        "release",
        "End a call and release its pod. Releasing a call that has already ended succeeds.",
        "call",
        ("pod",),
        RedisPools.release,
    ),
    Operation(
        "heartbeat",
        "Renew the lease of a call.",
        "call",
        (),
        RedisPools.heartbeat,
    ),
    Operation(
        "drain",
        "Allocate no new calls to a pod. Its current calls continue.",
        "pod",
        ("uid",),
        RedisPools.drain,
    ),
    Operation("undrain", "Allocate calls to a drained pod again.", "pod", ("uid",), RedisPools.undrain),
)
STATUS: dict[PoolCode, int] = {
    PoolCode.NONE_FREE: codes.HTTP_409_CONFLICT,
    PoolCode.CALL_TAKEN: codes.HTTP_409_CONFLICT,
    PoolCode.NOT_OWNER: codes.HTTP_409_CONFLICT,
    PoolCode.LEASE_LOST: codes.HTTP_409_CONFLICT,
    PoolCode.OTHER_UID: codes.HTTP_409_CONFLICT,
    PoolCode.MERCHANT: codes.HTTP_409_CONFLICT,
    PoolCode.UNSOUND: codes.HTTP_409_CONFLICT,
    PoolCode.NO_TIER: codes.HTTP_400_BAD_REQUEST,
    PoolCode.NOT_THERE: codes.HTTP_404_NOT_FOUND,
    PoolCode.CONFIG_CHANGED: codes.HTTP_503_SERVICE_UNAVAILABLE,
}
"""The HTTP status of negative answers; every other answer is 200."""
_QUESTIONS = msgspec.json.Decoder(Question)


def read_question(operation: Operation, body: bytes) -> Question:
    """Return the decoded body of a request; raises ValueError or BadInput, which name the field."""
    question = _QUESTIONS.decode(body)
    fields = {name for name in Question.__struct_fields__ if getattr(question, name)}
    if operation.needs not in fields:
        raise ValueError(f"{operation.needs}: expected a text")
    unexpected = sorted(fields.difference(operation.fields))
    if unexpected:
        raise ValueError(
            f"{unexpected[0]}: unknown field; {operation.name} takes {', '.join(operation.fields)}"
        )
    if question.call:
        call_id(question.call, "call")
    for name in ("pod", "tier"):
        if getattr(question, name):
            pod_name(getattr(question, name), name)
    return question


def status_of(operation: Operation, code: PoolCode) -> int:
    if operation.name == "heartbeat" and code is PoolCode.UNKNOWN_CALL:
        return codes.HTTP_404_NOT_FOUND
    return STATUS.get(code, codes.HTTP_200_OK)


def answer_document(answer: PoolAnswer, status: int, sentence: str, call: str) -> dict[str, Any]:
    return {
        "outcome": "yes" if status == codes.HTTP_200_OK else "no",
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
    """All tiers; `pools.observe.status_document` makes it."""

    prefix: str
    config_version: str
    epoch: int | None
    tiers: list[TierStatus]
    warnings: list[str]


class YesAnswer(msgspec.Struct):
    """The answer to a request that succeeded."""

    outcome: Literal["yes"]
    result: PoolCode
    call: str
    pod: str
    tier: str
    detail: str
    sentence: str


class NoAnswer(msgspec.Struct):
    """The answer to a request that failed, or whose result is unknown."""

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
        "description": "The id of the call. Requests with the same id can be repeated safely.",
    },
    "pod": {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": LENGTH_MAX},
    "tier": {
        "type": "string",
        "description": "Allocate from this tier only; by default, the tiers of the chain in order.",
    },
    "uid": {
        "type": "string",
        "description": "The UID of the pod; the request fails for another pod of the same name.",
    },
}
NO = {
    "400": "The request is not valid; the sentence names the field. Nothing was changed.",
    "401": "The bearer token is missing or not valid. Nothing was changed.",
    "403": "Without tokens: the request may come from a web page of another origin. Nothing was changed.",
    "404": "The pod or call does not exist. Nothing was changed.",
    "408": "The body did not arrive in time. Nothing was changed.",
    "409": "The request conflicts with the current state, for example because no pod is free. "
    "Nothing was changed.",
    "413": "The body is too long. Nothing was changed.",
    "415": "Without tokens: the content type is not JSON. Nothing was changed.",
    "503": "With the outcome `no`, nothing was changed. With `unknown`, something may have been: repeat the "
    "request, which is safe and returns the result.",
}


def openapi() -> Shape:
    paths = {f"/v1/{operation.name}": {"post": _operation(operation)} for operation in OPERATIONS}
    status = {
        "operationId": "status",
        "summary": "The tiers with their targets, pods and calls.",
        "responses": _responses("The tiers.", "Status", "401", "403", "503"),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Equipoise pools",
            "version": __version__,
            "description": "Allocates pods of tiers to calls. Every request can be repeated safely.",
        },
        "security": [{"token": []}],
        "paths": paths | {"/v1/status": {"get": status}},
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
    body = {
        "type": "object",
        "required": [operation.needs],
        "properties": {name: FIELDS[name] for name in operation.fields},
        "additionalProperties": False,
    }
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses("The request succeeded.", "Answer", *NO),
    }


def _responses(description: str, schema: str, *refusals: str) -> Shape:
    described = {"200": (description, schema)} | {code: (NO[code], "Refusal") for code in refusals}
    return {
        code: {
            "description": sentence,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
        for code, (sentence, name) in described.items()
    }
