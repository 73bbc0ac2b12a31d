"""A cluster whose usage a real Prometheus has, for the contract of metrics."""

import time
from dataclasses import dataclass
from typing import TypeVar

from equipoise.ports import Metrics
from tests.support.contracts.contract import Fact

MEASURED_SECONDS = 60.0
"""Scrapes of a machine that stood still are out of every window that is asked for, but for the longest."""


MEASURED = "contract-metrics"


W = TypeVar("W")


@dataclass
class Measured:
    """Three pods with steady loads, as one source tells of them."""

    metrics: Metrics
    loads: dict[str, float]
    namespace: str = MEASURED
    window_seconds: float = 300.0
    known_query: tuple[str, float] = ("vector(42)", 42.0)

    def now(self) -> float:
        return time.time()


def hold(fact: Fact[W], world: W) -> None:
    """Check a fact about what was measured; a scrape that came late shows in a window, and then no more."""
    end = time.monotonic() + MEASURED_SECONDS
    while True:
        is_last = time.monotonic() > end
        try:
            return fact(world)
        except AssertionError:
            if is_last:
                raise
            time.sleep(0.5)
