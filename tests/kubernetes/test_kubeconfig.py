"""Kubeconfig files: merged as kubectl merges them, and their faults told in their own words."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.core.errors import BadInput


def config(**changes: Any) -> dict[str, Any]:
    """A sound kubeconfig, with changes."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        **changes,
    }


def write(folder: Path, content: object, name: str = "config") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def cluster(**fields: Any) -> dict[str, Any]:
    return config(clusters=[{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **fields}}])


def user(**fields: Any) -> dict[str, Any]:
    return config(users=[{"name": "u", "user": fields}])


BAD: list[tuple[object, str]] = [
    ("a: [", "in line 2"),
    ("a: \x07", "not YAML"),
    ("- a\n- b\n", "expected a map, got a list"),
    ("just text", "expected a map, got text"),
    ("", "current-context is not set; set --context (the file names none)"),
    (config(clusters="c"), "clusters: expected a list, got text"),
    (cluster(server=["x"]), "clusters[0].cluster.server: expected text, got a list"),
    (cluster(server=""), "clusters[0].cluster.server: is missing"),
    (cluster(server="ftp://x"), "clusters[0].cluster.server: expected an address such as https://host:port"),
    (cluster(server="https://x:port"), "clusters[0].cluster.server: expected an address"),
    (cluster(server="https://a b"), "clusters[0].cluster.server: expected an address"),
    ({**config(), "clusters": [{"cluster": {}}]}, "clusters[0]: name is missing"),
    (
        cluster(**{"certificate-authority-data": "!!!"}),
        "clusters[0].cluster.certificate-authority-data: not base64",
    ),
    (
        cluster(**{"certificate-authority": "no.crt"}),
        "clusters[0].cluster.certificate-authority: no such file: ",
    ),
    (
        cluster(**{"insecure-skip-tls-verify": "yes"}),
        "insecure-skip-tls-verify: expected true or false, got text",
    ),
    (
        cluster(**{"proxy-url": "socks5://x:1"}),
        "clusters[0].cluster.proxy-url: expected an address such as http",
    ),
    (user(token="a\nb"), "users[0].user.token: expected printable ASCII"),
    (user(**{"as": "j\u00e4n"}), "users[0].user.as: expected printable ASCII"),
    (user(token=5), "users[0].user.token: expected text, got a number"),
    (user(**{"client-certificate-data": "QQ=="}), "client-certificate and client-key must come together"),
    (
        user(**{"client-certificate": "a.crt", "client-key": "a.key"}),
        "users[0].user.client-certificate: no such file",
    ),
    (
        user(**{"auth-provider": {"name": "gcp"}}),
        "users[0].user.auth-provider: Kubernetes no longer supports it; use exec",
    ),
    (user(exec={"apiVersion": "v1"}), "users[0].user.exec: command is missing"),
    (
        user(exec={"command": "x", "apiVersion": "v1", "args": "a"}),
        "users[0].user.exec.args: expected a list",
    ),
    (config(contexts=[{"name": "dev"}]), "contexts[0].context: expected a map, got nothing"),
    (
        config(contexts=[{"name": "dev", "context": {"cluster": "x"}}]),
        "contexts[0].context.cluster: there is no cluster 'x'",
    ),
    (
        config(contexts=[{"name": "dev", "context": {"cluster": "c", "user": "x"}}]),
        "context.user: there is no user 'x'",
    ),
    (config(**{"current-context": "prod"}), "there is no context 'prod' (known: dev)"),
    (config(**{"current-context": ""}), "current-context is not set; set --context (known: dev)"),
]


def test_text_that_yaml_1_1_takes_for_a_number_or_a_date_is_text(tmp_path: Path) -> None:
    """As kubectl reads it: nobody quotes a password for its colons."""
    words = "token: 12:30:00"
    text = yaml.safe_dump(config()).replace("token: secret", words).replace("name: dev", "name: 2026-01-01")
    path = write(tmp_path, text.replace("current-context: dev", "current-context: 2026-01-01"))
    target = find_target(str(path), None)
    assert target.identity.token == "12:30:00"


