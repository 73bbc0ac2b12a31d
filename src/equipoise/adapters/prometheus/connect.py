"""From settings to a working source: the address that was given, or the Prometheus that was found."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.settings import CADVISOR, Limits, Names, Settings
from equipoise.adapters.prometheus.transport import Direct, Transport


def connect(
    where: Settings | Transport,
    *,
    limits: Limits | None = None,
    names: Names = CADVISOR,
    extra_matchers: Mapping[str, str] | None = None,
) -> PrometheusMetrics:
    """Return the source of usage for a Prometheus at an address, or behind a transport that was found.

    Nothing is asked before the first question; `ready()` asks.
    """
    limits = limits or Limits()
    transport = Direct(where, limits.concurrency_max) if isinstance(where, Settings) else where
    return PrometheusMetrics(Client(transport, limits), names, dict(extra_matchers or {}))
