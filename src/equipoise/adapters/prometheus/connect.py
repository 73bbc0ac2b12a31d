"""From settings to a working source: the address that was given, or the Prometheus that is found."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.proxy import ApiServer
from equipoise.adapters.prometheus.settings import CADVISOR, Limits, Names, Settings
from equipoise.adapters.prometheus.transport import Direct, Transport


def connect(
    where: Settings | ApiServer,
    *,
    limits: Limits | None = None,
    names: Names = CADVISOR,
    extra_matchers: Mapping[str, str] | None = None,
) -> PrometheusMetrics:
    """Use a Prometheus at an address, or the one that is found behind an API server.

    An address is not tried before the first question; `ready()` tries it.
    """
    limits = limits or Limits()
    transport: Transport
    if isinstance(where, Settings):
        transport = Direct(where, limits.concurrency_max)
    else:
        transport = find(where).transport
    return PrometheusMetrics(Client(transport, limits), names, dict(extra_matchers or {}))
