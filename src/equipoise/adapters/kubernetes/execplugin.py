"""Credentials from a command: the exec plugin protocol, `client.authentication.k8s.io` v1 and v1beta1.

The command never gets a terminal. What it prints is bounded, how long it runs is bounded, and whatever it
does wrong becomes one line that names it.
"""

from __future__ import annotations

import base64
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.errors import CredentialFailed
from equipoise.adapters.kubernetes.kubeconfig import Endpoint
from equipoise.adapters.kubernetes.kubefile import ExecConfig
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import parse_moment

GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
OUTPUT_BYTES_MAX = 1024 * 1024
TIMEOUT_SECONDS = 60.0


class ExecStatus(msgspec.Struct, frozen=True):
    """What a plugin gives."""

    token: str | None = None
    clientCertificateData: str | None = None
    clientKeyData: str | None = None
    expirationTimestamp: str | None = None


class ExecCredential(msgspec.Struct, frozen=True):
    """A plugin's whole answer."""

    apiVersion: str
    kind: str
    status: ExecStatus | None = None


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
    """Run the command once and check what it says."""
    name = f"exec plugin {config.command}"
    if config.apiVersion not in API_VERSIONS:
        expected = " or ".join(API_VERSIONS)
        raise BadInput(f"{name}: apiVersion: expected {expected}, got {config.apiVersion!r}")
    if config.interactiveMode == "Always":
        raise BadInput(f"{name}: interactiveMode: it needs a terminal (Always), and there is never one")
    if config.interactiveMode not in {None, "", "Never", "IfAvailable"}:
        raise BadInput(
            f"{name}: interactiveMode: expected Never or IfAvailable, got {config.interactiveMode!r}"
        )
    inherited = dict(os.environ if environment is None else environment)
    inherited.update((entry.name, entry.value) for entry in config.env or ())
    inherited["KUBERNETES_EXEC_INFO"] = exec_info(config, endpoint)
    output = _run(
        [_command(config, folder, inherited), *(config.args or ())], inherited, config, timeout_seconds
    )
    return _check(config, output, clock())


def exec_info(config: ExecConfig, endpoint: Endpoint) -> str:
    """Return the plugin what we want, and about the cluster if it asked."""
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
    """Find the command: a relative path begins at the kubeconfig's folder, a bare name is looked up."""
    command = config.command
    if os.sep in command:
        command = str(Path(folder) / command)
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        hint = f" ({one_line(config.installHint, 400)})" if config.installHint else ""
        raise CredentialFailed(f"exec plugin {config.command}: command not found{hint}")
    return found


def _run(
    command: list[str], environment: Mapping[str, str], config: ExecConfig, timeout_seconds: float
) -> bytes:
    name = f"exec plugin {config.command}"
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # the second of a NUL, or of what no system takes as a word
        why = getattr(error, "strerror", None) or str(error)
        raise CredentialFailed(f"{name}: cannot be run: {why.lower()}") from error
    with process:
        try:
            output, complaint = _read_both(process, time.monotonic() + timeout_seconds, name)
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            # It would show the arguments, which may be secret.
            raise CredentialFailed(f"{name}: closed its output but did not end") from None
        finally:
            # Its children hold the pipes too, so the whole session is ended.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if status != 0:
        said = one_line(complaint.decode("utf-8", "replace"), 300)
        raise CredentialFailed(f"{name}: ended with status {status}{': ' if said else ''}{said}")
    return output


def _read_both(process: subprocess.Popen[bytes], deadline: float, name: str) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    buffers = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in buffers:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise CredentialFailed(f"{name}: did not end in time")
            for key, _ in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fd)
                buffers[key.fd] += part
                if len(buffers[key.fd]) > OUTPUT_BYTES_MAX:
                    raise CredentialFailed(f"{name}: printed more than {OUTPUT_BYTES_MAX} bytes")
    return bytes(buffers[process.stdout.fileno()]), bytes(buffers[process.stderr.fileno()])


def _check(config: ExecConfig, output: bytes, now: float) -> Given:
    name = f"exec plugin {config.command}"
    try:
        answer = msgspec.json.decode(output, type=ExecCredential)
    except DECODE_ERRORS as error:
        raise CredentialFailed(f"{name}: did not print an ExecCredential: {one_line(str(error))}") from error
    if answer.kind != "ExecCredential" or answer.apiVersion != config.apiVersion:
        got = f"{one_line(answer.kind, 60)} of {one_line(answer.apiVersion, 60)}"
        raise CredentialFailed(f"{name}: expected an ExecCredential of {config.apiVersion}, got {got}")
    status = answer.status or ExecStatus()
    if bool(status.clientCertificateData) != bool(status.clientKeyData):
        raise CredentialFailed(f"{name}: gave a client certificate without its key, or the reverse")
    if not status.token and not status.clientCertificateData:
        raise CredentialFailed(f"{name}: gave neither a token nor a client certificate")
    if status.token and not (status.token.isascii() and status.token.isprintable()):
        raise CredentialFailed(f"{name}: gave a token with unprintable characters")
    expires_at = _expiry(name, status.expirationTimestamp)
    if expires_at is not None and expires_at <= now:
        raise CredentialFailed(f"{name}: gave a credential that expired at {status.expirationTimestamp}")
    return Given(
        token=status.token or None,
        cert_data=status.clientCertificateData.encode() if status.clientCertificateData else None,
        key_data=status.clientKeyData.encode() if status.clientKeyData else None,
        expires_at=expires_at,
    )


def _expiry(name: str, text: str | None) -> float | None:
    if not text:
        return None
    try:
        return parse_moment(text)
    except DECODE_ERRORS as error:
        raise CredentialFailed(
            f"{name}: expirationTimestamp: expected a time with a zone, got {one_line(text, 60)!r}"
        ) from error
