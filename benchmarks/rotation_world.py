"""A cluster to be rotated: its caches on our side, its Prometheus on the other, from the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from benchmarks.fleet import Fleet
from benchmarks.manifest import EPOCH
from benchmarks.manifest import Workload as Controller
from benchmarks.serving import Answer
from equipoise.adapters.kubernetes.cache import Cache
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import DEPLOYMENTS, HPAS, PODS, STATEFULSETS, ResourceKind
from equipoise.adapters.prometheus.promql import SAMPLES_PER_SERIES
from equipoise.core.cluster import Hpa, Node, Pdb, Pod, Workload, WorkloadRef

PODS_PER_WORKLOAD = 50
KINDS = ("Deployment",) * 9 + ("StatefulSet",)
AT = EPOCH + 2_000_000.0
UNKNOWN_SHARE = 0.005
"""Of the pods have no samples, as right after a node was lost."""
BUILD_INFO = b'{"status":"success","data":{}}'
"""The answer to which kind of server this is, asked once: one that does not say."""
_MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


def fleet(workloads: int) -> Fleet:
    return Fleet(workloads, PODS_PER_WORKLOAD, kinds=KINDS)


def prometheus(workloads: int) -> Answer:
    """Prepare each pod's samples; a query's answer is joined once, and then given as it is."""
    by_namespace: dict[str, list[tuple[str, ...]]] = {}
    for workload in fleet(workloads).workloads:
        chance = random.Random(f"{workload.number}/usage")
        rows = by_namespace.setdefault(workload.namespace, [])
        mean, is_skewed = chance.uniform(0.3, 0.6), chance.random() < 0.3
        for pod in fleet(workloads).pod_names(workload):
            if chance.random() >= UNKNOWN_SHARE:
                hot = 3.0 if is_skewed and pod.ordinal < 2 else 1.0
                cores = {"app": mean * hot * chance.uniform(0.7, 1.3), "proxy": chance.uniform(0.01, 0.03)}
                rows.append((pod.name, *_samples(workload.namespace, pod.name, cores, chance)))

    @lru_cache(maxsize=1024)
    def answer(query: str) -> bytes:
        if query.startswith("count by"):
            counts = (_sample({"namespace": ns}, str(2 * len(rows))) for ns, rows in by_namespace.items())
            return _vector(counts)
        wanted = {label: re.compile(value) for label, _, value in _MATCHER.findall(query)}
        is_about = ("", "rate(", "(timestamp(", "count_over_time(", " offset ")
        column = max(i for i, part in enumerate(is_about) if part in query)
        return _vector(
            row[column]
            for namespace, rows in by_namespace.items()
            if "namespace" not in wanted or wanted["namespace"].fullmatch(namespace)
            for row in rows
            if "pod" not in wanted or wanted["pod"].fullmatch(row[0])
        )

    return lambda _path, fields: answer(fields["query"]) if "query" in fields else BUILD_INFO


def _samples(namespace: str, pod: str, cores: Mapping[str, float], chance: random.Random) -> tuple[str, ...]:
    """Say what each query is told about a pod that is scraped every half minute: a rate is of ten samples."""
    keys = [{"container": container, "namespace": namespace, "pod": pod} for container in cores]
    scraped_at = AT - chance.uniform(0, 30)
    rates = [_sample(key, repr(value)) for key, value in zip(keys, cores.values(), strict=True)]
    others = (f"{scraped_at:.3f}", str(10 + SAMPLES_PER_SERIES), f"{scraped_at - 270:.3f}")
    return ",".join(rates), *(",".join(_sample(key, text) for key in keys) for text in others)


def _sample(metric: Mapping[str, str], value: str) -> str:
    return msgspec.json.encode({"metric": metric, "value": [AT, value]}).decode()


def _vector(samples: Iterable[str]) -> bytes:
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{",".join(samples)}]}}}}'.encode()


class CachedFleet:
    """The `Cluster` port over the adapter's caches, filled by the adapter's own decoder."""

    def __init__(self, workloads: int) -> None:
        of = fleet(workloads)
        self._pods: Cache[Pod] = _filled(PODS, of.pods(is_whole=False))
        self._hpas: Cache[Hpa] = _filled(HPAS, map(_hpa, of.workloads))
        self._workloads: list[Cache[Workload]] = [
            _filled(kind, (_controller(one) for one in of.workloads if one.kind == kind.name))
            for kind in (DEPLOYMENTS, STATEFULSETS)
        ]

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return self._pods.records(namespace)

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return self._hpas.records(namespace)

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        return [workload for cache in self._workloads for workload in cache.records(namespace)]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        raise AssertionError(f"{ref} should be in a list")

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        raise AssertionError(f"a plan takes no last look at {workload.ref}")

    def nodes(self) -> Sequence[Node]:
        return []

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        del namespace
        return []

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        del namespace
        return {}


def _filled(kind: ResourceKind[Any], objects: Iterable[Mapping[str, Any]]) -> Cache[Any]:
    decoder, cache = Decoder(), Cache(kind)
    records: list[Any] = []
    left = iter(objects)
    while items := list(islice(left, 500)):
        page = kind.decode_page(msgspec.json.encode({"metadata": {}, "items": items}))
        records += [kind.decode(decoder, raw) for raw in page.items or ()]
    cache.replace(records)
    return cache


def _controller(workload: Controller) -> dict[str, Any]:
    instance = {
        "app.kubernetes.io/instance": workload.name,
        "app.kubernetes.io/name": workload.name.split("-")[0],
    }
    count = PODS_PER_WORKLOAD
    status = {"replicas": count, "readyReplicas": count, "updatedReplicas": count, "observedGeneration": 3}
    return {
        "metadata": {
            "namespace": workload.namespace,
            "name": workload.name,
            "uid": workload.hash,
            "generation": 3,
        },
        "spec": {"replicas": count, "selector": {"matchLabels": instance}},
        "status": status,
    }


def _hpa(workload: Controller) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    if workload.number % 10 == 0:
        target = {"type": "AverageValue", "averageValue": "550m"}
    return {
        "metadata": {
            "namespace": workload.namespace,
            "name": f"keda-hpa-{workload.name}",
            "uid": workload.hash,
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name},
            "minReplicas": 3,
            "maxReplicas": 100,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }
