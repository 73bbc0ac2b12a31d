"""The API server and our identity: from kubeconfig files as kubectl merges them, or a pod's service account.

An error in a file names the path of the entry.

Order: `--kubeconfig`, then `KUBECONFIG` (a list of paths; the first file to name a thing wins), then the
service account of the pod we run in, then `~/.kube/config`. kubectl has the last two in the opposite order;
but in a pod that has both, the file is mostly a leftover of its image. `--context` needs a file, since a
service account has no contexts.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from equipoise.adapters.http import one_line
from equipoise.adapters.urls import shown_url, split_url
from equipoise.core.documents import Loader, TooMuch, load
from equipoise.core.errors import DECODE_ERRORS, BadInput

FILE_BYTES_MAX = 16 * 1024 * 1024


class _Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class _ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[_Extension] | None = None


class EnvironmentEntry(msgspec.Struct, frozen=True):
    """A variable for an exec plugin."""

    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True):
    """An `exec` entry: the command that prints a credential."""

    command: str
    apiVersion: str
    args: list[str] | None = None
    env: list[EnvironmentEntry] | None = None
    installHint: str | None = None
    provideClusterInfo: bool | None = None
    interactiveMode: str | None = None


class _UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: ExecConfig | None = None
    auth_provider: Any = None
    act_as: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _ContextEntry(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _ClusterEntry | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _UserEntry | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _ContextEntry | None = None


class _KubeFile(msgspec.Struct, frozen=True):
    current_context: str | None = msgspec.field(default=None, name="current-context")
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


def read_kubefile(label: str, path: Path) -> _KubeFile:
    """Return a decoded file; `label` begins every error message."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadInput(f"{label}: too large for a kubeconfig")
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{label}: {(error.strerror or str(error)).lower()}") from error
    try:
        tree = load(content, Loader)
    except (yaml.YAMLError, *DECODE_ERRORS) as error:
        raise BadInput(f"{label}: not YAML: {_yaml_problem(error)}") from error
    if tree is None:
        return _KubeFile()
    try:
        return msgspec.convert(tree, _KubeFile)
    except DECODE_ERRORS as error:
        raise BadInput(f"{label}: {in_plain_words(str(error))}") from error


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, TooMuch):
        return one_line(str(error), 120)
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"{problem} in line {mark.line + 1}" if mark else one_line(f"{problem} {error}", 120)


