"""The HTTP API of `equipoise pools serve`: authorisation, operations, and answers: yes, no, or unknown.

A web page of another site can post to a loopback address, and by DNS rebinding it could read the answer too.
So without tokens a request must name this machine as its host, must not come from a page of another origin,
and must be JSON, which no plain form can send.
"""

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.status import (
    HTTP_200_OK,
    HTTP_400_BAD_REQUEST,
    HTTP_401_UNAUTHORIZED,
    HTTP_403_FORBIDDEN,
    HTTP_408_REQUEST_TIMEOUT,
    HTTP_413_CONTENT_TOO_LARGE,
    HTTP_415_UNSUPPORTED_MEDIA_TYPE,
    HTTP_503_SERVICE_UNAVAILABLE,
)

from equipoise import __version__
from equipoise.core.errors import DECODE_ERRORS, BadInput, EquipoiseError, SetUpWrong
from equipoise.core.pools import sentence_of
from equipoise.pools.observe import status_document
from equipoise.pools.policy import read_policy
from equipoise.ports import Unanswered
from equipoise.runtime.allocator.operations import (
    OPERATIONS,
    Operation,
    Question,
    answer_document,
    openapi,
    read_question,
    status_of,
)
from equipoise.runtime.connections import requests_max
from equipoise.runtime.http import HttpServer, Problems, make_app
from equipoise.runtime.logs import ErrorReporter, make_log
from equipoise.runtime.redis import RemotePools
from equipoise.runtime.runner import on_signals
from equipoise.runtime.settings import Logs
from equipoise.runtime.tokens import Tokens, is_loopback

JSON = "application/json"
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]{1,5})?")
OWN_SITES = {"", "none", "same-origin"}
"""The values of Sec-Fetch-Site for requests that no page of another site made."""
SHOWN_MAX = 80


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    result: str
    sentence: str


def refusal(method: str, headers: Mapping[str, str]) -> Refusal | None:
    """Return why a request may come from a web page of another site, or None."""
    host = headers.get("host", "").lower()
    named = HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]").removesuffix(".")):
        return _forbidden(f"Host: expected this machine, such as localhost, got {host[:SHOWN_MAX]!r}")
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
        return _forbidden(f"Origin: another page may not ask, got {origin[:SHOWN_MAX]!r}")
    if headers.get("sec-fetch-site", "") not in OWN_SITES:
        return _forbidden("Sec-Fetch-Site: another site's page may not ask")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media != JSON:
        sentence = f"Content-Type: expected {JSON}, got {media[:SHOWN_MAX] or 'none'}"
        return Refusal(HTTP_415_UNSUPPORTED_MEDIA_TYPE, "NotJson", sentence)
    return None


def _forbidden(sentence: str) -> Refusal:
    return Refusal(HTTP_403_FORBIDDEN, "Forbidden", sentence)


BODY_BYTES_MAX = 4096
BODY_SECONDS = 5.0
ANSWER_SECONDS = 8.0
"""Longer than the Redis time-out and its one retry, so that this bound is the last resort."""
WORKERS = 32
RESULTS = {400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 408: "TooLate", 413: "TooLong"}
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_INDEX = f"""<!doctype html><title>Equipoise pools</title><h1>Equipoise pools {__version__}</h1>
<ul><li><a href="/openapi.json">/openapi.json</a>: what can be asked
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>, <a href="/metrics">/metrics</a></ul>
"""
_DOCUMENT = msgspec.json.encode(openapi())


