"""The kinds that we list and watch, their records, and lists page by page.

A page is decoded, converted to records and dropped before the next is read. Where one object of a page cannot
be decoded, its page is decoded object by object, and a warning names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from equipoise.adapters.kubernetes.client import Client, Parameters
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import (
    ApiError,
    BadAnswer,
    Outline,
    bad_answer,
    elements,
    members,
    outline_of,
    why_unreadable,
)
from equipoise.adapters.kubernetes.objects import path_of
from equipoise.adapters.kubernetes.structs import (
    ListMeta,
    PdbSpec,
    PodSpec,
    RawCronJob,
    RawHpa,
    RawLabelSelector,
    RawNode,
    RawPdb,
    RawPod,
    RawWorkload,
)
from equipoise.core.cluster import Hpa, Node, Pdb, Pod, Workload
from equipoise.core.errors import DECODE_ERRORS

R = TypeVar("R")
T = TypeVar("T")


class ListPage(msgspec.Struct, Generic[T], gc=False):
    """One page of a list."""

    metadata: ListMeta
    items: list[T] | None = None


@dataclass(frozen=True, eq=False)
class ResourceKind(Generic[R]):
    """One kind of object."""

    name: str
    plural: str
    group: str
    version: str
    raw: type[Any]
    decode: Callable[[Decoder, Any], R | None]
    """Converts an object to its record; None leaves it out."""
    key: Callable[[R], tuple[str, str]] = attrgetter("namespace", "name")
    """Returns namespace and name."""
    is_namespaced: bool = True
    identity: Callable[[R], tuple[str, str]] = attrgetter("uid", "resource_version")
    """Returns UID and resource version. A record without them is an error, not an old one."""
    stand_in: Callable[[Outline], R | None] = lambda _: None
    """Returns the record of an undecodable object, where leaving it out would not be safe."""

    @cached_property
    def _pages(self) -> msgspec.json.Decoder[ListPage[Any]]:
        return msgspec.json.Decoder(ListPage[self.raw])  # type: ignore[name-defined]

    @cached_property
    def _objects(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.raw)

    def path(self, namespace: str | None = None, *names: str) -> str:
        """Return the path of the collection, or of an object and its subresource."""
        place = namespace if self.is_namespaced else None
        return path_of(self.group, self.version, self.plural, place, *names)

    def decode_page(self, body: bytes) -> ListPage[Any]:
        """Decode a page at once; raise where one object cannot be decoded."""
        return self._pages.decode(body)

    def decode_object(self, body: bytes | msgspec.Raw) -> Any:
        return self._objects.decode(body)


def cluster_key(record: Any) -> tuple[str, str]:
    """Return the key of an object without a namespace."""
    return "", record.name


def _workloads(name: str, plural: str) -> ResourceKind[Workload]:
    def decode(decoder: Decoder, raw: RawWorkload) -> Workload | None:
        record = decoder.workload(raw, name)
        # A ReplicaSet with an owner belongs to a Deployment.
        return None if name == "ReplicaSet" and record.owner is not None else record

    return ResourceKind(
        name, plural, "apps", "v1", RawWorkload, decode, lambda w: (w.ref.namespace, w.ref.name)
    )


def _unreadable_pod(outline: Outline) -> Pod:
    """Return a pod that is not ready: without it, its workload would have too few pods."""
    return Decoder().pod(RawPod(outline.meta, PodSpec()))


def _unreadable_pdb(outline: Outline) -> Pdb:
    """Return a budget that allows no disruption of any pod of its namespace."""
    return Decoder().pdb(RawPdb(outline.meta, PdbSpec(RawLabelSelector())))


PODS: ResourceKind[Pod] = ResourceKind("Pod", "pods", "", "v1", RawPod, Decoder.pod, stand_in=_unreadable_pod)
NODES: ResourceKind[Node] = ResourceKind(
    "Node", "nodes", "", "v1", RawNode, Decoder.node, cluster_key, is_namespaced=False
)
DEPLOYMENTS = _workloads("Deployment", "deployments")
STATEFULSETS = _workloads("StatefulSet", "statefulsets")
REPLICASETS = _workloads("ReplicaSet", "replicasets")
DAEMONSETS = _workloads("DaemonSet", "daemonsets")
CRONJOBS: ResourceKind[Workload] = ResourceKind(
    "CronJob",
    "cronjobs",
    "batch",
    "v1",
    RawCronJob,
    lambda decoder, raw: decoder.workload(
        RawWorkload(raw.metadata, msgspec.structs.replace(raw.spec.jobTemplate.spec, replicas=0)), "CronJob"
    ),
    lambda workload: (workload.ref.namespace, workload.ref.name),
)
ROLLOUTS = replace(_workloads("Rollout", "rollouts"), group="argoproj.io", version="v1alpha1")
WORKLOADS = {kind.name: kind for kind in (DEPLOYMENTS, STATEFULSETS, REPLICASETS, DAEMONSETS)}
HPAS: ResourceKind[Hpa] = ResourceKind(
    "HorizontalPodAutoscaler", "horizontalpodautoscalers", "autoscaling", "v2", RawHpa, Decoder.hpa
)
PDBS: ResourceKind[Pdb] = ResourceKind(
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "policy",
    "v1",
    RawPdb,
    Decoder.pdb,
    stand_in=_unreadable_pdb,
)

PAGE_SIZE = 500
PAGE_BYTES_MAX = 256 * 1024 * 1024
PAGES_MAX = 10_000
RESTARTS_MAX = 3
"""How often a list is restarted because its continuation has expired."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A list at one resource version."""

    records: list[R]
    resource_version: str
    unreadable: list[Outline]
    """The objects that could not be decoded; `records` has their kind's stand-in, if any."""


