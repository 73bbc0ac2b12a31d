"""Every way in which a connection fails, as one clause that names the address."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from collections.abc import Iterator

from urllib3 import exceptions

from equipoise.adapters.urls import shown_url


class AnswerTooLarge(Exception):  # noqa: N818 - reads as a fact
    """A body beyond the size that we are ready to hold."""


_VERIFY_CODES = {
    7: "its certificate was signed by another CA of the same name (wrong CA)",
    9: "its certificate is not valid yet (is a clock wrong?)",
    10: "its certificate has expired",
    18: "its certificate is self-signed and not trusted (wrong CA)",
    19: "its certificate chain is not trusted (wrong CA)",
    20: "its certificate was issued by a CA that is not trusted (wrong CA)",
    21: "its certificate cannot be verified (wrong CA)",
    62: "its certificate is for another host name",
    64: "its certificate is for another IP address",
}

_ERRNOS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EPIPE: "the connection was closed",
    errno.ECONNABORTED: "the connection was aborted",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network is unreachable",
    errno.ETIMEDOUT: "timed out",
    errno.EMFILE: "too many open files here",
}

_CLAUSES: tuple[tuple[tuple[type[BaseException], ...], str | None], ...] = (
    ((socket.gaierror, exceptions.NameResolutionError), "the host name is not known (DNS)"),
    ((exceptions.NewConnectionError,), None),  # its cause says more
    ((exceptions.ConnectTimeoutError,), "timed out while connecting"),
    ((exceptions.TimeoutError, TimeoutError), "no answer in time"),
    ((http.client.RemoteDisconnected,), "the connection was closed without an answer"),
    ((http.client.IncompleteRead,), "the answer was cut off"),
    ((http.client.HTTPException,), "the answer is not HTTP"),
    ((exceptions.LocationValueError,), "this is not an address"),
)
"""The first that fits is taken."""


def explain(error: BaseException, address: str) -> str:
    """Say in one clause why this address could not be spoken to."""
    chain = list(_chain(error))
    through = " through its proxy" if any(isinstance(e, exceptions.ProxyError) for e in chain) else ""
    return f"cannot reach {shown_url(address)}{through}: {_why(chain)}"


def never_connected(error: BaseException) -> bool:
    """Whether the request cannot have reached the server, so that sending it again is harmless."""
    kinds = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyError)
    return any(isinstance(e, (*kinds, ssl.SSLCertVerificationError)) for e in _chain(error))


def may_pass(error: BaseException) -> bool:
    """Whether trying again can help: TLS that does not agree now will not agree in a second."""
    lasting = (ssl.SSLError, exceptions.LocationValueError, AnswerTooLarge)
    passing = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return not any(isinstance(e, lasting) and not isinstance(e, passing) for e in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Walk from the outermost wrapper to the root; urllib3 hides causes in three places."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner: object = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = error.__cause__
        if not isinstance(inner, BaseException):
            inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        error = inner


def _why(chain: list[BaseException]) -> str:
    for error in reversed(chain):
        clause = _clause(error)
        if clause is not None:
            return clause
    return one_line(f"{type(chain[-1]).__name__}: {chain[-1]}")


def _clause(error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFY_CODES.get(error.verify_code, f"its certificate: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return _tls_clause(error)
    if isinstance(error, AnswerTooLarge):
        return str(error)
    for kinds, clause in _CLAUSES:
        if isinstance(error, kinds):
            return clause
    return _ERRNOS.get(error.errno or 0) if isinstance(error, OSError) else None


def _tls_clause(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).upper()
    if any(
        word in reason for word in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH", "RECORD_LAYER")
    ):
        return "the server does not speak TLS on this port (plain HTTP?)"
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")):
        return "the server refused our client certificate"
    if "EOF" in reason:
        return "the connection was closed during TLS"
    return f"TLS failed: {one_line(reason.lower().replace('_', ' '))}"


def one_line(text: str, length_max: int = 200) -> str:
    """Flatten text that another program wrote, and bound it."""
    flat = " ".join(text[: length_max * 4].split())
    return flat if len(flat) <= length_max else f"{flat[: length_max - 1]}…"
