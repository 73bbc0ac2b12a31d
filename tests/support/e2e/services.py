"""Services in the real cluster for Prometheus to be found by."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.testbed import ApiError, ControlPlane, wait_until


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """An address of the test's own that is not loopback, since the API server proxies to no loopback."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        why = "a bridge with an address of the test's own needs root and iproute2"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    name, chosen = f"eqp-{secrets.token_hex(3)}", f"10.89.77.{1 + secrets.randbelow(254)}"
    ip("link", "add", name, "type", "bridge")
    try:
        ip("addr", "add", f"{chosen}/32", "dev", name)
        ip("link", "set", name, "up")
        yield chosen
    finally:
        ip("link", "delete", name)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"


class Services:
    """Services that name a server outside, deleted at the end: other tests see them, too."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._api = control_plane.api
        self._namespace = namespace
        self._paths: list[str] = []

    def add(self, name: str, url: str, namespace: str | None = None, **labels: str) -> None:
        """Make a Service, its endpoint and the pod behind it; return when the proxy reaches it.

        The API server proxies to no address but that of a pod in the same namespace. Nobody schedules this
        one; what serves in its place has its address.
        """
        host, _, port = url.removeprefix("http://").rpartition(":")
        where = namespace or self._namespace
        place = f"/api/v1/namespaces/{where}"
        meta = {"name": name, "namespace": where, "labels": labels}
        stand_in = {
            "schedulerName": "nobody",
            "containers": [{"name": "prometheus", "image": "example/it:1"}],
        }
        endpoint = {"ip": host, "targetRef": {"kind": "Pod", "name": name, "namespace": where}}
        subset = {"addresses": [endpoint], "ports": [{"name": "web", "port": int(port)}]}
        self._paths.append(f"{place}/services/{name}")
        self._api.apply(
            [
                manifest("v1", "Pod", meta, spec=stand_in),
                manifest("v1", "Service", meta, spec={"ports": [{"name": "web", "port": 9090}]}),
                manifest("v1", "Endpoints", meta, subsets=[subset]),
            ]
        )
        self._api.patch(f"{place}/pods/{name}/status", {"status": {"podIP": host, "podIPs": [{"ip": host}]}})
        ready = f"{place}/services/{name}:web/proxy/-/ready"
        wait_until(lambda: self._api.answers(ready), f"{name} behind the proxy", 60)

    def remove_all(self, but: str = "") -> None:
        """Delete all of them, but those of one namespace."""
        for path in [path for path in self._paths if not but or f"/{but}/" not in path]:
            self._paths.remove(path)
            self._api.delete(path)
            wait_until(partial(self._is_gone, path), f"{path} to be gone", 60)

    def _is_gone(self, path: str) -> bool:
        try:
            self._api.get(path)
        except ApiError as error:
            return error.status == 404
        return False


def manifest(version: str, kind: str, meta: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": meta, **rest}


@pytest.fixture
def services(control_plane: ControlPlane, namespace: str) -> Iterator[Services]:
    """Services of this test."""
    made = Services(control_plane, namespace)
    yield made
    made.remove_all()
