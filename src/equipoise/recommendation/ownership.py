"""The workload of each pod: from the owner references of live pods, and from the names of past ones.

The history has pods that no longer exist, of which only the name is left. A ReplicaSet's pod has its name,
cut to the length limit, and five random letters; a Deployment's ReplicaSet has its name and a hash; a
StatefulSet's pod has its name and an ordinal. A name that fits several workloads, or none, has no owner.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from equipoise.core.cluster import API_VERSIONS, Pod, Workload, WorkloadRef
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn

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
PATTERNS = {"Deployment": OF_DEPLOYMENT, "ReplicaSet": OF_REPLICA_SET, "StatefulSet": OF_STATEFUL_SET}


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
            if workload.ref.kind == "Deployment":
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
            if owner.kind == "ReplicaSet":
                self._stems[pod.namespace, _stem(owner.name)] = ref
        self._living[pod.namespace, pod.name] = ref
        if ref is not None:
            self.pods[ref].append(pod)

    def _selecting(self, pod: Pod, name: str) -> WorkloadRef | None:
        """Return the Deployment that selects a pod: the one of this name, else the only one."""
        labels = dict(pod.labels)
        called = self._workloads.get(_ref("Deployment", pod.namespace, name))
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
            is_listed = kind == "Deployment" and _ref(kind, namespace, name) in self._workloads
            ref = _ref(kind, namespace, name) if is_listed else None
            if _ref("ReplicaSet", namespace, replica_set) not in self._workloads:
                self._stems.setdefault((namespace, _stem(replica_set)), ref)


def _ref(kind: str, namespace: str, name: str) -> WorkloadRef:
    return WorkloadRef(API_VERSIONS[kind], kind, namespace, name)


def _stem(replica_set: str) -> str:
    return f"{replica_set}-"[:STEM_MAX]
