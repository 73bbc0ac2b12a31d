"""VictoriaMetrics and Thanos, started as they are run: with a past that is written, and scraping kwok."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml

from tests.testbed import Kwok, Process, Prometheus, binary, free_port, wait_until
from tests.testbed.processes import is_answering, with_free_ports

READY_SECONDS = 180
_SAMPLE = re.compile(r"^(\S+\{.*\}) (\S+) (\S+)$", re.MULTILINE)


class VictoriaMetrics:
    """A single node, which scrapes like a Prometheus."""

    def __init__(
        self,
        folder: Path,
        *,
        kwok: Kwok | None = None,
        scrape_interval_seconds: float = 1,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._folder = folder
        self._kwok = kwok
        self._scrape_configs = [dict(config) for config in scrape_configs]
        self._interval = f"{round(scrape_interval_seconds * 1000)}ms"
        self._process: Process | None = None
        self.url = ""

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with_free_ports(self._start)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def backfill(self, openmetrics: str) -> None:
        """Write a history, given as OpenMetrics text, into the running server, and wait until it is seen."""
        lines = [f"{m[1]} {m[2]} {round(float(m[3]) * 1000)}" for m in _SAMPLE.finditer(openmetrics)]
        with urllib3.PoolManager(timeout=120.0, retries=False) as pool:
            body = "\n".join([*lines, ""]).encode()
            answer = pool.request("POST", f"{self.url}/api/v1/import/prometheus", body=body)
            assert answer.status == 204, answer.data
            last = max(float(m[3]) for m in _SAMPLE.finditer(openmetrics))
            fields = {"query": "count({__name__!=''})", "time": str(last), "nocache": "1"}
            series = {m[1] for m in _SAMPLE.finditer(openmetrics) if float(m[3]) > last - 120}
            wanted = f'"{len(series)}"'.encode()

            def is_seen() -> bool:
                return wanted in pool.request("GET", f"{self.url}/api/v1/query", fields=fields).data

            wait_until(is_seen, "the history in VictoriaMetrics", READY_SECONDS)

    def _start(self) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        config = self._folder / "scrape.yaml"
        files = [{"files": [str(self._kwok.targets)]}] if self._kwok else []
        jobs = [{"job_name": "kubelet", "file_sd_configs": files}] if files else []
        interval = {"scrape_interval": self._interval, "scrape_timeout": self._interval}
        config.write_text(
            yaml.safe_dump({"global": interval, "scrape_configs": [*jobs, *self._scrape_configs]})
        )
        command: list[str | Path] = [
            binary("victoria-metrics"),
            f"-storageDataPath={self._folder / 'data'}",
            f"-httpListenAddr={address}",
            f"-promscrape.config={config}",
            "-promscrape.fileSDCheckInterval=1s",
            "-retentionPeriod=10y",
            "-loggerLevel=WARN",
        ]
        self._process = Process("victoria-metrics", command, self._folder / "logs" / "victoria-metrics.log")
        self._process.hurry()
        self._process.start()
        try:
            self._process.wait_until(
                lambda: is_answering(f"{self.url}/health"), "VictoriaMetrics ready", READY_SECONDS
            )
        except BaseException:
            self._process.stop()
            raise


class Thanos:
    """A Thanos Query before several Prometheus, each with a sidecar that can be stopped."""

    def __init__(self, folder: Path, stores: Sequence[Prometheus], *, is_strict: bool = False) -> None:
        self._folder = folder
        self._stores = list(stores)
        self._is_strict = is_strict
        self._processes: list[Process] = []
        self._endpoints: list[str] = []
        self.sidecars: list[Process] = []
        self.url = ""

    def start(self) -> None:
        """Start the sidecars, then the query that asks them; wait until it knows all of them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for number, store in enumerate(self._stores):
            options = [f"--prometheus.url={store.url}", f"--tsdb.path={store.data}"]
            endpoint, _ = self._run("sidecar", f"sidecar-{number}", options)
            self._endpoints.append(endpoint)
            self.sidecars.append(self._processes[-1])
        word = "--endpoint-strict" if self._is_strict else "--endpoint"
        asked = [f"{word}={endpoint}" for endpoint in self._endpoints]
        _, self.url = self._run("query", "query", [*asked, "--query.promql-engine=prometheus"])
        self.wait_for_stores(len(self._stores))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()

    def stop_store(self, number: int) -> None:
        """End the sidecar of one store."""
        self.sidecars[number].stop()

    def wait_for_stores(self, count: int) -> None:
        """Wait until Query knows of exactly so many stores that are up."""

        def is_so() -> bool:
            with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
                answer = pool.request("GET", f"{self.url}/api/v1/stores").json()
            stores = [one for kind in answer["data"].values() for one in kind]
            return sum(one["lastError"] is None for one in stores) == count

        wait_until(is_so, f"{count} stores that are up", READY_SECONDS)

    def _run(self, part: str, name: str, options: Sequence[str]) -> tuple[str, str]:
        grpc, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        common = [f"--grpc-address={grpc}", f"--http-address={http}", "--log.level=warn"]
        process = Process(
            name, [binary("thanos"), part, *common, *options], self._folder / "logs" / f"{name}.log"
        )
        self._processes.append(process)
        process.start()
        process.wait_until(lambda: is_answering(f"http://{http}/-/ready"), f"{name} ready", READY_SECONDS)
        return grpc, f"http://{http}"


def split(openmetrics: str, is_first: Mapping[str, bool]) -> tuple[str, str]:
    """Cut a history in two by pod, as two Prometheus that each scrape a part of the nodes have it."""
    parts: tuple[list[str], list[str]] = ([], [])
    for line in openmetrics.splitlines():
        found = re.search(r'pod="([^"]+)"', line)
        for number in (0, 1):
            if found is None or is_first[found[1]] == (number == 0):
                parts[number].append(line)
    first, second = ("\n".join([*part, ""]) for part in parts)
    return first, second


def rounded_now() -> float:
    """Return the next whole minute."""
    return -(-time.time() // 60) * 60.0
