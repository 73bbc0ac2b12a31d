"""Every metric that a process of ours shows, read from the code that makes it: for the reference."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from equipoise.runtime.agent.reporting import AgentMetrics
from equipoise.runtime.allocator.api import Api
from equipoise.runtime.metrics import READ_GAUGES, OperatorMetrics, ReflectorMetrics


class Shown(NamedTuple):
    """One metric."""

    process: str
    """The command that shows it."""
    name: str
    """As Prometheus has it."""
    type: str
    labels: tuple[str, ...]
    meaning: str


class _Nothing:
    """A reflector that was never started: enough to ask which metrics there are."""

    class kind:  # noqa: N801 - as an attribute
        plural = ""

    class counters:  # noqa: N801 - as an attribute
        lists = watches = failures = 0

    cache = ()

    def last_contact_age_seconds(self, now: float) -> float:
        return now


def metric_table() -> list[Shown]:
    """Return the metrics of all processes, by process and name."""
    return [
        one
        for process, registry in (
            ("operator", _operator()),
            ("agent", _agent()),
            ("pools serve", _pools_serve()),
        )
        for one in sorted(_shown(process, registry))
    ]


def series_names(shown: Shown) -> frozenset[str]:
    """Return the names of the series that queries may use."""
    if shown.type == "histogram":
        return frozenset(f"{shown.name}_{part}" for part in ("bucket", "count", "sum"))
    return frozenset({shown.name})


def _operator() -> CollectorRegistry:
    meters = OperatorMetrics()
    for name in READ_GAUGES:
        meters.read_gauge(name, lambda: 0.0)
    meters.registry.register(ReflectorMetrics(lambda: [_Nothing()], time.monotonic))
    return meters.registry


def _agent() -> CollectorRegistry:
    registry = CollectorRegistry()
    AgentMetrics(registry)
    return registry


def _pools_serve() -> CollectorRegistry:
    registry = CollectorRegistry()
    Api(cast("Any", None), "", None, registry)
    return registry


def _shown(process: str, registry: CollectorRegistry) -> Iterator[Shown]:
    # The registry tells names and meanings; which labels there are only the collectors know.
    collectors: dict[Any, list[str]] = registry._collector_to_names  # noqa: SLF001
    for collector in collectors:
        labels = tuple(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            if not family.name.startswith(("process_", "python_")):
                yield Shown(process, _name(family), _type(family), labels or _labels(family), _what(family))


def _name(family: Metric) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(_type(family), "")
    return family.name.removesuffix(suffix) + suffix


def _type(family: Metric) -> str:
    return str(family.type)


def _labels(family: Metric) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for sample in family.samples for name in sample.labels))


def _what(family: Metric) -> str:
    return str(family.documentation)
