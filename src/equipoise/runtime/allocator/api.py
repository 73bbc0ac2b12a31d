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
from starlette import status as codes
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

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
from equipoise.runtime.connections import connections_max
from equipoise.runtime.http import HttpServer, Problems, make_app
from equipoise.runtime.logs import ErrorReporter, make_log
from equipoise.runtime.redis import RemotePools
from equipoise.runtime.runner import on_signals
from equipoise.runtime.settings import Logs
from equipoise.runtime.tokens import Tokens, is_loopback

JSON = "application/json"
RETRY = {"Retry-After": "1"}
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
        return _forbidden(
            f"Host: expected a name of this machine such as localhost, got {host[:SHOWN_MAX]!r}"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
        return _forbidden(f"Origin: expected a page of this server, got {origin[:SHOWN_MAX]!r}")
    if headers.get("sec-fetch-site", "") not in OWN_SITES:
        return _forbidden("Sec-Fetch-Site: requests of other sites are not allowed")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and media != JSON:
        sentence = f"Content-Type: expected {JSON}, got {media[:SHOWN_MAX] or 'none'}"
        return Refusal(codes.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "NotJson", sentence)
    return None


def _forbidden(sentence: str) -> Refusal:
    return Refusal(codes.HTTP_403_FORBIDDEN, "Forbidden", sentence)


BODY_BYTES_MAX = 4096
BODY_SECONDS = 5.0
ANSWER_SECONDS = 8.0
"""Longer than the Redis time-out and its one retry, so that this bound is the last resort."""
WORKERS = 32
RESULTS = {400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 408: "TooLate", 413: "TooLong"}
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_INDEX = f"""<!doctype html><title>Equipoise pools</title><h1>Equipoise pools {__version__}</h1>
<ul><li><a href="/openapi.json">/openapi.json</a>: the operations
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
        self._waiting_max = connections_max() // 2  # more would only wait, and leave no connection for probes
        results = "Number of requests, by operation and HTTP status."
        self._requests = Counter(
            "equipoise_pool_requests", results, ["operation", "result"], registry=registry
        )
        waiting = Gauge("equipoise_pool_requests_waiting", "Requests in progress.", registry=registry)
        waiting.set_function(lambda: self._waiting)
        seconds = "Duration of requests, in seconds."
        self._seconds = Histogram(
            "equipoise_pool_request_seconds", seconds, ["operation"], buckets=BUCKETS, registry=registry
        )

    def app(
        self, liveness_errors: Problems, readiness_errors: Problems, registry: CollectorRegistry
    ) -> Starlette:
        routes = [Route(f"/v1/{each.name}", self._answering(each), methods=["POST"]) for each in OPERATIONS]
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
                return _no(codes.HTTP_400_BAD_REQUEST, "BadRequest", str(error))
            return await self._answer(lambda: self._ask(operation, question))

        return self._measured(operation.name, answer)

    def _ask(self, operation: Operation, question: Question) -> Response:
        answer = self._remote.ask(lambda pools: operation.ask(pools, question))
        status = status_of(operation, answer.code)
        sentence = sentence_of(answer, call=question.call, tier=question.tier)
        document = answer_document(answer, status, sentence.replace("--tier", "tier"), question.call)
        return _json(document, status, RETRY if answer.code in {"NoneFree", "ConfigChanged"} else None)

    async def _status(self, _: Request) -> Response:
        def read() -> Response:
            snapshot = self._remote.snapshot()
            return _json(
                status_document(read_policy(snapshot.config, self._key), snapshot), codes.HTTP_200_OK
            )

        return await self._answer(read)

    async def _answer(self, question: Callable[[], Response]) -> Response:
        """Run a request on a thread, with a deadline; errors state whether anything may have happened."""
        if self._waiting >= self._waiting_max:
            sentence = "Too many requests are in progress. Nothing was changed; try again later"
            return _no(codes.HTTP_503_SERVICE_UNAVAILABLE, "Overloaded", sentence)
        self._waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._workers, question)
            return await asyncio.wait_for(future, ANSWER_SECONDS)
        except TimeoutError:
            return _unknown(f"the request was not answered within {ANSWER_SECONDS:g} s")
        except Unanswered as error:
            return _unknown(str(error))
        except EquipoiseError as error:
            sentence = f"{str(error).removesuffix('.')}. Nothing was changed; try again later"
            return _no(codes.HTTP_503_SERVICE_UNAVAILABLE, "Unavailable", sentence)
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
        response = _no(codes.HTTP_401_UNAUTHORIZED, "Unauthorized", "Expected a valid bearer token.")
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
                    too_long = f"Expected a body of at most {BODY_BYTES_MAX} bytes."
                    raise HTTPException(codes.HTTP_413_CONTENT_TOO_LARGE, too_long)
    except TimeoutError as error:
        raise HTTPException(codes.HTTP_408_REQUEST_TIMEOUT, "The body did not arrive in time.") from error
    except ClientDisconnect as error:
        raise HTTPException(codes.HTTP_400_BAD_REQUEST, "The body is incomplete.") from error
    return bytes(parts)


def _json(document: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(document), status, headers, JSON)


def _no(status: int, result: str, sentence: str) -> Response:
    """Return the response that nothing happened, and why."""
    document = {"outcome": "no", "result": result, "sentence": f"{sentence.removesuffix('.')}."}
    return _json(document, status, RETRY if status == codes.HTTP_503_SERVICE_UNAVAILABLE else None)


def _unknown(why: str) -> Response:
    because = why.removesuffix(".")
    sentence = f"The result is unknown: {because}. Repeat the request, which is safe and returns the result."
    document = {"outcome": "unknown", "result": "Unanswered", "sentence": sentence}
    return _json(document, codes.HTTP_503_SERVICE_UNAVAILABLE, RETRY)


async def _openapi(_: Request) -> Response:
    return Response(_DOCUMENT, codes.HTTP_200_OK, None, JSON)


async def _refused(_: Request, error: Exception) -> Response:
    """Return a 404, 405 and the like in the format of our answers."""
    assert isinstance(error, HTTPException), "only these are brought here"
    status = error.status_code
    response = _no(status, RESULTS.get(status, "Refused"), error.detail)
    response.headers.update(error.headers or {})
    return response


CHECK_SECONDS = 2.0
REDIS_SECONDS = 2.0
"""The time-out of one Redis command: callers wait for it."""
DRAIN_SECONDS = 10


@dataclass(eq=False)
class Readiness:
    """Checks periodically whether the tiers can be reached, so that a probe never waits for Redis."""

    _remote: RemotePools
    _tokens: Tokens | None
    _problem: str = "Redis has not answered yet"
    _is_stopping: bool = False
    _has_begun: bool = False

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
        stopping = ["the process is stopping"] if self._is_stopping else []
        return stopping + ([self._problem] if self._problem else [])

    def errors(self) -> dict[str, str]:
        found = {"redis": self._problem} if self._problem else {}
        if self._tokens is not None and self._tokens.error:
            found["tokens"] = self._tokens.error
        return found


def serve(
    url: Callable[[], str],
    prefix: str,
    address: str,
    logs: Logs,
    *,
    token_file: str | None,
    lease_seconds: float,
    record_seconds: float,
    linger_seconds: float,
    accepts_eviction: bool,
) -> None:
    """Serve until SIGTERM or SIGINT; then finish the received requests."""
    tokens = None if token_file is None else Tokens(token_file)
    log = make_log(logs)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("equipoise_build", "Version of Equipoise.", registry=registry).info({"version": __version__})
    remote = RemotePools(
        url,
        prefix,
        lease_seconds=lease_seconds,
        record_seconds=record_seconds,
        timeout_seconds=REDIS_SECONDS,
        accepts_eviction=accepts_eviction,
    )
    api = Api(remote, prefix, tokens, registry)
    readiness = Readiness(remote, tokens)
    app = api.app(list, readiness.readiness_errors, registry)
    server = HttpServer(address, app, name="--address", drain_seconds=DRAIN_SECONDS)
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
    log.info("serving", port=server.port, prefix=prefix, is_guarded=tokens is not None)
    while True:
        errors.report()
        if stopping.wait(CHECK_SECONDS):
            break
        readiness.check()
    readiness.stop()
    time.sleep(linger_seconds)  # a second signal ends it
    is_clean = server.stop(DRAIN_SECONDS + 2.0)
    api.close()
    remote.close()
    log.info("stopped" if is_clean else "stopped before every request was answered")