_WORDS = {
    "str": "text",
    "array": "a list",
    "object": "a map",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`(?: - at `(?P<at>[^`]+)`)?")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `(?P<at>[^`]+)`)?")


def in_plain_words(message: str) -> str:
    """Return msgspec's message as ours: `clusters[0].cluster.server: expected text, got a list`."""
    if found := _EXPECTED.match(message):
        wanted, got = found["wanted"].removesuffix(" | null"), found["got"]
        return f"{_path(found['at'])}expected {_WORDS.get(wanted, wanted)}, got {_WORDS.get(got, got)}"
    if found := _MISSING.match(message):
        return f"{_path(found['at'])}{found['field']} is missing"
    return one_line(message)


def _path(at: str | None) -> str:
    path = (at or "$").removeprefix("$").removeprefix(".")
    return f"{path}: " if path else ""


SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API server's address and how to verify it."""

    server: str
    ca_file: str | None = None
    ca_data: bytes | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    exec_config: object = None
    """The cluster entry's configuration for exec plugins."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the user entry."""

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    cert_file: str | None = None
    cert_data: bytes | None = field(default=None, repr=False)
    key_file: str | None = None
    key_data: bytes | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers; a name may occur more than once."""
    exec: ExecConfig | None = None
    folder: str = "."
    """The folder of a plugin's relative commands."""


@dataclass(frozen=True, slots=True)
class Target:
    """A context: a server, an identity, a namespace, and their source."""

    endpoint: Endpoint
    identity: Identity
    namespace: str
    source: str


def find_target(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    service_account_folder: Path = SERVICE_ACCOUNT_FOLDER,
) -> Target:
    """Return the cluster, found in the order described in the module's docstring."""
    environment = os.environ if environment is None else environment
    if kubeconfig:
        return _from_files("--kubeconfig", [Path(kubeconfig).expanduser()], context)
    if paths := [Path(p) for p in environment.get("KUBECONFIG", "").split(os.pathsep) if p]:
        return _from_files("KUBECONFIG", [path for path in paths if path.exists()] or paths[:1], context)
    if context is None and environment.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environment, service_account_folder)
    default = Path(environment.get("HOME") or "~").expanduser() / ".kube" / "config"
    if not default.exists():
        raise BadInput(
            "no cluster: --kubeconfig and KUBECONFIG are not set, this process does not run in a pod, and "
            f"{default} does not exist"
        )
    return _from_files("kubeconfig", [default], context)


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT_FOLDER) -> Target:
    """Return the target of the service account of the pod we run in."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "") or "443"
    for name in ("token", "ca.crt"):
        if not (folder / name).is_file():
            raise BadInput(
                f"KUBERNETES_SERVICE_HOST is set, but {folder / name} does not exist (no service account)"
            )
    try:
        namespace = (folder / "namespace").read_text("utf-8").strip() or "default"
    except (OSError, UnicodeDecodeError):
        namespace = "default"
    bracketed = f"[{host}]" if ":" in host else host
    return Target(
        endpoint=Endpoint(f"https://{bracketed}:{port}", ca_file=str(folder / "ca.crt")),
        identity=Identity(token_file=str(folder / "token")),
        namespace=namespace,
        source="the pod's service account",
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """The source of an entry: the folder of its relative paths, and its name in messages."""

    folder: Path
    name: str

    def path(self, value: str | None) -> str | None:
        return str(self.folder / value) if value else None

    def data(self, field_name: str, value: str | None) -> bytes | None:
        if not value:
            return None
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except DECODE_ERRORS as error:
            raise BadInput(f"{self.name}.{field_name}: not base64") from error


E = TypeVar("E", _NamedCluster, _NamedContext, _NamedUser)


def _find(
    label: str, kind: str, name: str, lists: Iterable[tuple[Path, list[E] | None]]
) -> tuple[_Place, E] | None:
    for path, entries in lists:
        for index, entry in enumerate(entries or ()):
            if entry.name == name:
                return _Place(path.absolute().parent, f"{label} {path}: {kind}s[{index}].{kind}"), entry
    return None


def _from_files(label: str, paths: list[Path], context: str | None) -> Target:
    files = [(path, read_kubefile(f"{label} {path}", path)) for path in paths]
    source = f"{label} {os.pathsep.join(str(path) for path in paths)}"
    chosen = context or next((f.current_context for _, f in files if f.current_context), None)
    if not chosen:
        raise BadInput(f"{source}: current-context is not set; set --context ({_known(files)})")
    found = _find(label, "context", chosen, ((p, f.contexts) for p, f in files))
    if found is None:
        raise BadInput(f"{source}: there is no context {chosen!r} ({_known(files)})")
    place, wanted = found[0], found[1].context
    if wanted is None:
        raise BadInput(f"{place.name}: expected a map, got nothing")
    cluster = _find(label, "cluster", wanted.cluster, ((p, f.clusters) for p, f in files))
    if cluster is None:
        raise BadInput(f"{place.name}.cluster: there is no cluster {wanted.cluster!r}")
    endpoint = _endpoint(cluster[0], cluster[1].cluster or _ClusterEntry())
    identity = Identity()
    if wanted.user:
        user = _find(label, "user", wanted.user, ((p, f.users) for p, f in files))
        if user is None:
            raise BadInput(f"{place.name}.user: there is no user {wanted.user!r}")
        identity = _identity(user[0], user[1].user or _UserEntry())
    return Target(endpoint, identity, wanted.namespace or "default", f"{source}, context {chosen}")


def _known(files: list[tuple[Path, _KubeFile]]) -> str:
    names = sorted({entry.name for _, file in files for entry in file.contexts or ()})
    return f"known: {', '.join(names[:10])}" if names else "the file names none"


def _endpoint(place: _Place, entry: _ClusterEntry) -> Endpoint:
    if not entry.server:
        raise BadInput(f"{place.name}.server: is missing")
    server = _url(f"{place.name}.server", entry.server, ("https", "http"))
    proxy_url = entry.proxy_url and _url(f"{place.name}.proxy-url", entry.proxy_url, ("http", "https"))
    ca_file = place.path(entry.certificate_authority)
    if ca_file and not entry.certificate_authority_data and not Path(ca_file).is_file():
        raise BadInput(f"{place.name}.certificate-authority: no such file: {ca_file}")
    return Endpoint(
        server=server,
        ca_file=ca_file,
        ca_data=place.data("certificate-authority-data", entry.certificate_authority_data),
        insecure=bool(entry.insecure_skip_tls_verify),
        tls_server_name=entry.tls_server_name or None,
        proxy_url=proxy_url or None,
        exec_config=next((e.extension for e in entry.extensions or () if e.name == EXEC_EXTENSION), None),
    )


def _url(name: str, text: str, schemes: tuple[str, ...]) -> str:
    """Return a checked address; one without a scheme is plain HTTP, as in kubectl."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = split_url(url)
        is_sound = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    if not is_sound or any(c.isspace() for c in url):
        got = shown_url(text)
        raise BadInput(f"{name}: expected an address such as {schemes[0]}://host:port, got {got!r}")
    return url


def _identity(place: _Place, entry: _UserEntry) -> Identity:
    if entry.auth_provider is not None:
        raise BadInput(f"{place.name}.auth-provider: Kubernetes no longer supports it; use exec")
    cert_file, key_file = place.path(entry.client_certificate), place.path(entry.client_key)
    for name, path, data in (
        ("client-certificate", cert_file, entry.client_certificate_data),
        ("client-key", key_file, entry.client_key_data),
    ):
        if path and not data and not Path(path).is_file():
            raise BadInput(f"{place.name}.{name}: no such file: {path}")
    impersonation = tuple(_impersonation(entry))
    sent = (("token", entry.token), ("as", " ".join(part for pair in impersonation for part in pair)))
    for name, text in sent:
        if text and not (text.isascii() and text.isprintable()):
            raise BadInput(f"{place.name}.{name}: expected printable ASCII because it is sent in a header")
    has_certificate = bool(cert_file or entry.client_certificate_data)
    if has_certificate != bool(key_file or entry.client_key_data):
        raise BadInput(f"{place.name}: client-certificate and client-key must come together")
    return Identity(
        token=entry.token or None,
        token_file=place.path(entry.token_file),
        cert_file=cert_file,
        cert_data=place.data("client-certificate-data", entry.client_certificate_data),
        key_file=key_file,
        key_data=place.data("client-key-data", entry.client_key_data),
        username=entry.username or None,
        password=entry.password or None,
        impersonation=impersonation,
        exec=entry.exec,
        folder=str(place.folder),
    )


def _impersonation(entry: _UserEntry) -> Iterable[tuple[str, str]]:
    if entry.act_as:
        yield "Impersonate-User", entry.act_as
    if entry.as_uid:
        yield "Impersonate-Uid", entry.as_uid
    for group in entry.as_groups or ():
        yield "Impersonate-Group", group
    for key, values in (entry.as_user_extra or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{key}", value
