"""Writes kubeconfig files: for the admin, for a service account, or wrong on purpose."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.certificates import Pair


def user_of(pair: Pair) -> dict[str, str]:
    """Describe a user who shows a client certificate."""
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


def write(path: Path, server: str, ca: Path, user: Mapping[str, Any]) -> Path:
    """Write a kubeconfig with one cluster, one user and one context, all called `testbed`."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "testbed", "user": dict(user)}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))
    return path
