"""The `Analyses` port over an API server: Analytics and Recommendations, defined by Equipoise or by Crane.

Where the definition has the status subresource, the status is written there. Where it has none, as with
Crane's, the status is an ordinary field: every write of it makes a new generation, and fields that the
definition does not have are dropped. There, a hash of the spec stands for the generation, and an annotation
holds the hash that the status describes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import MERGE_PATCH, Client
from equipoise.adapters.kubernetes.decode import Decoder, parse_time
from equipoise.adapters.kubernetes.errors import ApiError, Unreachable, bad_answer
from equipoise.adapters.kubernetes.kinds import ResourceKind
from equipoise.adapters.kubernetes.objects import path_of, write_status
from equipoise.adapters.kubernetes.policies import Definition, RawPolicy, look_at
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.cluster import ObjectRef
from equipoise.core.documents import refuse_deep
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import PolicyObject, StoreConflict

GROUP, VERSION = "analysis.crane.io", "v1alpha1"
ANALYTICS, RECOMMENDATIONS = ("Analytics", "analytics"), ("Recommendation", "recommendations")
OBSERVED = "equipoise.dev/observed"
"""The annotation with the hash of the spec that a status describes, where generations cannot."""
FRESH_SECONDS = 50.0
"""How long the owner of the definitions is cached."""
SYNC_SECONDS = 5.0
"""How long to wait for the first list of kinds that were just installed."""
_TRUST = (Standing.ABSENT, Standing.FOREIGN, Standing.OURS)


class AnnotatedObject(NamedTuple):
    """An object, and the value of its annotation."""

    policy: PolicyObject
    observed: str


class KubernetesAnalyses:
    """Both kinds, watched once they are installed. Threads may not share it."""

    def __init__(
        self, client: Client, watch: Callable[[Reflector[Any]], None], *, namespaces: Collection[str] = ()
    ) -> None:
        """Watch the kinds where they are installed; with `namespaces`, only objects in these count."""
        self._client = client
        self._watch = watch
        self._namespaces = frozenset(namespaces)
        self._reflectors: dict[str, Reflector[AnnotatedObject]] = {}
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
                plural: look_at(self._client, GROUP, VERSION, plural)
                for _, plural in (ANALYTICS, RECOMMENDATIONS)
            }
            self._checked_at = now
        worst = min(self._definitions.values(), key=lambda each: _TRUST.index(each.standing))
        if worst.standing is not Standing.ABSENT and not self._reflectors:
            for name, plural in (ANALYTICS, RECOMMENDATIONS):
                self._reflectors[plural] = Reflector(self._client, _kind(name, plural))
                self._watch(self._reflectors[plural])
        return worst.standing, worst.note

    def analytics(self) -> Sequence[PolicyObject]:
        return self._listed(ANALYTICS[1])

    def recommendations(self) -> Sequence[PolicyObject]:
        """List the Recommendations."""
        return self._listed(RECOMMENDATIONS[1])

    def _listed(self, plural: str) -> list[PolicyObject]:
        reflector = self._reflectors.get(plural)
        if reflector is None or not reflector.synced.wait(SYNC_SECONDS):
            why = f": {reflector.last_error}" if reflector is not None and reflector.last_error else ""
            raise Unreachable(f"the {plural} have not been listed yet{why}")
        has_status = self._definitions[plural].has_status
        return [
            found.policy if has_status else _with_content_as_generation(found)
            for found in reflector.require_fresh().records()
            if not self._namespaces or found.policy.ref.namespace in self._namespaces
        ]

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Create a Recommendation, named by the server."""
        path = path_of(GROUP, VERSION, RECOMMENDATIONS[1], manifest["metadata"]["namespace"])
        answer = self._client.post(path, dict(manifest), retry=False)
        return self._read(answer, f"POST {path}")

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        path = self._path(recommendation)
        change = {"metadata": {"resourceVersion": recommendation.version}, "spec": {"adoptionType": adoption}}
        return self._read(self._patched(path, change), f"PATCH {path}")

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace the status as its definition allows."""
        path = self._path(about)
        if self._definitions[_plural(about)].has_status:
            try:
                write_status(self._client, path, status, about.version)
            except ApiError as error:
                if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                    raise StoreConflict(str(error)) from error
                raise
            return
        told = {key: value for key, value in status.items() if key != "observedGeneration"}
        gone = dict.fromkeys(about.status.keys() - told.keys() - {"observedGeneration"})
        observed = status.get("observedGeneration")
        metadata: dict[str, Any] = {"resourceVersion": about.version}
        if observed is not None:
            metadata["annotations"] = {OBSERVED: str(observed)}
        self._patched(path, {"metadata": metadata, "status": told | gone})

    def delete(self, recommendation: PolicyObject) -> None:
        """Delete the object with this name and UID; succeed when it no longer exists."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": recommendation.ref.uid},
        }
        try:
            self._client.delete(self._path(recommendation), options)
        except ApiError as error:
            if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise

    def _path(self, about: PolicyObject) -> str:
        return path_of(GROUP, VERSION, _plural(about), about.ref.namespace, about.ref.name)

    def _patched(self, path: str, change: Mapping[str, Any]) -> bytes:
        try:
            # The resource version makes a retry safe.
            return self._client.request(
                "PATCH", path, body=dict(change), content_type=MERGE_PATCH, is_idempotent=True
            )
        except ApiError as error:
            if error.status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                raise StoreConflict(str(error)) from error
            raise

    def _read(self, answer: bytes, request: str) -> PolicyObject:
        raw = self._client.decode(RawPolicy, answer, request)
        try:
            found = _annotated(raw, RECOMMENDATIONS[0])
        except DECODE_ERRORS as error:
            raise bad_answer(self._client.address, request, answer, str(error)) from error
        return (
            found.policy
            if self._definitions[RECOMMENDATIONS[1]].has_status
            else _with_content_as_generation(found)
        )


