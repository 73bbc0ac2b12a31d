"""Requests from a real Prometheus beside krr's rule, workload by workload.

krr's rule is computed apart, from the numbers that the history is written from, with none of our code: the
P95 of CPU of the pod where it is highest, and the highest memory + 15 %. Then it is changed step by step into
ours, so that each kind of difference has its figure.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import history_world as world
from benchmarks.history import Server
from benchmarks.recommendation_live import listed_cluster
from benchmarks.tables import Section, Table

PERCENTILE, MEMORY_FACTOR = 95, 1.15
NEAR = 0.1
SPREAD = ("lowest", "median", "highest")
BARE = "P95 without a margin"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "as it is": {},
    BARE: {"resource.cpu-percentile": "95", "resource.cpu-margin": "0"},
    "P95 + 15%": {"resource.cpu-percentile": "95"},
}
"""Our settings, by how the table calls them."""


SCRAPES = 2
"""How many intervals between scrapes our rate covers: its window is 150 seconds."""


class Requests(NamedTuple):
    """Cores and bytes, by workload."""

    cores: Any
    memory: Any


class Rule(NamedTuple):
    """krr's rule, and what may be changed about it."""

    name: str
    scrapes: int = 1
    is_pooled: bool = False

    def cores(self, used: Sequence[tuple[Any, Any]]) -> float:
        """Return the CPU request of a workload from its pods' times and counters."""
        rates = [
            (counted[self.scrapes :] - counted[: -self.scrapes])
            / (at_ms[self.scrapes :] - at_ms[: -self.scrapes])
            * 1000.0
            for at_ms, counted in used
        ]
        if self.is_pooled:
            rates = [np.concatenate(rates)]
        return max(float(np.percentile(each, PERCENTILE)) for each in rates)


RULES = (
    Rule("krr's rule"),
    Rule("with rates over 150 s", SCRAPES),
    Rule("with the samples of all pods together", is_pooled=True),
    Rule("with both", SCRAPES, is_pooled=True),
)


def of_krr(workloads: int) -> dict[str, Requests]:
    """Compute the rules from the numbers of the world, in the order in which they are drawn."""
    cores, memory = np.zeros((len(RULES), workloads)), np.zeros(workloads)
    chances = np.random.default_rng(world.SEED), np.random.default_rng(world.SEED)
    for workload in range(workloads):
        used, peaks = [], []
        for _ in range(world.REPLICAS):
            at_ms = world.times(chances[0], world.JITTER_MS)
            used.append((at_ms, world.counter(chances[0], at_ms)))
            size = len(world.times(chances[1], world.JITTER_MS))
            peaks.append(world.gauge(chances[1], size).max())
        cores[:, workload] = [rule.cores(used) for rule in RULES]
        memory[workload] = max(peaks) * MEMORY_FACTOR
    return {rule.name: Requests(cores[row], memory) for row, rule in enumerate(RULES)}


def of_ours(url: str, workloads: int, settings: Mapping[str, str]) -> Requests:
    """Advise on requests from a Prometheus, as `recommendation plan --type Resource` does."""
    from equipoise.adapters.prometheus.client import PrometheusClient
    from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
    from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings
    from equipoise.adapters.prometheus.transport import Direct
    from equipoise.core.quantity import parse_bytes, parse_cores
    from equipoise.recommendation.advisor import AdviceScope, DataSources, advised
    from equipoise.recommendation.settings import AdviceType, read_policy

    client = PrometheusClient(Direct(PrometheusSettings(url)))
    cluster = listed_cluster(workloads)
    history = PrometheusHistory(client, LabelNames(), source=HistorySource.REMOTE_READ)
    scope = AdviceScope(read_policy(settings, "benchmark"), algorithm=None, about=AdviceType.RESOURCE)
    found = advised(scope, DataSources(cluster, history, cluster), world.END - 30.0)
    requests = {}
    for one in found:
        assert one.details.containers, f"{one.ref} has advice"
        requests[one.ref.name] = one.details.containers[0].requests
    ordered = [requests[world.deployment(number)] for number in range(workloads)]
    return Requests(
        np.array([parse_cores(one["cpu"]) for one in ordered]),
        np.array([parse_bytes(one["memory"]) for one in ordered]),
    )


def run(*, quick: bool) -> Section:
    workloads = world.WORKLOADS // 10 if quick else world.WORKLOADS
    rules = of_krr(workloads)
    beside, steps = (Table((name, "of", "within 10%", *SPREAD)) for name in ("our settings", "beside"))
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), workloads)
        try:
            ours = {name: of_ours(server.url, workloads, settings) for name, settings in SETTINGS.items()}
        finally:
            server.stop()
    for name, requests in ours.items():
        _add(beside, name, requests, rules[RULES[0].name])
    for rule in RULES:
        _add(steps, rule.name, ours[BARE], rules[rule.name], ("CPU",))
    meaning = (
        "Our request ÷ krr's, for each workload; then ours at P95 without a margin ÷ krr's rule, changed "
        "step by step into ours. Memory is the same rule. CPU differs by percentile and margin, which are "
        "settings; by the rate, which for ours covers 150 seconds and smooths single minutes; and by the "
        "pods: krr takes the pod with the highest P95, ours is the percentile over the samples of all pods."
    )
    pods = workloads * world.REPLICAS
    source = (
        f"A week of {pods:,} pods, read from a real Prometheus; krr's rule has one rate for each scrape, "
        "from the numbers that the history was written from."
    )
    return Section(f"Requests of {workloads} workloads beside krr's rule", [beside, steps], meaning, [source])


def _add(
    table: Table, name: str, ours: Requests, krr: Requests, wanted: Sequence[str] = ("CPU", "memory")
) -> None:
    for what, own, other in zip(("CPU", "memory"), ours, krr, strict=True):
        if what in wanted:
            ratio = own / other
            near = int(np.count_nonzero(np.abs(ratio - 1) <= NEAR))
            spread = (f"{value:.2f}" for value in (ratio.min(), np.median(ratio), ratio.max()))
            table.add(name, what, f"{near} of {len(ratio)}", *spread)
