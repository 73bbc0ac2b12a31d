"""The `Policies` and `Analyses` ports over an API server: custom resources, watched by reflectors.

Analytics and Recommendations are defined by Equipoise or by Crane. Where their definition has the status
subresource, the status is written there. Where it has none, as with Crane's, the status is an ordinary field:
every write of it makes a new generation, and fields that the definition does not have are dropped. There, a
hash of the spec stands for the generation, and an annotation holds the hash that the status describes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import time_or_none
from equipoise.adapters.kubernetes.errors import ApiError, Unreachable, bad_answer
from equipoise.adapters.kubernetes.kinds import ResourceKind, list_kind
from equipoise.adapters.kubernetes.objects import ApiResourceList, path_of, write_status
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.cluster import ObjectRef
from equipoise.core.documents import refuse_deep
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.crd.definition import DefinedKind, Standing
from equipoise.ports import PolicyObject, StoreConflict

OBSERVED = "equipoise.dev/observed"
"""The annotation with the hash of the spec that a status describes, where generations cannot."""
FRESH_SECONDS = 50.0
"""How long the owner of the definitions is cached."""
SYNC_SECONDS = 5.0
"""How long to wait for the first list of kinds that were just installed."""
_TRUST = (Standing.ABSENT, Standing.FOREIGN, Standing.OURS)
DEFINITIONS = "customresourcedefinitions"


class RawPolicy(msgspec.Struct):
    """A custom resource with its whole spec and status."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CustomResource(PolicyObject):
    """A policy object, and the value of its annotation `OBSERVED`."""

    observed: str = ""


def _custom_resource(raw: RawPolicy, api_version: str, kind: str, unreadable: str = "") -> CustomResource:
    meta = raw.metadata
    refuse_deep([raw.spec, raw.status])
    return CustomResource(
        ref=ObjectRef(api_version, kind, meta.namespace, meta.name, meta.uid),
        generation=meta.generation,
        version=meta.resourceVersion,
        spec=raw.spec,
        status=raw.status or {},
        labels=meta.labels or {},
        created_at=time_or_none(meta.creationTimestamp) or 0.0,  # an unreadable time does not count as new
        unreadable=unreadable,
        observed=(meta.annotations or {}).get(OBSERVED, ""),
    )


def custom_resources(group: str, version: str, name: str, plural: str) -> ResourceKind[CustomResource]:
    """Return the kind; an object that cannot be read has no spec, and says why."""
    of = partial(_custom_resource, api_version=f"{group}/{version}", kind=name)
    return ResourceKind(
        name,
        plural,
        group,
        version,
        RawPolicy,
        lambda _, raw: of(raw),
        lambda policy: (policy.ref.namespace, policy.ref.name),
        identity=lambda policy: (policy.ref.uid, policy.version),
        stand_in=lambda one: of(RawPolicy(one.meta, {}, one.status), unreadable=one.why),
    )


def _within(namespaces: Collection[str], found: Sequence[CustomResource]) -> Sequence[CustomResource]:
    return [policy for policy in found if policy.ref.namespace in namespaces] if namespaces else found


@contextmanager
def _conflicts() -> Iterator[None]:
    """Raise StoreConflict where an object has changed since it was read, or was deleted."""
    try:
        yield
    except ApiError as error:
        if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
            raise StoreConflict(str(error)) from error
        raise


class KubernetesPolicies:
    """The policies of one kind. The owner of this object starts and stops its reflector."""

    def __init__(
        self,
        client: Client,
        kind: DefinedKind,
        *,
        namespaces: Collection[str] = (),
        timings: Timings | None = None,
    ) -> None:
        """Create the reflector; with `namespaces`, policies elsewhere are ignored."""
        self._kind = custom_resources(kind.group, kind.version, kind.name, kind.plural)
        self._client = client
        self._namespaces = frozenset(namespaces)
        self.reflector = Reflector(client, self._kind, timings=timings)

    def policies(self) -> Sequence[PolicyObject]:
        """Return the cached policies; raise Unreachable when the cache is stale."""
        reflector, error = self.reflector, self.reflector.last_error
        is_absent = isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND
        if is_absent and reflector.synced.is_set() and not len(reflector.cache):
            return []  # the kind was removed, after the deletion of all its objects was observed
        return _within(self._namespaces, reflector.require_fresh().records())

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
        kind = self._kind
        path = kind.path(policy.ref.namespace, policy.ref.name)
        try:
            with _conflicts():
                write_status(self._client, path, status, policy.version)
        except StoreConflict as conflict:
            error = conflict.__cause__
            if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND and self._is_there(path):
                what = f"the definition of {kind.plural}.{kind.group}"
                raise WorldFailed(f"{what} has no status subresource") from error
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
        found = client.get_as(_RawDefinition, path_of("apiextensions.k8s.io", "v1", DEFINITIONS, None, name))
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
        listed = client.get_as(ApiResourceList, f"/apis/{group}/{version}").resources
        names = {each.name for each in listed or ()}
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        names = set()
    if plural not in names:
        return Definition(Standing.ABSENT, note=f"{name} is not installed")
    note = f"the owner of {name} is unknown: the right to get that {DEFINITIONS[:-1]} is missing"
    return Definition(Standing.FOREIGN, f"{plural}/status" in names, note)


