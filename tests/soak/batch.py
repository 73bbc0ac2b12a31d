"""A batch of 20,000 workloads beside the Lease: `python -m tests.soak.batch [--workloads N] [--cycles N]`.

The operator as it is wired for a cluster, with a real API server for its Lease; what it looks at is a fleet
in its memory, five pods to a workload, all of which it decides about in every cycle. From outside, the Lease
is watched at the API server and `/healthz` is asked ten times a second. Figures go to docs/soak.md.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import rotation_world
from benchmarks.rotation_world import CachedFleet
from equipoise.core.cluster import ObjectRef
from equipoise.ports import CpuUsage, PolicyObject
from equipoise.ports.wiring import Loop, LoopSettings, Wiring
from equipoise.rotation.balancer import make_loop
from equipoise.rotation.loop import RotationLoop
from equipoise.runtime.layers import effective
from equipoise.runtime.logs import make_log
from equipoise.runtime.operator.wiring import OperatorWiring, make_operator, run_until_signalled
from tests.soak import write_figures
from tests.testbed import ControlPlane, free_port, wait_until
from tests.testbed.processes import is_answering
from tests.testbed.scenes import namespaced

PODS_PER_WORKLOAD = 5
HOME = "equipoise-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
PROBE_SECONDS = 0.1
BOUND_SECONDS = 900.0


class Usage:
    """Some usage of every pod, always fresh."""

    def cpu_usage(self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window: float) -> CpuUsage:
        rows = [
            (namespace, pod, container)
            for namespace, pods in pods_by_namespace.items()
            for pod in pods
            for container in ("app", "proxy")
        ]
        namespaces, pods, containers = zip(*rows, strict=True) if rows else ((), (), ())
        cores = np.random.default_rng(7).uniform(0.1, 0.9, len(rows))
        return CpuUsage(namespaces, pods, containers, cores, np.full(len(rows), at), window, "memory")

    def scalar(self, query: str, at: float) -> float | None:
        raise AssertionError((query, at))


class Policies:
    """One policy for each namespace of the fleet; what is said about them is said to nobody."""

    def __init__(self, fleet: CachedFleet) -> None:
        places = sorted({workload.ref.namespace for workload in fleet.workloads()})
        spec = {"selector": {}, "syncPeriod": "1s", "minPodAge": "0s"}
        self._all = [
            PolicyObject(
                ObjectRef("equipoise.dev/v1alpha1", "RotationPolicy", place, "all", place), 1, "1", spec, {}
            )
            for place in places
        ]

    def policies(self) -> Sequence[PolicyObject]:
        return self._all

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        del policy, status


def operate(kubeconfig: str, address: str, workloads: int) -> None:
    """Be the operator."""
    rotation_world.PODS_PER_WORKLOAD = PODS_PER_WORKLOAD
    fleet = CachedFleet(workloads)

    def loop(wiring: Wiring, settings: LoopSettings) -> Loop:
        assert isinstance(wiring, OperatorWiring)
        seen = replace(wiring, cluster=fleet, metrics=Usage(), watch=lambda reflector: None)
        made = make_loop(seen, settings)
        assert isinstance(made, RotationLoop)
        made.policies = Policies(fleet)
        return made

    given = {"kubernetes.kubeconfig": kubeconfig, "http.address": address, "lease.namespace": HOME}
    given |= {"balancers": "rotation", "intervals.rotation": "1s", "logs.level": "warning"}
    settings = effective(None, {}, {}, [f"{name}={value}" for name, value in given.items()]).settings
    log = make_log(settings.logs)
    run_until_signalled(make_operator(settings, log, threading.Event(), {"rotation": loop}))


@dataclass
class Seen:
    """What was seen from outside."""

    renewals: list[float] = field(default_factory=list)
    """When the API server's watch told of each, on our clock."""
    transitions: set[int] = field(default_factory=set)
    probes: list[float] = field(default_factory=list)
    refused: int = 0
    done: threading.Event = field(default_factory=threading.Event)


def _watch(plane: ControlPlane, seen: Seen) -> None:
    version = plane.api.get(LEASE)["metadata"]["resourceVersion"]
    while not seen.done.is_set():
        for event in plane.api.watch(LEASE, seconds=5, resourceVersion=version):
            version = event["object"]["metadata"]["resourceVersion"]
            seen.renewals.append(time.monotonic())
            seen.transitions.add(event["object"]["spec"]["leaseTransitions"])


