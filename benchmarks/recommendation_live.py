"""All advice for a cluster from a real Prometheus, by every way, beside krr's questions to the same one."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import history_world as world
from benchmarks.history import Counted, Server
from benchmarks.krr_pattern import asked as krr_asked
from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, measure, medians
from benchmarks.tables import Section, Table

if TYPE_CHECKING:
    from tests.support.recommendation.clusters import FixedCluster

REPEATS = 3
LARGE = "kubelet"
"""The value of a label that all series have: taken as their namespace, it is one that is large."""


class Part(NamedTuple):
    """One row of the table."""

    source: str
    has_forecast: bool = False
    is_one_namespace: bool = False

    @property
    def name(self) -> str:
        ways = {
            "remote-read": "remote read, memory by a query",
            "promql": "PromQL",
            "krr": "krr's questions alone",
        }
        more = [", with the forecast"] * self.has_forecast + [
            ", all in one namespace"
        ] * self.is_one_namespace
        return ways[self.source] + "".join(more)


KRR = Part("krr")
PARTS = (
    Part("remote-read"),
    Part("remote-read", has_forecast=True),
    Part("remote-read", is_one_namespace=True),
    Part("promql"),
    Part("promql", has_forecast=True),
)
GOALS = {Part("remote-read"): 15, Part("promql"): 7}
"""How often the cost of the way must fit into krr's."""
KRR_CPU_SECONDS = 54.2
KRR_WALL_SECONDS = 32.6
KRR_SERVER_CPU_SECONDS = 40.0
KRR_TOLD = "32.6 s, 54.2 s of CPU (14.2 of them its own) and 2,806 requests"
"""krr 1.29 itself, 400 workloads without jitter, on another day."""


def advised(
    url: str, source: str, workloads: int, has_forecast: bool, is_one_namespace: bool = False
) -> Figures:
    """Advise on replicas and on requests in one reading, as the operator does."""
    from equipoise.adapters.prometheus.client import PrometheusClient
    from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
    from equipoise.adapters.prometheus.metrics import PrometheusOwners
    from equipoise.adapters.prometheus.settings import LabelNames, PrometheusSettings
    from equipoise.core.reason import Code
    from equipoise.recommendation.advisor import AdviceBatch, DataSources, advise_all
    from equipoise.recommendation.settings import AdviceRequest, AdviceType, read_policy
    from equipoise.stats.predict import Algorithm

    cluster = listed_cluster(workloads, LARGE if is_one_namespace else None)
    way = Counted(PrometheusSettings(url))
    names = LabelNames(namespace="service") if is_one_namespace else LabelNames()
    history = PrometheusHistory(PrometheusClient(way), names, source=HistorySource(source))
    # The answers to queries are counted by the transport; those to remote reads as they come.
    on_bytes = None if history.source is HistorySource.PROMQL else way.add
    seen = DataSources(cluster, history, cluster, PrometheusOwners(PrometheusClient(way)), on_bytes=on_bytes)
    policy = read_policy({"ehpa.min-cpu-usage-threshold": "0.1"}, "benchmark")
    algorithm = Algorithm.PROFILE if has_forecast else None
    questions = [AdviceRequest(policy, about, algorithm) for about in (AdviceType.HPA, AdviceType.RESOURCE)]
    jobs = [AdviceBatch(question, cluster.listed) for question in questions]

    found, taken = measure(
        lambda: list(advise_all(jobs, cluster.listed, seen, world.END - 30.0, reads_all=True))
    )
    assert len(found) == 2 * workloads
    told = sorted(
        [one.batch, one.ref.name, one.decision.reason.code, one.decision.extra["recommended"]]
        for one in found
    )
    return taken.figures(
        requests=float(way.requests),
        bytes=float(way.received),
        advice=float(zlib.crc32(json.dumps(told).encode())),
        recommended=float(sum(one.decision.reason.code is Code.RECOMMEND for one in found)),
    )


def listed_cluster(workloads: int, namespace: str | None = None) -> FixedCluster:
    """List what the history is of: Deployments, each with its pods, held in memory."""
    from equipoise.core.cluster import Container
    from tests.support.recommendation.clusters import FixedCluster, pod, workload

    listed, pods = [], []
    for number in range(workloads):
        where = namespace or world.namespace(number)
        made = workload(world.deployment(number), namespace=where, replicas=world.REPLICAS)
        listed.append(made)
        pods += [
            pod(made, world.pod(number, replica), containers=(Container("app", 1.0),))
            for replica in range(world.REPLICAS)
        ]
    return FixedCluster(listed, pods)


