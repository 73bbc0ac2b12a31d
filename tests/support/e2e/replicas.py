"""Processes of ours that a test starts, listens to and ends: replicas that act, and the operator itself."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from tests.testbed import ControlPlane, free_port, wait_until
from tests.testbed.processes import is_answering
from tests.testbed.scenes import namespaced

T = TypeVar("T")


class Replica:
    """One process that prints JSON lines into a file."""

    def __init__(self, folder: Path, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        self.log = folder / f"replica-{len(list(folder.glob('replica-*')))}.log"
        self._file = self.log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=os.environ | (environment or {}),
        )

    def lines(self) -> list[dict[str, Any]]:
        """What it has said so far, in whole lines."""
        whole = self.log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in whole if line.startswith("{")]

    def cycles(self) -> list[dict[str, Any]]:
        """The cycles in which it led."""
        return [line for line in self.lines() if "outcomes" in line]

    def outcomes(self) -> list[str]:
        """What came of all that it did."""
        return [outcome for cycle in self.cycles() for outcome in cycle["outcomes"]]

    def wait_for(self, condition: Callable[[], T | None], what: str, seconds: float = 300) -> T:
        """Wait for something that it does, and give it; its words are in the error."""
        try:
            return wait_until(condition, what, seconds)
        except Exception as error:
            raise AssertionError(f"{what}: {error}: {self.log.read_text()[-2000:]}") from error

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Let it do nothing for a while, as a debugger would."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(60)
        self._file.close()


class Operator:
    """`equipoise operator` as a user runs it, looking every second, for one namespace.

    It lives in a namespace of its own, since nothing is ever evicted where it lives.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        prometheus_url: str,
        namespace: str,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        program: str = "from equipoise.cli.main import main; main()",
    ) -> None:
        """With other settings, these are laid over the usual ones."""
        self.home = f"operator-{secrets.token_hex(4)}"
        self.url = f"http://127.0.0.1:{free_port()}"
        self.journal = folder / "journal.db"
        self._control_plane = control_plane
        config = folder / "operator.yaml"
        config.write_text(
            json.dumps(
                {
                    "kubernetes": {"kubeconfig": str(control_plane.kubeconfig)},
                    "namespaces": [namespace],
                    "lease": {"namespace": self.home},
                    "http": {"address": self.url.removeprefix("http://")},
                    "prometheus": {"url": prometheus_url},
                    "journal": {"path": str(self.journal)},
                    "intervals": {"rotation": "1s"},
                    "logs": {"format": "json"},
                    **(settings or {}),
                }
            )
        )
        control_plane.apply(namespaced(self.home))
        self.replica = Replica(folder, ["-c", program, "operator", "--config", str(config)])

    def __enter__(self) -> Self:
        try:
            self.wait_for(lambda: is_answering(f"{self.url}/readyz"), "the operator to be ready")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it, and remove where it lived."""
        self.replica.end()
        self._control_plane.api.delete(f"/api/v1/namespaces/{self.home}")

    def wait_for(self, condition: Callable[[], T | None], what: str, seconds: float = 300) -> T:
        """Wait for something that it does, and give it; its words are in the error."""
        return self.replica.wait_for(condition, what, seconds)

    def metric(self, name: str, **labels: str) -> float | None:
        """Give the sum of a metric over all series with these labels; None where there is none."""
        with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
            text = pool.request("GET", f"{self.url}/metrics").data.decode()
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def decisions(self, namespace: str, reason: str) -> float:
        """Count how often it came to this for the workloads of a namespace."""
        return self.metric("rebalancer_rotation_decisions_total", namespace=namespace, reason=reason) or 0.0
