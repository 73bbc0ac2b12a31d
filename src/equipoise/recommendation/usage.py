"""The pods of each workload, current and past, and their histories reduced to the usage of the workload.

The history has pods that no longer exist, of which only the name is left. A ReplicaSet's pod has its name,
cut to the length limit, and five random letters; a Deployment's ReplicaSet has its name and a hash; a
StatefulSet's pod has its name and an ordinal. A name that fits several workloads, or none, has no owner.

A missing sample may mean that a container did not exist or that it was not measured. A container counts as
alive from its first sample to its last; one of a running pod, from the pod's creation until now. While a live
container has no sample, the usage of its pod is unknown, and so is the workload's.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np

from equipoise.core.cluster import API_VERSIONS, MORE_API_VERSIONS, Pod, Workload, WorkloadRef
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn
from equipoise.ports.cluster import UsageHistory
from equipoise.stats.grid import alive_mask, any_alive, sum_groups
from equipoise.stats.predict import CORES_MAX
from equipoise.stats.ranks import Claims, Floats, Whole, pooled_percentiles

T = TypeVar("T")
STEM_MAX = 58
"""Longest prefix of a generated name: 63 characters, of which the last five are random."""
DRAWN = 5
NAME_MAX = STEM_MAX + DRAWN
LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""The alphabet of Kubernetes' random suffixes; it has no vowels, so that no words result."""
OF_DEPLOYMENT = re.compile(rf"(?P<name>.+)-{LETTERS}{{1,10}}-{LETTERS}{{5}}")
OF_REPLICA_SET = re.compile(rf"(?P<name>.+)-{LETTERS}{{5}}")
OF_STATEFUL_SET = re.compile(r"(?P<name>.+)-(0|[1-9][0-9]*)")
OF_JOB = re.compile(r"(?P<name>.+)-[0-9]{8,10}")
"""A CronJob's Job: the CronJob's name and the time of the run."""
OF_CRON_JOB = re.compile(rf"{OF_JOB.pattern}-{LETTERS}{{5}}")
PATTERNS = {
    "Deployment": OF_DEPLOYMENT,
    "ReplicaSet": OF_REPLICA_SET,
    "StatefulSet": OF_STATEFUL_SET,
    "DaemonSet": OF_REPLICA_SET,
    "CronJob": OF_CRON_JOB,
    "Rollout": OF_DEPLOYMENT,
}
OF_REPLICA_SETS = ("Deployment", "Rollout")
"""The kinds that have ReplicaSets."""


