"""Who a test is to the API server: tokens signed with its own key, plugins that print credentials."""

import base64
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.testbed import ControlPlane, wait_until

GROUP = "client.authentication.k8s.io"
_ISSUER = "https://kubernetes.default.svc"


def signed_token(control_plane: ControlPlane, namespace: str, account: str, *, lives_seconds: float) -> str:
    """Sign a service account's token with the cluster's own key; one that expired too."""
    found = control_plane.api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}")["metadata"]
    now = int(time.time())
    claims = {
        "iss": _ISSUER,
        "aud": [_ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "iat": now - 3600,
        "nbf": now - 3600,
        "exp": int(now + lives_seconds),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": found["uid"]}},
    }
    signed = f"{_encoded({'alg': 'ES256'})}.{_encoded(claims)}"
    pem = (control_plane.folder / "pki" / "service-accounts.key").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


@contextmanager
def account_with(
    control_plane: ControlPlane, namespace: str, name: str, rules: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """Make a service account with these rights in the whole cluster; give a token of it."""
    role = f"{namespace}-{name}"
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    cluster_role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": list(rules),
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    control_plane.apply([account, cluster_role, binding])
    if rules:
        user = f"system:serviceaccount:{namespace}:{name}"
        wait_until(lambda: _may(control_plane, user, rules[0]), f"the rights of {name} in force", 60)
    try:
        yield control_plane.token(namespace, name)
    finally:
        for made in (binding, cluster_role):
            control_plane.api.delete(control_plane.api.path_of(made))


def _may(control_plane: ControlPlane, user: str, rule: dict[str, Any]) -> bool:
    """Ask the API server whether a rule holds: it takes up new roles a moment after they are made."""
    resource, _, subresource = rule["resources"][0].partition("/")
    what = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": what | {"subresource": subresource}},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(control_plane.api.create(path, review)["status"]["allowed"])


def credential(version: str, **status: str) -> str:
    """Write what an exec plugin of this version prints."""
    return json.dumps({"apiVersion": f"{GROUP}/{version}", "kind": "ExecCredential", "status": status})


def write_plugin(folder: Path, output: str, version: str) -> dict[str, Any]:
    """Make a command that prints this; give the `exec` entry of a kubeconfig for it."""
    command = folder / "plugin"
    command.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(output)}\n")
    command.chmod(0o755)
    return {"apiVersion": f"{GROUP}/{version}", "command": str(command), "interactiveMode": "Never"}


def _encoded(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
