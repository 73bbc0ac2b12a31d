"""What a Redis answers: bytes on the wire, and values of every kind in the places of sound ones."""

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import ask_at_every_connect
from equipoise.core.decision import MovePod
from equipoise.core.errors import BadInput, EquipoiseError
from equipoise.pools.invariants import notes, violations
from equipoise.pools.policy import apply_changes, read_changes, read_policy, tiers_for_scripts
from tests.support.fuzz.machine import Input, Reader

CONFIG = json.dumps(
    {"tiers": {"gold": {"type": "exclusive", "target": 2}, "basic": {"type": "shared", "target": 1}}}
)
INFO = (
    b"# Server\r\nredis_version:7.4.0\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
    b"# Cluster\r\ncluster_enabled:0\r\n"
)
PAGE: list[Any] = [
    CONFIG,
    "7",
    [["gold", "set", "set", 1, [1, 0], [1, 0]], ["basic", "set", "zset", 1, [0, 1], [None, "2"]]],
    1,
    [0, "voice:x", "list", 1, "voice:y", "list"],
    ["a-0", "a-1"],
    [["gold", "basic"], [], [None, "c1"], ["u1", None], [], ['{"a":1}', None], []],
    [1, "c1"],
]
"""A page as `snapshot.lua` answers it."""
TIMEOUT_SECONDS = 0.5
MANY = re.compile(rb"([*%~>|])[0-9]{7,}")
"""The client's parser takes memory for as many elements as are announced: that is a matter of its own."""


def encoded(value: Any) -> bytes:
    """Return a value as Redis writes it."""
    match value:
        case None:
            return b"$-1\r\n"
        case bool() | int():
            return b":%d\r\n" % value
        case dict():
            return encoded([part for pair in value.items() for part in pair])
        case list():
            return b"*%d\r\n%s" % (len(value), b"".join(map(encoded, value)))
    text = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    return b"$%d\r\n%s\r\n" % (len(text), text)


class Server:
    """Answers each command from memory, and hangs up after what is given, which may be half an answer."""

    def __init__(self, path: Path) -> None:
        self.answers: dict[bytes, bytes] = {}
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        hello = b"%2\r\n+server\r\n+redis\r\n+proto\r\n:3\r\n"
        sound = {b"INFO": encoded(INFO), b"GET": encoded(CONFIG), b"HELLO": hello}
        with near, suppress(OSError, ValueError), near.makefile("rb") as asked:
            while head := asked.readline():
                count = int(head[1:])
                words = [asked.read(int(asked.readline()[1:]) + 2)[:-2] for _ in range(count)]
                given = self.answers.get(words[0].upper())
                near.sendall(given or sound.get(words[0].upper(), b"+OK\r\n"))
                if given is not None and words[0].upper() == b"EVALSHA" and not given.endswith(b"\r\n"):
                    return  # a half answer would be waited for

    def close(self) -> None:
        """Answer nobody any more."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


@contextmanager
def pools(answers: dict[bytes, bytes]) -> Iterator[RedisPools]:
    """Connect to a server that gives these answers to these commands."""
    with TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "s"
        server = Server(path)
        server.answers = {word: MANY.sub(rb"\g<1>9", answer) for word, answer in answers.items()}
        client = connect(f"unix://{path}", "voice", timeout_seconds=TIMEOUT_SECONDS)
        found = RedisPools(client, "voice", read_tiers=tiers_for_scripts)
        try:
            yield found
        finally:
            found.close()
            server.close()


def _told(given: Input) -> bytes:
    """Return JSON as Redis would write the same value; all else as it is."""
    try:
        return encoded(json.loads(given.data))
    except (ValueError, RecursionError):
        return given.data


def _snapshot(given: Input) -> None:
    with pools({b"EVALSHA": _told(given)}) as found:
        seen = found.snapshot()
        violations(None, seen)
        notes(read_policy(CONFIG, "x"), seen)


def _writers(given: Input) -> None:
    """Each kind of question that changes something; one that is refused does not keep the others."""
    with pools({b"EVALSHA": _told(given)}) as found:
        refused = None
        for ask in (
            lambda: found.allocate("c1"),
            lambda: found.drain("a-0"),
            lambda: found.recover(["a-0", "a-1"], 7),
            lambda: found.set_config(CONFIG, hashlib.sha1(CONFIG.encode()).hexdigest()),
            lambda: found.move([MovePod("a-0", "gold", "basic")], "", 7),
        ):
            try:
                ask()
            except EquipoiseError as error:
                refused = error
        if refused is not None:
            raise refused


def _config(given: Input) -> None:
    text = given.data.decode(errors="replace")
    read_policy(text, "voice:tier:config")
    apply_changes(text, read_changes(["gold=4"]))


def _info(given: Input) -> None:
    answer = b"$%d\r\n%s\r\n" % (len(given.data), given.data)
    with pools({}) as found:
        found._client.connection_pool.disconnect()
        ask_at_every_connect(found._client)
        with suppress(EquipoiseError):
            found.check_config()
    with pools({b"INFO": answer}) as found:
        said = found.eviction()
        assert said.isprintable(), "it can be printed"


def _wire(given: Input) -> None:
    """Answers that may be no answers at all, to what connects and reads."""
    with pools({b"INFO": given.data}) as found:
        found.check_config()
    with pools({b"GET": given.data}) as found, suppress(BadInput):
        found.check_config()


def readers() -> list[Reader]:
    """Return the readers of what a Redis answers."""
    page, answer = json.dumps(PAGE).encode(), b'["Allocated","a-0","gold",""]'
    tiers = (CONFIG.encode(), b'{"gold":{"type":"exclusive","target":1}}', b'{"gold":4,"basic":2}')
    return [
        Reader("Redis: pages of a snapshot", (encoded(PAGE),), _snapshot, (page,), is_slow=True),
        Reader(
            "Redis: replies of scripts", (encoded(json.loads(answer)),), _writers, (answer,), is_slow=True
        ),
        Reader("Redis: INFO", (INFO,), _info, is_slow=True),
        Reader("Redis: answers on the wire", (encoded(INFO),), _wire, is_slow=True),
        Reader("Redis: the config of the tiers", (), _config, tiers),
    ]
