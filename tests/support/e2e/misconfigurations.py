"""What can be wrong with a cluster, a kubeconfig or a Prometheus, and the line that says so."""

import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.e2e.accounts import signed_token, write_plugin
from tests.support.e2e.broken_servers import (
    Behaviour,
    answer,
    drips,
    impostor,
    never_answers,
    never_ends,
    says,
)
from tests.testbed import ControlPlane, free_port
from tests.testbed.certificates import Authority
from tests.testbed.kubeconfig import user_of


@dataclass
class Ground:
    """A cluster that is well, a folder, and servers that end with the test."""

    control_plane: ControlPlane
    folder: Path
    stack: ExitStack

    def config(
        self,
        user: dict[str, Any] | None = None,
        *,
        context: dict[str, Any] | None = None,
        cluster: Mapping[str, str | None] | None = None,
    ) -> Path:
        """Write a kubeconfig that is right but for what is given."""
        entry = {"server": self.control_plane.server, "certificate-authority": self.ca, **(cluster or {})}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {k: v for k, v in entry.items() if v is not None}}],
            "users": [{"name": "u", "user": user_of(self.control_plane.admin) if user is None else user}],
            "contexts": [{"name": "x", "context": context or {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        return self.file(yaml.safe_dump(content))

    @property
    def ca(self) -> str:
        return str(self.control_plane.ca)

    def file(self, text: str) -> Path:
        path = self.folder / "config"
        path.write_text(text)
        return path

    def serve(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> int:
        return self.stack.enter_context(impostor(behaviour, tls))

    def other_authority(self) -> Authority:
        return Authority(self.folder / "other")

    def plugin(self, answer: str) -> dict[str, Any]:
        """Describe a user whose credential comes from a command that prints this."""
        return {"exec": write_plugin(self.folder, answer, "v1")}


def _expired(ground: Ground) -> Path:
    return ground.config(
        {"token": signed_token(ground.control_plane, "default", "default", lives_seconds=-60)}
    )


def _without_rights(ground: Ground) -> Path:
    return ground.config({"token": ground.control_plane.token("default", "default")})


def _foreign_certificate(ground: Ground) -> Path:
    return ground.config(user_of(ground.other_authority().issue("me", "me", ["system:masters"])))


def _wrong_ca(ground: Ground) -> Path:
    return ground.config(cluster={"certificate-authority": str(ground.other_authority().certificate)})


def _expired_credential(ground: Ground) -> Path:
    status = '{"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}'
    text = f'{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'
    return ground.config(ground.plugin(text))


HTML = answer(200, "<html><title>Sign in</title></html>", "text/html")
SERVER = r"https://127\.0\.0\.1:\d+"
CLUSTERS: dict[str, tuple[Callable[[Ground], Path], int, str]] = {
    "nobody listens": (
        lambda g: g.config(cluster={"server": f"https://127.0.0.1:{free_port()}"}),
        1,
        rf"cannot reach {SERVER}: connection refused",
    ),
    "a token that expired": (_expired, 1, rf"{SERVER} refused GET .*: 401 .*has expired"),
    "a token of nobody": (lambda g: g.config({"token": "abc"}), 1, rf"{SERVER} refused GET .*: 401"),
    "no credential": (lambda g: g.config({}), 1, rf"{SERVER} refused GET .*(401|403)"),
    "a foreign client certificate": (_foreign_certificate, 1, rf"{SERVER}.*(401|client certificate)"),
    "an account without rights": (
        _without_rights,
        1,
        rf"{SERVER} refused GET .*: 403 Forbidden: horizontalpodautoscalers\.autoscaling is forbidden",
    ),
    "a plugin whose credential expired": (_expired_credential, 1, "exec plugin .*expired at 2020-01-01"),
    "a plugin that prints no credential": (
        lambda g: g.config(g.plugin("hello")),
        1,
        "exec plugin .*did not print an ExecCredential",
    ),
    "a plugin that is not there": (
        lambda g: g.config({"exec": write_plugin(g.folder, "", "v1") | {"command": "no-such-plugin"}}),
        1,
        "exec plugin no-such-plugin: command not found",
    ),
    "a CA that did not sign it": (_wrong_ca, 1, rf"cannot reach {SERVER}: .*wrong CA"),
    "another name than it has": (
        lambda g: g.config(cluster={"tls-server-name": "other.example"}),
        1,
        rf"cannot reach {SERVER}: its certificate is for another host name",
    ),
    "plain HTTP to a TLS port": (
        lambda g: g.config(cluster={"server": g.control_plane.server.replace("https", "http")}),
        1,
        r"http://127\.0\.0\.1:\d+ .*400",
    ),
    "TLS to a plain HTTP port": (
        lambda g: g.config(cluster={"server": f"https://127.0.0.1:{g.serve(says(HTML))}"}),
        1,
        f"cannot reach {SERVER}: the server does not speak TLS",
    ),
    "a login page": (
        lambda g: g.config(cluster={"server": f"http://127.0.0.1:{g.serve(says(HTML))}"}),
        1,
        r"http://127\.0\.0\.1:\d+ answered GET .*an HTML page titled 'Sign in'",
    ),
    "no such file": (lambda g: g.folder / "absent", 2, r"--kubeconfig .*/absent: no such file"),
    "a folder": (lambda g: g.folder, 2, "--kubeconfig .*is a directory"),
    "an empty file": (lambda g: g.file(""), 2, "/config: current-context is not set"),
    "not YAML": (lambda g: g.file("a: [1, 2"), 2, "/config: not YAML: .* in line"),
    "not text": (lambda g: g.file("\x00\x01\x02"), 2, "/config: not YAML"),
    "a list": (lambda g: g.file("- a\n"), 2, "/config: expected a map, got a list"),
    "clusters of the wrong kind": (
        lambda g: g.file("clusters: {}"),
        2,
        "clusters: expected a list, got a map",
    ),
    "no server": (lambda g: g.config(cluster={"server": None}), 2, r"/config.*clusters.*server: is missing"),
    "a server that is no address": (
        lambda g: g.config(cluster={"server": "https://:bad"}),
        2,
        "server: expected an address",
    ),
    "a context without its cluster": (
        lambda g: g.config(context={"cluster": "elsewhere", "user": "u"}),
        2,
        "cluster: there is no cluster 'elsewhere'",
    ),
    "a context without its user": (
        lambda g: g.config(context={"cluster": "c", "user": "who"}),
        2,
        "user: there is no user 'who'",
    ),
    "a CA file that is not there": (
        lambda g: g.config(cluster={"certificate-authority": "/absent/ca.crt"}),
        2,
        "certificate-authority: no such file: /absent/ca.crt",
    ),
    "a CA that is not base64": (
        lambda g: g.config(cluster={"certificate-authority-data": "%%%"}),
        2,
        "certificate-authority-data: ",
    ),
    "a CA that is no certificate": (
        lambda g: g.config(cluster={"certificate-authority-data": "aGVsbG8="}),
        2,
        "not a PEM certificate",
    ),
    "a certificate without its key": (
        lambda g: g.config({"client-certificate": str(g.control_plane.admin.certificate)}),
        2,
        "client-certificate and client-key must come together",
    ),
}


def _error(status: int, kind: str, text: str) -> Behaviour:
    return says(answer(status, f'{{"status":"error","errorType":"{kind}","error":"{text}"}}'))


ADDRESS = r"http://127\.0\.0\.1:\d+"
IMPOSTORS: dict[str, tuple[Behaviour, str]] = {
    "422": (
        _error(422, "execution", "found duplicate series"),
        f"{ADDRESS} could not compute the query: found",
    ),
    "503": (_error(503, "unavailable", "starting"), rf"{ADDRESS} is not available \(503\): starting"),
    "401": (
        says(answer(401, "no", "text/plain")),
        rf"{ADDRESS} refused the query \(401\): it requires credentials",
    ),
    "403": (says(answer(403, "no", "text/plain")), rf"{ADDRESS} refused the query \(403\)"),
    "404": (
        says(answer(404, "not here", "text/plain")),
        rf"{ADDRESS} is not a Prometheus API: it answered 404",
    ),
    "HTML": (says(HTML), f"{ADDRESS}.*HTML"),
    "other JSON": (says(answer(200, '{"hello": 1}')), ADDRESS),
    "truncated JSON": (
        says(answer(200, '{"status":"success","data":{"resu')),
        f"{ADDRESS}.*cut off|{ADDRESS}.*JSON",
    ),
    "a cut off answer": (says(answer(200, '{"status"', length=9999)), f"{ADDRESS}: the answer was cut off"),
    "an endless answer": (never_ends, f"{ADDRESS} answered more than|{ADDRESS}: no answer in time"),
    "an answer that drips": (drips, f"{ADDRESS}: no answer in time"),
    "no answer": (never_answers, f"{ADDRESS}: no answer in time"),
    "a closed connection": (says(b""), f"{ADDRESS}: the connection was closed without an answer"),
    "not HTTP": (says(b"SSH-2.0-OpenSSH_9.2\r\n"), f"{ADDRESS}: .*not HTTP"),
}


def _with_another_ca(ground: Ground) -> str:
    theirs = ground.other_authority().issue("prometheus", "prometheus", hosts=["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(theirs.certificate, theirs.key)
    return f"https://127.0.0.1:{ground.serve(says(HTML), tls)}"


ADDRESSES: dict[str, tuple[Callable[[Ground], str], str]] = {
    "nobody listens": (
        lambda _: f"http://127.0.0.1:{free_port()}",
        f"cannot reach {ADDRESS}: connection refused",
    ),
    "another CA": (_with_another_ca, f"cannot reach {SERVER}: .*wrong CA"),
    "no TLS": (
        lambda g: f"https://127.0.0.1:{g.serve(says(HTML))}",
        f"cannot reach {SERVER}: the server does not speak TLS",
    ),
}


class Case(NamedTuple):
    """The options that lead into it, the exit status, and what the line must say."""

    options: Callable[[Ground], tuple[str, ...]]
    status: int
    says_what: str


def _cluster(make: Callable[[Ground], Path], status: int, says_what: str) -> Case:
    return Case(
        lambda g: ("--kubeconfig", str(make(g)), "--metrics-from", "metrics-server"), status, says_what
    )


def _prometheus(make: Callable[[Ground], str], says_what: str) -> Case:
    # Where an answer comes, it is to be the answer that is told, however busy the machine is.
    patience = "1s" if "no answer in time" in says_what else "20s"

    def options(ground: Ground) -> tuple[str, ...]:
        cluster = ("--kubeconfig", str(ground.config()), "--prometheus-ca", ground.ca)
        return (*cluster, "--prometheus-url", make(ground), "--prometheus-timeout", patience)

    return Case(options, 1, says_what)


def _played(behaviour: Behaviour, says_what: str) -> Case:
    return _prometheus(lambda g: f"http://127.0.0.1:{g.serve(behaviour)}", says_what)


CASES = {
    **{f"cluster: {name}": _cluster(*case) for name, case in CLUSTERS.items()},
    **{f"prometheus: {name}": _played(*case) for name, case in IMPOSTORS.items()},
    **{f"prometheus: {name}": _prometheus(*case) for name, case in ADDRESSES.items()},
}
