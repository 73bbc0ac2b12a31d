"""A Prometheus inside the cluster is found without an address, and asked through the API server."""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from equipoise.adapters.kubernetes import Client, find_target
from equipoise.adapters.prometheus.client import Client as PrometheusClient
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.errors import Unavailable
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import Limits
from tests.cli.running import equipoise_anew as equipoise
from tests.e2e.accounts import account_with
from tests.testbed import ApiError, ControlPlane, Kwok, Prometheus, StartPrometheus, wait_until
from tests.testbed.scenes import SIX_LOADS, history, six_pods


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """An address of the test's own that is not loopback, since the API server proxies to no loopback."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        why = "a bridge with an address of the test's own needs root and iproute2"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    name, chosen = f"eqp-{secrets.token_hex(3)}", f"10.89.77.{1 + secrets.randbelow(254)}"
    _ip("link", "add", name, "type", "bridge")
    try:
        _ip("addr", "add", f"{chosen}/32", "dev", name)
        _ip("link", "set", name, "up")
        yield chosen
    finally:
        _ip("link", "delete", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"


@pytest.fixture
def six(control_plane: ControlPlane, kwok: Kwok, namespace: str) -> dict[str, str]:
    """The six pods of the example, by letter, with their HPA."""
    return six_pods(control_plane, kwok, namespace=namespace)


@pytest.fixture
def inside(
    control_plane: ControlPlane,
    kwok: Kwok,
    namespace: str,
    six: dict[str, str],
    address: str,
    start_prometheus: StartPrometheus,
) -> Prometheus:
    """A Prometheus at an address that a Service may name, with an hour's past of the six."""
    loads = dict(zip(six.values(), SIX_LOADS, strict=True))
    past = history(control_plane, kwok, namespace, loads, until=time.time())
    server = start_prometheus(backfill=past, kwok=kwok, host=address)
    # None of these samples are of the past.
    server.wait_for(f'rate(container_cpu_usage_seconds_total{{namespace="{namespace}"}}[5s])', len(six))
    return server


