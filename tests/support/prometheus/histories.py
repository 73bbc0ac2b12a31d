"""A small server of histories: what it is asked for, and how it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports.cluster import CPU, Measure, UsageHistory
from tests.support.prometheus.encoding import bits_of, chunk_of, frame, series_message
from tests.support.prometheus.server import Answer, Model, Request, Response, Server, ok

START, STEP = 1_789_000_020, 60
END = START + 20 * STEP
PODS = [("shop", "web-0"), ("shop", "web-1"), ("batch", "job-0")]
STREAMED = {"Content-Type": "application/x-streamed-protobuf"}
PLAIN = {"Content-Type": "application/x-protobuf"}
REFUSED = Response(404, b"404 page not found")
MODEL = Model([({"namespace": ns, "pod": pod, "container": "app"}, 0.25) for ns, pod in PODS])


def labels_of(namespace: str, pod: str, **more: str) -> dict[str, str]:
    """Give the labels of a container."""
    return {"container": "app", "namespace": namespace, "pod": pod, **more}


def samples_of(cores: float) -> list[tuple[int, int]]:
    """Count up for a while around the time that is asked for."""
    return [(1000 * (START - 600 + 60 * i) + 7, bits_of(60.0 * cores * i)) for i in range(40)]


def frames_of(pods: Sequence[tuple[str, str]] = PODS, cores: float = 0.25) -> bytes:
    """Give the stream of a remote read."""
    return b"".join(frame(series_message(labels_of(*pod), [chunk_of(samples_of(cores))])) for pod in pods)


def answering(read: Callable[[Request], Response], model: Answer = MODEL) -> Answer:
    """Answer remote reads this way, and queries as a model does."""

    def answer(request: Request) -> Response:
        if request.path == "/api/v1/read":
            return read(request)
        if request.path == "/api/v1/status/buildinfo":
            return ok({"version": "3.1.0", "revision": "r"})
        return model(request)

    return answer


def probed(body: Response) -> Callable[[Request], Response]:
    """Answer a probe with nothing, and all else with this."""

    def read(request: Request) -> Response:
        return Response(200, b"", STREAMED) if b"equipoise_probe" in request.body else body

    return read


def history_of(
    server: Server, source: HistorySource = HistorySource.AUTO, **options: Any
) -> PrometheusHistory:
    """Ask this server, without waits between tries."""
    client = PrometheusClient(Direct(PrometheusSettings(server.url)), sleep=lambda _: None)
    return PrometheusHistory(client, source=source, **options)


def read_all(history: PrometheusHistory, *measures: Measure, **options: Any) -> list[UsageHistory]:
    """Read the usual time."""
    return list(history.read(measures or (CPU,), START, END, STEP, **options))


def keys_of(found: UsageHistory) -> list[tuple[str, str, str]]:
    """Give the container of each row."""
    return list(zip(found.namespaces, found.pods, found.containers, strict=True))
