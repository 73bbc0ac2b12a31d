"""2,000 idle connections against each server: `python -m tests.soak.connections [--seconds N] [--only NAME]`.

Operator, agent, `pools serve` and dashboard, each as its command runs with 1,024 file descriptors, the first
two with a real kubelet and API server. Another process holds 2,000 connections to it, of which half send
nothing and half the beginning of a head, and opens each again as soon as it is closed, up to 2,000 a second.
`/healthz` is asked ten times a second, each time on a new connection: first for a third of the time without
the others, since a machine that is busy is slow at that too. Figures go to docs/soak.md.
"""

import argparse
import os
import resource
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import urllib3

from tests.soak import write_figures
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.pools.servers import server
from tests.testbed import free_port, wait_until
from tests.testbed.node import RealNode
from tests.testbed.processes import is_answering
from tests.testbed.scenes import namespaced

HOME = "equipoise-system"
DESCRIPTORS, CONNECTIONS, OPENED_PER_SECOND = 1024, 2000, 2000
TURN_SECONDS, PROBE_SECONDS, PATIENCE_SECONDS, START_SECONDS = 0.05, 0.1, 10.0, 300
HALF = b"GET / HTTP/1.1\r\nHost: x\r\nA: "
PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
from equipoise.cli.main import main
main()
"""
Words = Callable[[str], list[str]]


class Seen(NamedTuple):
    """What was seen of one server."""

    name: str
    alone: list[float]
    opened: int
    probes: list[float]
    unanswered: int
    log_bytes: int
    log_lines: int
    cpu_share: float


def flood(port: int) -> None:
    """Hold the connections until standard input is closed; print a line when all are open, and at the end."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held: dict[int, socket.socket] = {}
    poll, opened, is_ready = select.poll(), 0, False
    stop = select.poll()
    stop.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not stop.poll(0):
        until = time.monotonic() + TURN_SECONDS
        for _ in range(min(CONNECTIONS - len(held), int(OPENED_PER_SECOND * TURN_SECONDS))):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            opened += 1
            held[one.fileno()] = one
            poll.register(one, select.POLLOUT if opened % 2 else select.POLLIN)
        if opened >= CONNECTIONS and not is_ready:
            is_ready = True
            print("all are open", flush=True)
        for number, event in poll.poll(0):
            if event == select.POLLOUT:
                poll.modify(number, select.POLLIN)
                _begin(held[number])
            else:  # the server has closed it, or never took it
                poll.unregister(number)
                held.pop(number).close()
        time.sleep(max(0.0, until - time.monotonic()))
    print(opened, flush=True)


def _begin(one: socket.socket) -> None:
    try:
        one.send(HALF)
    except OSError:
        return  # closed meanwhile, which the next turn sees


def _attack(name: str, words: Words, folder: Path, seconds: float) -> Seen:
    address = f"127.0.0.1:{free_port()}"
    log = folder / f"{name.replace(' ', '-')}.log"
    with ExitStack() as stack:
        stream = stack.enter_context(log.open("wb"))
        run = [sys.executable, "-c", PROGRAM % (DESCRIPTORS, DESCRIPTORS), *words(address)]
        process = subprocess.Popen(run, stdout=stream, stderr=stream)
        stack.callback(process.wait, 60)
        stack.callback(process.kill)

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()[-2000:]
            return is_answering(f"http://{address}/healthz")

        wait_until(is_up, f"{name} to answer", START_SECONDS)
        alone, _ = _probe(f"http://{address}/healthz", seconds / 3)
        size, lines, cpu = log.stat().st_size, _lines(log), _cpu(process)
        began = time.monotonic()
        opened, probes, unanswered = _measure(address, seconds)
        assert process.poll() is None, log.read_text()[-2000:]
        share = (_cpu(process) - cpu) / (time.monotonic() - began)
        grown = log.stat().st_size - size, _lines(log) - lines
        return Seen(name, alone, opened, probes, unanswered, *grown, share)


