"""etcd, the API server's memory, and a way to make it forget history for real."""

import base64
import json
from pathlib import Path
from typing import Any

import urllib3

from tests.testbed.build import binary
from tests.testbed.processes import Process, free_port, is_answering


class Etcd:
    """One etcd member on its own ports, spoken to through its JSON gateway."""

    def __init__(self, folder: Path) -> None:
        self._http = urllib3.PoolManager(timeout=30.0, retries=False)
        self.url = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        self.process = Process(
            "etcd",
            [
                binary("etcd"),
                "--name=testbed",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=testbed={peer}",
                "--unsafe-no-fsync",  # the data need to outlive a crash of the API server, not of the machine
                "--log-level=warn",
            ],
            folder / "logs" / "etcd.log",
        )

    def start(self) -> None:
        self.process.start()
        self.process.wait_until(lambda: is_answering(f"{self.url}/health"), "etcd healthy", 120)

    def stop(self) -> None:
        self.process.stop()
        self._http.clear()

    def compact(self) -> int:
        """Forget every revision before the present one; give the present one."""
        key = base64.b64encode(b"/").decode()
        revision = int(self._post("/v3/kv/range", {"key": key})["header"]["revision"])
        self._post("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.request("POST", self.url + path, body=json.dumps(body))
        assert answer.status == 200, f"etcd {path}: {answer.status} {answer.data[:300]!r}"
        decoded: dict[str, Any] = json.loads(answer.data)
        return decoded