def _probe(url: str, seen: Seen) -> None:
    with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
        while not seen.done.wait(PROBE_SECONDS):
            began = time.monotonic()
            answer = pool.request("GET", f"{url}/healthz")
            seen.probes.append(time.monotonic() - began)
            seen.refused += answer.status != 200


def _metric(url: str, name: str) -> float:
    with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
        text = pool.request("GET", f"{url}/metrics").data.decode()
    families = text_string_to_metric_families(text)
    return sum(one.value for family in families for one in family.samples if one.name == name)


def _measure(folder: Path, stack: ExitStack, workloads: int, cycles: int) -> tuple[Seen, float, float]:
    plane = stack.enter_context(ControlPlane(folder, scheduler=False))
    plane.apply(namespaced(HOME))
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}"
    log = stack.enter_context((folder / "operator.log").open("wb"))
    words = ["--operate", str(plane.kubeconfig), address, str(workloads)]
    process = subprocess.Popen([sys.executable, "-m", "tests.soak.batch", *words], stdout=log, stderr=log)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)

    def said() -> str:
        return (folder / "operator.log").read_text()[-2000:]

    wait_until(lambda: is_answering(f"{url}/readyz") or process.poll(), "the first cycle", BOUND_SECONDS)
    assert process.poll() is None, said()
    seen, before = Seen(), _metric(url, "equipoise_cycle_seconds_count")
    spent = _metric(url, "equipoise_cycle_seconds_sum")
    threads = [
        threading.Thread(target=_watch, args=(plane, seen), daemon=True),
        threading.Thread(target=_probe, args=(url, seen), daemon=True),
    ]
    for thread in threads:
        thread.start()

    def is_over() -> bool:
        assert process.poll() is None, said()
        return _metric(url, "equipoise_cycle_seconds_count") - before >= cycles

    wait_until(is_over, f"{cycles} cycles", BOUND_SECONDS)
    mean = (_metric(url, "equipoise_cycle_seconds_sum") - spent) / cycles
    decided = _metric(url, "equipoise_subjects")
    seen.done.set()
    for thread in threads:
        thread.join(60)
    return seen, mean, decided


def _entry(seen: Seen, mean: float, decided: float, cycles: int) -> str:
    gaps = sorted(after - before for before, after in pairwise(seen.renewals))
    probes = sorted(seen.probes)
    rows = [
        ("workloads decided about in each cycle", f"{decided:.0f}, {decided * PODS_PER_WORKLOAD:.0f} pods"),
        ("cycles, and how long one took", f"{cycles}, {mean:.1f} s"),
        ("renewals of the Lease seen", f"{len(seen.renewals)}, due every 2 s"),
        ("longest time between two", f"{gaps[-1]:.2f} s, of the 10 s that the leader believes in one"),
        ("epochs", f"{len(seen.transitions)}"),
        ("`/healthz` asked", f"{len(probes)} times, {seen.refused} not well"),
        ("slowest, 99th percentile, median", " ".join(f"{1000 * one:.0f} ms" for one in _three(probes))),
    ]
    lines = "\n".join(f"| {name} | {value} |" for name, value in rows)
    title = f"### {datetime.now(UTC).date().isoformat()}: {decided:.0f} workloads"
    return f"{title}\n\n| what | figure |\n|---|---|\n{lines}\n"


def _three(values: list[float]) -> tuple[float, float, float]:
    return values[-1], values[int(len(values) * 0.99)], values[len(values) // 2]


def main() -> int:
    """Run, and write the figures; a late renewal or a slow answer is a failure."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.batch", description=__doc__)
    options.add_argument("--workloads", type=int, default=20_000)
    options.add_argument("--cycles", type=int, default=10)
    options.add_argument("--operate", nargs=3, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.operate:
        kubeconfig, address, workloads = chosen.operate
        operate(kubeconfig, address, int(workloads))
        return 0
    with tempfile.TemporaryDirectory(prefix="batch-") as folder, ExitStack() as stack:
        seen, mean, decided = _measure(Path(folder), stack, chosen.workloads, chosen.cycles)
    entry = _entry(seen, mean, decided, chosen.cycles)
    print(entry)
    write_figures("batch", entry)
    worst = max(after - before for before, after in pairwise(seen.renewals))
    is_well = max(seen.probes) < 1.0 and worst < 10.0 and len(seen.transitions) == 1 and not seen.refused
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
