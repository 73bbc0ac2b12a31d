"""A real Prometheus: scrapes kwok's nodes, or serves a history that a test writes beforehand."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml

from tests.testbed.build import binary
from tests.testbed.kwok import Kwok
from tests.testbed.processes import Process, free_port, is_answering, wait_until, with_free_ports


class Prometheus:
    """One server with its own port and data. `kill` and `restart` keep both.

    With kwok it scrapes every node of it, a new one within ten seconds; with several jobs, once for each.
    A real node says how to be scraped: give its `scrape_config`. What is older than its own samples it
    reads from the servers whose addresses are given.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kwok: Kwok | None = None,
        scrape_interval_seconds: float = 1,
        host: str = "127.0.0.1",
        jobs: Sequence[str] = ("kubelet",),
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        extra_args: Sequence[str] = (),
        command: str = "prometheus",
        external_labels: Mapping[str, str] | None = None,
        older_from: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._command = command
        self._external_labels = dict(external_labels or {})
        self._older_from = tuple(older_from)
        self._kwok = kwok
        self._host = host
        self._jobs = tuple(jobs)
        self._scrape_configs = [dict(config) for config in scrape_configs]
        self._extra_args = tuple(extra_args)
        self._scrape_interval_seconds = scrape_interval_seconds
        self._data = folder / "prometheus"
        self._http = urllib3.PoolManager(timeout=30.0, retries=False)
        self._process: Process | None = None
        self.url = ""

    @property
    def data(self) -> Path:
        """The folder of its blocks."""
        return self._data

    @property
    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with_free_ports(self._start)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
        self._http.clear()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        assert self._process is not None, "Prometheus was not started"
        self._process.kill()

    def restart(self, *, is_emptied: bool = False) -> None:
        """Start it again on the same port and the same data, or without any; wait until it is ready."""
        assert self._process is not None, "Prometheus was not started"
        self._process.stop()
        if is_emptied:
            shutil.rmtree(self._data)
        self._process.start()
        self._process.wait_until(lambda: is_answering(f"{self.url}/-/ready"), "Prometheus ready", 120)

    def backfill(self, openmetrics: str) -> None:
        """Write a history, given as OpenMetrics text, into the data folder of a server before its start."""
        self._data.mkdir(parents=True, exist_ok=True)
        file = self._folder / "history.txt"
        file.write_text(openmetrics)
        # One long block: the hidden option makes this many times faster than blocks of two hours.
        command = ["tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=168h"]
        done = subprocess.run(
            [binary("promtool"), *command, str(file), str(self._data)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"promtool: {done.stderr[-1000:]}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask for the present value of an expression; give the result's list of series."""
        answer = self._http.request("POST", f"{self.url}/api/v1/query", fields={"query": expression})
        decoded = json.loads(answer.data)
        assert decoded["status"] == "success", f"{expression}: {decoded.get('error')}"
        result: list[dict[str, Any]] = decoded["data"]["result"]
        return result

    def values(self, expression: str, label: str) -> dict[str, float]:
        """Ask for the present value of an expression; give it by one label."""
        return {series["metric"][label]: float(series["value"][1]) for series in self.query(expression)}

    def wait_for(self, expression: str, count: int = 1, seconds: float = 120) -> list[dict[str, Any]]:
        """Wait until an expression gives at least so many series."""

        def enough() -> list[dict[str, Any]]:
            found = self.query(expression)
            return found if len(found) >= count else []

        return wait_until(enough, f"{count} series of {expression}", seconds)

    def _start(self) -> None:
        address = f"{self._host}:{free_port()}"
        self.url = f"http://{address}"
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        self._process = Process(
            "prometheus",
            [
                binary(self._command),
                f"--config.file={config}",
                f"--storage.tsdb.path={self._data}",
                "--storage.tsdb.retention.time=10y",  # a written history may be old
                f"--web.listen-address={address}",
                "--log.level=warn",
                *self._extra_args,
            ],
            self._folder / "logs" / "prometheus.log",
        )
        self._process.hurry()
        self._process.start()
        try:
            self._process.wait_until(lambda: is_answering(f"{self.url}/-/ready"), "Prometheus ready", 120)
        except BaseException:
            self._process.stop()
            raise

    def _config(self) -> dict[str, Any]:
        # Debian's build knows no Kubernetes discovery, so kwok keeps a file of its nodes.
        files = [{"files": [str(self._kwok.targets)], "refresh_interval": "1s"}] if self._kwok else []
        jobs = [{"job_name": job, "file_sd_configs": files} for job in self._jobs] if files else []
        interval = f"{round(self._scrape_interval_seconds * 1000)}ms"
        return {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "external_labels": self._external_labels,
            },
            "scrape_configs": [*jobs, *self._scrape_configs],
            "remote_read": [{"url": f"{url}/api/v1/read"} for url in self._older_from],
        }
