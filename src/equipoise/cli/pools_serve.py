"""The command `equipoise pools serve`."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options
from equipoise.cli.options import option
from equipoise.core.errors import BadInput
from equipoise.core.quantity import print_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPAN_MAX_SECONDS = 7 * 86400.0


def serve(
    redis: options.RedisUrl = None,
    redis_url_file: Annotated[
        str | None, option("FILE", "File with the URL of Redis, such as a mounted Secret.")
    ] = None,
    prefix: options.Prefix = "voice",
    address: Annotated[
        str, option("[HOST]:PORT", "Address to listen on; other machines need a token.")
    ] = "127.0.0.1:8081",
    token_file: Annotated[
        str | None,
        option(
            "FILE",
            "File with bearer tokens, one per line; read again when it changes.",
            envvar="EQUIPOISE_TOKEN_FILE",
        ),
    ] = None,
    lease: Annotated[
        str, option("DURATION", "Time after which a call without a heartbeat loses its pod.")
    ] = "15m",
    record: Annotated[
        str, option("DURATION", "Time for which the record of a call is kept; at least the lease.")
    ] = "1h",
    linger: Annotated[str, option("DURATION", "Time to continue after SIGTERM, while not ready.")] = "0s",
    accept_eviction: Annotated[
        bool,
        typer.Option(
            "--accept-eviction",
            envvar="EQUIPOISE_ACCEPT_EVICTION",
            show_envvar=False,
            help="Accept a Redis that may evict keys, which can take pods from active calls.",
        ),
    ] = False,
    log_level: Annotated[str, option("LEVEL", "Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[str, option("FORMAT", "Log format: auto, json or console.")] = "auto",
) -> None:
    """Serve allocate, release, heartbeat, drain, undrain and status over HTTP until SIGTERM."""
    from equipoise.adapters.redis.connect import expect_prefix
    from equipoise.core.documents import validated
    from equipoise.runtime.allocator.api import serve as stand
    from equipoise.runtime.runner import end_on_signals
    from equipoise.runtime.settings import Http, Logs
    from equipoise.runtime.tokens import expect_safe

    logs = validated(Logs, {"level": log_level, "format": log_format}, "--log")
    where = validated(Http, {"address": address}, "--address").address
    held, kept = _seconds("--lease", lease), _seconds("--record", record)
    spans = {"lease_seconds": held, "record_seconds": max(held, kept)}
    spans["linger_seconds"] = _seconds("--linger", linger, 0)
    expect_safe(where, token_file)
    expect_prefix(prefix)
    end_on_signals()
    with _source(redis, redis_url_file) as url:
        stand(url, prefix, where, logs, token_file=token_file, accepts_eviction=accept_eviction, **spans)


@contextmanager
def _source(redis: str | None, file: str | None) -> "Iterator[Callable[[], str]]":
    """Return the source of the URL: the option, a file that may change, or the embedded server."""
    from equipoise.adapters.redis.connect import address_of
    from equipoise.runtime.redis import read_url

    if file is not None:
        if redis is not None:
            raise BadInput("--redis-url-file: expected this, or --redis and EQUIPOISE_REDIS_URL, not both")
        yield lambda: read_url("--redis-url-file", file)
    elif redis is not None:
        address_of(redis)  # rejects an invalid URL before anything starts
        yield lambda: redis
    else:
        from equipoise.adapters.redis.connect import embedded
        from equipoise.runtime.redis import state_folder

        with embedded(state_folder()) as own:
            yield lambda: own


def _seconds(flag: str, text: str, least: float = 1) -> float:
    """Return the seconds of a span; one that Redis cannot represent would fail within a script."""
    seconds = options.parse_span(flag, text)
    if not least <= seconds <= SPAN_MAX_SECONDS:
        expected = f"{print_seconds(least)} to {print_seconds(SPAN_MAX_SECONDS)}"
        raise BadInput(f"{flag}: expected {expected}, got {text}")
    return seconds
