"""Errors of an API server and answers that cannot be decoded: one line with address, status and reason.

`outline_of` finds the name, the version and the status of an object that cannot be decoded. A decoder
recurses, also where it skips a field. So an object that is nested deeper than Python's stack allows ends the
decoding of its whole page. Here JSON is split at its brackets, commas and quotes, without recursion and in
linear time; the parts are then decoded one by one. The split does not validate: decoding a part does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.client import responses
from typing import Any, NamedTuple, get_type_hints

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.kubeconfig import in_plain_words
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.documents import DEPTH_MAX, refuse_deep
from equipoise.core.errors import DECODE_ERRORS, WorldFailed

ERROR_BODY_BYTES_MAX = 64 * 1024
"""The largest part of an error's body that is read; the rest is dropped with its connection."""
RETRY_AFTER_SECONDS_MAX = 86_400
"""The longest delay that is accepted from a Status."""
REFUSALS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Answers after which the same request would be refused again."""


class Unreachable(WorldFailed):
    """The API server gave no answer at all."""


class CredentialFailed(WorldFailed):
    """There is no credential: its plugin failed, or its output is invalid."""


class BadAnswer(WorldFailed):
    """The answer is no valid answer of the Kubernetes API."""


class Stopped(WorldFailed):
    """The session was aborted by this process."""


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True):
    """The details of a Status."""

    causes: list[StatusCause] | None = None
    retryAfterSeconds: int | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """The `ApiStatus` object that the API server sends with an error."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: StatusDetails | None = None


@dataclass(eq=False, repr=False)
class ApiError(WorldFailed):
    """The API server answered with an error."""

    address: str
    request: str
    status: int
    reason: str = ""
    message: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float | None = None

    def __post_init__(self) -> None:
        refused = f"{self.address} refused {self.request}: {self.status} {self.reason}"
        super().__init__(f"{refused}{': ' if self.message else ''}{self.message}")

    @property
    def is_not_found(self) -> bool:
        """Whether the object does not exist; the 404 of a proxy or for a missing kind has another reason."""
        return self.status == HTTPStatus.NOT_FOUND and self.reason == "NotFound"


class RightMissing(WorldFailed):
    """We do not have the right to read a kind that the server has."""

    def __init__(
        self, verb: str, resource: str, namespace: str | None, unknown: str, refusal: ApiError
    ) -> None:
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        super().__init__(
            f"{unknown}: the right to {verb} {resource} in {where} is missing; "
            f"{refusal.address} answered: {refusal.message or refusal.reason}"
        )
        self.verb = verb
        self.resource = resource


def api_error(
    address: str, request: str, status: int, body: bytes, retry_after_seconds: float | None = None
) -> ApiError:
    """Return the error for an answer, whatever its body is."""
    told = _status(body)
    answered = told or ApiStatus(message=_describe_body(body))
    details = answered.details or StatusDetails()
    if retry_after_seconds is None and details.retryAfterSeconds:
        retry_after_seconds = float(min(max(details.retryAfterSeconds, 0), RETRY_AFTER_SECONDS_MAX))
    message = one_line(answered.message or "", 500)
    if told is not None and status == HTTPStatus.UNAUTHORIZED:
        message = "the credential is wrong or has expired"
    return ApiError(
        address,
        request,
        status,
        reason=one_line(answered.reason or responses.get(status, "unknown status"), 60),
        message=message,
        causes=tuple(details.causes or ()),
        retry_after_seconds=retry_after_seconds,
    )


def bad_answer(address: str, request: str, body: bytes, why: str) -> BadAnswer:
    """Return the error for an invalid body, with a description of it."""
    looks = _describe_body(body[:ERROR_BODY_BYTES_MAX])
    if not looks.startswith("an HTML page"):
        looks = one_line(in_plain_words(why))
    return BadAnswer(f"{address} answered {request} with unexpected content: {looks}")


def _status(body: bytes) -> ApiStatus | None:
    try:
        answered = msgspec.json.decode(body, type=ApiStatus)
    except DECODE_ERRORS:
        return None
    return answered if answered.kind == "Status" or answered.message else None


