"""The `Policies` port over an API server: custom resources of one kind, watched by a reflector.

Also the owner of a CustomResourceDefinition, and whether it has the status subresource.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kinds import ResourceKind, list_kind
from equipoise.adapters.kubernetes.objects import ApiResourceList, path_of, write_status
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.cluster import ObjectRef
from equipoise.core.documents import refuse_deep
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import PolicyObject, StoreConflict


class RawPolicy(msgspec.Struct):
    """A custom resource with its whole spec and status."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] | None = None


class KubernetesPolicies:
    """The policies of one kind. The owner of this object starts and stops its reflector."""

    def __init__(
        self,
        client: Client,
        *,
        group: str,
        version: str,
        name: str,
        plural: str,
        namespaces: Collection[str] = (),
        timings: Timings | None = None,
    ) -> None:
        """Create the reflector; with `namespaces`, policies elsewhere are ignored."""
        api_version = f"{group}/{version}"

        def made(
            meta: ObjectMeta, spec: dict[str, Any], status: dict[str, Any], why: str = ""
        ) -> PolicyObject:
            ref = ObjectRef(api_version, name, meta.namespace, meta.name, meta.uid)
            return PolicyObject(ref, meta.generation, meta.resourceVersion, spec, status, unreadable=why)

        def decode(decoder: Decoder, raw: RawPolicy) -> PolicyObject:
            del decoder
            refuse_deep([raw.spec, raw.status])
            return made(raw.metadata, raw.spec, raw.status or {})

        kind: ResourceKind[PolicyObject] = ResourceKind(
            name,
            plural,
            group,
            version,
            RawPolicy,
            decode,
            lambda policy: (policy.ref.namespace, policy.ref.name),
            identity=lambda policy: (policy.ref.uid, policy.version),
            stand_in=lambda outline: made(outline.meta, {}, outline.status, outline.why),
        )
        self._kind = kind
        self._client = client
        self._namespaces = frozenset(namespaces)
        self._place = (group, version, plural)
        self.reflector = Reflector(client, kind, timings=timings)

    def policies(self) -> Sequence[PolicyObject]:
        """Return the cached policies; raise Unreachable when the cache is stale."""
        if self._was_removed():
            return []
        namespaces = self._namespaces
        return [
            policy
            for policy in self.reflector.require_fresh().records()
            if not namespaces or policy.ref.namespace in namespaces
        ]

    def _was_removed(self) -> bool:
        """Return whether the kind was removed, after the deletion of all its objects was observed."""
        reflector = self.reflector
        error = reflector.last_error
        is_absent = isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND
        return is_absent and reflector.synced.is_set() and not len(reflector.cache)

    def listed(self, namespace: str | None = None) -> Sequence[PolicyObject]:
        """List the policies from the server, without the reflector; for commands."""
        return list_kind(self._client, self._kind, namespace).records

    def listed_if_installed(self, namespace: str | None = None) -> Sequence[PolicyObject]:
        """List the policies from the server; empty where the kind is not installed."""
        try:
            return self.listed(namespace)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ()
            raise

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a policy's status; raise StoreConflict when the policy has changed or was deleted."""
        group, version, plural = self._place
        path = path_of(group, version, plural, policy.ref.namespace, policy.ref.name)
        try:
            write_status(self._client, path, status, policy.version)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and self._is_there(path):
                raise WorldFailed(f"the definition of {plural}.{group} has no status subresource") from error
            if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise StoreConflict(str(error)) from error
            raise

    def _is_there(self, path: str) -> bool:
        """Return whether the object exists: a kind without a status subresource answers 404 as well."""
        try:
            self._client.get(path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True


GROUP, VERSION, PLURAL = "apiextensions.k8s.io", "v1", "customresourcedefinitions"


class Definition(NamedTuple):
    """The owner and the properties of a definition."""

    standing: Standing
    has_status: bool = True
    """Whether the status is a subresource; otherwise it is an ordinary field."""
    note: str = ""


class _DefinitionMeta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _DefinitionVersion(msgspec.Struct):
    name: str
    served: bool = False
    subresources: dict[str, Any] | None = None


class _DefinitionSpec(msgspec.Struct):
    versions: list[_DefinitionVersion] = []


class _RawDefinition(msgspec.Struct):
    metadata: _DefinitionMeta
    spec: _DefinitionSpec


def look_at(client: Client, group: str, version: str, plural: str) -> Definition:
    """Return the definition of a kind; without the right to read it, what discovery shows."""
    name = f"{plural}.{group}"
    try:
        found = client.get_as(_RawDefinition, path_of(GROUP, VERSION, PLURAL, None, name))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return Definition(Standing.ABSENT, note=f"{name} is not installed")
        if error.status == HTTPStatus.FORBIDDEN:
            return _served(client, group, version, plural)
        raise
    served = [each for each in found.spec.versions if each.name == version and each.served]
    if not served:
        return Definition(Standing.ABSENT, note=f"{name} has no version {version}")
    is_ours = (found.metadata.labels or {}).get(OWNER_LABEL) == MANAGER
    has_status = "status" in (served[0].subresources or {})
    return Definition(Standing.OURS if is_ours else Standing.FOREIGN, has_status)


def _served(client: Client, group: str, version: str, plural: str) -> Definition:
    name = f"{plural}.{group}"
    try:
        names = {
            each.name for each in client.get_as(ApiResourceList, f"/apis/{group}/{version}").resources or ()
        }
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        names = set()
    if plural not in names:
        return Definition(Standing.ABSENT, note=f"{name} is not installed")
    note = f"whose {name} is is unknown without the right to get that {PLURAL[:-1]}"
    return Definition(Standing.FOREIGN, f"{plural}/status" in names, note)
