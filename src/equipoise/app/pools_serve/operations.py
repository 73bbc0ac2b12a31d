"""What can be asked over HTTP: the fields of each question, and the status of each answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.status import (
    HTTP_200_OK,
    HTTP_400_BAD_REQUEST,
    HTTP_404_NOT_FOUND,
    HTTP_409_CONFLICT,
    HTTP_503_SERVICE_UNAVAILABLE,
)

from equipoise.adapters.redis import RedisPools
from equipoise.app.pools_live import call_id, pod_name
from equipoise.model.pools import PoolAnswer, PoolCode


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may say; which of it is needed depends on the operation."""

    call: str = ""
    pod: str = ""
    tier: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked for."""

    name: str
    summary: str
    needs: str
    """The field without which it makes no sense."""
    takes: tuple[str, ...]
    ask: Callable[[RedisPools, Question], PoolAnswer]


OPERATIONS = (
    Operation(
        "allocate",
        "Give a free pod to a call. The same call gets the same pod again.",
        "call",
        ("tier",),
        lambda pools, asked: pools.allocate(asked.call, asked.tier),
    ),
    Operation(
        "release",
        "End a call; its pod is free again. A call that has ended already is no error.",
        "call",
        ("pod",),
        lambda pools, asked: pools.release(asked.call, asked.pod),
    ),
    Operation(
        "heartbeat",
        "Say that a call goes on, so that its lease does not end.",
        "call",
        (),
        lambda pools, asked: pools.heartbeat(asked.call),
    ),
    Operation(
        "drain",
        "Give a pod no more calls; those it has go on.",
        "pod",
        ("uid",),
        lambda pools, asked: pools.drain(asked.pod, asked.uid),
    ),
    Operation(
        "undrain",
        "Give a drained pod calls again.",
        "pod",
        ("uid",),
        lambda pools, asked: pools.undrain(asked.pod, asked.uid),
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
"""Answers that are a no; every other is a yes."""
_QUESTIONS = msgspec.json.Decoder(Question)


def read_question(operation: Operation, body: bytes) -> Question:
    """Read a request's body; a ValueError (or a BadInput) names the field."""
    asked = _QUESTIONS.decode(body)
    given = {name for name in Question.__struct_fields__ if getattr(asked, name)}
    if operation.needs not in given:
        raise ValueError(f"{operation.needs}: expected a text")
    strange = sorted(given - {operation.needs, *operation.takes})
    if strange:
        raise ValueError(
            f"{strange[0]}: {operation.name} takes {', '.join((operation.needs, *operation.takes))}"
        )
    if asked.call:
        call_id(asked.call, "call")
    for name in ("pod", "tier"):
        if getattr(asked, name):
            pod_name(getattr(asked, name), name)
    return asked


def status_of(operation: Operation, code: PoolCode) -> int:
    """Give the HTTP status of an answer."""
    if operation.name == "heartbeat" and code is PoolCode.UNKNOWN_CALL:
        return HTTP_404_NOT_FOUND
    return STATUS.get(code, HTTP_200_OK)


def answer_document(answer: PoolAnswer, status: int, sentence: str, call: str) -> dict[str, Any]:
    """Give an answer as it is sent."""
    return {
        "outcome": "yes" if status == HTTP_200_OK else "no",
        "result": answer.code.value,
        "call": call,
        "pod": answer.pod,
        "tier": answer.tier,
        "detail": answer.detail,
        "sentence": sentence,
    }
