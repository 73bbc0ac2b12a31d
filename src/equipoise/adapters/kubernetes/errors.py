"""What an API server's refusal or nonsense becomes: one line with the address, the status and the reason."""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.kubefile import in_plain_words
from equipoise.core.errors import DECODE_ERRORS, WorldFailed

ERROR_BODY_BYTES_MAX = 64 * 1024
"""How much of an error's body is read; the rest is dropped with its connection."""
RETRY_AFTER_SECONDS_MAX = 86_400
"""A Status that asks for more is taken for this."""


class Unreachable(WorldFailed):
    """The API server gave no answer at all."""


class CredentialFailed(WorldFailed):
    """A credential could not be had: its plugin failed, or what it gave is of no use."""


class BadAnswer(WorldFailed):
    """The server answered something that the Kubernetes API never says."""


class Stopped(WorldFailed):
    """The session was cut on purpose."""


class Cause(msgspec.Struct, frozen=True):
    """One cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True):
    """The details of a Status."""

    causes: list[Cause] | None = None
    retryAfterSeconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """The `Status` object that the API server sends with an error."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: Details | None = None


class ApiError(WorldFailed):
    """The API server said no."""

    def __init__(
        self,
        address: str,
        request: str,
        status: int,
        *,
        reason: str = "",
        message: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{address} refused {request}: {status} {reason}{': ' if message else ''}{message}")
        self.address = address
        self.request = request
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds


class RightMissing(WorldFailed):
    """The server knows what was asked for, and we may not have it."""

    def __init__(
        self, verb: str, resource: str, namespace: str | None, unknown: str, refusal: ApiError
    ) -> None:
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        super().__init__(
            f"{unknown}: the right to {verb} {resource} in {where} is missing; "
            f"{refusal.address} says: {refusal.message or refusal.reason}"
        )
        self.verb = verb
        self.resource = resource
        self.namespace = namespace


def api_error(
    address: str, request: str, status: int, body: bytes, retry_after_seconds: float | None = None
) -> ApiError:
    """Turn any error answer, however odd its body, into one clear line."""
    said = _status(body)
    if said is None:
        return ApiError(
            address,
            request,
            status,
            reason=_phrase(status),
            message=_odd_body(body),
            retry_after_seconds=retry_after_seconds,
        )
    details = said.details or Details()
    if retry_after_seconds is None and details.retryAfterSeconds:
        retry_after_seconds = float(min(max(details.retryAfterSeconds, 0), RETRY_AFTER_SECONDS_MAX))
    message = one_line(said.message or "", 500)
    if status == HTTPStatus.UNAUTHORIZED:
        message = "the credential is wrong or has expired"
    return ApiError(
        address,
        request,
        status,
        reason=one_line(said.reason or _phrase(status), 60),
        message=message,
        causes=tuple(details.causes or ()),
        retry_after_seconds=retry_after_seconds,
    )


def bad_answer(address: str, request: str, body: bytes, why: str) -> BadAnswer:
    """Say that a body is not what was asked for, and what it looks like instead."""
    looks = _odd_body(body[:ERROR_BODY_BYTES_MAX])
    if not looks.startswith("an HTML page"):
        looks = one_line(in_plain_words(why))
    return BadAnswer(f"{address} answered {request} with something else than was asked for: {looks}")


def _status(body: bytes) -> Status | None:
    try:
        said = msgspec.json.decode(body, type=Status)
    except DECODE_ERRORS:
        return None
    return said if said.kind == "Status" or said.message else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def _odd_body(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace").strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title", text, re.IGNORECASE | re.DOTALL)
        return (
            f"an HTML page{f' titled {one_line(title[1], 80)!r}' if title else ''} (a proxy or a login page?)"
        )
    return one_line("".join(c if c.isprintable() else " " for c in text))