class Api:
    """Serves the operations on the pools of one prefix."""

    def __init__(
        self, remote: RemotePools, prefix: str, tokens: Tokens | None, registry: CollectorRegistry
    ) -> None:
        self._remote = remote
        self._key = f"{prefix}:tier:config"
        self._tokens = tokens
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="ask")
        self._waiting = 0
        self._waiting_max = requests_max()  # more would only wait, and leave no connection for probes
        self._requests = Counter(
            "equipoise_pool_requests",
            "Requests by what came of them.",
            ["operation", "result"],
            registry=registry,
        )
        waiting = Gauge("equipoise_pool_requests_waiting", "Requests under way.", registry=registry)
        waiting.set_function(lambda: self._waiting)
        self._seconds = Histogram(
            "equipoise_pool_request_seconds",
            "How long answers took.",
            ["operation"],
            buckets=BUCKETS,
            registry=registry,
        )

    def app(
        self, liveness_errors: Problems, readiness_errors: Problems, registry: CollectorRegistry
    ) -> Starlette:
        """Return the app: the operations, the OpenAPI document, health, readiness and metrics."""
        routes = [
            Route(f"/v1/{operation.name}", self._answering(operation), methods=["POST"])
            for operation in OPERATIONS
        ]
        routes.append(Route("/v1/status", self._measured("status", self._status), methods=["GET"]))
        routes.append(Route("/openapi.json", _openapi))
        app = make_app(liveness_errors, readiness_errors, registry, index_page=_INDEX, more=routes)
        app.add_exception_handler(HTTPException, _refused)
        return app

    def close(self) -> None:
        """Stop the threads; the answers of their running requests are dropped."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answering(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                question = read_question(operation, await _body(request))
            except (*DECODE_ERRORS, BadInput) as error:
                return _no(HTTP_400_BAD_REQUEST, "BadRequest", str(error))
            return await self._answer(lambda: self._ask(operation, question))

        return self._measured(operation.name, answer)

    def _ask(self, operation: Operation, question: Question) -> Response:
        answer = self._remote.ask(lambda pools: operation.ask(pools, question))
        status = status_of(operation, answer.code)
        sentence = sentence_of(answer, call=question.call, tier=question.tier)
        document = answer_document(answer, status, sentence.replace("--tier", "tier"), question.call)
        retry = {"Retry-After": "1"} if answer.code in {"NoneFree", "ConfigChanged"} else None
        return _json(document, status, retry)

    async def _status(self, request: Request) -> Response:
        del request
        return await self._answer(self._read_status)

    def _read_status(self) -> Response:
        snapshot = self._remote.ask(lambda pools: pools.snapshot())
        return _json(status_document(read_policy(snapshot.config, self._key), snapshot), HTTP_200_OK)

    async def _answer(self, question: Callable[[], Response]) -> Response:
        """Run a request on a thread, with a deadline; errors state whether anything may have happened."""
        if self._waiting >= self._waiting_max:
            sentence = "Too much is asked at once. Nothing was changed; ask again later"
            return _no(HTTP_503_SERVICE_UNAVAILABLE, "Overloaded", sentence)
        self._waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._workers, question)
            return await asyncio.wait_for(future, ANSWER_SECONDS)
        except TimeoutError:
            return _unknown(f"there was no answer within {ANSWER_SECONDS:g} s")
        except Unanswered as error:
            return _unknown(str(error))
        except EquipoiseError as error:
            sentence = f"{str(error).removesuffix('.')}. Nothing was changed; ask again later"
            return _no(HTTP_503_SERVICE_UNAVAILABLE, "Unavailable", sentence)
        finally:
            self._waiting -= 1
            assert self._waiting >= 0, "more requests ended than began"

    def _measured(
        self, name: str, page: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a page: reject unauthorised requests, and count and time the others."""
        seconds = self._seconds.labels(name)

        async def measured(request: Request) -> Response:
            began = time.perf_counter()
            response = self._barred(request)
            if response is None:
                try:
                    response = await page(request)
                except HTTPException as error:
                    response = await _refused(request, error)
            seconds.observe(time.perf_counter() - began)
            self._requests.labels(name, str(response.status_code)).inc()
            return response

        return measured

    def _barred(self, request: Request) -> Response | None:
        """Return the rejection of a request without a valid token, or of a web page's; None if allowed."""
        if self._tokens is None:
            why = refusal(request.method, request.headers)
            return None if why is None else _no(*why)
        if self._tokens.admit(request.headers.get("authorization", "")):
            return None
        response = _no(HTTP_401_UNAUTHORIZED, "Unauthorized", "A bearer token is expected.")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


async def _body(request: Request) -> bytes:
    """Return the body; raise if it is too long or too slow."""
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                parts += part
                if len(parts) > BODY_BYTES_MAX:
                    raise HTTPException(
                        HTTP_413_CONTENT_TOO_LARGE, f"Expected at most {BODY_BYTES_MAX} bytes."
                    )
    except TimeoutError as error:
        raise HTTPException(HTTP_408_REQUEST_TIMEOUT, "The body did not come in time.") from error
    except ClientDisconnect as error:
        raise HTTPException(HTTP_400_BAD_REQUEST, "The body did not come whole.") from error
    return bytes(parts)