@pytest.mark.parametrize(("content", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_kubeconfig_is_told_with_its_path_and_field(
    content: object, message: str, tmp_path: Path
) -> None:
    """One line: where the file came from, its path, the field, what was expected."""
    path = write(tmp_path, content)
    for flag, label in ((str(path), "--kubeconfig"), (None, "KUBECONFIG")):
        with pytest.raises(BadInput) as caught:
            find_target(flag, environment={"KUBECONFIG": str(path)})
        said = str(caught.value)
        assert said.startswith(f"{label} {path}: ")
        assert message in said
        assert "\n" not in said


def test_a_missing_or_unreadable_file_is_bad_input(tmp_path: Path) -> None:
    """By flag, by variable, and where nothing is given at all."""
    with pytest.raises(BadInput, match="--kubeconfig /no/file: no such file or directory"):
        find_target("/no/file")
    with pytest.raises(BadInput, match="KUBECONFIG /no/file: no such file or directory"):
        find_target(environment={"KUBECONFIG": "/no/file"})
    with pytest.raises(BadInput, match="is a directory"):
        find_target(str(tmp_path))
    with pytest.raises(
        BadInput,
        match="no cluster: --kubeconfig and KUBECONFIG are not set, this process does not run in a pod",
    ):
        find_target(environment={"HOME": str(tmp_path)})


def test_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    """Entries by name, the first current-context; files that are absent are passed over."""
    first = write(
        tmp_path, {"current-context": "dev", "users": [{"name": "u", "user": {"token": "first"}}]}, "1"
    )
    second = write(tmp_path, config(**{"current-context": "other"}), "2")
    paths = os.pathsep.join([str(first), "", "/no/such", str(second)])
    target = find_target(environment={"KUBECONFIG": paths})
    assert (target.identity.token, target.endpoint.server, target.namespace) == (
        "first",
        "https://10.0.0.1:6443",
        "shop",
    )
    assert target.source == f"KUBECONFIG {first}:{second}, context dev"


def test_paths_begin_where_their_file_lies(tmp_path: Path) -> None:
    """Relative files belong to the file that names them; data is decoded."""
    folder = tmp_path / "sub"
    folder.mkdir()
    for name in ("ca.crt", "me.crt", "me.key"):
        (folder / name).write_text("x")
    content = cluster(
        **{"certificate-authority": "ca.crt", "tls-server-name": "api", "proxy-url": "http://p:3128"}
    )
    content["users"] = [
        {"name": "u", "user": {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token"}}
    ]
    target = find_target(str(write(folder, content)))
    assert target.endpoint.ca_file == str(folder / "ca.crt")
    assert (target.endpoint.tls_server_name, target.endpoint.proxy_url) == ("api", "http://p:3128")
    assert target.identity.cert_file == str(folder / "me.crt")
    assert target.identity.token_file == str(folder / "token")
    data = find_target(
        str(write(folder, cluster(**{"certificate-authority-data": base64.b64encode(b"pem").decode()})))
    )
    assert data.endpoint.ca_data == b"pem"


def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    """`--context` wins over the file's own choice; a user and a namespace may be absent."""
    content = config()
    content["contexts"].append({"name": "bare", "context": {"cluster": "c"}})
    target = find_target(str(write(tmp_path, content)), "bare")
    assert (target.identity.token, target.namespace) == (None, "default")


def test_impersonation_is_not_lost(tmp_path: Path) -> None:
    """Whoever asks to act with fewer rights does."""
    fields = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"k": ["v"]}}
    assert find_target(str(write(tmp_path, user(**fields)))).identity.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-k", "v"),
    )


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    """Before a file in the home folder, after KUBECONFIG; an IPv6 host gets its brackets."""
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    write(home / ".kube", config())
    account = tmp_path / "account"
    account.mkdir()
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "HOME": str(home)}
    with pytest.raises(BadInput, match="token does not exist"):
        find_target(environment=environment, service_account_folder=account)
    for name, content in (("token", "t"), ("ca.crt", "x"), ("namespace", "ops\n")):
        (account / name).write_text(content)
    target = find_target(environment=environment, service_account_folder=account)
    assert (target.endpoint.server, target.namespace) == ("https://[fd00::1]:6443", "ops")
    assert target.identity.token_file == str(account / "token")
    del environment["KUBERNETES_SERVICE_HOST"]
    assert find_target(environment=environment).source.startswith("kubeconfig ")


def test_secrets_do_not_show_in_representations(tmp_path: Path) -> None:
    """A traceback or a log line of a target holds no credential."""
    shown = repr(find_target(str(write(tmp_path, user(username="me", password="hidden", token="hidden")))))
    assert "hidden" not in shown