class Services:
    """Services that name a server outside, deleted at the end: discovery looks at the whole cluster."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._api = control_plane.api
        self._namespace = namespace
        self._names: list[str] = []

    def add(self, name: str, server: Prometheus, **labels: str) -> None:
        """Make a Service, its endpoint and the pod behind it; return when the proxy reaches it.

        The API server proxies to no address but that of a pod in the same namespace. Nobody schedules this
        one; what serves in its place has its address.
        """
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        meta = {"name": name, "namespace": self._namespace, "labels": labels}
        stand_in = {
            "schedulerName": "nobody",
            "containers": [{"name": "prometheus", "image": "example/it:1"}],
        }
        endpoint = {"ip": host, "targetRef": {"kind": "Pod", "name": name, "namespace": self._namespace}}
        subset = {"addresses": [endpoint], "ports": [{"name": "web", "port": int(port)}]}
        self._names.append(name)
        self._api.apply(
            [
                _object("v1", "Pod", meta, spec=stand_in),
                _object("v1", "Service", meta, spec={"ports": [{"name": "web", "port": 9090}]}),
                _object("v1", "Endpoints", meta, subsets=[subset]),
            ]
        )
        place = f"/api/v1/namespaces/{self._namespace}"
        self._api.patch(f"{place}/pods/{name}/status", {"status": {"podIP": host, "podIPs": [{"ip": host}]}})
        ready = f"{place}/services/{name}:web/proxy/-/ready"
        wait_until(lambda: self._api.answers(ready), f"{name} behind the proxy", 60)

    def remove_all(self) -> None:
        for name in self._names:
            path = f"/api/v1/namespaces/{self._namespace}/services/{name}"
            self._api.delete(path)
            wait_until(partial(self._is_gone, path), f"{name} to be gone", 60)

    def _is_gone(self, path: str) -> bool:
        try:
            self._api.get(path)
        except ApiError as error:
            return error.status == 404
        return False


def _object(version: str, kind: str, meta: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": meta, **rest}


@pytest.fixture
def services(control_plane: ControlPlane, namespace: str) -> Iterator[Services]:
    """Services of this test."""
    made = Services(control_plane, namespace)
    yield made
    made.remove_all()


def _plan(namespace: str, kubeconfig: str, *more: str) -> subprocess.CompletedProcess[str]:
    return equipoise(
        *("rotation", "plan", "web", "-n", namespace, "-o", "json", "--set", "minPodAge=0s"),
        *("--kubeconfig", kubeconfig, *more),
    )


def test_a_prometheus_is_found_and_asked_through_the_service_proxy(
    control_plane: ControlPlane,
    namespace: str,
    six: dict[str, str],
    inside: Prometheus,
    services: Services,
) -> None:
    """No address is given: the command finds the Service, and decides from what lies behind it."""
    services.add("prometheus", inside)
    with closing(Client(find_target(str(control_plane.kubeconfig)))) as api:
        found = find(api)
        path = f"/api/v1/namespaces/{namespace}/services/prometheus:web/proxy"
        assert found.transport.address == f"{control_plane.server}{path}"
        metrics = PrometheusMetrics(PrometheusClient(found.transport, Limits(timeout_seconds=30)))
        loads = dict(zip(six.values(), SIX_LOADS, strict=True))

        def are_told() -> bool:
            usage = metrics.cpu_usage({namespace: list(six.values())}, time.time(), 300)
            return dict(zip(usage.pods, usage.cores.tolist(), strict=True)) == pytest.approx(loads, rel=0.03)

        wait_until(are_told, "the six loads through the proxy", 60)
        assert metrics.build_info().flavour == "Prometheus"

        def is_planned() -> bool:
            done = _plan(namespace, str(control_plane.kubeconfig))
            assert done.returncode == 0, done.stderr
            (decision,) = json.loads(done.stdout)["decisions"]
            planned = [action["pod"] for action in (*decision["actions"], *decision["held"])]
            is_whole = planned == [six[letter] for letter in "ABFE"]
            assert not is_whole or done.stderr == ""
            return is_whole

        # A scrape that comes late leaves pods unknown, or moves what they use.
        wait_until(is_planned, "the plan of the six, from behind the proxy", 90)

        inside.kill()
        with pytest.raises(Unavailable, match=f"{path} is not available"):
            metrics.cpu_usage({namespace: list(six.values())}, time.time(), 300)
        inside.restart()
        wait_until(
            lambda: len(metrics.cpu_usage({namespace: list(six.values())}, time.time(), 300).pods) == 6,
            "the same session to get answers again",
            60,
        )


def test_two_that_answer_are_named_and_a_person_must_choose(
    control_plane: ControlPlane, namespace: str, inside: Prometheus, services: Services
) -> None:
    """Nobody guesses: both Services and the option that chooses are in the one line."""
    services.add("prometheus", inside)
    services.add("another", inside, **{"app.kubernetes.io/name": "prometheus"})
    done = _plan(namespace, str(control_plane.kubeconfig))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: several ")
    assert done.stderr.count("\n") == 1
    for part in (f"{namespace}/prometheus:web", f"{namespace}/another:web", "--prometheus-url"):
        assert part in done.stderr
    chosen = _plan(namespace, str(control_plane.kubeconfig), "--prometheus-url", inside.url)
    assert chosen.returncode == 0, chosen.stderr


def test_discovery_needs_two_rights_and_says_which_is_missing(
    control_plane: ControlPlane, namespace: str, inside: Prometheus, services: Services
) -> None:
    """To list services and to get services/proxy; without the second nothing answers, and 403 is told."""
    services.add("prometheus", inside)
    listing = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
    proxying = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
    with account_with(control_plane, namespace, "finder", [listing]) as token:
        config = control_plane.kubeconfig_for("finder", {"token": token})
        done = _plan(namespace, str(config), "--metrics-from", "prometheus")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: no Prometheus ")
        assert done.stderr.count("\n") == 1
        for part in (f"{namespace}/prometheus:web", "403", "services/proxy"):
            assert part in done.stderr
    with account_with(control_plane, namespace, "asker", [listing, proxying]) as token:
        config = control_plane.kubeconfig_for("asker", {"token": token})
        with closing(Client(find_target(str(config)))) as api:
            assert find(api).transport.service == "prometheus"
