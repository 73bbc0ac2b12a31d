"""Rotation decided for a whole cluster, from Prometheus bytes and cached pods; and how that grows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, measure, medians
from benchmarks.rotation_world import AT, PODS_PER_WORKLOAD, CachedFleet, prometheus
from benchmarks.serving import serving
from benchmarks.tables import Section, Table
from equipoise.adapters.prometheus import metrics as adapter
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.core.decision import Decision
from equipoise.ports import CpuUsage, Metrics
from equipoise.rotation import decide as deciding_module
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from tests.support.rotation.tenants import plan_alone

SIZES = (500, 5000)
LINEAR_MAX = 1.05
"""What still counts as linear, given the noise."""
PARTS = {
    "queries, transfer and decoding": "ask_seconds",
    "joining samples, pods and workloads": "join_seconds",
    "deciding": "decide_seconds",
    "end to end, CPU": "cpu_seconds",
    "end to end, wall": "wall_seconds",
}


class Stopwatch:
    """CPU seconds of the process while in a function: others on the machine stretch the wall time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began

        return timed


def planned(url: str, workloads: int, cycles: int) -> Figures:
    """Plan several times, as an operator does; the first cycle also makes the server prepare its answers."""
    cluster = CachedFleet(workloads)
    sizes: list[int] = []
    transport = Direct(PrometheusSettings(url=url))
    send = transport.send

    def counted(*arguments: Any) -> Any:
        reply = send(*arguments)
        sizes.append(len(reply.body))
        return reply

    asking, joining, deciding = Stopwatch(), Stopwatch(), Stopwatch()

    def cycle() -> Figures:
        sizes.clear()
        for watch in (asking, joining, deciding):
            watch.seconds = 0.0
        decisions, taken = measure(lambda: _plan(cluster, metrics))
        found = Counter(decision.reason.code.value for decision in decisions)
        assert len(decisions) == workloads
        # Whatever holds it, such as an HPA that is about to scale: it was decided.
        wanted = sum(bool(decision.actions or decision.held) for decision in decisions)
        assert wanted + found["NoHotPods"] == workloads, found
        return taken.figures(
            queries=len(sizes),
            answer_bytes=sum(sizes),
            rotations=wanted,
            ask_seconds=asking.seconds - joining.seconds,
            join_seconds=taken.cpu_seconds - asking.seconds + joining.seconds - deciding.seconds,
            decide_seconds=deciding.seconds,
        )

    with (
        patch.object(transport, "send", counted),
        patch.object(adapter, "_join", joining.around(adapter._join)),
        patch.object(deciding_module, "decide", deciding.around(decide)),
    ):
        metrics = _Timed(adapter.PrometheusMetrics(PrometheusClient(transport)), asking)
        runs = [cycle() for _ in range(1 + cycles)]
    return medians(runs[1:]) | {"rss_before_bytes": runs[0]["rss_before_bytes"]}


def _plan(cluster: CachedFleet, metrics: Metrics) -> list[Decision]:
    warnings: list[str] = []
    # The fleet's pods have an emptyDir each, and a tenth are of StatefulSets.
    policy = RotationPolicy(includes_local_storage=True, includes_stateful_sets=True)
    decisions = plan_alone(policy, cluster, metrics, AT, None, warn=warnings.append)
    assert not warnings, warnings
    return decisions


class _Timed:
    """The `Metrics` port, with a stopwatch."""

    def __init__(self, metrics: Metrics, watch: Stopwatch) -> None:
        self._metrics = metrics
        self._cpu_usage = watch.around(metrics.cpu_usage)

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        usage: CpuUsage = self._cpu_usage(pods_by_namespace, at, window_seconds)
        return usage

    def scalar(self, query: str, at: float) -> float | None:
        return self._metrics.scalar(query, at)


def run(*, quick: bool) -> Section:
    sizes = tuple(size // 10 for size in SIZES) if quick else SIZES
    rounds, cycles = (1, 2) if quick else (2, 3)
    with ExitStack() as stack:
        urls = [stack.enter_context(serving(prometheus, workloads=size)) for size in sizes]
        parts = [_part(url, size, cycles) for url, size in zip(urls, sizes, strict=True)]
        small, large = interleaved(rounds, *parts)
    return Section(
        f"Rotation plan for {sizes[1]:,} workloads x {PODS_PER_WORKLOAD} pods",
        [_totals(sizes, (small, large)), _growth(sizes, small, large)],
        f"One cycle over {sizes[1] * PODS_PER_WORKLOAD:,} pods, from cached pods and Prometheus bytes "
        f"to decisions, takes {large['cpu_seconds']:.1f} s of CPU and {large['queries']:.0f} queries; "
        f"ten times the workloads cost {large['cpu_seconds'] / small['cpu_seconds']:.1f} times the CPU time.",
        [
            "The time includes the transfer over loopback, but not the work of a real Prometheus.",
            f"Per pod two containers of four numbers: {large['answer_bytes'] / MEBIBYTE:.0f} MiB of answers.",
            f"{large['rotations']:.0f} of {sizes[1]:,} workloads have pods that are worth rotating.",
            f"{large['rss_before_bytes'] / MEBIBYTE:.0f} MiB of the peak are Python and the cached records.",
            *_beyond_linear(large["cpu_seconds"] / small["cpu_seconds"] / (sizes[1] / sizes[0])),
        ],
    )


def _beyond_linear(growth: float) -> list[str]:
    if growth <= LINEAR_MAX:
        return []
    return [f"The goal of linear growth was missed by {growth - 1:.0%} in CPU time in this run."]


def _part(url: str, workloads: int, cycles: int) -> Callable[[], Figures]:
    return lambda: in_own_process(planned, url=url, workloads=workloads, cycles=cycles)


def _totals(sizes: Sequence[int], found: Sequence[Figures]) -> Table:
    table = Table(
        ("workloads", "pods", "wall s", "CPU s", "workloads/s", "pods/s", "queries", "peak RSS MiB")
    )
    for size, figures in zip(sizes, found, strict=True):
        table.add(
            f"{size:,}",
            f"{size * PODS_PER_WORKLOAD:,}",
            f"{figures['wall_seconds']:.2f}",
            f"{figures['cpu_seconds']:.2f}",
            f"{size / figures['wall_seconds']:,.0f}",
            f"{size * PODS_PER_WORKLOAD / figures['wall_seconds']:,.0f}",
            f"{figures['queries']:.0f}",
            f"{figures['peak_bytes'] / MEBIBYTE:.0f}",
        )
    return table


def _growth(sizes: Sequence[int], small: Figures, large: Figures) -> Table:
    times = sizes[1] / sizes[0]
    columns = (
        "where the CPU time goes",
        f"s at {sizes[0]:,}",
        f"s at {sizes[1]:,}",
        "share",
        "growth",
        "of linear (1.0)",
    )
    table = Table(columns)
    for name, key in PARTS.items():
        growth = large[key] / small[key]
        share = "" if key == "wall_seconds" else f"{large[key] / large['cpu_seconds']:.0%}"
        table.add(
            name,
            f"{small[key]:.2f}",
            f"{large[key]:.2f}",
            share,
            f"{growth:.1f}x",
            f"{growth / times:.2f}",
        )
    return table
