"""The kinds that we list and watch: where they are, what we read of them, what they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kubefile import in_plain_words
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.structs import (
    ListMeta,
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


class Named(msgspec.Struct, gc=False):
    """As little of an object as names it."""

    metadata: dict[str, Any] = {}


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "_pages", msgspec.json.Decoder(Page[self.raw]))  # type: ignore[name-defined]
        object.__setattr__(self, "_objects", msgspec.json.Decoder(self.raw))

    def path(self, namespace: str | None = None) -> str:
        """Give the path of the collection."""
        return path_of(self.group, self.version, self.plural, namespace if self.is_namespaced else None)

    def decode_page(self, body: bytes) -> Page[Any]:
        """Decode a page; a ValueError names the object that is at fault."""
        pages: msgspec.json.Decoder[Page[Any]] = self._pages  # type: ignore[attr-defined]
        try:
            return pages.decode(body)
        except msgspec.ValidationError as error:
            raise ValueError(_blame(body, self.raw) or in_plain_words(str(error))) from error

    def decode_object(self, body: bytes | msgspec.Raw) -> Any:
        """Decode one object."""
        return self._objects.decode(body)  # type: ignore[attr-defined]


def _blame(body: bytes, raw: type[Any]) -> str | None:
    """Find the first object that cannot be decoded, and name it."""
    try:
        page = msgspec.json.decode(body, type=Page[msgspec.Raw])
    except msgspec.ValidationError:
        return None
    for index, item in enumerate(page.items or ()):
        try:
            msgspec.json.decode(item, type=raw)
        except msgspec.ValidationError as error:
            return f"items[{index}] ({name_of(item)}): {in_plain_words(str(error))}"
    return None


def name_of(item: msgspec.Raw) -> str:
    """Name an object that cannot be decoded, as far as it tells."""
    try:
        metadata = msgspec.json.decode(item, type=Named).metadata
    except msgspec.ValidationError:
        return "unnamed"
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}".strip("/")[:300] or "unnamed"


def _workloads(name: str, plural: str) -> Kind[Workload]:
    def turn(decoder: Decoder, raw: RawWorkload) -> Workload | None:
        record = decoder.workload(raw, name)
        # A ReplicaSet with an owner is a Deployment's affair.
        return None if name == "ReplicaSet" and record.owner is not None else record

    return Kind(name, plural, "apps", "v1", RawWorkload, turn, lambda w: (w.ref.namespace, w.ref.name))


PODS: Kind[Pod] = Kind("Pod", "pods", "", "v1", RawPod, Decoder.pod, lambda p: (p.namespace, p.name))
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
)
