"""A session with an API server: credentials, retries, bounded answers, errors on one line."""

from __future__ import annotations

import http.client
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import urllib3

from equipoise import __version__
from equipoise.adapters.http import (
    NO_RETRIES,
    RETRIED_STATUSES,
    AnswerTooLarge,
    Backoff,
    TryAgain,
    explain,
    may_pass,
    never_connected,
    parse_retry_after,
    read_bounded,
    with_retries,
)
from equipoise.adapters.kubernetes.connection import Wire
from equipoise.adapters.kubernetes.credentials import Credential, CredentialSource, source_for
from equipoise.adapters.kubernetes.errors import (
    ERROR_BODY_BYTES_MAX,
    ApiError,
    BadAnswer,
    Unreachable,
    api_error,
    bad_answer,
    why_unreadable,
)
from equipoise.adapters.kubernetes.kubeconfig import Target, find_target
from equipoise.adapters.kubernetes.structs import AccessReview, Version
from equipoise.adapters.urls import shown_url
from equipoise.core.errors import DECODE_ERRORS

T = TypeVar("T")
Parameters = Mapping[str, str | int]

OBJECT_BYTES_MAX = 16 * 1024 * 1024
"""The largest answer for one object; etcd itself stores no more than a few MiB."""
FAILURES = (urllib3.exceptions.HTTPError, OSError, http.client.HTTPException, AnswerTooLarge)
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Retried after any transient failure; other methods only when they cannot have had an effect."""
WRITE_SECONDS = 3.0
"""How long a write is retried; after that, pauses and leadership have to be checked again."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Merges lists by the key of their items; for built-in kinds only."""
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts and sizes."""

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    """The longest silence within an answer."""
    answer_seconds: float = 120.0
    """The deadline of a whole answer, which a server could otherwise send byte by byte."""
    connections_max: int = 8


@dataclass(frozen=True, slots=True)
class Environment:
    """Time and randomness, as arguments."""

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    rng: Callable[[], float] = random.random


class Client:
    """A session. Threads may share it; `with_own_connections()` returns one that is aborted separately."""

    def __init__(
        self,
        target: Target,
        *,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        world: Environment | None = None,
        credentials: CredentialSource | None = None,
    ) -> None:
        self.target = target
        self.backoff = backoff or Backoff()
        self.limits = limits or Limits()
        self.world = world or Environment()
        self._credentials = credentials or source_for(
            target, clock=self.world.clock, monotonic=self.world.monotonic
        )
        self._wire = Wire(target.endpoint, self.limits.connections_max)
        self._date: tuple[str, float] | None = None

    @property
    def address(self) -> str:
        return shown_url(self.target.endpoint.server)

    @property
    def namespace(self) -> str:
        """The namespace that the context names."""
        return self.target.namespace

    def with_own_connections(
        self,
        *,
        backoff: Backoff | None = None,
        limits: Limits | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> Client:
        """Return a session with the same identity whose connections are aborted separately."""
        return Client(
            self.target,
            backoff=backoff or self.backoff,
            limits=limits or self.limits,
            world=replace(self.world, sleep=sleep or self.world.sleep),
            credentials=self._credentials,
        )

    def close(self) -> None:
        self._wire.close()

    def abort(self) -> None:
        """End the session at once, also for threads that wait for an answer."""
        self._wire.abort()

    def get(self, path: str, params: Parameters | None = None, *, bytes_max: int = OBJECT_BYTES_MAX) -> bytes:
        return self.request("GET", path, params, bytes_max=bytes_max)

    def get_as(self, kind: type[T], path: str, params: Parameters | None = None) -> T:
        return self.decode(kind, self.get(path, params), f"GET {path}")

    def post(self, path: str, body: object, params: Parameters | None = None, *, retry: bool = True) -> bytes:
        """Create an object. `retry=False` leaves errors to the caller, as with a refused eviction."""
        return self.request("POST", path, params, body=body, retry=retry)

    def patch(
        self,
        path: str,
        body: object,
        params: Parameters | None = None,
        *,
        content_type: str = MERGE_PATCH,
        is_idempotent: bool = True,
        retry: bool = True,
        within_seconds: float = math.inf,
    ) -> bytes:
        return self.request(
            "PATCH",
            path,
            params,
            body=body,
            content_type=content_type,
            retry=retry,
            is_idempotent=is_idempotent,
            within_seconds=within_seconds,
        )

    def delete(self, path: str, options: object = None) -> bytes:
        """Delete an object; the options may have preconditions."""
        return self.request("DELETE", path, body=options)

    def request(
        self,
        method: str,
        path: str,
        params: Parameters | None = None,
        *,
        body: object = None,
        content_type: str = "application/json",
        bytes_max: int = OBJECT_BYTES_MAX,
        retry: bool = True,
        is_idempotent: bool | None = None,
        within_seconds: float = math.inf,
    ) -> bytes:
        """Return the body of the answer, after retries where they are safe."""
        encoded = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        safe = method in IDEMPOTENT if is_idempotent is None else is_idempotent

        def attempt() -> bytes:
            try:
                response = self._open(method, path, params, encoded, content_type)
                self._refuse_unless_ok(response, f"{method} {path}")
                deadline = self.world.monotonic() + self.limits.answer_seconds
                return read_bounded(response, bytes_max, deadline=deadline, monotonic=self.world.monotonic)
            except AnswerTooLarge as error:
                raise BadAnswer(f"{self.address} answered {method} {path} with {error}") from error
            except FAILURES as error:
                raise self.unreachable(error) from error

        return with_retries(
            attempt,
            lambda error: _judge(error, is_idempotent=safe),
            self.backoff.within(within_seconds) if retry else NO_RETRIES,
            sleep=self.world.sleep,
            rng=self.world.rng,
            monotonic=self.world.monotonic,
        )

    def request_raw(
        self,
        method: str,
        path: str,
        *,
        params: Parameters | None = None,
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/x-www-form-urlencoded",
        timeout_seconds: float | None = None,
        preload: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once and return any answer: the transport to Services behind the API server's proxy.

        `fields` are sent as a form. urllib3's exceptions are not translated; a 401 is retried once.
        """
        body = body if fields is None else urlencode(fields).encode()
        response = self._open(method, path, params, body, content_type, read_seconds=timeout_seconds)
        if preload:
            response.read(cache_content=True)
        return response

    def stream(
        self, path: str, params: Parameters | None = None, *, read_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Open a streamed answer, such as a watch; a silence of `read_seconds` ends it."""
        try:
            response = self._open("GET", path, params, None, "", read_seconds=read_seconds)
            self._refuse_unless_ok(response, f"GET {path}")
        except FAILURES as error:
            raise self.unreachable(error) from error
        return response

    def unreachable(self, error: Exception) -> Unreachable:
        """Return the error for a request without an answer."""
        failure = Unreachable(explain(error, self.address))
        failure.__cause__ = error
        return failure

    def decode(self, kind: type[T], body: bytes, request: str) -> T:
        """Return a decoded body; raise BadAnswer with a description of any other."""
        try:
            return msgspec.json.decode(body, type=kind)
        except DECODE_ERRORS as error:
            raise bad_answer(self.address, request, body, why_unreadable(error)) from error

    def can_i(
        self, verb: str, group: str, resource: str, namespace: str | None = None, subresource: str = ""
    ) -> bool:
        """Return whether we have this right; a namespace of None means all namespaces."""
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        if namespace:
            attributes["namespace"] = namespace
        version, kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
        review = {"apiVersion": version, "kind": kind, "spec": {"resourceAttributes": attributes}}
        path = f"/apis/{version}/selfsubjectaccessreviews"
        answer = self.request("POST", path, body=review, is_idempotent=True)
        return self.decode(AccessReview, answer, f"POST {path}").status.allowed

    def server_version(self) -> str:
        """Return the API server's version, such as v1.35.8."""
        return self.get_as(Version, "/version").gitVersion

    @property
    def clock_ahead_seconds(self) -> float | None:
        """Return how far the server's clock is ahead of ours, to about a second; None before any answer."""
        if self._date is None:
            return None
        text, received_at = self._date
        try:
            return parsedate_to_datetime(text).timestamp() - received_at
        except DECODE_ERRORS:
            return None

    def _open(
        self,
        method: str,
        path: str,
        params: Parameters | None,
        body: bytes | None,
        content_type: str,
        *,
        read_seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send once, and once more with a new credential after a 401."""
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(params)}" if params else path
        limits = self.limits
        timeout = urllib3.Timeout(connect=limits.connect_seconds, read=read_seconds or limits.read_seconds)

        def send(credential: Credential) -> urllib3.BaseHTTPResponse:
            headers = self._headers(credential.authorization, "" if body is None else content_type)
            certificate = credential.certificate
            response = self._wire.send(
                method, target, headers=headers, body=body, timeout=timeout, certificate=certificate
            )
            self._date = (response.headers.get("Date", ""), self.world.clock())
            return response

        credential = self._credentials.current()
        response = send(credential)
        if response.status == HTTPStatus.UNAUTHORIZED and self._credentials.renew(credential):
            response.close()
            response = send(self._credentials.current())
        return response

    def _headers(self, authorization: str | None, content_type: str) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict(
            {"User-Agent": f"equipoise/{__version__}", "Accept": "application/json"}
        )
        if authorization:
            headers["Authorization"] = authorization
        if content_type:
            headers["Content-Type"] = content_type
        for name, value in self.target.identity.impersonation:
            headers.add(name, value)
        return headers

    def _refuse_unless_ok(self, response: urllib3.BaseHTTPResponse, request: str) -> None:
        if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            return
        deadline = self.world.monotonic() + self.limits.read_seconds
        body = _beginning(response, deadline, self.world.monotonic)
        after = parse_retry_after(response.headers.get("Retry-After"), self.world.clock())
        if location := response.get_redirect_location():
            body = f"it points to {location}, which is not followed".encode()
        raise api_error(self.address, request, response.status, body, after)


def _beginning(response: urllib3.BaseHTTPResponse, deadline: float, monotonic: Callable[[], float]) -> bytes:
    """Return the beginning of an error's body, or what arrived of it before a failure."""
    parts = bytearray()
    try:
        while len(parts) < ERROR_BODY_BYTES_MAX and monotonic() < deadline:
            part = response.read1(ERROR_BODY_BYTES_MAX)
            if not part:
                response.release_conn()
                return bytes(parts)
            parts += part
    except FAILURES:
        pass
    response.close()
    return bytes(parts)


def _judge(error: Exception, *, is_idempotent: bool) -> TryAgain | None:
    """Return how to retry after a transient failure where a retry is safe, else None."""
    if isinstance(error, ApiError) and error.status in RETRIED_STATUSES:
        came_with_a_time = error.status in {429, 503} and error.retry_after_seconds is not None
        return TryAgain(error.retry_after_seconds) if is_idempotent or came_with_a_time else None
    if isinstance(error, Unreachable):
        cause = error.__cause__ or error
        return TryAgain() if may_pass(cause) and (is_idempotent or never_connected(cause)) else None
    return None


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Client:
    """Return a session with the cluster that `kubeconfig.py` finds; nothing is sent yet."""
    return Client(find_target(kubeconfig, context, environment=environment), **options)