class ListedPolicies:
    """The custom resources of several kinds, listed anew each time; a kind that is not installed has none."""

    def __init__(self, client: Client, kinds: Iterable[DefinedKind]) -> None:
        self._client = client
        self._kinds = {kind.name: (kind, KubernetesPolicies(client, kind)) for kind in kinds}

    def policies(self) -> Sequence[PolicyObject]:
        return [policy for _, each in self._kinds.values() for policy in each.listed_if_installed()]

    def standing(self, kind: str) -> Standing:
        defined, _ = self._kinds[kind]
        return look_at(self._client, defined.group, defined.version, defined.plural).standing

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        self._kinds[policy.ref.kind][1].write_status(policy, status)


ANALYTICS = custom_resources("analysis.crane.io", "v1alpha1", "Analytics", "analytics")
RECOMMENDATIONS = custom_resources("analysis.crane.io", "v1alpha1", "Recommendation", "recommendations")
ANALYSES = (ANALYTICS, RECOMMENDATIONS)


class KubernetesAnalyses:
    """Both kinds, watched once they are installed. Threads may not share it."""

    def __init__(
        self, client: Client, watch: Callable[[Reflector[Any]], None], *, namespaces: Collection[str] = ()
    ) -> None:
        """Watch the kinds where they are installed; with `namespaces`, only objects in these count."""
        self._client = client
        self._watch = watch
        self._namespaces = frozenset(namespaces)
        self._reflectors: dict[str, Reflector[CustomResource]] = {}
        self._definitions: dict[str, Definition] = {}
        self._checked_at = float("-inf")
        try:
            self.definition_owner()
        except WorldFailed:
            self._checked_at = float("-inf")  # the next call reads the definitions again

    def definition_owner(self) -> tuple[Standing, str]:
        """Return the owner of the definitions; where the two differ, the more restrictive one."""
        now = self._client.world.monotonic()
        if now - self._checked_at >= FRESH_SECONDS:
            self._definitions = {
                kind.name: look_at(self._client, kind.group, kind.version, kind.plural) for kind in ANALYSES
            }
            self._checked_at = now
        worst = min(self._definitions.values(), key=lambda each: _TRUST.index(each.standing))
        if worst.standing is not Standing.ABSENT and not self._reflectors:
            for kind in ANALYSES:
                self._reflectors[kind.name] = Reflector(self._client, kind)
                self._watch(self._reflectors[kind.name])
        return worst.standing, worst.note

    def analytics(self) -> Sequence[PolicyObject]:
        return self._listed(ANALYTICS)

    def recommendations(self) -> Sequence[PolicyObject]:
        return self._listed(RECOMMENDATIONS)

    def _listed(self, kind: ResourceKind[CustomResource]) -> Sequence[PolicyObject]:
        reflector = self._reflectors.get(kind.name)
        if reflector is None or not reflector.synced.wait(SYNC_SECONDS):
            why = f": {reflector.last_error}" if reflector is not None and reflector.last_error else ""
            raise Unreachable(f"the {kind.plural} have not been listed yet{why}")
        found = _within(self._namespaces, reflector.require_fresh().records())
        return [self._with_generation(kind, each) for each in found]

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        path = RECOMMENDATIONS.path(manifest["metadata"]["namespace"])
        answer = self._client.post(path, dict(manifest), retry=False)
        return self._read(answer, f"POST {path}")

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        path = self._path(recommendation)
        version = {"resourceVersion": recommendation.version}
        change = {"metadata": version, "spec": {"adoptionType": adoption}}
        with _conflicts():
            return self._read(self._client.patch(path, change), f"PATCH {path}")

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        path = self._path(about)
        if self._definitions[about.ref.kind].has_status:
            with _conflicts():
                write_status(self._client, path, status, about.version)
            return
        told = {key: value for key, value in status.items() if key != "observedGeneration"}
        gone = dict.fromkeys(about.status.keys() - told.keys() - {"observedGeneration"})
        observed = status.get("observedGeneration")
        metadata: dict[str, Any] = {"resourceVersion": about.version}
        if observed is not None:
            metadata["annotations"] = {OBSERVED: str(observed)}
        with _conflicts():
            self._client.patch(path, {"metadata": metadata, "status": told | gone})

    def delete(self, recommendation: PolicyObject) -> None:
        precondition = {"uid": recommendation.ref.uid}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": precondition}
        try:
            self._client.delete(self._path(recommendation), options)
        except ApiError as error:
            if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise

    def _path(self, about: PolicyObject) -> str:
        kind = ANALYTICS if about.ref.kind == ANALYTICS.name else RECOMMENDATIONS
        return kind.path(about.ref.namespace, about.ref.name)

    def _read(self, answer: bytes, request: str) -> PolicyObject:
        raw, kind = self._client.decode(RawPolicy, answer, request), RECOMMENDATIONS
        try:
            found = _custom_resource(raw, f"{kind.group}/{kind.version}", kind.name)
        except DECODE_ERRORS as error:
            raise bad_answer(self._client.address, request, answer, str(error)) from error
        return self._with_generation(kind, found)

    def _with_generation(self, kind: ResourceKind[CustomResource], found: CustomResource) -> PolicyObject:
        """Return an object; without the status subresource, its generation is the hash of its spec."""
        if self._definitions[kind.name].has_status:
            return found
        content = msgspec.json.encode(found.spec, order="sorted")
        status = dict(found.status)
        if found.observed.isdecimal():
            status["observedGeneration"] = int(found.observed)
        return replace(found, generation=zlib.crc32(content), status=status)
