"""Who we are, at this moment: credentials change under a running program.

A token file is read anew when it changes (projected tokens rotate), a plugin is asked again before its
credential expires, and once after a 401.
"""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from equipoise.adapters.kubernetes.execplugin import Given, run_plugin
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.core.errors import BadInput

REREAD_SECONDS = 60.0
"""A token file is read at least this often, even when its folder hides the change."""
LEEWAY_SECONDS = 30.0
"""How long before its expiry a plugin's credential is replaced, or a tenth of its life if that is less."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its key, as files or PEM bytes; `stamp` tells rewritten files apart."""

    cert_file: str | None = None
    cert_data: bytes | None = field(default=None, repr=False)
    key_file: str | None = None
    key_data: bytes | None = field(default=None, repr=False)
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """What to send with a request."""

    authorization: str | None = field(default=None, repr=False)
    certificate: Certificate | None = None


class CredentialSource(Protocol):
    """Gives the credential of the moment."""

    def current(self) -> Credential:
        """Give the credential to use now."""
        ...

    def renew(self, refused: Credential) -> bool:
        """Try to replace a credential that was refused; tell whether there is another one now."""
        ...


class FixedSource:
    """A token, a password or a certificate that is written in the kubeconfig, or none at all."""

    def __init__(self, identity: Identity) -> None:
        self._authorization = _fixed_authorization(identity)
        self._identity = identity

    def current(self) -> Credential:
        """Return it; certificate files are looked at, for they may be rewritten."""
        return Credential(self._authorization, certificate_of(self._identity))

    def renew(self, refused: Credential) -> bool:
        """Return whether the certificate's files were rewritten; nothing else changes by itself."""
        return self.current() != refused


class TokenFileSource:
    """A token that someone else keeps fresh in a file."""

    def __init__(self, identity: Identity, monotonic: Callable[[], float] = time.monotonic) -> None:
        assert identity.token_file is not None
        self._identity = identity
        self._path = Path(identity.token_file)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._token = identity.token or ""
        self._stamp: tuple[int, int, int] | None = None
        self._read_at = float("-inf")

    def current(self) -> Credential:
        """Return the token, read anew when the file changed or a minute has passed."""
        with self._lock:
            if self._stamp != self._stat() or self._monotonic() - self._read_at >= REREAD_SECONDS:
                self._read()
            return Credential(f"Bearer {self._token}", certificate_of(self._identity))

    def renew(self, refused: Credential) -> bool:
        """Read the file at once, whatever its age."""
        with self._lock:
            self._read_at = float("-inf")
        return self.current() != refused

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> None:
        stamp = self._stat()
        try:
            token = self._path.read_text("ascii").strip()
            if not token.isprintable():
                raise ValueError("unprintable")  # noqa: TRY301 - it ends like text that is not ASCII
        except (OSError, ValueError) as error:
            if not self._token:
                why = getattr(error, "strerror", None) or "not a token"
                raise BadInput(f"tokenFile {self._path}: {why.lower()}") from error
            return  # the last good one may still do, and the server is the judge of that
        if not token and not self._token:
            raise BadInput(f"tokenFile {self._path}: is empty")
        self._token = token or self._token
        self._stamp, self._read_at = stamp, self._monotonic()


class ExecSource:
    """A command that gives credentials."""

    def __init__(
        self,
        identity: Identity,
        endpoint: Endpoint,
        *,
        clock: Callable[[], float] = time.time,
        ask: Callable[[], Given] | None = None,
    ) -> None:
        config = identity.exec
        assert config is not None
        self._ask = ask or (lambda: run_plugin(config, endpoint, identity.folder, clock=clock))
        self._identity = identity
        self._clock = clock
        self._lock = threading.Lock()
        self._credential: Credential | None = None
        self._replace_at = float("inf")

    def current(self) -> Credential:
        """Return the plugin's credential; ask anew shortly before it expires."""
        with self._lock:
            if self._credential is None or self._clock() >= self._replace_at:
                self._replace()
            assert self._credential is not None
            return self._credential

    def renew(self, refused: Credential) -> bool:
        """Ask the plugin again, unless another thread has done so since."""
        with self._lock:
            if self._credential == refused:
                self._replace()
            return self._credential != refused

    def _replace(self) -> None:
        now = self._clock()
        given = self._ask()
        certificate = certificate_of(self._identity)
        if given.cert_data:
            certificate = Certificate(cert_data=given.cert_data, key_data=given.key_data)
        self._credential = Credential(f"Bearer {given.token}" if given.token else None, certificate)
        self._replace_at = float("inf")
        if given.expires_at is not None:
            self._replace_at = given.expires_at - min(LEEWAY_SECONDS, (given.expires_at - now) / 10)


def source_for(
    target: Target, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
) -> CredentialSource:
    """Choose what the user entry asks for; a token written there wins over a plugin, as in kubectl."""
    identity = target.identity
    if identity.token_file:
        return TokenFileSource(identity, monotonic)
    if identity.exec is not None and _fixed_authorization(identity) is None:
        return ExecSource(identity, target.endpoint, clock=clock)
    return FixedSource(identity)


def certificate_of(identity: Identity) -> Certificate | None:
    """Return the client certificate that the user entry names, with the state of its files."""
    if not (identity.cert_file or identity.cert_data):
        return None
    stamp: list[int] = []
    for path in (
        None if identity.cert_data else identity.cert_file,
        None if identity.key_data else identity.key_file,
    ):
        if path:
            with suppress(OSError):
                stamp.append(os.stat(path).st_mtime_ns)  # noqa: PTH116 - asked before every request
    return Certificate(
        identity.cert_file, identity.cert_data, identity.key_file, identity.key_data, tuple(stamp)
    )


def _fixed_authorization(identity: Identity) -> str | None:
    if identity.token:
        return f"Bearer {identity.token}"
    if identity.username:
        pair = f"{identity.username}:{identity.password or ''}".encode("utf-8", "surrogateescape")
        return f"Basic {base64.b64encode(pair).decode()}"
    return None