def _describe_body(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace").strip()
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title", text, re.IGNORECASE | re.DOTALL)
        return (
            f"an HTML page{f' titled {one_line(title[1], 80)!r}' if title else ''} (a proxy or a login page?)"
        )
    return one_line("".join(c if c.isprintable() else " " for c in text))


PLACE_LENGTH_MAX = 300
WHY_LENGTH_MAX = 200
# A string that is never closed is one token up to the end: searching its end again from each quote within it
# would take quadratic time.
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\Z)'
_FLAT = rf"[{{\[](?:[^{{}}\[\]\"]++|{_STRING})*+[}}\]]"
_OUTER = re.compile(rf"(?:[^{{}}\[\]\",]++|{_STRING})*+([{{}}\[\],]|\Z)".encode(), re.DOTALL)
"""Up to the next bracket or comma."""
_INNER = re.compile(rf"(?:[^{{}}\[\]\"]++|{_STRING}|{_FLAT})*+([{{}}\[\]]|\Z)".encode(), re.DOTALL)
"""Up to the next bracket, skipping pairs of brackets without brackets inside, whose commas do not count."""
_MEMBER = re.compile(rb'\s*+("(?:[^"\\]++|\\.)*+")\s*+:', re.DOTALL)


class Outline(NamedTuple):
    """The readable parts of an object that cannot be decoded."""

    meta: ObjectMeta
    """Its name, and the readable rest of its metadata."""
    status: dict[str, Any]
    """Its status, empty where it cannot be read either."""
    why: str

    @property
    def place(self) -> str:
        """Return namespace and name, for messages."""
        return f"{self.meta.namespace}/{self.meta.name}".strip("/")[:PLACE_LENGTH_MAX] or "unnamed"


def members(data: bytes) -> dict[str, bytes]:
    """Return the values of a JSON object by their keys, undecoded; raise ValueError for anything else."""
    found: dict[str, bytes] = {}
    for part in _parts(data, b"{"):
        match = _MEMBER.match(part)
        if match is None:
            raise ValueError("expected a key and a value")
        found[msgspec.json.decode(match[1], type=str)] = part[match.end() :].strip()
    return found


def elements(data: bytes) -> list[bytes]:
    """Return the elements of a JSON array, undecoded; raise ValueError for anything else."""
    return list(_parts(data, b"["))


def outline_of(data: bytes, error: Exception | None = None) -> Outline:
    """Return the readable parts of an undecodable object; raise ValueError for anything but an object."""
    parts = members(data)
    of_meta = members(parts.get("metadata", b"{}"))
    readable = {
        field: value
        for field, kind in get_type_hints(ObjectMeta).items()
        if (value := _decoded(of_meta.get(field), kind)) is not None
    }
    status = _decoded(parts.get("status"), dict[str, Any]) or {}
    return Outline(ObjectMeta(**{"name": ""} | readable), status, why_unreadable(error) if error else "")


def why_unreadable(error: Exception) -> str:
    """Return why something could not be decoded, in a few words."""
    if isinstance(error, RecursionError):
        return f"expected at most {DEPTH_MAX} levels, got more"
    return one_line(in_plain_words(str(error)), WHY_LENGTH_MAX) or type(error).__name__


def _parts(data: bytes, opening: bytes) -> Iterator[bytes]:
    """Yield the parts between the commas of the outermost brackets."""
    stripped = data.strip()
    end, start, depth = (1, 1, 1) if stripped[:1] == opening else (0, 0, 0)
    while depth and (token := (_OUTER if depth == 1 else _INNER).match(stripped, end)) and token[1]:
        end = token.end()
        if token[1] == b",":
            yield stripped[start : end - 1]
            start = end
        elif token[1] in b"{[":
            depth += 1
        else:
            depth -= 1
    if depth or not end or end < len(stripped):
        raise ValueError(f"expected JSON between {opening.decode()} and its closing bracket")
    if stripped[start : end - 1].strip():
        yield stripped[start : end - 1]


def _decoded(data: bytes | None, kind: Any) -> Any:
    """Return a part of an object, or None where it cannot be read."""
    try:
        value = None if data is None else msgspec.json.decode(data, type=kind)
        refuse_deep(value)
    except DECODE_ERRORS:
        return None
    return value
