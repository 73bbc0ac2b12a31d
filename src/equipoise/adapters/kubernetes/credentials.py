"""Credentials that change while the program runs: a token file, an exec plugin, or a kubeconfig's user entry.

A token file is read again when it changes (projected tokens rotate). A plugin (the protocol
`client.authentication.k8s.io` v1 and v1beta1) runs again before its credential expires, and once after a
401. It never gets a terminal; its output and its run time are bounded, and its error becomes one line with
its name.
"""

from __future__ import annotations

import base64
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.errors import CredentialFailed
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, ExecConfig, Identity, Target
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import parse_moment

GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
OUTPUT_BYTES_MAX = 1024 * 1024
TIMEOUT_SECONDS = 60.0


class _ExecStatus(msgspec.Struct, frozen=True):
    token: str | None = None
    clientCertificateData: str | None = None
    clientKeyData: str | None = None
    expirationTimestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    apiVersion: str
    kind: str
    status: _ExecStatus | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A plugin's credential, checked."""

    token: str | None
    cert_data: bytes | None
    key_data: bytes | None
    expires_at: float | None


def run_plugin(
    config: ExecConfig,
    endpoint: Endpoint,
    folder: str,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Given:
    """Run the command once and return its checked credential."""
    name = f"exec plugin {config.command}"
    if config.apiVersion not in API_VERSIONS:
        expected = " or ".join(API_VERSIONS)
        raise BadInput(f"{name}: apiVersion: expected {expected}, got {config.apiVersion!r}")
    if config.interactiveMode == "Always":
        raise BadInput(
            f"{name}: interactiveMode: expected Never or IfAvailable, got Always: there is no terminal"
        )
    if config.interactiveMode not in {None, "", "Never", "IfAvailable"}:
        got = f"got {config.interactiveMode!r}"
        raise BadInput(f"{name}: interactiveMode: expected Never or IfAvailable, {got}")
    inherited = dict(os.environ if environment is None else environment)
    inherited.update((entry.name, entry.value) for entry in config.env or ())
    inherited["KUBERNETES_EXEC_INFO"] = exec_info(config, endpoint)
    try:
        command = [_command(config, folder, inherited), *(config.args or ())]
        return _check(config, _run(command, inherited, timeout_seconds), clock())
    except CredentialFailed as error:
        raise CredentialFailed(f"{name}: {error}") from error.__cause__


def exec_info(config: ExecConfig, endpoint: Endpoint) -> str:
    """Return the request to the plugin, with the cluster if the plugin's entry asks for it."""
    spec: dict[str, object] = {"interactive": False}
    if config.provideClusterInfo:
        ca_data = endpoint.ca_data
        if ca_data is None and endpoint.ca_file:
            ca_data = Path(endpoint.ca_file).read_bytes()
        cluster = {
            "server": endpoint.server,
            "tls-server-name": endpoint.tls_server_name,
            "insecure-skip-tls-verify": endpoint.insecure or None,
            "certificate-authority-data": base64.b64encode(ca_data).decode() if ca_data else None,
            "proxy-url": endpoint.proxy_url,
            "config": endpoint.exec_config,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value is not None}
    return msgspec.json.encode(
        {"apiVersion": config.apiVersion, "kind": "ExecCredential", "spec": spec}
    ).decode()


def _command(config: ExecConfig, folder: str, environment: Mapping[str, str]) -> str:
    """Return the command's path: relative to the kubeconfig's folder, or found in PATH."""
    command = config.command
    if os.sep in command:
        command = str(Path(folder) / command)
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        hint = f" ({one_line(config.installHint, 400)})" if config.installHint else ""
        raise CredentialFailed(f"command not found{hint}")
    return found


def _run(command: list[str], environment: Mapping[str, str], timeout_seconds: float) -> bytes:
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: an argument with a NUL or without an encoding
        why = getattr(error, "strerror", None) or str(error)
        raise CredentialFailed(f"cannot be run: {why.lower()}") from error
    with process:
        try:
            output, complaint = _read_both(process, time.monotonic() + timeout_seconds)
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            # The original error shows the arguments, which may be secret.
            raise CredentialFailed("closed its output but did not exit") from None
        finally:
            # Its children hold the pipes too, so the whole session is killed.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status != 0:
        said = one_line(complaint.decode("utf-8", "replace"), 300)
        raise CredentialFailed(f"exited with status {status}{': ' if said else ''}{said}")
    return output


def _read_both(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    buffers = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in buffers:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise CredentialFailed("did not exit in time")
            for key, _ in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fd)
                buffers[key.fd] += part
                if len(buffers[key.fd]) > OUTPUT_BYTES_MAX:
                    raise CredentialFailed(f"printed more than {OUTPUT_BYTES_MAX} bytes")
    return bytes(buffers[process.stdout.fileno()]), bytes(buffers[process.stderr.fileno()])


def _check(config: ExecConfig, output: bytes, now: float) -> Given:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except DECODE_ERRORS as error:
        raise CredentialFailed(f"did not print an ExecCredential: {one_line(str(error))}") from error
    if answer.kind != "ExecCredential" or answer.apiVersion != config.apiVersion:
        got = f"{one_line(answer.kind, 60)} of {one_line(answer.apiVersion, 60)}"
        raise CredentialFailed(f"expected an ExecCredential of {config.apiVersion}, got {got}")
    status = answer.status or _ExecStatus()
    if bool(status.clientCertificateData) != bool(status.clientKeyData):
        raise CredentialFailed(
            "returned a client certificate without its key, or a key without its certificate"
        )
    if not status.token and not status.clientCertificateData:
        raise CredentialFailed("returned neither a token nor a client certificate")
    if status.token and not (status.token.isascii() and status.token.isprintable()):
        raise CredentialFailed("returned a token with unprintable characters")
    expires_at, stated = None, status.expirationTimestamp
    if stated:
        try:
            expires_at = parse_moment(stated)
        except DECODE_ERRORS as error:
            got = one_line(stated, 60)
            why = f"expirationTimestamp: expected a time with a zone, got {got!r}"
            raise CredentialFailed(why) from error
    if expires_at is not None and expires_at <= now:
        raise CredentialFailed(f"returned a credential that expired at {stated}")
    return Given(
        token=status.token or None,
        cert_data=status.clientCertificateData.encode() if status.clientCertificateData else None,
        key_data=status.clientKeyData.encode() if status.clientKeyData else None,
        expires_at=expires_at,
    )


REREAD_SECONDS = 60.0
"""A token file is read at least this often, even when its folder hides the change."""
LEEWAY_SECONDS = 30.0
"""A plugin's credential is replaced so long before it expires, or a tenth of its lifetime if less."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its key, as files or PEM bytes; `stamp` changes when files are rewritten."""

    cert_file: str | None = None
    cert_data: bytes | None = field(default=None, repr=False)
    key_file: str | None = None
    key_data: bytes | None = field(default=None, repr=False)
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Credential:
    """The authorization header and the certificate of a request."""

    authorization: str | None = field(default=None, repr=False)
    certificate: Certificate | None = None


class CredentialSource(Protocol):
    """A source of the present credential."""

    def current(self) -> Credential:
        """Return the credential to use now."""

    def renew(self, refused: Credential) -> bool:
        """Try to replace a refused credential; return whether there is another one now."""


class FixedSource:
    """A token, a password or a certificate of the kubeconfig, or none."""

    def __init__(self, identity: Identity) -> None:
        self._authorization = _fixed_authorization(identity)
        self._identity = identity

    def current(self) -> Credential:
        """Return the credential; certificate files are checked, since they may be rewritten."""
        return Credential(self._authorization, certificate_of(self._identity))

    def renew(self, refused: Credential) -> bool:
        """Return whether the certificate's files were rewritten; nothing else changes by itself."""
        return self.current() != refused


class TokenFileSource:
    """A token in a file that another process renews."""

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
        """Return the token, read again when the file changed or a minute has passed."""
        with self._lock:
            if self._stamp != self._stat() or self._monotonic() - self._read_at >= REREAD_SECONDS:
                self._read()
            return Credential(f"Bearer {self._token}", certificate_of(self._identity))

    def renew(self, refused: Credential) -> bool:
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
                raise ValueError("unprintable")  # noqa: TRY301 - handled like text that is not ASCII
        except (OSError, ValueError) as error:
            if not self._token:
                why = getattr(error, "strerror", None) or "not a token"
                raise BadInput(f"tokenFile {self._path}: {why.lower()}") from error
            return  # the last good token may still be valid; the server decides
        if not token and not self._token:
            raise BadInput(f"tokenFile {self._path}: is empty")
        self._token = token or self._token
        self._stamp, self._read_at = stamp, self._monotonic()


class ExecSource:
    """Credentials of an exec plugin."""

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
        """Return the plugin's credential; run the plugin again shortly before it expires."""
        with self._lock:
            if self._credential is None or self._clock() >= self._replace_at:
                self._replace()
            assert self._credential is not None
            return self._credential

    def renew(self, refused: Credential) -> bool:
        """Run the plugin again, unless another thread has done so since."""
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
    """Return the source for the user entry; its token takes precedence over a plugin, as in kubectl."""
    identity = target.identity
    if identity.token_file:
        return TokenFileSource(identity, monotonic)
    if identity.exec is not None and _fixed_authorization(identity) is None:
        return ExecSource(identity, target.endpoint, clock=clock)
    return FixedSource(identity)


def certificate_of(identity: Identity) -> Certificate | None:
    """Return the client certificate of the user entry, with the state of its files."""
    if not (identity.cert_file or identity.cert_data):
        return None
    files = ((identity.cert_file, identity.cert_data), (identity.key_file, identity.key_data))
    stamp: list[int] = []
    for path in (path for path, data in files if path and not data):
        with suppress(OSError):
            stamp.append(os.stat(path).st_mtime_ns)  # noqa: PTH116 - runs before every request
    return Certificate(*files[0], *files[1], tuple(stamp))


def _fixed_authorization(identity: Identity) -> str | None:
    if identity.token:
        return f"Bearer {identity.token}"
    if identity.username:
        pair = f"{identity.username}:{identity.password or ''}".encode("utf-8", "surrogateescape")
        return f"Basic {base64.b64encode(pair).decode()}"
    return None
