"""The dashboard against more idle connections and websockets than it has descriptors, and what these send."""

import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from equipoise.cli.main import main
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


@contextmanager
def _dashboard(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int, Path]]:
    """Start one with 256 descriptors; its process, its port, and the file that it logs to."""
    words = ["dashboard", "--port", "0", "--no-open", "--journal", str(folder / "none.jsonl")]
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, stderr=stream, text=True
        )
    with process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline().rsplit(":", 1)[1].strip("/\n")), log
        finally:
            process.kill()


def _is_well(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
        return bool(answer.read() == b"ok\n")


def test_websockets_and_idle_connections_keep_no_probe_out(tmp_path: Path) -> None:
    """Half of the 128 places are for websockets, the rest is enough for whoever asks."""
    with _dashboard(tmp_path) as (process, port, log), ExitStack() as stack:
        opened = [_answer(stack, port, f"{SOCKET}\r\n")[1] for _ in range(70)]
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        assert _is_well(port)
        refused = [first[:12] for first in opened if first[:12] != b"HTTP/1.1 101"]
        assert refused == [b"HTTP/1.1 403"] * 6
        # wsproto raises on what is not ASCII there, and the connection has to be counted off all the same.
        bad = f"{SOCKET}Sec-WebSocket-Extensions: \xff\r\n\r\n"
        assert _answer(stack, port, bad)[1].startswith(b"HTTP/1.1 400")
        assert _is_well(port)
        for _ in range(20):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/nothing", timeout=30)
        process.terminate()
        assert process.wait(60) == 0
    said = log.read_text()
    assert said.count("\n") <= 5, said
    assert "refused: too many requests in progress" in said


def _frame(kind: int, data: bytes) -> bytes:
    """Return what a client sends: a whole message, masked with zeros."""
    length = bytes([128 + 126]) + struct.pack(">H", len(data))
    return bytes([0x80 | kind]) + (bytes([128 + len(data)]) if len(data) < 126 else length) + bytes(4) + data


def _memory_peak_mib(process: "subprocess.Popen[str]") -> float:
    _, _, rest = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")
    return int(rest.split()[0]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process in /proc")
def test_what_a_websocket_sends_takes_little_memory(tmp_path: Path) -> None:
    """Messages without an end, packed ones, and pings whose answers are not read; others are served on."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(bytes(50 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    part = bytes([0x80 | 126]) + struct.pack(">H", 60_000) + bytes(4) + bytes(60_000)
    with _dashboard(tmp_path) as (process, port, _), ExitStack() as stack:
        before = _memory_peak_mib(process)
        endless, first = _answer(stack, port, f"{SOCKET}\r\n")
        assert first.startswith(b"HTTP/1.1 101")
        with suppress(ConnectionError):
            endless.sendall(b"\x02" + part + (b"\x00" + part) * 200)
        for _ in range(3):
            bomb, first = _answer(stack, port, f"{SOCKET}{extension}\r\n")
            assert first.startswith(b"HTTP/1.1 101")
            with suppress(ConnectionError):
                bomb.sendall(bytes([0xC2]) + _frame(0, packed[:60_000])[1:])
        deaf = stack.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(60)
        deaf.connect(("127.0.0.1", port))
        deaf.sendall(f"{SOCKET}\r\n".encode())
        assert deaf.recv(4096).startswith(b"HTTP/1.1 101")
        with suppress(ConnectionError):  # on a machine that takes 40 s for them
            deaf.sendall(_frame(9, bytes(125)) * 150_000)
        assert _is_well(port)
        assert _memory_peak_mib(process) - before < 8