PageReader = Callable[[bytes, Listing[R]], ListMeta]
"""Adds the records of a page to the list."""


def list_kind(
    client: Client,
    kind: ResourceKind[R],
    namespace: str | None = None,
    *,
    decoder: Decoder | None = None,
    params: Parameters | None = None,
    page_size: int = PAGE_SIZE,
) -> Listing[R]:
    """List a kind into records; the decoder's warnings name what could not be read."""
    shared = decoder or Decoder()

    def at_once(body: bytes) -> ListPage[R]:
        page = kind.decode_page(body)
        records = (kind.decode(shared, raw) for raw in page.items or ())
        return ListPage(page.metadata, [record for record in records if record is not None])

    def one(item: bytes) -> R | None:
        return kind.decode(shared, kind.decode_object(item))

    def unread(outline: Outline) -> R | None:
        if not outline.meta.name:
            raise ValueError("an object without a name")  # no API server sends such an object
        return kind.stand_in(outline)

    listing = _list(client, kind.path(namespace), _reader(at_once, one, unread), params, page_size)
    for outline in listing.unreadable:
        shared.warnings.add(f"a {kind.name} that cannot be read", f"{outline.place} ({outline.why})")
    return listing


def list_items(
    client: Client, path: str, raw: type[R], warn: Callable[[Outline], object], *, page_size: int = PAGE_SIZE
) -> list[R]:
    """List objects of a kind that another project defines.

    An object that cannot be decoded is left out and passed to `warn`.
    """
    pages, items = msgspec.json.Decoder(ListPage[raw]), msgspec.json.Decoder(raw)  # type: ignore[valid-type]
    listing = _list(client, path, _reader(pages.decode, items.decode, lambda _: None), None, page_size)
    for outline in listing.unreadable:
        warn(outline)
    return listing.records


def _reader(
    at_once: Callable[[bytes], ListPage[R]],
    one: Callable[[bytes], R | None],
    stand_in: Callable[[Outline], R | None],
) -> PageReader[R]:
    """Return a function that reads a page at once, and object by object where that fails."""

    def read(body: bytes, listing: Listing[R]) -> ListMeta:
        try:
            page = at_once(body)
        except DECODE_ERRORS as error:
            try:
                return one_by_one(body, listing)
            except DECODE_ERRORS:
                raise error from None  # no page of objects at all: the first error describes it best
        listing.records.extend(page.items or ())
        return page.metadata

    def one_by_one(body: bytes, listing: Listing[R]) -> ListMeta:
        parts = members(body)
        metadata = msgspec.json.decode(parts.get("metadata", b""), type=ListMeta)
        items = parts.get("items", b"null")
        for item in elements(items) if items != b"null" else ():
            try:
                record = one(item)
            except DECODE_ERRORS as error:
                outline = outline_of(item, error)
                listing.unreadable.append(outline)
                record = stand_in(outline)
            if record is not None:
                listing.records.append(record)
        return metadata

    return read


def _list(
    client: Client, path: str, read: PageReader[R], params: Parameters | None, page_size: int
) -> Listing[R]:
    restarts = 0
    while True:
        try:
            return _list_once(client, path, read, {**(params or {}), "limit": page_size})
        except ApiError as error:
            # An expired continuation is answered with 410; the pages read so far are of an older state.
            restarts += 1
            if error.status != HTTPStatus.GONE or restarts > RESTARTS_MAX:
                raise


def _list_once(client: Client, path: str, read: PageReader[R], params: dict[str, str | int]) -> Listing[R]:
    listing: Listing[R] = Listing([], "", [])
    for _ in range(PAGES_MAX):
        body = client.get(path, params, bytes_max=PAGE_BYTES_MAX)
        try:
            metadata = read(body, listing)
        except DECODE_ERRORS as error:
            raise bad_answer(client.address, f"GET {path}", body, why_unreadable(error)) from error
        if not metadata.continue_:
            return replace(listing, resource_version=metadata.resourceVersion)
        params = {**params, "continue": metadata.continue_}
    raise BadAnswer(f"{client.address} answered GET {path} with an endless list")
