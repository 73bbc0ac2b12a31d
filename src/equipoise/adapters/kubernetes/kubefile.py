"""A kubeconfig file as it is written, and what is wrong with it in the words of the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from equipoise.adapters.http import one_line
from equipoise.core.documents import Loader, TooMuch, load
from equipoise.core.errors import DECODE_ERRORS, BadInput

FILE_BYTES_MAX = 16 * 1024 * 1024


class Extension(msgspec.Struct, frozen=True):
    """Something that a tool left in a cluster entry."""

    name: str = ""
    extension: Any = None


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """A `cluster` entry."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[Extension] | None = None


class EnvironmentEntry(msgspec.Struct, frozen=True):
    """A variable for an exec plugin."""

    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True):
    """An `exec` entry: the command that gives a credential."""

    command: str
    apiVersion: str
    args: list[str] | None = None
    env: list[EnvironmentEntry] | None = None
    installHint: str | None = None
    provideClusterInfo: bool | None = None
    interactiveMode: str | None = None


class UserEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """A `user` entry."""

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


class ContextEntry(msgspec.Struct, frozen=True):
    """A `context` entry."""

    cluster: str = ""
    user: str | None = None
    namespace: str | None = None


class NamedCluster(msgspec.Struct, frozen=True):
    """One of `clusters`."""

    name: str
    cluster: ClusterEntry | None = None


class NamedUser(msgspec.Struct, frozen=True):
    """One of `users`."""

    name: str
    user: UserEntry | None = None


class NamedContext(msgspec.Struct, frozen=True):
    """One of `contexts`."""

    name: str
    context: ContextEntry | None = None


class KubeFile(msgspec.Struct, frozen=True):
    """A whole file."""

    current_context: str | None = msgspec.field(default=None, name="current-context")
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


def read_kubefile(label: str, path: Path) -> KubeFile:
    """Read one file; `label` begins every message."""
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
        return KubeFile()
    try:
        return msgspec.convert(tree, KubeFile)
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
    """Turn msgspec's words into ours: `clusters[0].cluster.server: expected text, got a list`."""
    if found := _EXPECTED.match(message):
        wanted, got = found["wanted"].removesuffix(" | null"), found["got"]
        return f"{_path(found['at'])}expected {_WORDS.get(wanted, wanted)}, got {_WORDS.get(got, got)}"
    if found := _MISSING.match(message):
        return f"{_path(found['at'])}{found['field']} is missing"
    return one_line(message)


def _path(at: str | None) -> str:
    path = (at or "$").removeprefix("$").removeprefix(".")
    return f"{path}: " if path else ""
