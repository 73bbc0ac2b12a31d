"""Labels with dots in their names, as OpenTelemetry has them, in servers that take them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports.cluster import CPU
from tests.e2e.conftest import Offered
from tests.support.compat.servers import VictoriaMetrics
from tests.testbed import Prometheus, wait_until

NAMES = LabelNames(namespace="k8s.namespace.name", pod="k8s.pod.name", container="k8s.container.name")
CORES = 0.5
LABELS = '{"k8s.namespace.name"="shop","k8s.pod.name"="web-1","k8s.container.name"="app"}'
EXPOSITION = "text/plain; version=1.0.0; escaping=allow-utf-8"


class _Exposing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"# TYPE {CPU.metric} counter\n{CPU.metric}{LABELS} {CORES * time.time()!r}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", EXPOSITION)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def target() -> Iterator[str]:
    """A counter of one container, whose labels have dots."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Exposing)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _scrape(target: str) -> dict[str, object]:
    return {"job_name": "dotted", "metrics_path": "/metrics", "static_configs": [{"targets": [target]}]}


@pytest.mark.parametrize("name", ["prometheus3", "victoria-metrics"])
def test_labels_with_dots_are_read(name: str, offered: Offered, target: str, tmp_path: Path) -> None:
    """Usage now, and history by every way that there is."""
    with ExitStack() as stack, offered():
        server: Prometheus | VictoriaMetrics
        if name == "prometheus3":
            server = Prometheus(tmp_path, command=name, scrape_configs=[_scrape(target)])
        else:
            server = VictoriaMetrics(tmp_path, scrape_configs=[_scrape(target)])
        stack.callback(server.stop)
        server.start()
        client = stack.enter_context(closing(PrometheusClient(Direct(PrometheusSettings(server.url)))))
        metrics = PrometheusMetrics(client, NAMES)

        def usage() -> list[float]:
            found = metrics.cpu_usage({"shop": ["web-1"]}, time.time(), 10.0)
            return found.cores.tolist() if found.is_covered is not None and found.is_covered.all() else []

        (cores,) = wait_until(usage, "the usage of a container", 120)
        assert cores == pytest.approx(CORES, rel=0.2)
        for source in (HistorySource.AUTO, HistorySource.PROMQL):
            history = PrometheusHistory(client, NAMES, source=source)
            (lot,) = history.read((CPU,), time.time() - 20, time.time(), 5.0)
            assert (lot.namespaces, lot.pods, lot.containers) == (["shop"], ["web-1"], ["app"])
            assert np.nanmax(lot.values) > 0  # it is scraped for seconds only, so that rates are low
