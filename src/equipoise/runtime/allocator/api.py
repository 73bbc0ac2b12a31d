"""The service of `equipoise pools serve`: who may ask, what, and the answer: yes, no, or nobody knows.

A page of another site can post to a loopback address, and under a name that it makes point here (DNS
rebinding) it could read the answer too. So without tokens a request must name this machine as its host, must
not come from a page of another origin, and must send what no plain form can: JSON.
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
from equipoise.pools.documents import sentence_of, status_document
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
"""What a browser says of a request that no other site's page made."""
SHOWN_MAX = 80


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    result: str
    sentence: str


def refusal(method: str, headers: Mapping[str, str]) -> Refusal | None:
    """Return why a request may be a web page's, or nothing."""
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
        said = f"Content-Type: expected {JSON}, got {media[:SHOWN_MAX] or 'none'}"
        return Refusal(HTTP_415_UNSUPPORTED_MEDIA_TYPE, "NotJson", said)
    return None


def _forbidden(sentence: str) -> Refusal:
    return Refusal(HTTP_403_FORBIDDEN, "Forbidden", sentence)


BODY_BYTES_MAX = 4096
BODY_SECONDS = 5.0
ANSWER_SECONDS = 8.0
"""Longer than the server's own time-out and its one retry, so that this bound is the last resort."""
WORKERS = 32
RESULTS = {400: "BadRequest", 404: "NotFound", 405: "MethodNotAllowed", 408: "TooLate", 413: "TooLong"}
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_INDEX = f"""<!doctype html><title>Equipoise pools</title><h1>Equipoise pools {__version__}</h1>
<ul><li><a href="/openapi.json">/openapi.json</a>: what can be asked
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>, <a href="/metrics">/metrics</a></ul>
"""
_DOCUMENT = msgspec.json.encode(openapi())


class Api:
    """The operations on one prefix."""

    def __init__(
        self, remote: RemotePools, prefix: str, tokens: Tokens | None, registry: CollectorRegistry
    ) -> None:
        self._remote = remote
        self._key = f"{prefix}:tier:config"
        self._tokens = tokens
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="ask")
        self._waiting = 0
        self._waiting_max = requests_max()  # more would only wait, and leave no place for probes
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
        """Return the pages, with health, readiness and metrics beside them."""
        routes = [
            Route(f"/v1/{operation.name}", self._answering(operation), methods=["POST"])
            for operation in OPERATIONS
        ]
        routes.append(Route("/v1/status", self._counted("status", self._status), methods=["GET"]))
        routes.append(Route("/openapi.json", _openapi))
        app = make_app(liveness_errors, readiness_errors, registry, index_page=_INDEX, more=routes)
        app.add_exception_handler(HTTPException, _refused)
        return app

    def close(self) -> None:
        """Let the threads end; what they still ask for is answered to nobody."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _answering(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                asked = read_question(operation, await _body(request))
            except (*DECODE_ERRORS, BadInput) as error:
                return _no(HTTP_400_BAD_REQUEST, "BadRequest", str(error))
            return await self._asked(lambda: self._ask(operation, asked))

        return self._counted(operation.name, answer)

    def _ask(self, operation: Operation, asked: Question) -> Response:
        answer = self._remote.ask(lambda pools: operation.ask(pools, asked))
        status = status_of(operation, answer.code)
        sentence = sentence_of(answer, call=asked.call, tier=asked.tier)
        document = answer_document(answer, status, sentence.replace("--tier", "tier"), asked.call)
        retry = {"Retry-After": "1"} if answer.code in {"NoneFree", "ConfigChanged"} else None
        return _json(document, status, retry)

    async def _status(self, request: Request) -> Response:
        del request
        return await self._asked(self._read_status)

    def _read_status(self) -> Response:
        snapshot = self._remote.ask(lambda pools: pools.snapshot())
        return _json(status_document(read_policy(snapshot.config, self._key), snapshot), HTTP_200_OK)

    async def _asked(self, question: Callable[[], Response]) -> Response:
        """Ask on a thread, in time; without an answer, return whether something may have happened."""
        if self._waiting >= self._waiting_max:
            said = "Too much is asked at once. Nothing was changed; ask again later"
            return _no(HTTP_503_SERVICE_UNAVAILABLE, "Overloaded", said)
        self._waiting += 1
        try:
            asking = asyncio.get_running_loop().run_in_executor(self._workers, question)
            return await asyncio.wait_for(asking, ANSWER_SECONDS)
        except TimeoutError:
            return _unknown(f"there was no answer within {ANSWER_SECONDS:g} s")
        except Unanswered as error:
            return _unknown(str(error))
        except EquipoiseError as error:
            said = f"{str(error).removesuffix('.')}. Nothing was changed; ask again later"
            return _no(HTTP_503_SERVICE_UNAVAILABLE, "Unavailable", said)
        finally:
            self._waiting -= 1
            assert self._waiting >= 0, "more requests ended than began"

    def _counted(
        self, name: str, page: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Let in who may ask, and count what came of it."""
        seconds = self._seconds.labels(name)

        async def counted(request: Request) -> Response:
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

        return counted

    def _barred(self, request: Request) -> Response | None:
        """Keep out who has no token; where there are none, who may be a web page."""
        if self._tokens is None:
            why = refusal(request.method, request.headers)
            return None if why is None else _no(*why)
        if self._tokens.admit(request.headers.get("authorization", "")):
            return None
        response = _no(HTTP_401_UNAUTHORIZED, "Unauthorized", "A bearer token is expected.")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response


async def _body(request: Request) -> bytes:
    """Read what was sent, as long as it is short and comes soon."""
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
    """Return the answer that nothing happened, and why."""
    retry = {"Retry-After": "1"} if status == HTTP_503_SERVICE_UNAVAILABLE else None
    said = f"{sentence.removesuffix('.')}."
    return _json({"outcome": "no", "result": result, "sentence": said}, status, retry)


def _unknown(why: str) -> Response:
    because = why.removesuffix(".")
    said = f"Nobody knows whether it happened: {because}. To ask for the same again is safe, and tells."
    document = {"outcome": "unknown", "result": "Unanswered", "sentence": said}
    return _json(document, HTTP_503_SERVICE_UNAVAILABLE, {"Retry-After": "1"})


async def _openapi(request: Request) -> Response:
    del request
    return Response(_DOCUMENT, HTTP_200_OK, None, "application/json")


async def _refused(request: Request, error: Exception) -> Response:
    """Return in our form that there is no such page, or that it can't be asked so."""
    del request
    assert isinstance(error, HTTPException), "only these are brought here"
    status = error.status_code
    response = _no(status, RESULTS.get(status, "Refused"), error.detail)
    response.headers.update(error.headers or {})
    return response


CHECK_SECONDS = 2.0
REDIS_SECONDS = 2.0
"""How long one answer of the server may take: callers wait for it."""
DRAIN_SECONDS = 10


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What `equipoise pools serve` was started with."""

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
    """Whether the tiers can be reached: asked now and then, so that a probe never waits for it."""

    def __init__(self, remote: RemotePools, tokens: Tokens | None) -> None:
        self._remote = remote
        self._tokens = tokens
        self._problem = "the tiers have not been read yet"
        self._is_stopping = False
        self._has_begun = False

    def check(self) -> None:
        """Ask once; only a server that is set up to do harm raises, and only before anything was served."""
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
    """Answer until SIGTERM or SIGINT; then finish what is under way."""
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
