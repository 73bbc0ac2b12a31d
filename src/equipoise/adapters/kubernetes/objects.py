"""Objects of any kind: the kinds that the server has, the API's paths, and writes.

Writes are server-side apply, patches, and the status by compare-and-swap.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from equipoise.adapters.kubernetes.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, WRITE_SECONDS, Client
from equipoise.adapters.kubernetes.errors import ApiError, Outline, bad_answer, outline_of
from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.ports import StoreConflict

FRESH_SECONDS = 30.0
"""How long an answer without the kind is cached: a CRD may have been installed since."""
PRESENT_SECONDS = 300.0
"""How long an answer with the kind is cached: the definition may have changed since."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind's plural name and scope."""

    plural: str
    is_namespaced: bool
    has_scale: bool


class ApiResource(msgspec.Struct):
    """One entry of a discovery document."""

    name: str
    kind: str
    namespaced: bool = False


class ApiResourceList(msgspec.Struct):
    """A discovery document."""

    resources: list[ApiResource] | None = None


class Discovery:
    """Caches the discovery document of each API version, for a shorter time when a kind is missing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[float, dict[str, Resource]]] = {}

    def find(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind, or None when the server has none."""
        now = self._client.world.monotonic()
        with self._lock:
            asked_at, kinds = self._cached.get(api_version, (float("-inf"), {}))
        if now - asked_at >= (PRESENT_SECONDS if kind in kinds else FRESH_SECONDS):
            kinds = self._ask(api_version)
            with self._lock:
                self._cached[api_version] = (now, kinds)
        return kinds.get(kind)

    def _ask(self, api_version: str) -> dict[str, Resource]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            found = self._client.get_as(ApiResourceList, path).resources or []
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise
        scaled = {entry.name.removesuffix("/scale") for entry in found if entry.name.endswith("/scale")}
        return {
            entry.kind: Resource(entry.name, entry.namespaced, entry.name in scaled)
            for entry in found
            if "/" not in entry.name
        }


NO_NAMES = frozenset({"", ".", ".."})
"""Invalid names: with one of these, the path would be that of another object or of the collection."""


def path_of(group: str, version: str, plural: str, namespace: str | None = None, *names: str) -> str:
    """Return the path of a collection, or of an object and its subresource."""
    if namespace in {".", ".."} or not NO_NAMES.isdisjoint(names):
        raise BadInput(f"{plural}: expected a name, got {'/'.join((namespace or '', *names))!r}")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return "/".join([f"{root}{within}/{plural}", *(quote(name, safe="") for name in names)])


def time_text(at: float) -> str:
    """Return a time as the API's Time."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: float) -> str:
    """Return a time as the API's MicroTime."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Document = dict[str, Any]


class Objects:
    """Changes objects of any kind that the server has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._discovery = Discovery(client)

    def apply(
        self, about: ObjectRef, manifest: Mapping[str, Any], manager: str, *, is_dry_run: bool = False
    ) -> Document:
        """Apply a manifest by server-side apply: the manager owns exactly these fields afterwards.

        A field that another manager owns is refused with 409, and `ApiError.causes` names it and its owner.
        """
        params = {"fieldManager": manager, "force": "false"}
        return self._patch(about, dict(manifest), APPLY_PATCH, params, is_dry_run=is_dry_run)

    def patch(
        self, about: ObjectRef, change: Mapping[str, Any], manager: str, *, is_dry_run: bool = False
    ) -> Document:
        """Change some fields by a merge patch; to another UID, where one is given, the server answers 422."""
        body = dict(change)
        if about.uid:
            body["metadata"] = {**change.get("metadata", {}), "uid": about.uid}
        return self._patch(about, body, MERGE_PATCH, {"fieldManager": manager}, is_dry_run=is_dry_run)

    def read(self, about: ObjectRef) -> Document | None:
        """Return the whole object; None where it does not exist."""
        try:
            return self._client.get_as(Document, self._path(about))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind; raise where the server does not have it."""
        resource = self._discovery.find(api_version, kind)
        if resource is None:
            raise WorldFailed(f"{self._client.address} has no kind {kind} in {api_version}")
        return resource

    def _path(self, about: ObjectRef) -> str:
        resource = self.resource_of(about.api_version, about.kind)
        if resource.is_namespaced and not about.namespace:
            whose = f"{about.kind} {about.name}"
            raise BadInput(f"metadata.namespace: expected a namespace for {whose}, got none")
        group, _, version = about.api_version.rpartition("/")
        namespace = about.namespace if resource.is_namespaced else None
        return path_of(group, version, resource.plural, namespace, about.name)

    def _patch(
        self, about: ObjectRef, body: Document, kind: str, params: dict[str, str], *, is_dry_run: bool
    ) -> Document:
        path = self._path(about)
        if is_dry_run:
            params["dryRun"] = "All"
        answer = self._client.patch(path, body, params, content_type=kind, within_seconds=WRITE_SECONDS)
        return self._client.decode(Document, answer, f"PATCH {path}")


def write_status(client: Client, path: str, status: Mapping[str, Any], version: str) -> str:
    """Replace the status of the object at `path` if it still has this version; return the new version.

    Raises StoreConflict when the object has changed since. After a lost answer, a status equal to ours counts
    as written by us.
    """
    if not version:
        raise ValueError("expected the version of the object that was read, got none")
    change = [
        {"op": "add", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/status", "value": dict(status)},
    ]
    where = f"{path}/status"
    try:
        answer = client.patch(where, change, content_type=JSON_PATCH)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        present = _written(client, path, client.get(path))
        if present.status != dict(status):
            raise StoreConflict(error.message) from error
        return present.meta.resourceVersion
    return _written(client, where, answer).meta.resourceVersion


def _written(client: Client, path: str, answer: bytes) -> Outline:
    """Return the object's version and status from an answer; the rest of it is not checked."""
    try:
        return outline_of(answer)
    except DECODE_ERRORS as error:
        raise bad_answer(client.address, path, answer, str(error)) from error