def run(*, quick: bool) -> Section:
    workloads = world.WORKLOADS // 10 if quick else world.WORKLOADS
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), workloads)
        try:
            parts = {part: _ours(server, part, workloads) for part in PARTS}
            parts[PARTS[0]]()  # so that all blocks are in the page cache
            parts[KRR] = partial(server.beside, partial(_krr, server.url, workloads))
            repeats = 1 if quick else REPEATS
            runs = [{part: run() for part, run in parts.items()} for _ in range(repeats)]
        finally:
            server.stop()
    found = {part: _summed_up([one[part] for one in runs]) for part in parts}
    for has_forecast in (False, True):
        ways = [part for part in PARTS if part.has_forecast is has_forecast]
        told = {one[part]["advice"] for one in runs for part in ways}
        assert len(told) == 1, "all ways advise the same"
    return Section(
        f"Advice for {workloads} workloads x {world.REPLICAS} pods from a real Prometheus",
        [_table(found)],
        _meaning(found, workloads),
        _remarks(found, workloads),
    )


def _summed_up(runs: list[Figures]) -> Figures:
    """Give the middle of each figure, but the shortest wall time and the highest peaks."""
    least = min(one["wall_seconds"] for one in runs)
    peaks = {name: max(one[name] for one in runs) for name in ("peak_bytes", "server_peak")}
    return {**medians(runs), **peaks, "wall_seconds": least}


def _ours(server: Server, part: Part, workloads: int) -> Callable[[], Figures]:
    options = {"url": server.url, "workloads": workloads, **part._asdict()}
    return lambda: server.beside(lambda: in_own_process(advised, **options))


def _krr(url: str, workloads: int) -> Figures:
    return in_own_process(krr_asked, url=url, workloads=workloads)


def _cpu(figures: Figures) -> float:
    return figures["cpu_seconds"] + figures["server_cpu"]


def _table(found: dict[Part, Figures]) -> Table:
    costs = ("requests", "MB", "wall s", "our CPU s", "Prometheus CPU s", "our peak MiB", "its peak MiB")
    table = Table(("advice by", *costs, "wall of krr's", "CPU of krr's"))
    for part, figures in found.items():
        table.add(
            part.name,
            f"{figures['requests']:,.0f}",
            f"{figures['bytes'] / 1e6:.0f}",
            f"{figures['wall_seconds']:.2f}",
            f"{figures['cpu_seconds']:.2f}",
            f"{figures['server_cpu']:.2f}",
            f"{figures['peak_bytes'] / MEBIBYTE:.0f}",
            f"{figures['server_peak'] / MEBIBYTE:.0f}",
            f"1/{found[KRR]['wall_seconds'] / figures['wall_seconds']:.1f}",
            f"1/{_cpu(found[KRR]) / _cpu(figures):.1f}",
        )
    return table


def _meaning(found: dict[Part, Figures], workloads: int) -> str:
    size = workloads / world.WORKLOADS
    pace = found[KRR]["server_cpu"] / (KRR_SERVER_CPU_SECONDS * size)
    told = []
    for part, goal in GOALS.items():
        wall = KRR_WALL_SECONDS * size / found[part]["wall_seconds"]
        cpu = KRR_CPU_SECONDS * size / _cpu(found[part])
        told.append(
            f"{part.name}, goal 1/{goal}: {_judged(wall, cpu, goal)}; "
            f"at this run's pace {_judged(wall * pace, cpu * pace, goal)}"
        )
    pods = workloads * world.REPLICAS
    return (
        f"Replicas, targets and requests for {workloads} workloads from a week of {pods:,} pods, without the "
        f"forecast, both sides' CPU together. Beside krr's own figures: {'. '.join(told)}. All ways advise "
        f"the same. The pace ({pace:.2f}) is what krr's questions cost the server in this run, as a multiple "
        "of what they cost it when krr was measured; it is no part of the goal."
    )


def _judged(wall: float, cpu: float, goal: int) -> str:
    shares = {"wall time": wall, "CPU": cpu}
    return ", ".join(
        f"1/{share:.1f} of the {what} ({_verdict(share, goal)})" for what, share in shares.items()
    )


def _verdict(share: float, goal: int) -> str:
    return "met" if share >= goal else "missed"


def _remarks(found: dict[Part, Figures], workloads: int) -> list[str]:
    advised = found[PARTS[0]]["recommended"]
    alone = (
        "krr is not on PyPI and could not be installed. Its row has its requests, 7 for each workload and 10 "
        "at a time, and the decoding of their answers; nothing else of it: its own CPU time there is a floor."
    )
    itself = (
        f"krr 1.29 itself took {KRR_TOLD}, on such data without jitter, measured apart. The goals are shares "
        "of that."
    )
    shown = f"Timestamps are up to {world.JITTER_MS / 1000:g} s early or late, as cAdvisor's are"
    turns = f"The middle of {REPEATS} runs in turn (of wall times the shortest, of peaks the highest)"
    return [
        alone,
        itself,
        f"Two questions for each workload, {advised:.0f} of {2 * workloads} end in advice.",
        f"{shown}; workloads and pods are held in memory, krr's too.",
        f"{turns}, each with a server that was started anew.",
    ]
