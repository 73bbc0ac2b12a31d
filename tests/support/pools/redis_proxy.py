"""A wire before a real server: it loses scripts' requests or answers, and what comes after fails as told."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
READ_BYTES = 1 << 20


@dataclass
class RedisProxy:
    """What is lost from now on; scripts that come before `skips` are used up pass as they are."""

    path: str
    """The server's socket."""
    url: str = ""
    loses: str = ""
    """`request`, `answer`, or nothing; it is lost once, and its connection ends."""
    skips: int = 0
    then: str = ""
    """What comes after: `refused`, `silent`, an error of the server such as `LOADING`, or nothing."""
    is_lost: bool = False
    on_lost: Callable[[], object] = lambda: None
    _door: socket.socket | None = None
    _open: list[socket.socket] = field(default_factory=list)

    def lose(
        self, what: str, then: str = "", skips: int = 0, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        """Lose the next script's request or answer.

        `silence` loses every answer, and keeps the line open; `word` gives another one in its place, as a
        proxy does whose patience ends.
        """
        self.loses, self.then, self.skips, self.on_lost, self.is_lost = what, then, skips, on_lost, False

    def refuse(self, error: str) -> None:
        """Answer every script with this error of the server, from now on; without one, pass them."""
        self.loses, self.then, self.skips, self.is_lost = (
            ("answer", error, 0, True) if error else ("", "", 0, False)
        )

    def start(self) -> None:
        """Take connections until the door is shut."""
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, args=(self._door,), daemon=True).start()

    def shut(self) -> None:
        """Refuse new connections from now on."""
        if self._door is not None:
            with contextlib.suppress(OSError):
                self._door.shutdown(socket.SHUT_RDWR)
            self._door.close()
            self._door = None

    def stop(self) -> None:
        """End everything."""
        self.shut()
        for near in self._open:
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)

    def _accept(self, door: socket.socket) -> None:
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                return
            self._open.append(near)
            threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as far:
            far.connect(self.path)
            while asked := near.recv(READ_BYTES):
                if b"EVAL" not in asked or not self.loses:
                    near.sendall(_answer(asked, far))
                elif not self._passes(asked, near, far):
                    return

    def _passes(self, asked: bytes, near: socket.socket, far: socket.socket) -> bool:
        """Do with a script as was said; return whether its connection goes on."""
        if self.skips:
            self.skips -= 1
            near.sendall(_answer(asked, far))
            return True
        if self.is_lost:
            return self._fails_after(asked, near, far)
        if self.loses != "request":
            _answer(asked, far)
        if self.loses == "silence":
            return True
        if self.loses == "word":
            near.sendall(f"{self.then}\r\n".encode() * asked.count(b"EVAL"))
            return True
        self.is_lost = True
        self.on_lost()
        if self.then == "refused":
            self.shut()
        return False

    def _fails_after(self, asked: bytes, near: socket.socket, far: socket.socket) -> bool:
        if self.then == "silent":
            return True
        if self.then:
            near.sendall(f"-{self.then} the server says so\r\n".encode() * asked.count(b"EVAL"))
        else:
            near.sendall(_answer(asked, far))
        return True


def _answer(asked: bytes, far: socket.socket) -> bytes:
    """Let the server do it, all of it, and give what it answers."""
    far.sendall(asked + PING)
    answer = b""
    while not answer.endswith(PONG):
        part = far.recv(READ_BYTES)
        if not part:
            return answer
        answer += part
    return answer.removesuffix(PONG)


@contextmanager
def proxy_to(url: str) -> Iterator[RedisProxy]:
    """Stand before the server of this socket."""
    found = RedisProxy(url.removeprefix("unix://"))
    found.start()
    try:
        yield found
    finally:
        found.stop()