class PodOwnership:
    """The workload of each current and past pod of a cluster."""

    def __init__(
        self, workloads: Iterable[Workload], pods: Iterable[Pod], isolation: Isolation | None = None
    ) -> None:
        self._isolation = isolation or Isolation()
        self.failed: dict[str, FailedTurn] = {}
        """Errors by namespace; pods of these namespaces have no known owner."""
        self._workloads = {workload.ref: workload for workload in workloads}
        self._by_uid: dict[str, WorkloadRef | None] = {
            workload.uid: workload.ref for workload in self._workloads.values()
        }
        """Workloads by the UID of an owner; ReplicaSets are added with the first of their pods."""
        self._deployments: dict[str, list[Workload]] = defaultdict(list)
        for workload in self._workloads.values():
            if workload.ref.kind in OF_REPLICA_SETS:
                self._deployments[workload.ref.namespace].append(workload)
        self._living: dict[tuple[str, str], WorkloadRef | None] = {}
        self._stems: dict[tuple[str, str], WorkloadRef | None] = {}
        self.pods: dict[WorkloadRef, list[Pod]] = defaultdict(list)
        """The live pods of each workload."""
        for pod in pods:
            self._attempt(pod.namespace, partial(self._add, pod))

    def _attempt(self, namespace: str, work: Callable[[], T]) -> T | None:
        """Return the result of the work; None where it fails, now or earlier, in this namespace."""
        if namespace in self.failed:
            return None
        found = self._isolation.attempt(f"namespace {namespace}", work)
        if isinstance(found, FailedTurn):
            self.failed[namespace] = found
            return None
        return found

    def _add(self, pod: Pod) -> None:
        ref, owner = None, pod.owner
        if owner is not None:
            if owner.kind == "ReplicaSet" and owner.uid not in self._by_uid:
                self._by_uid[owner.uid] = self._selecting(pod, owner.name.rpartition("-")[0])
            ref = self._by_uid.get(owner.uid)
            if owner.kind == "Job" and (run := OF_JOB.fullmatch(owner.name)) is not None:
                cron_job = _ref("CronJob", pod.namespace, run["name"])
                ref = cron_job if cron_job in self._workloads else None
            if owner.kind == "ReplicaSet":
                self._stems[pod.namespace, _stem(owner.name)] = ref
        self._living[pod.namespace, pod.name] = ref
        if ref is not None:
            self.pods[ref].append(pod)

    def _selecting(self, pod: Pod, name: str) -> WorkloadRef | None:
        """Return the owner of ReplicaSets that selects a pod: the one of this name, else the only one."""
        labels = dict(pod.labels)
        for kind in OF_REPLICA_SETS:
            called = self._workloads.get(_ref(kind, pod.namespace, name))
            if called is not None and called.selector.matches(labels):
                return called.ref
        others = [one.ref for one in self._deployments[pod.namespace] if one.selector.matches(labels)]
        return others[0] if len(others) == 1 else None

    def of(self, namespace: str, pod: str) -> WorkloadRef | None:
        """Return the workload of a current or past pod, or None."""
        return self._attempt(namespace, lambda: self._of(namespace, pod))

    def _of(self, namespace: str, pod: str) -> WorkloadRef | None:
        for owners, key in ((self._living, pod), (self._stems, pod[:-DRAWN])):
            if (namespace, key) in owners:
                return owners[namespace, key]
        meant = [
            ref
            for kind, pattern in PATTERNS.items()
            if (match := pattern.fullmatch(pod)) is not None
            and (ref := _ref(kind, namespace, match["name"])) in self._workloads
        ]
        return meant[0] if len(meant) == 1 else None

    def guessed(self, namespaces: Sequence[str], pods: Sequence[str]) -> set[str]:
        """Return the namespaces of past pods whose ReplicaSet is deleted too, so that only names are left."""
        return {
            namespace
            for namespace, pod in zip(namespaces, pods, strict=True)
            if (namespace, pod) not in self._living
            and (namespace, pod[:-DRAWN]) not in self._stems
            and (OF_DEPLOYMENT.fullmatch(pod) or len(pod) == NAME_MAX)
        }

    def learn(self, owners: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Record the owners of ReplicaSets; one whose owner is not listed has none, even if its name fits."""
        for (namespace, replica_set), (kind, name) in owners.items():
            is_listed = kind in OF_REPLICA_SETS and _ref(kind, namespace, name) in self._workloads
            ref = _ref(kind, namespace, name) if is_listed else None
            if _ref("ReplicaSet", namespace, replica_set) not in self._workloads:
                self._stems.setdefault((namespace, _stem(replica_set)), ref)


def _ref(kind: str, namespace: str, name: str) -> WorkloadRef:
    return WorkloadRef((API_VERSIONS | MORE_API_VERSIONS)[kind], kind, namespace, name)


def _stem(replica_set: str) -> str:
    return f"{replica_set}-"[:STEM_MAX]


def by_ordinal(pods: Sequence[str]) -> list[int]:
    """Return the indices of a StatefulSet's pods by ordinal; empty for fewer than two, or other names."""
    counted = [match for pod in pods if (match := OF_STATEFUL_SET.fullmatch(pod)) is not None]
    if len(counted) < max(2, len(pods)) or len({match["name"] for match in counted}) > 1:
        return []
    ordinals = [match[2] for match in counted]  # of any length, without leading zeros
    return sorted(range(len(pods)), key=lambda place: (len(ordinals[place]), ordinals[place]))


P99 = 0.99
BATCH = 256
"""Most workloads per batch."""
BATCH_ROWS = 48
"""Most rows per batch: less than 4 MiB for a week of minutes, which the processor's cache holds.

From 4 MiB on, the allocator takes new large pages, which are not in the cache.
"""


class ContainerRow(NamedTuple):
    """A container, and its row in the history; -1 where it has none."""

    workload: int
    pod: str
    container: str
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """The usage of a batch of workloads, with their pods and containers."""

    cores: Floats
    """One row per workload, on the grid of the history; NaN where unknown."""
    pod_p99_cores: Floats
    pods_unknown: Whole
    """Running pods of which some container has no sample."""
    measurable: Whole
    """Pods that have been ready long enough to have samples."""
    unmeasured: Whole
    """Measurable pods whose usage is unknown."""
    container_cores: Mapping[tuple[int, str], float]
    """A percentile of each container, by the index of its workload in the batch, and its name."""


READY_SECONDS_MIN = 600.0
"""From this time after readiness a pod has samples: it was scraped, and its rate was computed."""


def _was_ready(pod: Pod, at: float) -> bool:
    """Return whether a pod was ready at a time; without a time of readiness, since its creation."""
    since = pod.created_at if pod.ready_since is None else pod.ready_since
    return pod.is_ready and since <= at


class HistoryReader:
    """Reads workloads from one part of the history, whose rows are sorted once."""

    def __init__(
        self,
        history: UsageHistory,
        ownership: PodOwnership,
        chosen: Sequence[WorkloadRef],
        at: float = -math.inf,
    ) -> None:
        """Sort the rows; without a time `at`, no pod is expected to have samples."""
        self._history, self._ownership, self._at = history, ownership, at
        self._rows: dict[WorkloadRef, list[int]] = {ref: [] for ref in chosen}
        owners: dict[tuple[str, str], WorkloadRef | None] = {}
        for row, key in enumerate(zip(history.namespaces, history.pods, strict=True)):
            if key not in owners:
                owners[key] = ownership.of(*key)
            ref = owners[key]
            if ref in self._rows:
                self._rows[ref].append(row)

    def batches(self) -> Iterator[list[WorkloadRef]]:
        """Split the workloads into batches of bounded size; one with many pods is a batch of its own."""
        batch: list[WorkloadRef] = []
        held = 0
        for ref, rows in self._rows.items():
            if batch and (len(batch) == BATCH or held + len(rows) > BATCH_ROWS):
                yield batch
                batch, held = [], 0
            batch.append(ref)
            held += len(rows)
        if batch:
            yield batch

    def usage(self, batch: Sequence[WorkloadRef], container_share: float | None = None) -> Usage:
        """Return the usage of a batch, and this percentile of each container where one is given."""
        columns = len(self._history.timestamps)
        cores, p99 = np.full((len(batch), columns), np.nan), np.full(len(batch), np.nan)
        running = [self._running(ref) for ref in batch]
        present = [self._present(place, ref) for place, ref in enumerate(batch)]
        missing = [list(_missing(place, present[place], running[place])) for place in range(len(batch))]
        lacking = [{part.pod for part in parts} for parts in missing]
        ready_at = self._at - max(READY_SECONDS_MIN, 2 * self._history.window_seconds)
        ready = [{name for name, pod in pods.items() if _was_ready(pod, ready_at)} for pods in running]
        places = [place for place in range(len(batch)) if present[place]]
        parts = sorted(part for place in places for part in (*present[place], *missing[place]))
        containers: Mapping[tuple[int, str], float] = {}
        if parts:
            table = self._table(parts)
            is_alive = self._alive_mask(table, parts, running, batch)
            sizes = _sizes([part[:2] for part in parts])
            pods, are_alive = table, is_alive
            if len(sizes) < len(parts):  # else every pod has one container
                pods, are_alive = sum_groups(table, is_alive, sizes), any_alive(is_alive, sizes)
            counts = _sizes([place for (place, _), _ in groupby(part[:2] for part in parts)])
            cores[places] = sum_groups(pods, are_alive, counts)
            p99[places] = pooled_percentiles(pods, counts, P99)
            is_single = len({part.container for part in parts}) == 1
            if is_single and container_share == P99:
                # Pods of these workloads have one container, which uses all that they use.
                containers = {(place, parts[0].container): p99[place] for place in places}
            elif container_share is not None:
                containers = _by_container(table, parts, container_share)
        return Usage(
            cores,
            p99,
            pods_unknown=np.array([len(pods) for pods in lacking], np.intp),
            measurable=np.array([len(pods) for pods in ready], np.intp),
            unmeasured=np.array([len(a & b) for a, b in zip(ready, lacking, strict=True)], np.intp),
            container_cores=containers,
        )

    def _running(self, ref: WorkloadRef) -> dict[str, Pod]:
        """Return the pods that are expected to have current samples, by name."""
        pods = self._ownership.pods.get(ref, ())
        return {pod.name: pod for pod in pods if pod.phase == "Running" and pod.deletion_at is None}

    def _present(self, place: int, ref: WorkloadRef) -> list[ContainerRow]:
        history = self._history
        return [
            ContainerRow(place, history.pods[row], history.containers[row], row) for row in self._rows[ref]
        ]

    def _table(self, parts: Sequence[ContainerRow]) -> Floats:
        rows = np.array([part.row for part in parts])
        table: Floats = self._history.values[rows]
        table[rows < 0] = np.nan
        table[table > CORES_MAX] = np.nan  # not plausible: a broken counter
        return table

    def _alive_mask(
        self,
        table: Floats,
        parts: Sequence[ContainerRow],
        running: Sequence[Mapping[str, Pod]],
        batch: Sequence[WorkloadRef],
    ) -> Claims:
        is_observed = ~np.isnan(table)
        end = table.shape[1]
        first = np.where(is_observed.any(axis=1), is_observed.argmax(axis=1), end)
        last = end - 1 - is_observed[:, ::-1].argmax(axis=1)
        times, window_seconds = self._history.timestamps, self._history.window_seconds
        for number, part in enumerate(parts):
            if (pod := running[part.workload].get(part.pod)) is not None:
                # The first column in which a pod must have a rate, which takes two samples.
                expected = int(np.searchsorted(times, pod.created_at + 2 * window_seconds))
                first[number] = min(first[number], expected)
                last[number] = end - 1
                is_observed[number, expected:] = True  # by the API server, the pod was alive since then
        interval_seconds = float(times[1] - times[0]) if len(times) > 1 else window_seconds
        return alive_mask(first, last, is_observed, _sets(parts, batch), interval_seconds)


def _missing(
    place: int, present: Sequence[ContainerRow], running: Mapping[str, Pod]
) -> Iterator[ContainerRow]:
    measured = {(part.pod, part.container) for part in present}
    for pod in running.values():
        for container in pod.containers:
            if (pod.name, container.name) not in measured:
                yield ContainerRow(place, pod.name, container.name, -1)


def _sets(parts: Sequence[ContainerRow], batch: Sequence[WorkloadRef]) -> Iterator[list[Whole]]:
    """Yield the StatefulSets of a batch: the rows of each of their pods, by ordinal."""
    rows_of: dict[int, dict[str, list[int]]] = {}
    for number, part in enumerate(parts):
        if batch[part.workload].kind == "StatefulSet":
            rows_of.setdefault(part.workload, {}).setdefault(part.pod, []).append(number)
    for pods in rows_of.values():
        names, rows = list(pods), list(pods.values())
        if order := by_ordinal(names):
            yield [np.array(rows[place], np.intp) for place in order]


def _sizes(keys: Sequence[object]) -> Whole:
    """Return the lengths of runs of equal keys."""
    return np.array([sum(1 for _ in run) for _, run in groupby(keys)], np.intp)


def _by_container(
    table: Floats, parts: Sequence[ContainerRow], share: float
) -> Mapping[tuple[int, str], float]:
    keys = [(part.workload, part.container) for part in parts]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[number] for number in order]
    found = pooled_percentiles(table[order], _sizes(ordered), share)
    return dict(zip(dict.fromkeys(ordered), found.tolist(), strict=True))
