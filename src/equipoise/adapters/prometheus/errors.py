"""Failures of a Prometheus, each with its own type and a message on one line."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed

TEXT_MAX = 300


class PrometheusFailed(WorldFailed):
    """A Prometheus, or another server at its address, gave no usable answer."""

    is_transient = False
    """Whether a retry may help."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PrometheusUnreachable(PrometheusFailed):
    """No connection, or the connection was lost before the end of the answer."""

    is_transient = True


class TimedOut(PrometheusFailed):
    """No answer in time, by our clock or by the server's."""


class TlsFailed(PrometheusFailed):
    """The TLS handshake failed: a wrong CA, name or client certificate, or no TLS at all."""


class Unauthorized(PrometheusFailed):
    """The credentials are missing, wrong, or not allowed to do this (401, 403)."""


class BadQuery(PrometheusFailed):
    """The server could not read the query (400)."""


class BadUserQuery(BadInput):
    """The server could not read a query that the user wrote."""


class QueryFailed(PrometheusFailed):
    """The server parsed the query and could not evaluate it (422)."""


class TooHeavy(QueryFailed):
    """The query exceeds one of the server's limits; a narrower one may not."""


class Unavailable(PrometheusFailed):
    """The server is temporarily unable to answer (429, 5xx)."""

    is_transient = True


class NotPrometheus(PrometheusFailed):
    """The server at this address does not have the Prometheus API."""


class Malformed(PrometheusFailed):
    """The answer is truncated, is no JSON, or has an invalid shape or value."""


class Incomplete(PrometheusFailed):
    """The server reports that its answer is partial."""


class PrometheusTooLarge(PrometheusFailed):
    """The answer is larger than the memory limit."""


class TooManySeries(PrometheusFailed):
    """The answer has more series than the limit."""


class NotOffered(PrometheusFailed):
    """The server, or a proxy in front of it, does not support this request; another strategy may work."""


class NotFound(PrometheusFailed):
    """No Prometheus was found in the given namespaces."""


class Undecided(PrometheusFailed):
    """A candidate does not answer, so it is unknown whether it is the Prometheus to use."""


class Ambiguous(PrometheusFailed):
    """Several different Prometheus were found, and the user must choose."""


SPLITTABLE = (TooHeavy, PrometheusTooLarge, TooManySeries)
"""Failures that a narrower query may not have."""


class Reply(NamedTuple):
    """An answer of a server."""

    status: int
    body: bytes
    content_type: str = ""
    location: str = ""
    retry_after_seconds: float | None = None


class _ErrorBody(msgspec.Struct, gc=False):
    """An error of the Prometheus API, or (with `kind: Status`) of a Kubernetes API server."""

    status: str = ""
    errorType: str = ""
    error: str = ""
    kind: str = ""
    message: str = ""


_LIMITS = re.compile(
    r"too many (samples|series|points|chunks)|exceed|cannot select more than|err-mimir-max|series limit",
    re.IGNORECASE,
)


def clean(text: str, length_max: int = TEXT_MAX) -> str:
    """Return a server's text safe to print: one line, no control characters, bounded.

    A long text keeps its beginning and its end, which have the failure and its cause.
    """
    ends = text if len(text) <= 8 * length_max else f"{text[: 4 * length_max]} {text[-4 * length_max :]}"
    printable = "".join(c if c.isprintable() else " " for c in ends)
    flat = " ".join(printable.split())
    head = 2 * length_max // 3
    return flat if len(flat) <= length_max else f"{flat[:head]}…{flat[head + 1 - length_max :]}"


def refusal(reply: Reply, address: str) -> PrometheusFailed:
    """Return the error for an answer other than 200."""
    body = read_error(reply.body)
    said = _said(reply, body)
    status = reply.status
    if status in {401, 403}:
        asked = "credentials" if status == 401 else "the right to query"  # noqa: PLR2004
        return Unauthorized(f"{address} refused the query ({status}): it requires {asked}{said}")
    if status == 400 and b"HTTP request to an HTTPS server" in reply.body:  # noqa: PLR2004
        return TlsFailed(f"{address} uses TLS: expected an https:// address")
    if status in {413, 414}:
        return TooHeavy(f"{address} refused a query of this length ({status}){said}")
    if status == 429 or status >= 500:  # noqa: PLR2004
        if body is not None and body.errorType == "timeout":
            return TimedOut(f"{address} stopped the query{said}")
        after = reply.retry_after_seconds
        return Unavailable(f"{address} is not available ({status}){said}", retry_after_seconds=after)
    if body is not None and body.status == "error" and status in {400, 422}:
        return api_error(body.errorType, body.error, address, is_bad=status == 400)  # noqa: PLR2004
    if status == 422:  # noqa: PLR2004
        return QueryFailed(f"{address} could not compute the query (422){said}")
    if reply.location:
        return NotPrometheus(
            f"{address} redirects to {clean(reply.location)} ({status}): expected the Prometheus API here"
        )
    is_prefix_missing = status == 404 and (body is None or body.kind != "Status")  # noqa: PLR2004
    hint = " (a path prefix such as /prometheus may be missing)" if is_prefix_missing else ""
    return NotPrometheus(f"{address} is not a Prometheus API: it answered {status}{hint}{said}")


def api_error(error_type: str, text: str, address: str, *, is_bad: bool = False) -> PrometheusFailed:
    """Return the error for the API's `errorType` and `error`."""
    said = clean(text) or clean(error_type) or "no reason given"
    if error_type == "timeout" or "deadline exceeded" in text:
        return TimedOut(f"{address} stopped the query: {said}")
    if _LIMITS.search(text):
        return TooHeavy(f"{address} refused the query as too heavy: {said}")
    if error_type == "bad_data" or is_bad:
        return BadQuery(f"{address} could not parse the query: {said}")
    if error_type in {"unavailable", "internal", "canceled"}:
        return Unavailable(f"{address} is not available: {said}")
    return QueryFailed(f"{address} could not compute the query: {said}")


def read_error(body: bytes) -> _ErrorBody | None:
    """Return the error that a body reports, if it is an object."""
    try:
        return msgspec.json.decode(body, type=_ErrorBody)
    except DECODE_ERRORS:
        return None


def _said(reply: Reply, body: _ErrorBody | None) -> str:
    if body is not None and (body.error or body.message):
        return f": {clean(body.error or body.message)}"
    if "html" in reply.content_type or reply.body.lstrip()[:1] == b"<":
        return ": an HTML page"
    text = clean(reply.body[: 4 * TEXT_MAX].decode("utf-8", "replace"))
    return f": {text}" if text else ""
