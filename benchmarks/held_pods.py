"""What a pod costs in memory once it is held, against the limit that we set ourselves."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from benchmarks.list_pods import api_server
from benchmarks.measuring import Figures, in_own_process, interleaved, memory_bytes
from benchmarks.serving import serving
from benchmarks.tables import Section, Table
from equipoise.adapters.kubernetes import Client, KubernetesCluster, Reflector
from equipoise.adapters.kubernetes.kinds import PODS
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.core.cluster import Pod

T = TypeVar("T")

PODS_COUNT = 50_000
POD_BYTES_MAX = 2048


def listed(url: str, pods: int, is_traced: bool) -> Figures:
    cluster = KubernetesCluster(_client(url))
    return _held(cluster.pods, len, pods, is_traced=is_traced)


def reflected(url: str, pods: int, is_traced: bool) -> Figures:
    reflector = Reflector(_client(url), PODS)

    def follow() -> Reflector[Pod]:
        reflector.step()  # lists, and watches until the server ends it: at once
        assert reflector.synced.is_set()
        return reflector

    return _held(follow, lambda held: len(held.cache), pods, is_traced=is_traced)


def _client(url: str) -> Client:
    return Client(Target(Endpoint(url), Identity(), "default", "benchmark"))


def _held(see: Callable[[], T], count: Callable[[T], int], pods: int, *, is_traced: bool) -> Figures:
    """Give the bytes per pod that stay: of objects when traced, else of the whole process."""
    if is_traced:
        tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0] if is_traced else memory_bytes("VmRSS")
    held = see()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0] if is_traced else memory_bytes("VmRSS")
    assert count(held) == pods
    return {"pod_bytes": (after - before) / pods}


def run(*, quick: bool) -> Section:
    pods = PODS_COUNT // 2 if quick else PODS_COUNT
    table = Table(("held by", "measured as", "pods", "bytes per pod", "limit", "share of the limit"))
    largest = 0.0
    with serving(api_server, pods=pods) as url:
        for name, part in (("the reflector's cache", reflected), ("a list", listed)):
            for is_traced, way in (
                (False, "growth of the process (RSS)"),
                (True, "allocations (tracemalloc)"),
            ):
                held = _bytes_per_pod(part, url, pods, 1 if quick else 3, is_traced=is_traced)
                largest = max(largest, held)
                table.add(
                    name,
                    way,
                    f"{pods:,}",
                    f"{held:,.0f}",
                    f"{POD_BYTES_MAX:,}",
                    f"{held / POD_BYTES_MAX:.2f}",
                )
    verdict = "below" if largest <= POD_BYTES_MAX else "ABOVE"
    return Section(
        "Pods held in memory",
        [table],
        f"A pod that arrives as about 8.75 kB of JSON is held in {largest:,.0f} bytes at most, {verdict} "
        f"the limit of {POD_BYTES_MAX:,}; 100,000 pods fit into about {largest * 100_000 / 2**20:,.0f} MiB.",
        [
            "15 % of these pods belong to StatefulSets and Jobs, whose labels differ from pod to pod.",
            "The growth of the process includes what one page of JSON needs while it is read.",
        ],
    )


def _bytes_per_pod(
    part: Callable[..., Figures], url: str, pods: int, repeats: int, *, is_traced: bool
) -> float:
    (held,) = interleaved(repeats, lambda: in_own_process(part, url=url, pods=pods, is_traced=is_traced))
    return held["pod_bytes"]
