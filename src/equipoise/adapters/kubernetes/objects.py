"""Objects of any kind: the kinds that the server has, the API's paths, and writes.

Writes are server-side apply, patches, and the status by compare-and-swap.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from equipoise.adapters.kubernetes.client import WRITE_SECONDS, Client
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


def proxy_path(namespace: str, service: str, port: str | int, scheme: str = "http", path: str = "/") -> str:
    """Return the path of a Service behind the API server's proxy."""
    prefix = "https:" if scheme == "https" else ""
    where = path_of("", "v1", "services", namespace)
    return f"{where}/{prefix}{quote(service, safe='')}:{quote(str(port), safe='')}/proxy/{path.lstrip('/')}"


Document = dict[str, Any]


class PatchType(StrEnum):
    """The content type of a patch. Strategic merge patches exist for built-in kinds only."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


_APPLY = "application/apply-patch+yaml"


class Objects:
    """Changes objects of any kind that the server has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._discovery = Discovery(client)

    def apply(
        self, manifest: Mapping[str, Any], manager: str, *, is_forced: bool = False, is_dry_run: bool = False
    ) -> Document:
        """Apply a manifest by server-side apply: the manager owns exactly these fields afterwards.

        A field that another manager owns is refused with 409, and `ApiError.causes` names it and its owner,
        unless it `is_forced`.
        """
        params = {"fieldManager": manager, "force": "true" if is_forced else "false"} | _dry(is_dry_run)
        path = self.path_of_manifest(manifest)
        return self._send(path, dict(manifest), _APPLY, params, is_idempotent=True)

    def patch(
        self,
        about: ObjectRef,
        change: Mapping[str, Any] | list[Document],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        version: str = "",
        manager: str = "",
        is_dry_run: bool = False,
    ) -> Document:
        """Change some fields of exactly this object: UID and version, where given, must still hold."""
        names = (about.name, subresource) if subresource else (about.name,)
        path = self._path(about.api_version, about.kind, about.namespace, *names)
        body = _with_preconditions(change, about.uid, version)
        # A merge patch is idempotent; a list of operations is so only with a version as precondition.
        is_idempotent = patch_type is not PatchType.JSON or bool(version)
        params = _dry(is_dry_run) | ({"fieldManager": manager} if manager else {})
        return self._send(path, body, patch_type.value, params, is_idempotent=is_idempotent)

    def read(self, about: ObjectRef) -> Document | None:
        """Return the whole object; None where it does not exist."""
        path = self._path(about.api_version, about.kind, about.namespace, about.name)
        try:
            return self._client.get_as(Document, path)
        except ApiError as error:
            # A 404 without a Status reason comes from a proxy in front of the API server.
            if error.status == HTTPStatus.NOT_FOUND and error.reason == "NotFound":
                return None
            raise

    def path_of_manifest(self, manifest: Mapping[str, Any]) -> str:
        """Return the path of an object, by the server's discovery document."""
        metadata = manifest.get("metadata") or {}
        for field, value in (
            ("apiVersion", manifest.get("apiVersion")),
            ("kind", manifest.get("kind")),
            ("metadata.name", metadata.get("name")),
        ):
            if not value or not isinstance(value, str):
                raise BadInput(f"{field}: expected text in a manifest that is to be applied, got {value!r}")
        namespace = metadata.get("namespace", "")
        return self._path(manifest["apiVersion"], manifest["kind"], namespace, metadata["name"])

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return the resource of a kind; raise where the server does not have it."""
        resource = self._discovery.find(api_version, kind)
        if resource is None:
            raise WorldFailed(f"{self._client.address} has no kind {kind} in {api_version}")
        return resource

    def _path(self, api_version: str, kind: str, namespace: str, *names: str) -> str:
        resource = self.resource_of(api_version, kind)
        if resource.is_namespaced and not namespace:
            raise BadInput(f"metadata.namespace: expected a namespace for {kind} {names[0]}, got none")
        group, _, version = api_version.rpartition("/")
        place = namespace if resource.is_namespaced else None
        return path_of(group, version, resource.plural, place, *names)

    def _send(
        self, path: str, body: object, content_type: str, params: Mapping[str, str], *, is_idempotent: bool
    ) -> Document:
        answer = self._client.request(
            "PATCH",
            path,
            params,
            body=body,
            content_type=content_type,
            is_idempotent=is_idempotent,
            within_seconds=WRITE_SECONDS,
        )
        return self._client.decode(Document, answer, f"PATCH {path}")


def write_status(client: Client, path: str, status: Mapping[str, Any], version: str) -> str:
    """Replace the status of the object at `path` if it still has this version; return the new version.

    Raises StoreConflict when the object has changed since. After a lost answer, a status equal to ours counts
    as written by us.
    """
    if not version:
        raise ValueError("a status is written against the version that was read, and none was given")
    change = [
        {"op": "add", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/status", "value": dict(status)},
    ]
    where = f"{path}/status"
    try:
        answer = client.request(
            "PATCH", where, body=change, content_type=PatchType.JSON.value, is_idempotent=True
        )
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


def _dry(is_dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - a word of the API in one place
    return {"dryRun": "All"} if is_dry_run else {}


def _with_preconditions(
    change: Mapping[str, Any] | list[Document], uid: str, version: str
) -> Document | list[Document]:
    """Add UID and version to the patch: the server answers 409 to another version, 422 to another UID."""
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
    if isinstance(change, list):
        checks = [{"op": "add", "path": f"/metadata/{name}", "value": v} for name, v in preconditions.items()]
        return [*checks, *change]
    if not preconditions:
        return dict(change)
    return {**change, "metadata": {**change.get("metadata", {}), **preconditions}}