def _json(document: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def _no(status: int, result: str, sentence: str) -> Response:
    """Return the response that nothing happened, and why."""
    retry = {"Retry-After": "1"} if status == HTTP_503_SERVICE_UNAVAILABLE else None
    sentence = f"{sentence.removesuffix('.')}."
    return _json({"outcome": "no", "result": result, "sentence": sentence}, status, retry)


def _unknown(why: str) -> Response:
    because = why.removesuffix(".")
    sentence = f"Nobody knows whether it happened: {because}. To ask for the same again is safe, and tells."
    document = {"outcome": "unknown", "result": "Unanswered", "sentence": sentence}
    return _json(document, HTTP_503_SERVICE_UNAVAILABLE, {"Retry-After": "1"})


async def _openapi(request: Request) -> Response:
    del request
    return Response(_DOCUMENT, HTTP_200_OK, None, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    """Return a 404, 405 and the like in the format of our answers."""
    del request
    assert isinstance(error, HTTPException), "only these are brought here"
    status = error.status_code
    response = _no(status, RESULTS.get(status, "Refused"), error.detail)
    response.headers.update(error.headers or {})
    return response


CHECK_SECONDS = 2.0
REDIS_SECONDS = 2.0
"""The time-out of one Redis command: callers wait for it."""
DRAIN_SECONDS = 10


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """The settings of `equipoise pools serve`."""

    url: Callable[[], str]
    prefix: str
    address: str
    token_file: str | None
    lease_seconds: float
    record_seconds: float
    linger_seconds: float
    logs: Logs
    accepts_eviction: bool = False


class Readiness:
    """Checks periodically whether the tiers can be reached, so that a probe never waits for Redis."""

    def __init__(self, remote: RemotePools, tokens: Tokens | None) -> None:
        self._remote = remote
        self._tokens = tokens
        self._problem = "the tiers have not been read yet"
        self._is_stopping = False
        self._has_begun = False

    def check(self) -> None:
        """Check once; raises only for a misconfigured server (SetUpWrong), and only in the first check."""
        try:
            self._remote.ask(lambda pools: pools.check_config())
            self._problem = ""
        except EquipoiseError as error:
            self._problem = str(error)
            if isinstance(error, SetUpWrong) and not self._has_begun:
                raise
        self._has_begun = True

    def stop(self) -> None:
        self._is_stopping = True

    def readiness_errors(self) -> list[str]:
        stopping = ["it is stopping"] if self._is_stopping else []
        return stopping + ([self._problem] if self._problem else [])

    def errors(self) -> dict[str, str]:
        found = {"redis": self._problem} if self._problem else {}
        if self._tokens is not None and self._tokens.error:
            found["tokens"] = self._tokens.error
        return found


def serve(settings: AllocatorSettings) -> None:
    """Serve until SIGTERM or SIGINT; then finish the received requests."""
    tokens = None if settings.token_file is None else Tokens(settings.token_file)
    log = make_log(settings.logs)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("equipoise_build", "The version that runs.", registry=registry).info({"version": __version__})
    remote = RemotePools(
        settings.url,
        settings.prefix,
        lease_seconds=settings.lease_seconds,
        record_seconds=settings.record_seconds,
        timeout_seconds=REDIS_SECONDS,
        accepts_eviction=settings.accepts_eviction,
    )
    api = Api(remote, settings.prefix, tokens, registry)
    readiness = Readiness(remote, tokens)
    app = api.app(list, readiness.readiness_errors, registry)
    server = HttpServer(settings.address, app, name="--address", drain_seconds=DRAIN_SECONDS)
    errors = ErrorReporter(log, readiness.errors)
    stopping = threading.Event()
    on_signals(stopping)
    try:
        readiness.check()
    except SetUpWrong:
        api.close()
        remote.close()
        raise
    server.start()
    log.info("serving", port=server.port, prefix=settings.prefix, is_guarded=tokens is not None)
    while True:
        errors.report()
        if stopping.wait(CHECK_SECONDS):
            break
        readiness.check()
    readiness.stop()
    time.sleep(settings.linger_seconds)  # a second signal ends it
    is_clean = server.stop(DRAIN_SECONDS + 2.0)
    api.close()
    remote.close()
    log.info("stopped" if is_clean else "stopped, but not everything was answered in time")
