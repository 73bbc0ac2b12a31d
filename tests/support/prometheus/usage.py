"""Metrics from a test's server, and the labels and rows that its answers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings, QueryLimits
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports import CpuUsage


def metrics(
    url: str, names: LabelNames | None = None, extra: Mapping[str, str] | None = None, **limits: Any
) -> PrometheusMetrics:
    client = PrometheusClient(Direct(PrometheusSettings(url)), QueryLimits(**limits), sleep=lambda _: None)
    return PrometheusMetrics(client, names or LabelNames(), extra or {})


def container(namespace: str, pod: str, name: str = "app", **more: str) -> dict[str, str]:
    return {"namespace": namespace, "pod": pod, "container": name, **more}


def rows(usage: CpuUsage) -> dict[tuple[str, str, str], float]:
    keys = zip(usage.namespaces, usage.pods, usage.containers, strict=True)
    found = dict(zip(keys, usage.cores.tolist(), strict=True))
    assert len(found) == len(usage.cores)
    return found
