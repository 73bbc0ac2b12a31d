"""A seeded fleet of workloads and their pods, as an API server would tell them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.manifest import PodName, Workload, manifest, uid

SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""The letters that Kubernetes makes names of."""
KINDS = ("Deployment",) * 17 + ("StatefulSet",) * 2 + ("Job",)
"""Of 20 workloads: the labels of the last two kinds differ from pod to pod, and cannot be shared."""
WORDS = ("checkout", "catalog", "payment", "search", "profile", "stock", "mail", "report", "gateway", "feed")
TIERS = ("api", "web", "worker", "consumer", "cache")
WORKLOADS_PER_NAMESPACE = 20


@dataclass(frozen=True)
class Fleet:
    """So many workloads of so many pods. The same numbers always give the same names."""

    workloads_count: int
    pods_per_workload: int
    seed: int = 7
    kinds: tuple[str, ...] = KINDS
    crowded_share: float = 0.1
    """Of the workloads live in one namespace, since large clusters have one such."""

    @cached_property
    def workloads(self) -> list[Workload]:
        crowded = int(self.workloads_count * self.crowded_share)
        found = []
        for i in range(self.workloads_count):
            namespace = "monolith" if i < crowded else f"team-{i // WORKLOADS_PER_NAMESPACE:04d}"
            name = f"{WORDS[i % len(WORDS)]}-{TIERS[i // 7 % len(TIERS)]}-{i:05d}"
            chance = random.Random(f"{self.seed}/{i}/hash")
            found.append(Workload(i, self.kinds[i % len(self.kinds)], namespace, name, _safe(chance, 10)))
        return found

    def pod_names(self, workload: Workload) -> list[PodName]:
        count = self.pods_per_workload
        if workload.kind == "StatefulSet":
            return [PodName(workload, i, f"{workload.name}-{i}") for i in range(count)]
        chance = random.Random(f"{self.seed}/{workload.number}/names")
        tails: dict[str, None] = {}
        while len(tails) < count:
            tails[_safe(chance, 5)] = None
        stem = f"{workload.name}-{workload.hash}" if workload.kind == "Deployment" else workload.name
        return [PodName(workload, i, f"{stem}-{tail}") for i, tail in enumerate(tails)]

    def pods(self, *, is_whole: bool = True) -> Iterator[dict[str, Any]]:
        """Give the pods; without what only fills the wire when they are not to be whole."""
        for workload in self.workloads:
            chance = random.Random(f"{self.seed}/{workload.number}/pods")
            owner_uid = uid(chance)
            for pod in self.pod_names(workload):
                number = workload.number * self.pods_per_workload + pod.ordinal
                yield manifest(pod, number, owner_uid, chance, is_whole=is_whole)


def _safe(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(SAFE, k=length))
