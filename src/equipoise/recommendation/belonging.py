"""Whose pod it is: of pods that live by their owner, of pods that are gone by what made their names.

A ReplicaSet's pod is called after it, cut to what a name may have, with five letters more; a Deployment's
ReplicaSet is called after it, with a hash; a StatefulSet's pods are counted. Where two workloads may be
meant, or none, it is nobody's.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from equipoise.model.cluster import Pod, Workload
from equipoise.model.references import API_VERSIONS, WorkloadRef

STEM_MAX = 58
"""A generated name has 63 letters at most, of which the last five are drawn."""
DRAWN = 5
NAME_MAX = STEM_MAX + DRAWN
LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""Kubernetes draws from these, so that no word comes of it."""
OF_DEPLOYMENT = re.compile(rf"(?P<name>.+)-{LETTERS}{{1,10}}-{LETTERS}{{5}}")
OF_REPLICA_SET = re.compile(rf"(?P<name>.+)-{LETTERS}{{5}}")
OF_STATEFUL_SET = re.compile(r"(?P<name>.+)-(0|[1-9][0-9]*)")
PATTERNS = {"Deployment": OF_DEPLOYMENT, "ReplicaSet": OF_REPLICA_SET, "StatefulSet": OF_STATEFUL_SET}


class Belonging:
    """The pods of a cluster, those of its past included, by workload."""

    def __init__(self, workloads: Iterable[Workload], pods: Iterable[Pod]) -> None:
        self._workloads = {workload.ref: workload for workload in workloads}
        self._by_uid = {workload.uid: workload.ref for workload in self._workloads.values()}
        self._living: dict[tuple[str, str], WorkloadRef | None] = {}
        self._stems: dict[tuple[str, str], WorkloadRef | None] = {}
        self.pods: dict[WorkloadRef, list[Pod]] = defaultdict(list)
        """Those that live."""
        for pod in pods:
            self._add(pod)

    def _add(self, pod: Pod) -> None:
        ref, owner = None, pod.owner
        if owner is not None:
            ref = self._by_uid.get(owner.uid)
            if ref is None and owner.kind == "ReplicaSet":
                ref = self._deployment(pod.namespace, owner.name.rpartition("-")[0], pod)
            if owner.kind == "ReplicaSet":
                self._stems[pod.namespace, _stem(owner.name)] = ref
        self._living[pod.namespace, pod.name] = ref
        if ref is not None:
            self.pods[ref].append(pod)

    def _deployment(self, namespace: str, name: str, pod: Pod | None = None) -> WorkloadRef | None:
        ref = _ref("Deployment", namespace, name)
        workload = self._workloads.get(ref)
        if workload is None or (pod is not None and not workload.selector.matches(dict(pod.labels))):
            return None
        return ref

    def of(self, namespace: str, pod: str) -> WorkloadRef | None:
        """Give the workload of a pod that lives or did."""
        for known, key in ((self._living, pod), (self._stems, pod[:-DRAWN])):
            if (namespace, key) in known:
                return known[namespace, key]
        meant = [
            ref
            for kind, pattern in PATTERNS.items()
            if (match := pattern.fullmatch(pod)) is not None
            and (ref := _ref(kind, namespace, match["name"])) in self._workloads
        ]
        return meant[0] if len(meant) == 1 else None

    def guessed(self, namespaces: Sequence[str], pods: Sequence[str]) -> set[str]:
        """Give the namespaces of pods that are gone with all of their ReplicaSet: only names tell of them."""
        return {
            namespace
            for namespace, pod in zip(namespaces, pods, strict=True)
            if (namespace, pod) not in self._living
            and (namespace, pod[:-DRAWN]) not in self._stems
            and (OF_DEPLOYMENT.fullmatch(pod) or len(pod) == NAME_MAX)
        }

    def learn(self, owners: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        """Take in who owns ReplicaSets; one whose owner is not listed is nobody's, whatever its name."""
        for (namespace, replica_set), (kind, name) in owners.items():
            ref = self._deployment(namespace, name) if kind == "Deployment" else None
            if _ref("ReplicaSet", namespace, replica_set) not in self._workloads:
                self._stems.setdefault((namespace, _stem(replica_set)), ref)


def _ref(kind: str, namespace: str, name: str) -> WorkloadRef:
    return WorkloadRef(API_VERSIONS[kind], kind, namespace, name)


def _stem(replica_set: str) -> str:
    return f"{replica_set}-"[:STEM_MAX]
