"""A Prometheus inside the cluster is found without an address, and asked through the API server."""

import io
import json
import re
import socket
import subprocess
import threading
import time
from contextlib import closing

import pytest

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.errors import NotFound, Unavailable
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import QueryLimits
from equipoise.core.errors import WorldFailed
from equipoise.runtime.logs import make_log
from equipoise.runtime.metrics_source import MISSING_SECONDS, ChosenPrometheus, PrometheusOptions
from equipoise.runtime.settings import Logs
from tests.e2e.conftest import new_namespace
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.accounts import account_with
from tests.support.e2e.broken_servers import answer, impostor
from tests.support.e2e.services import Services, address, manifest, services
from tests.testbed import ControlPlane, Kwok, Prometheus, StartPrometheus, wait_until
from tests.testbed.scenes import SIX_LOADS, history, six_pods

__all__ = ["address", "services"]


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


def _plan(namespace: str, kubeconfig: str, *more: str) -> subprocess.CompletedProcess[str]:
    return equipoise(
        *("rotation", "plan", "web", "-n", namespace, "-o", "json", "--set", "minPodAge=0s"),
        *("--prometheus-namespace", namespace, "--kubeconfig", kubeconfig, *more),
    )


def _wait_for_the_plan(control_plane: ControlPlane, namespace: str, six: dict[str, str]) -> None:
    """Wait until the plan is that of the six; a scrape that comes late leaves pods unknown."""

    def is_planned() -> bool:
        done = _plan(namespace, str(control_plane.kubeconfig))
        assert done.returncode == 0, done.stderr
        (decision,) = json.loads(done.stdout)["decisions"]
        planned = [action["pod"] for action in (*decision["actions"], *decision["held"])]
        is_whole = planned == [six[letter] for letter in "ABFE"]
        assert not is_whole or done.stderr == ""
        return is_whole

    wait_until(is_planned, "the plan of the six, from behind the proxy", 90)


def test_a_prometheus_is_found_and_asked_through_the_service_proxy(
    control_plane: ControlPlane,
    namespace: str,
    six: dict[str, str],
    inside: Prometheus,
    services: Services,
) -> None:
    """No address is given: the command finds the Service, and decides from what lies behind it."""
    services.add("prometheus", inside.url)
    with closing(Client(find_target(str(control_plane.kubeconfig)))) as api:
        found = find(api, [namespace])
        path = f"/api/v1/namespaces/{namespace}/services/prometheus:web/proxy"
        assert found.transport.address == f"{control_plane.server}{path}"
        metrics = PrometheusMetrics(PrometheusClient(found.transport, QueryLimits(timeout_seconds=30)))
        loads = dict(zip(six.values(), SIX_LOADS, strict=True))

        def are_told() -> bool:
            usage = metrics.cpu_usage({namespace: list(six.values())}, time.time(), 300)
            return dict(zip(usage.pods, usage.cores.tolist(), strict=True)) == pytest.approx(loads, rel=0.03)

        wait_until(are_told, "the six loads through the proxy", 60)
        assert metrics.client.build_info().flavour == "Prometheus"

        _wait_for_the_plan(control_plane, namespace, six)

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
    services.add("prometheus", inside.url)
    services.add("another", inside.url, **{"app.kubernetes.io/name": "prometheus"})
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
    """To list services and to get services/proxy, in the named namespace alone.

    Without the second nobody knows what is there: 403. What may not be listed elsewhere is told where nothing
    was found.
    """
    services.add("prometheus", inside.url)
    listing = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
    proxying = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
    with account_with(control_plane, namespace, "finder", [listing]) as token:
        config = control_plane.kubeconfig_for("finder", {"token": token})
        done = _plan(namespace, str(config))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: it is unknown which Prometheus to use: ")
        assert done.stderr.count("\n") == 1
        for part in (f"{namespace}/prometheus:web refuses to answer", "403", "services/proxy"):
            assert part in done.stderr
    group = "rbac.authorization.k8s.io"
    meta = {"name": "asker", "namespace": namespace}
    subject = {"kind": "ServiceAccount", "name": "asker", "namespace": namespace}
    role = {"apiGroup": group, "kind": "Role", "name": "asker"}
    with account_with(control_plane, namespace, "asker", []) as token:
        control_plane.apply(
            [
                manifest(f"{group}/v1", "Role", meta, rules=[listing, proxying]),
                manifest(f"{group}/v1", "RoleBinding", meta, roleRef=role, subjects=[subject]),
            ]
        )
        config = control_plane.kubeconfig_for("asker", {"token": token})
        with closing(Client(find_target(str(config)))) as api:
            wait_until(lambda: _service(api, namespace) == "prometheus", "the role in force", 60)
            services.remove_all()
            with pytest.raises(NotFound, match="were not searched: listing their Services is forbidden"):
                find(api, [namespace])


def _service(api: Client, namespace: str) -> str | None:
    try:
        return find(api, [namespace]).transport.service
    except WorldFailed:
        return None


def test_a_tenants_prometheus_is_never_asked_and_only_hinted_at(
    control_plane: ControlPlane,
    namespace: str,
    six: dict[str, str],
    inside: Prometheus,
    services: Services,
    address: str,
) -> None:
    """Whether the real one answers, is silent or is gone: nobody decides from what a tenant's one says."""
    asked: list[float] = []

    def lie(link: socket.socket, _: threading.Event) -> None:
        asked.append(time.monotonic())
        link.sendall(answer(200, '{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}'))

    with (
        new_namespace(control_plane) as tenant,
        impostor(lie, host=address) as port,
        closing(Client(find_target(str(control_plane.kubeconfig)))) as api,
    ):
        services.add("prometheus", f"http://{address}:{port}", tenant)
        services.add("thanos-query", inside.url)
        asked.clear()
        kubeconfig, log = str(control_plane.kubeconfig), make_log(Logs(), said := io.StringIO())
        now = [0.0]
        chosen = ChosenPrometheus(api, PrometheusOptions(namespaces=(namespace,)), log, lambda: now[0])
        assert f"{namespace}/services/thanos-query:web" in chosen.metrics().client.address
        _wait_for_the_plan(control_plane, namespace, six)

        inside.kill()
        done = _plan(namespace, kubeconfig)
        unknown = f"error: it is unknown which Prometheus to use: {namespace}/thanos-query:web does not"
        assert (done.returncode, done.stderr[: len(unknown)]) == (1, unknown)
        with pytest.raises(WorldFailed, match="thanos-query:web/proxy is not available"):
            chosen.metrics().scalar("1", time.time())

        services.remove_all(but=tenant)
        hint = f"found in other namespaces: {tenant}/prometheus (--prometheus-namespace {tenant})"
        done = _plan(namespace, kubeconfig, "--metrics-from", "prometheus")
        assert done.stderr.startswith(f"error: no Prometheus in namespace {namespace}; {hint}")
        assert "thanos-query" in chosen.metrics().client.address  # its Service may come back
        now[0] += MISSING_SECONDS + 1
        with pytest.raises(NotFound, match=re.escape(hint)):
            chosen.metrics()
        assert "thanos-query:web no longer exists" in said.getvalue()
        assert asked == []
        assert find(api, [tenant]).transport.namespace == tenant  # but where somebody names it
        assert asked
        services.remove_all()
