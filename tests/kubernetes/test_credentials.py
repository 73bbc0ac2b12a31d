"""Credentials that change under a running program: token files and exec plugins."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.kubernetes.credentials import (
    ExecSource,
    Given,
    TokenFileSource,
    run_plugin,
    source_for,
)
from equipoise.adapters.kubernetes.errors import CredentialFailed
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, EnvironmentEntry, ExecConfig, Identity, Target
from equipoise.core.errors import BadInput, EquipoiseError
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
ENDPOINT = Endpoint("https://10.0.0.1:6443", ca_data=b"pem", exec_config={"audience": "x"})


def plugin(code: str, api_version: str = V1, **fields: Any) -> ExecConfig:
    """A plugin that is a line of Python."""
    return ExecConfig(sys.executable, api_version, ["-I", "-S", "-c", code], **fields)


def printing(status: object, api_version: str = V1, kind: str = "ExecCredential") -> str:
    return f"print({json.dumps(json.dumps({'apiVersion': api_version, 'kind': kind, 'status': status}))})"


def given_by(config: ExecConfig, timeout_seconds: float = 30.0) -> Given:
    return run_plugin(config, ENDPOINT, "/", clock=lambda: 1_700_000_000.0, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_a_plugin_gives_a_token_or_a_certificate_until_a_time(api_version: str) -> None:
    """Both API versions, both forms, with an expiry."""
    status = {
        "token": "t",
        "clientCertificateData": "CERT",
        "clientKeyData": "KEY",
        "expirationTimestamp": "2023-11-14T22:23:20Z",
    }
    given = given_by(plugin(printing(status, api_version), api_version))
    assert given == Given("t", b"CERT", b"KEY", 1_700_000_600.0)


def test_a_plugin_is_told_about_the_cluster_and_its_environment() -> None:
    """KUBERNETES_EXEC_INFO and the entry's own variables arrive; there is no terminal."""
    code = (
        "import os,sys,json; info=json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "assert not sys.stdin.read();"
        "print(json.dumps({'apiVersion':info['apiVersion'],'kind':info['kind'],'status':{'token':"
        "json.dumps([info['spec'],os.environ['MINE']])}}))"
    )
    config = plugin(code, env=[EnvironmentEntry("MINE", "yes")], provideClusterInfo=True)
    spec, mine = json.loads(given_by(config).token or "")
    assert mine == "yes"
    assert spec == {
        "interactive": False,
        "cluster": {
            "server": "https://10.0.0.1:6443",
            "certificate-authority-data": "cGVt",
            "config": {"audience": "x"},
        },
    }


