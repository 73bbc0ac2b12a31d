"""Metrics from a test's server, and the labels and rows that its answers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import Limits, Names, Settings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports import CpuUsage


def metrics(
    url: str, names: Names | None = None, extra: Mapping[str, str] | None = None, **limits: Any
) -> PrometheusMetrics:
    client = Client(Direct(Settings(url)), Limits(**limits), sleep=lambda _: None)
    return PrometheusMetrics(client, names or Names(), extra or {})


def container(namespace: str, pod: str, name: str = "app", **more: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "container": name, **more}


def rows(usage: CpuUsage) -> dict[tuple[str, str, str], float]:
    keys = zip(usage.namespaces, usage.pods, usage.containers, strict=True)
    found = dict(zip(keys, usage.cores.tolist(), strict=True))
    assert len(found) == len(usage.cores)
    return found