def _measure(address: str, seconds: float) -> tuple[int, list[float], int]:
    words = [sys.executable, "-m", "tests.soak.connections", "--flood", address.rpartition(":")[2]]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flooding:
        assert flooding.stdout is not None
        assert flooding.stdout.readline() == "all are open\n"
        probes, unanswered = _probe(f"http://{address}/healthz", seconds)
        opened, _ = flooding.communicate(timeout=60)
    return int(opened), probes, unanswered


def _probe(url: str, seconds: float) -> tuple[list[float], int]:
    probes, unanswered, until = [], 0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            with urllib3.PoolManager(timeout=PATIENCE_SECONDS, retries=False) as pool:
                unanswered += pool.request("GET", url).status != 200
        except urllib3.exceptions.HTTPError:
            unanswered += 1
        probes.append(time.monotonic() - began)
        threading.Event().wait(PROBE_SECONDS)
    return probes, unanswered


def _lines(log: Path) -> int:
    with log.open("rb") as stream:
        return sum(part.count(b"\n") for part in iter(lambda: stream.read(1 << 20), b""))


def _cpu(process: "subprocess.Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _servers(folder: Path, stack: ExitStack, only: str) -> dict[str, Words]:
    """Return the words of each command, without what is needed for those that are left out."""
    found: dict[str, Words] = {}
    journal = ["--journal", str(folder / "none.jsonl")]
    found["dashboard"] = lambda at: ["dashboard", "--no-open", "--port", at.rpartition(":")[2], *journal]
    if only in {"", "pools serve"}:
        url = stack.enter_context(server())
        found["pools serve"] = lambda at: ["pools", "serve", "--redis", url, "--address", at]
    if only in {"", "operator", "agent"}:
        node = RealNode(folder)
        stack.callback(node.stop)
        node.start()
        config = ["--kubeconfig", str(node.control_plane.kubeconfig)]
        done = equipoise("crds", "apply", *config)
        assert done.returncode == 0, done.stderr
        node.control_plane.apply(namespaced(HOME))
        who = ["--node", node.name, "--state", str(folder / "state.json"), "--usage-of", "pods"]
        where = ["--cgroups", str(node.root / "sys/fs/cgroup"), "--interval", "1s"]
        found["operator"] = lambda at: ["operator", *config, "--lease-namespace", HOME, "--http-address", at]
        found["agent"] = lambda at: ["agent", *config, *who, *where, "--http-address", at]
    return {name: words for name, words in found.items() if only in {"", name}}


def _entry(all_seen: list[Seen], seconds: float) -> str:
    title = f"### {datetime.now(UTC).date().isoformat()}: {seconds:.0f} s for each server"
    lines = [
        "| server | opened | `/healthz` asked | unanswered | median | slowest | slowest before | log | CPU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {seen.name} | {seen.opened} | {len(seen.probes)} | {seen.unanswered} "
        f"| {1000 * statistics.median(seen.probes):.0f} ms | {1000 * max(seen.probes):.0f} ms "
        f"| {1000 * max(seen.alone):.0f} ms "
        f"| {seen.log_bytes} bytes, {seen.log_lines} line{'s' * (seen.log_lines != 1)} "
        f"| {100 * seen.cpu_share:.0f} % |"
        for seen in all_seen
    ]
    return f"{title}\n\n" + "\n".join(lines) + "\n"


def main() -> int:
    """Run, and write the figures; a probe without an answer, or a log that grows, is a failure."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.connections", description=__doc__)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--only", default="", help="one server; nothing is written then")
    options.add_argument("--flood", type=int, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.flood:
        flood(chosen.flood)
        return 0
    with tempfile.TemporaryDirectory(prefix="connections-") as folder, ExitStack() as stack:
        servers = _servers(Path(folder), stack, chosen.only)
        seen = [_attack(name, words, Path(folder), chosen.seconds) for name, words in servers.items()]
    entry = _entry(seen, chosen.seconds)
    print(entry)
    if not chosen.only:
        write_figures("connections", entry)
    return int(any(one.unanswered or one.log_bytes > 100_000 for one in seen))


if __name__ == "__main__":
    sys.exit(main())
