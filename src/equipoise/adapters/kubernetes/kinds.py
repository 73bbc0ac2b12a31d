"""The kinds that we list and watch: where they are, what we read of them, what they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.outline import Outline, elements, members
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.structs import (
    LabelSelector,
    ListMeta,
    PdbSpec,
    PodSpec,
    RawHpa,
    RawNode,
    RawPdb,
    RawPod,
    RawWorkload,
)
from equipoise.model.cluster import Hpa, Node, Pdb, Pod, Workload

R = TypeVar("R")
T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], gc=False):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


@dataclass(frozen=True, eq=False)
class Kind(Generic[R]):
    """One kind of object."""

    name: str
    plural: str
    group: str
    version: str
    raw: type[Any]
    turn: Callable[[Decoder, Any], R | None]
    """None leaves the object out."""
    key: Callable[[R], tuple[str, str]]
    """Namespace and name."""
    is_namespaced: bool = True
    identity: Callable[[R], tuple[str, str]] = attrgetter("uid", "resource_version")
    """UID and version: which object it is, and how new. A record without them is an error, not an old one."""
    stand_in: Callable[[Outline], R | None] = lambda _: None
    """The record of an object that cannot be read, where leaving it out would not be safe."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_pages", msgspec.json.Decoder(Page[self.raw]))  # type: ignore[name-defined]
        object.__setattr__(self, "_objects", msgspec.json.Decoder(self.raw))

    def path(self, namespace: str | None = None) -> str:
        """Give the path of the collection."""
        return path_of(self.group, self.version, self.plural, namespace if self.is_namespaced else None)

    def decode_page(self, body: bytes) -> Page[Any]:
        """Decode a page in one go; one object that cannot be decoded ends it."""
        pages: msgspec.json.Decoder[Page[Any]] = self._pages  # type: ignore[attr-defined]
        return pages.decode(body)

    def decode_object(self, body: bytes | msgspec.Raw) -> Any:
        """Decode one object."""
        return self._objects.decode(body)  # type: ignore[attr-defined]


def cut_page(body: bytes) -> Page[bytes]:
    """Return a page with its objects undecoded, however odd they are; a ValueError says that it is none."""
    parts = members(body)
    metadata = msgspec.json.decode(parts.get("metadata", b""), type=ListMeta)
    items = parts.get("items", b"null")
    return Page(metadata, None if items == b"null" else elements(items))


def _workloads(name: str, plural: str) -> Kind[Workload]:
    def turn(decoder: Decoder, raw: RawWorkload) -> Workload | None:
        record = decoder.workload(raw, name)
        # A ReplicaSet with an owner is a Deployment's affair.
        return None if name == "ReplicaSet" and record.owner is not None else record

    return Kind(name, plural, "apps", "v1", RawWorkload, turn, lambda w: (w.ref.namespace, w.ref.name))


def _pod_unread(outline: Outline) -> Pod:
    """Return a pod that is there and not ready: without it, its workload would look smaller than it is."""
    return Decoder().pod(RawPod(outline.meta, PodSpec()))


def _pdb_unread(outline: Outline) -> Pdb:
    """Return a budget that allows no disruption of any pod of its namespace."""
    return Decoder().pdb(RawPdb(outline.meta, PdbSpec(LabelSelector())))


PODS: Kind[Pod] = Kind(
    "Pod",
    "pods",
    "",
    "v1",
    RawPod,
    Decoder.pod,
    lambda p: (p.namespace, p.name),
    stand_in=_pod_unread,
)
NODES: Kind[Node] = Kind(
    "Node", "nodes", "", "v1", RawNode, Decoder.node, lambda n: ("", n.name), is_namespaced=False
)
DEPLOYMENTS = _workloads("Deployment", "deployments")
STATEFULSETS = _workloads("StatefulSet", "statefulsets")
REPLICASETS = _workloads("ReplicaSet", "replicasets")
DAEMONSETS = _workloads("DaemonSet", "daemonsets")
WORKLOADS = {kind.name: kind for kind in (DEPLOYMENTS, STATEFULSETS, REPLICASETS, DAEMONSETS)}
HPAS: Kind[Hpa] = Kind(
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "autoscaling",
    "v2",
    RawHpa,
    Decoder.hpa,
    lambda h: (h.namespace, h.name),
)
PDBS: Kind[Pdb] = Kind(
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "policy",
    "v1",
    RawPdb,
    Decoder.pdb,
    lambda p: (p.namespace, p.name),
    stand_in=_pdb_unread,
)
