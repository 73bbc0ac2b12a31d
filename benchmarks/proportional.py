"""One cycle of the operator for thousands of scaling policies: CPU, and what is asked of the API server."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measuring import ROOT, Figures, in_own_process, medians
from benchmarks.scaling_world import NODES, PODS_EACH
from benchmarks.tables import Section, Table, ratio

SIZES = (200, 2000)
CYCLE_SECONDS = 10.0
RESTS = 5
"""So many cycles at rest, of which the middle is shown."""
GROWTH_MAX = 12.0
"""For ten times the policies."""
PHASES = (
    "the first cycle: all pods are changed",
    "at rest",
    "a node goes: half are smoothed",
    "at rest again",
)


class _NoPause:
    def pause_of(self, namespace: str) -> None:
        del namespace


class _Leader:
    def epoch(self) -> int:
        return 1


class _NoDiary:
    def append(self, *records: Any, is_whole: bool = False) -> None:
        del records, is_whole


@contextmanager
def _served(policies: int) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.scaling_world", str(policies)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "the server did not start"
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _counts(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/counts", timeout=30) as answer:
        return dict(json.load(answer))


def _wait_for(reflectors: list[Any], url: str) -> None:
    """Wait until the caches have seen all that happened: the same objects at the same versions."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        _counts(url)
        before = [reflector.counters.events for reflector in reflectors]
        time.sleep(0.3)
        if [reflector.counters.events for reflector in reflectors] == before:
            return
    raise AssertionError("the caches do not settle")


def cycles(policies: int) -> Figures:
    """Run four cycles of the production loop on the production adapters; give what each cost."""
    from equipoise.adapters.journal import RecordIds
    from equipoise.adapters.kubernetes import CachedCluster, KubernetesActuator
    from equipoise.adapters.kubernetes.client import Client
    from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
    from equipoise.adapters.kubernetes.policies import KubernetesPolicies
    from equipoise.adapters.kubernetes.sizes import CachedSizes
    from equipoise.adapters.kubernetes.store import LedgerStore
    from equipoise.crd.targets import Mode
    from equipoise.proportional.loop import ProportionalLoop
    from equipoise.proportional.status import SCALING_POLICY as KIND

    figures: Figures = {}
    with _served(policies) as url:
        client = Client(Target(Endpoint(url), Identity(), "default", "the benchmark"))
        cluster = CachedCluster(client)
        kept = KubernetesPolicies(client, KIND)
        sizes = CachedSizes(client, cluster)
        reflectors = [*cluster.reflectors, kept.reflector, *sizes.reflectors.values()]
        for reflector in reflectors:
            reflector.start()
        assert all(reflector.synced.wait(120) for reflector in reflectors)
        loop = ProportionalLoop(
            *(cluster, sizes, kept, _NoPause(), _Leader(), LedgerStore(client), KubernetesActuator(client)),
            *(_NoDiary(), RecordIds(1).next, Mode.ENFORCE),
            change_seconds=0.0,
        )
        at = 1_800_000_000.0
        for _ in range(3):  # a window begins to decide with its third target
            at += CYCLE_SECONDS
            _one(loop, at, url, figures, PHASES[0])
            _wait_for(reflectors, url)
        for phase, nodes in zip(PHASES[1:], (NODES, NODES - 1, NODES - 1), strict=True):
            request = urllib.request.Request(f"{url}/nodes", json.dumps(nodes).encode(), method="POST")
            if phase == PHASES[2]:
                urllib.request.urlopen(request, timeout=60).close()
                _wait_for(reflectors, url)
            else:  # the cycle that says that all is as it should be
                at += CYCLE_SECONDS
                loop.cycle(at)
                _wait_for(reflectors, url)
            runs: list[Figures] = []
            for _ in range(1 if phase == PHASES[2] else RESTS):
                at += CYCLE_SECONDS
                runs.append({})
                _one(loop, at, url, runs[-1], phase)
            figures |= medians(runs)
            _wait_for(reflectors, url)
        for reflector in reflectors:
            reflector.stop()
    return figures


def _one(loop: Any, at: float, url: str, figures: Figures, phase: str) -> None:
    before, cpu, wall = _counts(url), time.process_time(), time.perf_counter()
    report = loop.cycle(at)
    cost = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    after = _counts(url)
    assert not report.warnings, report.warnings
    cost |= {
        "reads": after.get("GET", 0) - before.get("GET", 0),
        "statuses": _more(before, after, "PATCH scalingpolicies/status"),
        "resizes": _more(before, after, "PATCH pods/resize"),
        "events": _more(before, after, "POST event"),
    }
    for name, value in cost.items():
        figures[f"{phase}|{name}"] = figures.get(f"{phase}|{name}", 0.0) + value


def _more(before: dict[str, int], after: dict[str, int], name: str) -> int:
    return after.get(name, 0) - before.get(name, 0)


def run(*, quick: bool) -> Section:
    sizes = (20, 200) if quick else SIZES
    table = Table(
        ("cycle, policies", "CPU s", "wall s", "reads", "statuses written", "pods changed", "events")
    )
    found = {size: in_own_process(cycles, policies=size) for size in sizes}
    for phase in PHASES:
        for size in sizes:
            cost = {name: found[size][f"{phase}|{name}"] for name in ("cpu", "wall")}
            counts = [found[size][f"{phase}|{name}"] for name in ("reads", "statuses", "resizes", "events")]
            cells = (f"{cost['cpu']:.2f}", f"{cost['wall']:.2f}", *(f"{count:,.0f}" for count in counts))
            table.add(f"{phase}, {size:,}", *cells)
    small, large = (found[size][f"{PHASES[1]}|cpu"] for size in sizes)
    met = "meets" if large / small <= GROWTH_MAX else "misses"
    rest = [found[sizes[1]][f"{PHASES[1]}|{name}"] for name in ("reads", "statuses", "resizes", "events")]
    return Section(
        "Scaling: one cycle for many policies",
        [table],
        f"At rest a cycle for {sizes[1]:,} policies costs {large:.2f} s of CPU, {ratio(large, small)} what "
        f"it costs for {sizes[0]:,}, which {met} the goal of at most {GROWTH_MAX:g}; it asks the API server "
        f"{sum(rest):,.0f} times.",
        [
            f"Each policy has a Deployment of {PODS_EACH} pods; every other one is smoothed by percentile.",
            "The first row is three cycles, since a window decides with its third target.",
            "The API server is a small one in a process of its own, on the same cores.",
        ],
    )
