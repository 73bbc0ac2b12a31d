"""CPU usage from metrics.k8s.io through the same port."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.adapters.metrics_server import ResourceMetrics, ResourceMetricsAbsent, ResourceMetricsMalformed
from equipoise.ports import Metrics
from tests.support.prometheus.server import Answer, Request, Response, Server, serving


def pod(
    namespace: str,
    name: str,
    cpu: Mapping[str, str],
    window: str = "15.2s",
    time: str = "2026-01-01T00:00:30Z",
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": None},
        "timestamp": time,
        "window": window,
        "containers": [{"name": n, "usage": {"cpu": c, "memory": "1Mi"}} for n, c in cpu.items()],
    }


def listed(items: Sequence[Mapping[str, Any]], token: str = "") -> Response:
    body = {"kind": "PodMetricsList", "metadata": {"continue": token}, "items": items}
    return Response(200, json.dumps(body).encode())


@contextmanager
def api(answer: Answer) -> Iterator[tuple[ResourceMetrics, Server]]:
    with serving(answer) as server:
        target = Target(Endpoint(server.url), Identity(), "default", "test")
        yield ResourceMetrics(Client(target, backoff=NO_RETRIES)), server


def test_usage_comes_with_the_servers_time_and_window() -> None:
    """Quantities are read exactly; the timestamp is the end of the window."""
    items = [
        pod("shop", "web-1", {"app": "123456789n", "side": "250m"}),
        pod("shop", "web-2", {"app": "2"}, window="1m0.5s", time="2026-01-01T00:01:00+00:00"),
        pod("shop", "foreign", {"app": "9"}),
    ]
    with api(lambda _: listed(items)) as (metrics, server):
        port: Metrics = metrics
        usage = port.cpu_usage({"shop": ["web-1", "web-2", "web-3"]}, 0.0, 300.0)
        assert [r.path for r in server.requests] == ["/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"]
    assert list(usage.pods) == ["web-1", "web-1", "web-2"]
    assert list(usage.containers) == ["app", "side", "app"]
    assert usage.cores.tolist() == [0.123456789, 0.25, 2.0]
    assert usage.sampled_at.tolist() == [1767225630.0, 1767225630.0, 1767225660.0]
    assert usage.window_seconds == 60.5
    assert usage.source == f"{server.url}/apis/metrics.k8s.io/v1beta1"


def test_many_namespaces_are_one_list() -> None:
    """Not one request each."""
    with api(lambda _: listed([pod("ns-3", "p", {"c": "1"})])) as (metrics, server):
        usage = metrics.cpu_usage({f"ns-{i}": ["p"] for i in range(20)}, 0.0, 300.0)
        assert [r.path for r in server.requests] == ["/apis/metrics.k8s.io/v1beta1/pods"]
    assert list(usage.namespaces) == ["ns-3"]


def test_lists_are_read_page_by_page() -> None:
    """Where the provider pages them."""
    pages = {"": listed([pod("a", "p1", {"c": "1"})], "more"), "more": listed([pod("a", "p2", {"c": "2"})])}
    with api(lambda r: pages[r.fields.get("continue", "")]) as (metrics, _):
        assert metrics.cpu_usage({"a": ["p1", "p2"]}, 0.0, 300.0).cores.tolist() == [1.0, 2.0]


def test_what_cannot_be_read_is_missing_not_zero() -> None:
    """A broken quantity, time or window makes its containers unknown, and is counted."""
    items = [
        pod("a", "p1", {"x": "abc", "y": "-5m", "z": "1"}),
        pod("a", "p2", {"x": "1"}, time="yesterday"),
        pod("a", "p3", {"x": "1"}, window="long"),
        pod("a", "p4", {"x": ""}),
    ]
    with api(lambda _: listed(items)) as (metrics, _):
        usage = metrics.cpu_usage({"a": ["p1", "p2", "p3", "p4"]}, 0.0, 300.0)
    assert list(usage.containers) == ["z"]
    assert usage.warnings == (
        "5 pods or containers were ignored: their usage, time or window cannot be read",
    )


def test_a_pod_listed_twice_counts_once_with_its_newest_reading() -> None:
    """Never doubled."""
    items = [
        pod("a", "p", {"c": "2"}, time="2026-01-01T00:01:00Z"),
        pod("a", "p", {"c": "1"}, time="2026-01-01T00:00:00Z"),
    ]
    with api(lambda _: listed(items)) as (metrics, _):
        assert metrics.cpu_usage({"a": ["p"]}, 0.0, 300.0).cores.tolist() == [2.0]


@pytest.mark.parametrize("status", [404, 503])
def test_an_absent_api_is_named(status: int) -> None:
    """No metrics-server, or one that is down."""
    with api(lambda _: Response(status, b"not here")) as (metrics, _):
        with pytest.raises(ResourceMetricsAbsent, match=r"expected metrics-server or another"):
            metrics.cpu_usage({"a": ["p"]}, 0.0, 300.0)
        with pytest.raises(ResourceMetricsAbsent):
            metrics.ready()


def test_other_refusals_are_the_api_servers() -> None:
    """A missing right is not an absent API."""
    with api(lambda _: Response(403, b"{}")) as (metrics, _), pytest.raises(ApiError):
        metrics.cpu_usage({"a": ["p"]}, 0.0, 300.0)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items":[{"metadata":{}}]}', b'{"items":[{"meta'])
def test_another_answer_is_malformed(body: bytes) -> None:
    """Never taken for an empty cluster."""
    with api(lambda _: Response(200, body)) as (metrics, _), pytest.raises(ResourceMetricsMalformed):
        metrics.cpu_usage({"a": ["p"]}, 0.0, 300.0)


def test_queries_are_not_answered_and_say_why() -> None:
    """A lag gate needs a Prometheus."""

    def never(_: Request) -> Response:
        raise AssertionError

    with api(never) as (metrics, _):
        assert metrics.scalar("sum(lag)", 0.0) is None
        assert "expected a Prometheus" in metrics.number("sum(lag)", 0.0).reason
