"""The dashboard against more idle connections and websockets than it has descriptors."""

import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from equipoise.app.main import main
main()
"""
SOCKET = (
    "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def _answer(stack: ExitStack, port: int, request: str) -> tuple[socket.socket, bytes]:
    opened = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
    opened.sendall(request.encode("latin-1"))
    return opened, opened.recv(65536)


def test_websockets_and_idle_connections_keep_no_probe_out(tmp_path: Path) -> None:
    """Half of the 128 places are for websockets, the rest is enough for whoever asks."""
    words = ["dashboard", "--port", "0", "--no-open", "--journal", str(tmp_path / "none.jsonl")]
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=stream, text=True
        )
    with process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1].strip("/\n"))

        def is_well() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
                return bool(answer.read() == b"ok\n")

        opened = [_answer(stack, port, f"{SOCKET}\r\n")[1] for _ in range(70)]
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        assert is_well()
        refused = [first[:12] for first in opened if first[:12] != b"HTTP/1.1 101"]
        assert refused == [b"HTTP/1.1 403"] * 6
        # wsproto raises on what is not ASCII there, and the connection has to be counted off all the same.
        bad = f"{SOCKET}Sec-WebSocket-Extensions: \xff\r\n\r\n"
        assert _answer(stack, port, bad)[1].startswith(b"HTTP/1.1 400")
        assert is_well()
        process.terminate()
        assert process.wait(60) == 0
    said = log.read_text()
    assert said.count("\n") <= 5, said
    assert "refused, as too many were under way" in said
