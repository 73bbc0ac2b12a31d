"""Remote read through a real API server's service proxy, for who may, and PromQL for who may not."""

from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest

from equipoise.adapters.kubernetes import Client as Kubernetes
from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.history import PrometheusHistory
from equipoise.adapters.prometheus.remote_read.read import Form
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct, PrometheusTransport, ServiceProxy
from equipoise.ports.cluster import CPU, MEMORY, UsageHistory
from tests.support.e2e.accounts import account_with
from tests.support.e2e.remote_read import END, containers
from tests.support.e2e.services import Services, address, services
from tests.testbed import ControlPlane, Prometheus, StartPrometheus

__all__ = ["address", "services"]


@pytest.fixture
def inside(start_prometheus: StartPrometheus, address: str, services: Services) -> Prometheus:
    """A Prometheus with a day's past, behind a Service."""
    server = start_prometheus(backfill=containers(END), host=address)
    services.add("past", server.url, app="past")
    return server


def _read(transport: PrometheusTransport) -> tuple[PrometheusHistory, list[UsageHistory]]:
    history = PrometheusHistory(PrometheusClient(transport))
    return history, list(history.read((CPU, MEMORY), END - 80_000, END - 60, 60))


def _rule(*verbs: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["services/proxy"], "verbs": list(verbs)}


def test_the_proxy_carries_remote_read_where_posting_is_allowed(
    control_plane: ControlPlane, namespace: str, inside: Prometheus
) -> None:
    """Without `create` on `services/proxy` the same numbers come by PromQL."""
    with ExitStack() as stack:
        direct = stack.enter_context(closing(Direct(PrometheusSettings(inside.url))))
        _, expected = _read(direct)
        for name, verbs, way in (
            ("poster", ("get", "create"), f"remote read ({Form.CHUNKS.value})"),
            ("getter", ("get",), "PromQL"),
        ):
            token = stack.enter_context(account_with(control_plane, namespace, name, [_rule(*verbs)]))
            config = control_plane.kubeconfig_for(name, {"token": token})
            api = stack.enter_context(closing(Kubernetes(find_target(str(config)))))
            history, found = _read(ServiceProxy(api, namespace, "past", "web"))
            assert [one.source.partition(" of ")[0] for one in found] == [way, "PromQL"], "a peak is a query"
            if way == "PromQL":
                assert "403" in str(history.offered())
            for one, other in zip(found, expected, strict=True):
                _same(one, other)


def _same(one: UsageHistory, other: UsageHistory) -> None:
    """Compare row by row; only their order may differ, and the last digits where a counter was reset."""
    rows = [dict(zip(found.pods, found.values.round(9), strict=True)) for found in (one, other)]
    assert rows[0].keys() == rows[1].keys()
    for pod, values in rows[0].items():
        np.testing.assert_array_equal(values, rows[1][pod])