FAULTS: list[tuple[ExecConfig, type[EquipoiseError], str]] = [
    (plugin("print('hello')"), CredentialFailed, "did not print an ExecCredential"),
    (plugin("pass"), CredentialFailed, "did not print an ExecCredential"),
    (plugin("import sys; sys.exit('no login')"), CredentialFailed, "exited with status 1: no login"),
    (plugin(printing({"token": "t"}, V1BETA1)), CredentialFailed, f"expected an ExecCredential of {V1}, got"),
    (plugin(printing({"token": "t"}, kind="Pod")), CredentialFailed, "got Pod of"),
    (plugin(printing(None)), CredentialFailed, "neither a token nor a client certificate"),
    (plugin(printing({"clientCertificateData": "x"})), CredentialFailed, "certificate without its key"),
    (plugin(printing({"token": "a\nb"})), CredentialFailed, "unprintable"),
    (
        plugin(printing({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"})),
        CredentialFailed,
        "returned a credential that expired at 2020-01-01T00:00:00Z",
    ),
    (
        plugin(printing({"token": "t", "expirationTimestamp": "tomorrow"})),
        CredentialFailed,
        "expirationTimestamp: expected a time with a zone, got 'tomorrow'",
    ),
    (plugin("print('x' * 3_000_000)"), CredentialFailed, "printed more than"),
    (
        ExecConfig("no-such-plugin", V1, installHint="get it\nthere"),
        CredentialFailed,
        "not found (get it there)",
    ),
    (
        plugin("pass", interactiveMode="Always"),
        BadInput,
        "interactiveMode: expected Never or IfAvailable, got Always",
    ),
    (plugin("pass", interactiveMode="Sometimes"), BadInput, "expected Never or IfAvailable, got 'Sometimes'"),
    (plugin("pass", "client.authentication.k8s.io/v1alpha1"), BadInput, "apiVersion: expected"),
]


@pytest.mark.parametrize(("config", "kind", "message"), FAULTS, ids=[message for *_, message in FAULTS])
def test_whatever_a_plugin_does_wrong_is_one_clear_line(
    config: ExecConfig, kind: type[EquipoiseError], message: str
) -> None:
    """Garbage, failure, an old credential, a missing command: named with the plugin."""
    with pytest.raises(kind) as caught:
        given_by(config)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"exec plugin {config.command}: ")
    assert "\n" not in str(caught.value)


def test_a_plugin_that_hangs_is_ended_with_its_children() -> None:
    """Even when a child of it keeps the pipes open."""
    code = "import subprocess,sys; subprocess.run([sys.executable,'-S','-c','import time; time.sleep(60)'])"
    with pytest.raises(CredentialFailed, match="did not exit in time"):
        given_by(plugin(code), timeout_seconds=0.3)


def test_a_relative_command_begins_at_the_kubeconfig(tmp_path: Path) -> None:
    """As kubectl has it."""
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable} -IS\n{printing({'token': 'near'})}\n")
    script.chmod(0o755)
    assert run_plugin(ExecConfig("bin/plugin", V1), ENDPOINT, str(tmp_path)).token == "near"


def exec_source(time: Time, answers: list[Given]) -> ExecSource:
    identity = Identity(exec=plugin("pass"))
    return ExecSource(identity, ENDPOINT, clock=time.read, ask=lambda: answers.pop(0))


def test_a_plugin_is_asked_again_shortly_before_its_credential_expires() -> None:
    """Not for every request, and not too late; a short life has a short leeway."""
    time = Time()
    source = exec_source(time, [Given(str(i), None, None, time.now + 600 * (i + 1)) for i in range(3)])
    assert source.current().authorization == "Bearer 0"
    time.now += 569
    assert source.current().authorization == "Bearer 0"
    time.now += 1
    assert source.current().authorization == "Bearer 1"
    brief = exec_source(time, [Given(str(i), None, None, time.now + 10 * (i + 1)) for i in range(2)])
    assert [brief.current().authorization, brief.current().authorization] == ["Bearer 0", "Bearer 0"]
    time.now += 9.5
    assert brief.current().authorization == "Bearer 1"


def test_a_401_asks_the_plugin_once_more() -> None:
    """A new token is tried; a second refusal is the answer."""

    def script(asked: Asked, stage: Stage) -> None:
        if asked.headers["Authorization"] == "Bearer 1" and asked.path == "/version":
            stage.answer({"gitVersion": "v1"})
        else:
            stage.refuse(401, "Unauthorized", "Unauthorized")

    time = Time()
    answers = [Given(str(i), None, None, None) for i in range(5)]
    with playing(script) as player, session(player.url, world=time.world()) as client:
        client._credentials = exec_source(time, answers)
        assert client.server_version() == "v1"
        with pytest.raises(EquipoiseError, match="401 Unauthorized: the credential is wrong or has expired"):
            client.get("/elsewhere")
    assert [a.headers["Authorization"] for a in player.asked] == [
        "Bearer 0",
        "Bearer 1",
        "Bearer 1",
        "Bearer 2",
    ]


def token_file(path: Path, time: Time, token: str | None = None) -> TokenFileSource:
    return TokenFileSource(Identity(token_file=str(path), token=token), monotonic=time.read)


def test_a_token_file_is_read_when_it_changes(tmp_path: Path) -> None:
    """At once when the file shows it, and within a minute when it does not."""
    path, time = tmp_path / "token", Time()
    path.write_text("first\n")
    source = token_file(path, time)
    assert source.current().authorization == "Bearer first"
    replacement = tmp_path / "new"
    replacement.write_text("second")
    replacement.rename(path)
    assert source.current().authorization == "Bearer second"
    stamp = path.stat()
    path.write_text("third!")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert source.current().authorization == "Bearer second"
    time.now += 60
    assert source.current().authorization == "Bearer third!"


def test_a_token_file_that_vanishes_leaves_the_last_token(tmp_path: Path) -> None:
    """The server is the judge of its age; one that never was is bad input."""
    path, time = tmp_path / "token", Time()
    with pytest.raises(BadInput, match=r"tokenFile .*/token: no such file"):
        token_file(path, time).current()
    path.write_text(" ")
    with pytest.raises(BadInput, match="is empty"):
        token_file(path, time).current()
    path.write_text("a\nb")
    with pytest.raises(BadInput, match="not a token"):
        token_file(path, time).current()
    path.write_text("good")
    source = token_file(path, time)
    source.current()
    path.unlink()
    assert source.current().authorization == "Bearer good"
    assert token_file(path, time, token="spare").current().authorization == "Bearer spare"


@pytest.mark.parametrize(
    ("identity", "authorization"),
    [
        (Identity(), None),
        (Identity(token="t"), "Bearer t"),
        (Identity(username="me", password="p"), "Basic bWU6cA=="),
        (Identity(token="t", exec=plugin("raise SystemExit(1)")), "Bearer t"),
    ],
)
def test_what_is_written_in_the_file_is_used(identity: Identity, authorization: str | None) -> None:
    """A token, a password, nothing; a written token wins over a plugin."""
    assert source_for(Target(ENDPOINT, identity, "default", "test")).current().authorization == authorization