def _plural(about: PolicyObject) -> str:
    return (ANALYTICS if about.ref.kind == ANALYTICS[0] else RECOMMENDATIONS)[1]


def _kind(name: str, plural: str) -> ResourceKind[AnnotatedObject]:
    def decode(decoder: Decoder, raw: RawPolicy) -> AnnotatedObject:
        del decoder
        return _annotated(raw, name)

    return ResourceKind(
        name,
        plural,
        GROUP,
        VERSION,
        RawPolicy,
        decode,
        lambda found: (found.policy.ref.namespace, found.policy.ref.name),
        identity=lambda found: (found.policy.ref.uid, found.policy.version),
        stand_in=lambda outline: _annotated(RawPolicy(outline.meta, {}, outline.status), name, outline.why),
    )


def _annotated(raw: RawPolicy, kind: str, unreadable: str = "") -> AnnotatedObject:
    meta = raw.metadata
    refuse_deep([raw.spec, raw.status])
    policy = PolicyObject(
        ref=ObjectRef(f"{GROUP}/{VERSION}", kind, meta.namespace, meta.name, meta.uid),
        generation=meta.generation,
        version=meta.resourceVersion,
        spec=raw.spec,
        status=raw.status or {},
        labels=meta.labels or {},
        created_at=_created_at(meta),
        unreadable=unreadable,
    )
    return AnnotatedObject(policy, (meta.annotations or {}).get(OBSERVED, ""))


def _created_at(meta: ObjectMeta) -> float:
    try:
        return parse_time(meta.creationTimestamp) if meta.creationTimestamp else 0.0
    except DECODE_ERRORS:
        return 0.0  # long ago: it does not count as new


def _with_content_as_generation(found: AnnotatedObject) -> PolicyObject:
    """Return an object with the hash of its spec as generation, and the annotated one in its status."""
    content = msgspec.json.encode(found.policy.spec, order="sorted")
    status = dict(found.policy.status)
    if found.observed.isdecimal():
        status["observedGeneration"] = int(found.observed)
    return replace(found.policy, generation=zlib.crc32(content), status=status)
