"""krr's questions to Prometheus, one by one as it asks them, with nothing else of it.

krr is not on PyPI, so that it can't be installed beside. What is here is less than it does: its requests at
its settings (its source and its 2,806 requests on such data are the pattern), ten at a time, answers decoded
with the standard library; no client of its own, no listing of the cluster, no tables.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

from benchmarks import history_world as world
from benchmarks.measuring import Figures, measure

WORKERS = 10
DURATION, STEP = "7d", "75s"
PERCENTILE = 0.95
ONCE = (
    "1+1",
    "max(prometheus_tsdb_head_series)",
    "sum(max by (instance) (machine_memory_bytes))",
    "sum(max by (instance) (machine_cpu_cores))",
    "sum(max by (job, pod, container) (kube_pod_container_resource_requests{resource='memory'}))",
    "sum(max by (job, pod, container) (kube_pod_container_resource_requests{resource='cpu'}))",
)
"""What is asked once: whether anybody answers, how far back, and how large the cluster is."""


def owners(workload: int) -> list[str]:
    """Ask whose pods there were and are: ReplicaSets, then their pods, then which of those run."""
    within = f'namespace="{world.namespace(workload)}"'
    pods = "|".join(world.pod(workload, replica) for replica in range(world.REPLICAS))
    revision = world.replica_set(workload)
    owned = f'owner_name="{world.deployment(workload)}",owner_kind="Deployment"'
    return [
        f"kube_replicaset_owner{{{owned},{within}}}[{DURATION}]",
        f'last_over_time(kube_pod_owner{{owner_name=~"{revision}",owner_kind="ReplicaSet",{within}}}[{DURATION}])',
        f'kube_pod_status_phase{{phase="Running",pod=~"{pods}",{within}}} == 1',
    ]


def usage(workload: int) -> list[str]:
    """Ask for the CPU's percentile and the memory's peak of each pod, and how many points these have."""
    pods = "|".join(world.pod(workload, replica) for replica in range(world.REPLICAS))
    inner = f'{{namespace="{world.namespace(workload)}",pod=~"{pods}",container="app"}}'
    cpu, memory = f"{world.CPU}{inner}", f"{world.MEMORY}{inner}"
    return [
        f"quantile_over_time({PERCENTILE}, {_by_pod(f'rate({cpu}[{STEP}])')}[{DURATION}:{STEP}])",
        f"count_over_time({_by_pod(cpu)}[{DURATION}:{STEP}])",
        f"max_over_time({_by_pod(memory)}[{DURATION}:{STEP}])",
        f"count_over_time({_by_pod(memory)}[{DURATION}:{STEP}])",
    ]


def _by_pod(expression: str) -> str:
    return f"max by (container, pod, job) ({expression})"


class _Asking:
    """Instant queries at one time; counts them and the bytes of their answers."""

    def __init__(self, url: str, at: float) -> None:
        self._pool = urllib3.PoolManager(maxsize=WORKERS, retries=False, timeout=300)
        self._url, self._at = f"{url}/api/v1/query", f"{at:.3f}"

    def ask(self, query: str) -> tuple[Any, int]:
        answer = self._pool.request("POST", self._url, fields={"query": query, "time": self._at})
        found = json.loads(answer.data)
        assert found["status"] == "success", found
        return found["data"]["result"], len(answer.data)


def asked(url: str, workloads: int) -> Figures:
    """Ask everything; the best CPU percentile and memory of each workload are kept, as krr's advice."""
    asking = _Asking(url, world.END - 60)

    def one(workload: int) -> tuple[float, int]:
        size = 0
        for query in owners(workload):
            size += asking.ask(query)[1]
        results = [asking.ask(query) for query in usage(workload)]
        assert all(len(found) == world.REPLICAS for found, _ in results), "every pod answers"
        peak = max(float(series["value"][1]) for series in results[2][0])
        return peak, size + sum(length for _, length in results)

    def everything() -> tuple[float, int]:
        size = sum(asking.ask(query)[1] for query in ONCE)
        with ThreadPoolExecutor(WORKERS) as pool:
            found = list(pool.map(one, range(workloads)))
        return sum(peak for peak, _ in found), size + sum(length for _, length in found)

    (peaks, size), taken = measure(everything)
    requests = len(ONCE) + workloads * (len(owners(0)) + len(usage(0)))
    return taken.figures(requests=float(requests), bytes=float(size), peaks=peaks)
