"""A week of a whole cluster from a real Prometheus: by remote read and by PromQL."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import urllib3

from benchmarks import history_world
from benchmarks.history_world import DAYS, END, REPLICAS, START, WORKLOADS
from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, measure
from benchmarks.tables import Section, Table, ratio
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import Reply
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports.cluster import CPU, MEMORY

WAYS = {"remote read": "remote-read", "PromQL": "promql"}


class Counted(Direct):
    """A transport that counts requests, and the bytes of their answers."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__(settings)
        self.requests = self.received = 0
        self._lock = threading.Lock()

    def add(self, size: int, requests: int = 0) -> None:
        with self._lock:
            self.received += size
            self.requests += requests

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        reply = super().send(path, fields, timeout_seconds, bytes_max)
        self.add(len(reply.body), 1)
        return reply

    def post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        self.add(0, 1)
        return super().post(path, body, headers, timeout_seconds)


def pull(url: str, source: str) -> Figures:
    """Pull CPU and memory, and let go of each lot once it is summed, as advice does."""
    way = Counted(PrometheusSettings(url))
    history = PrometheusHistory(PrometheusClient(way), source=HistorySource(source))
    # The answers to queries are counted by the transport; those to remote reads as they come.
    on_bytes = way.add if history.source is HistorySource.REMOTE_READ else None

    def read() -> dict[str, float]:
        sums = {"cpu": 0.0, "memory": 0.0, "rows": 0.0}
        for lot in history.read((CPU, MEMORY), START + 3600, END - 60, 60, on_bytes=on_bytes):
            sums["rows"] += len(lot.pods)
            sums[lot.measure] += float(np.nansum(lot.values[:, ::97]))  # to compare, not to measure
        return sums

    sums, taken = measure(read)
    return taken.figures(**sums, requests=float(way.requests), bytes=float(way.received))


class Server:
    """The Prometheus beside, and what it costs."""

    def __init__(self, folder: Path, workloads: int) -> None:
        from tests.testbed.build import binary
        from tests.testbed.cache import folder as cached
        from tests.testbed.cache import lock
        from tests.testbed.prometheus import Prometheus

        with lock(f"history-{workloads}"):
            data = history_world.backfill(cached() / "history", str(binary("promtool")), workloads)
        shutil.copytree(data, folder / "prometheus")
        self._prometheus = Prometheus(folder)
        self._prometheus.start()
        self.url = self._prometheus.url

    @property
    def pid(self) -> int:
        return self._prometheus.processes[0].pid

    def beside(self, part: Callable[[], Figures]) -> Figures:
        """Run a part, and see what it cost the server, which was started anew for it."""
        self._prometheus.restart()
        before = self._cpu_seconds()
        figures = part()
        return {
            **figures,
            "server_cpu": self._cpu_seconds() - before,
            "server_peak": float(self._peak_bytes()),
        }

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _peak_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def stop(self) -> None:
        self._prometheus.stop()


def run(*, quick: bool) -> Section:
    workloads = WORKLOADS // 10 if quick else WORKLOADS
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), workloads)
        try:
            parts = [_part(server, source) for source in WAYS.values()]
            parts[0]()  # so that all blocks are in the page cache
            found = interleaved(1 if quick else 3, *parts)
        finally:
            server.stop()
    for name in ("rows", "cpu", "memory"):
        assert abs(found[0][name] / found[1][name] - 1) < 1e-12, name
    columns = ("way", "wall s", "our CPU s", "Prometheus CPU s", "our peak MiB", "its peak MiB")
    table = Table((*columns, "requests", "MB", "wall ratio", "CPU ratio"))
    for way, figures in zip(WAYS, found, strict=True):
        table.add(
            way,
            f"{figures['wall_seconds']:.2f}",
            f"{figures['cpu_seconds']:.2f}",
            f"{figures['server_cpu']:.2f}",
            f"{figures['peak_bytes'] / MEBIBYTE:.0f}",
            f"{figures['server_peak'] / MEBIBYTE:.0f}",
            f"{figures['requests']:.0f}",
            f"{figures['bytes'] / 1e6:.0f}",
            ratio(figures["wall_seconds"], found[0]["wall_seconds"]),
            ratio(_cpu(figures), _cpu(found[0])),
        )
    samples = workloads * REPLICAS * DAYS * 1440 * 2
    return Section(
        f"History: {workloads} workloads x {REPLICAS} pods x {DAYS} days of minutes",
        [table],
        f"CPU and memory of {workloads * REPLICAS:,} pods, from {samples / 1e6:.1f} million samples: by "
        f"remote read {found[0]['requests']:.0f} requests, {found[0]['wall_seconds']:.1f} s and "
        f"{_cpu(found[0]):.1f} s of CPU on both sides together; PromQL takes "
        f"{ratio(_cpu(found[1]), _cpu(found[0]))} the CPU time.",
        [
            "CPU rates at every minute, the highest memory of the week by a query: both ways the same.",
            f"Timestamps are up to {history_world.JITTER_MS / 1000:g} s early or late, as cAdvisor's are.",
            "The peak is the most that a whole process held; it holds lots of a part of the pods.",
        ],
    )


def _cpu(figures: Figures) -> float:
    return figures["cpu_seconds"] + figures["server_cpu"]


def _part(server: Server, source: str) -> Callable[[], Figures]:
    return lambda: server.beside(lambda: in_own_process(pull, url=server.url, source=source))
