"""Shared by all HTTP clients on urllib3: retries, TLS, bounds, and errors on one line.

`sleep` and `rng` are arguments. Every failure of a connection becomes one clause with the address.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import random
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

import urllib3
from urllib3 import exceptions

from equipoise.adapters.urls import shown_url
from equipoise.core.errors import DECODE_ERRORS, BadInput, delay_seconds

T = TypeVar("T")

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
"""Statuses after which a retry may help. Every other 4xx would fail again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retries: exponential, with full jitter, bounded in number and total time."""

    attempts_max: int = 5
    first_seconds: float = 0.25
    delay_max_seconds: float = 10.0
    retry_after_max_seconds: float = 30.0
    total_max_seconds: float = 60.0

    def delay_seconds(self, failures: int, draw: float) -> float:
        """Return the wait after so many failures in a row; `draw` is random in [0, 1).

        The lowest tenth is cut off, so that a failing neighbour is never asked in a tight loop.
        """
        ceiling = delay_seconds(max(failures, 1), self.first_seconds, self.delay_max_seconds)
        return ceiling * (0.1 + 0.9 * draw)

    def next_seconds(
        self, failures: int, spent_seconds: float, draw: float, retry_after_seconds: float | None = None
    ) -> float | None:
        """Return the wait before the next attempt, or None after the last one."""
        if failures >= self.attempts_max:
            return None
        delay = self.delay_seconds(failures, draw)
        if retry_after_seconds is not None:
            asked = min(max(retry_after_seconds, 0.0), self.retry_after_max_seconds)
            delay = asked + self.first_seconds * draw
        return delay if spent_seconds + delay <= self.total_max_seconds else None

    def within(self, seconds: float) -> Backoff:
        """Return the same, whose last attempt begins so soon at the latest."""
        return replace(self, total_max_seconds=min(seconds, self.total_max_seconds))


NO_RETRIES = Backoff(attempts_max=1)


@dataclass(frozen=True, slots=True)
class TryAgain:
    """A transient failure, with the server's Retry-After if any."""

    after_seconds: float | None = None


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Read a Retry-After header: seconds or an HTTP date. None when absent or unreadable."""
    if not text:
        return None
    with suppress(ValueError):
        seconds = float(text.strip())
        return seconds if 0 <= seconds < float("inf") else None
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(text.strip()).timestamp() - now)
    return None


def with_retries(
    attempt: Callable[[], T],
    judge: Callable[[Exception], TryAgain | None],
    backoff: Backoff | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
    rng: Callable[[], float] = random.random,
    monotonic: Callable[[], float] = time.monotonic,
) -> T:
    """Call until it works, until `judge` says that it won't, or until the backoff gives up.

    The last exception is raised as it came.
    """
    backoff = backoff or Backoff()
    failures, started = 0, monotonic()
    while True:
        try:
            return attempt()
        except Exception as error:
            again = judge(error)
            failures += 1
            if again is None:
                raise
            delay = backoff.next_seconds(failures, monotonic() - started, rng(), again.after_seconds)
            if delay is None:
                raise
        sleep(delay)


def read_bounded(
    response: urllib3.BaseHTTPResponse,
    bytes_max: int,
    *,
    deadline: float | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> bytes:
    """Read a body that was not preloaded, up to a size and (on the monotonic clock) a deadline.

    A socket's read timeout starts anew with every byte; the deadline stops a server that drips.
    """
    # Unlike a list that is joined in the end, it holds a body once, and gives it away without a copy.
    body = io.BytesIO()
    # What is not packed need not pass through the unpacking, which copies it.
    unpacks = None if "Content-Encoding" in response.headers else False
    while part := response.read1(1 << 18, decode_content=unpacks):
        if body.tell() + len(part) > bytes_max:
            response.close()
            raise AnswerTooLarge(f"an answer of more than {bytes_max} bytes")
        if deadline is not None and monotonic() > deadline:
            response.close()
            raise TimeoutError("the answer did not end in time")
        body.write(part)
    response.release_conn()
    return body.getvalue()


def tls_context(
    *,
    ca_file: str | None = None,
    ca_data: bytes | None = None,
    cert_file: str | None = None,
    cert_data: bytes | None = None,
    key_file: str | None = None,
    key_data: bytes | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    """Make a client's TLS context from files or PEM bytes; data wins over a file, as in kubectl."""
    context = _trust(ca_file, ca_data)
    # Python 3.13 asks more of a CA than Go does, and common cluster CAs fail it; a trusted
    # certificate that is not a root is a trust anchor to Go as well.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if cert_file or cert_data:
        _load_client_certificate(context, cert_file, cert_data, key_file, key_data)
    elif key_file or key_data:
        raise BadInput("a client key was given without a client certificate")
    return context


def _trust(ca_file: str | None, ca_data: bytes | None) -> ssl.SSLContext:
    try:
        if ca_data is not None:
            return ssl.create_default_context(cadata=ca_data.decode("ascii"))
        return ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, *DECODE_ERRORS) as error:
        raise BadInput(f"{ca_file or 'CA data'}: not a PEM certificate") from error
    except OSError as error:
        raise BadInput(f"{ca_file}: {(error.strerror or str(error)).lower()}") from error


def _load_client_certificate(
    context: ssl.SSLContext,
    cert_file: str | None,
    cert_data: bytes | None,
    key_file: str | None,
    key_data: bytes | None,
) -> None:
    named = "client certificate data" if cert_data else cert_file
    for path in (None if cert_data else cert_file, None if key_data else key_file):
        if path is not None and not os.access(path, os.R_OK):
            raise BadInput(f"{path}: {'cannot be read' if Path(path).exists() else 'no such file'}")
    try:
        with _as_path(cert_data, cert_file) as cert_path, _as_path(key_data, key_file) as key_path:
            # An empty password keeps OpenSSL from asking on the terminal.
            context.load_cert_chain(cert_path or "", key_path, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = "the key does not belong to it" if "MISMATCH" in str(error) else "not PEM, or its key is not"
        raise BadInput(f"{named}: cannot be used as a client certificate: {reason}") from error


@contextmanager
def _as_path(data: bytes | None, path: str | None) -> Iterator[str | None]:
    """Lend PEM bytes as a path, since OpenSSL reads keys from files only; memory, not disk, where it can."""
    if data is None:
        yield path
    elif hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


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
    """Return in one clause why this address could not be reached."""
    chain = list(causes(error))
    through = " through its proxy" if any(isinstance(e, exceptions.ProxyError) for e in chain) else ""
    clauses = filter(None, map(_clause, reversed(chain)))
    why = next(clauses, None) or one_line(f"{type(chain[-1]).__name__}: {chain[-1]}")
    return f"cannot reach {shown_url(address)}{through}: {why}"


def never_connected(error: BaseException) -> bool:
    """Whether the request cannot have reached the server, so that sending it again is harmless."""
    kinds = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyError)
    return any(isinstance(e, (*kinds, ssl.SSLCertVerificationError)) for e in causes(error))


def may_pass(error: BaseException) -> bool:
    """Whether trying again can help: TLS that does not agree now will not agree in a second."""
    lasting = (ssl.SSLError, exceptions.LocationValueError, AnswerTooLarge)
    passing = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return not any(isinstance(e, lasting) and not isinstance(e, passing) for e in causes(error))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, which urllib3 stores in three places."""
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
    """Return another program's text on one line, bounded."""
    flat = " ".join(text[: length_max * 4].split())
    return flat if len(flat) <= length_max else f"{flat[: length_max - 1]}…"
