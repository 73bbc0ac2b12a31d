"""Stands the service up until a signal says stop."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Info, ProcessCollector

from equipoise import __version__
from equipoise.core.errors import EquipoiseError, SetUpWrong
from equipoise.runtime.allocator.api import Api
from equipoise.runtime.http import HttpServer
from equipoise.runtime.logs import ErrorReporter, make_log
from equipoise.runtime.redis import RemotePools
from equipoise.runtime.runner import on_signals
from equipoise.runtime.settings import Logs
from equipoise.runtime.tokens import Tokens

LOOK_SECONDS = 2.0
REDIS_SECONDS = 2.0
"""How long one answer of the server may take: callers wait for it."""
DRAIN_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Service:
    """All that the command was told."""

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

    def look(self) -> None:
        """Ask once; only a server that is set up to do harm is more than a reason to wait."""
        try:
            self._remote.ask(lambda pools: pools.check_config())
            self._problem = ""
        except EquipoiseError as error:
            self._problem = str(error)
            if isinstance(error, SetUpWrong) and not self._has_begun:
                raise
        self._has_begun = True

    def stop(self) -> None:
        """Send callers elsewhere from now on."""
        self._is_stopping = True

    def readiness_errors(self) -> list[str]:
        """Return why it is not ready."""
        stopping = ["it is stopping"] if self._is_stopping else []
        return stopping + ([self._problem] if self._problem else [])

    def errors(self) -> dict[str, str]:
        """Return what is wrong, for the log."""
        found = {"redis": self._problem} if self._problem else {}
        if self._tokens is not None and self._tokens.trouble:
            found["tokens"] = self._tokens.trouble
        return found


def serve(service: Service) -> None:
    """Answer until SIGTERM or SIGINT; then finish what is under way."""
    tokens = None if service.token_file is None else Tokens(service.token_file)
    log = make_log(service.logs)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("equipoise_build", "The version that runs.", registry=registry).info({"version": __version__})
    remote = RemotePools(
        service.url,
        service.prefix,
        lease_seconds=service.lease_seconds,
        record_seconds=service.record_seconds,
        timeout_seconds=REDIS_SECONDS,
        accepts_eviction=service.accepts_eviction,
    )
    api = Api(remote, service.prefix, tokens, registry)
    readiness = Readiness(remote, tokens)
    app = api.app(list, readiness.readiness_errors, registry)
    server = HttpServer(service.address, app, name="--address", drain_seconds=DRAIN_SECONDS)
    errors = ErrorReporter(log, readiness.errors)
    stopping = threading.Event()
    on_signals(stopping)
    try:
        readiness.look()
    except SetUpWrong:
        api.close()
        remote.close()
        raise
    server.start()
    log.info("serving", port=server.port, prefix=service.prefix, is_guarded=tokens is not None)
    while True:
        errors.report()
        if stopping.wait(LOOK_SECONDS):
            break
        readiness.look()
    readiness.stop()
    time.sleep(service.linger_seconds)  # a second signal ends it
    is_clean = server.stop(DRAIN_SECONDS + 2.0)
    api.close()
    remote.close()
    log.info("stopped" if is_clean else "stopped, but not everything was answered in time")
