"""A neighbour in a process of its own, on loopback, that answers with bytes it has ready."""

from __future__ import annotations

import gc
import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from benchmarks.measuring import ROOT

START_MAX_SECONDS = 300.0
LIFE_MAX_SECONDS = 3600.0
STOP_MAX_SECONDS = 10.0

Answer = Callable[[str, Mapping[str, str]], bytes]
"""From a path and the fields of a query or form to a body."""


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a head and a body sent apart would wait for each other's acknowledgement
    server: _Server

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, fields: str) -> None:
        body = self.server.answer(urlsplit(self.path).path, dict(parse_qsl(fields)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answer = answer


@contextmanager
def serving(make: Callable[..., Answer], **options: Any) -> Iterator[str]:
    """Run a server for the length of a block; `make`, at the top of its module, prepares its answers."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.serving",
        make.__module__,
        make.__name__,
        json.dumps(options),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_MAX_SECONDS)
        port = process.stdout.readline() if ready else ""
        if not port:
            raise RuntimeError(f"the server of {make.__module__} did not start")
        yield f"http://127.0.0.1:{int(port)}"
    finally:
        process.stdin.close()  # which is how it learns that it is over
        try:
            process.wait(STOP_MAX_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    module, function, options = sys.argv[1:]
    server = _Server(getattr(import_module(module), function)(**json.loads(options)))
    gc.collect()
    gc.freeze()  # the prepared answers are never garbage
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    select.select([sys.stdin], [], [], LIFE_MAX_SECONDS)
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
