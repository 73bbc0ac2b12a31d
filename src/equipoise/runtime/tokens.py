"""Bearer tokens from a file, which is read again when it may have changed."""

import hmac
import ipaddress
import threading
import time
from collections.abc import Callable
from pathlib import Path

from equipoise.core.errors import BadInput

RELOAD_SECONDS = 5.0
"""The interval between reads of the file."""
LENGTH_MIN = 16


class Tokens:
    """The tokens of a file, one per line: during a rotation both the old and the new one are valid."""

    def __init__(self, file: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Read the tokens; raises BadInput for a file without one, since no request could ever pass."""
        self._file = Path(file)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tokens = self._read()
        self._loaded_at = monotonic()
        self.error = ""
        """Why the file could not be read again; the last tokens stay valid meanwhile."""

    def admit(self, header: str) -> bool:
        """Return whether an `Authorization` header has one of the tokens."""
        scheme, _, presented = header.partition(" ")
        return scheme.lower() == "bearer" and self.holds(presented.strip(), bytes.decode)

    def holds(self, presented: str, derive: Callable[[bytes], str]) -> bool:
        """Return whether a value was derived from one of the tokens."""
        self._reload()
        found = presented.encode()
        assert self._tokens, "a file without a token was admitted"
        # Every token is compared, each in constant time: the duration reveals nothing.
        return sum(hmac.compare_digest(derive(token).encode(), found) for token in self._tokens) > 0

    def _reload(self) -> None:
        now = self._monotonic()
        if now - self._loaded_at < RELOAD_SECONDS:
            return
        with self._lock:
            self._loaded_at = now
            try:
                self._tokens, self.error = self._read(), ""
            except BadInput as error:
                self.error = str(error)

    def _read(self) -> tuple[bytes, ...]:
        try:
            lines = self._file.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise BadInput(f"--token-file {self._file}: {why}") from error
        if not lines or min(map(len, lines)) < LENGTH_MIN:
            raise BadInput(
                f"--token-file {self._file}: expected one token of at least {LENGTH_MIN} characters per line"
            )
        return tuple(line.encode() for line in lines)


def expect_safe(address: str, token_file: str | None) -> None:
    """Raise BadInput for an address that other machines can reach without a token."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if token_file is None and not is_loopback(host):
        raise BadInput(
            f"--address {address}: expected --token-file, since other machines can reach this address; "
            "or a loopback address such as 127.0.0.1:8081"
        )


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
