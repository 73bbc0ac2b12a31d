"""The `Applier` port over an API server: HPAs by server-side apply, annotations by a patch of nothing else.

Nothing is forced. The object is read right before the write, and the write has its UID as a precondition.
The server refuses a field that another manager has set since, and names that manager. An object's owner
references, labels and field managers show its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.client import WRITE_SECONDS, Client
from equipoise.adapters.kubernetes.errors import REFUSALS, ApiError, BadAnswer, Outline, RightMissing
from equipoise.adapters.kubernetes.keda_vpa import ScaledObjects
from equipoise.adapters.kubernetes.kinds import HPAS, list_items
from equipoise.adapters.kubernetes.objects import Discovery, Document, Objects
from equipoise.adapters.kubernetes.structs import OwnerReference, RawScaleTargetRef
from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.ports import ApplyAnswer, ApplyResult

T = TypeVar("T")

MANAGER = "equipoise"
"""Our field manager, and the value of the label on objects that we create."""
OWNER_LABEL = "app.kubernetes.io/managed-by"
KEDA_LABEL = "scaledobject.keda.sh/name"
NOBODY = "an unnamed field manager"


class ManagedFields(msgspec.Struct):
    """An entry of `managedFields`: the fields of one manager."""

    manager: str = ""
    operation: str = ""
    time: str = ""
    fieldsV1: dict[str, Any] = {}

    def has(self, *path: str) -> bool:
        """Return whether the manager set this field, or any below it; `k:{...}` is an item of a list."""
        place: Any = self.fieldsV1
        for name in path:
            key = name if name.startswith("k:") else f"f:{name}"
            if not isinstance(place, dict) or key not in place:
                return False
            place = place[key]
        return True


class OwnedMeta(msgspec.Struct):
    """The metadata that shows an object's owner."""

    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None
    managedFields: list[ManagedFields] | None = None

    @property
    def is_ours(self) -> bool:
        """Return whether we applied the object and it has our label; a label alone proves nothing."""
        has_applied = any(
            entry.manager == MANAGER and entry.operation == "Apply" and entry.has("spec")
            for entry in self.managedFields or ()
        )
        is_controlled = any(reference.controller for reference in self.ownerReferences or ())
        return has_applied and (self.labels or {}).get(OWNER_LABEL) == MANAGER and not is_controlled

    @property
    def owner(self) -> str:
        """Return the owner of an object that is not ours, as far as its metadata shows it."""
        for reference in self.ownerReferences or ():
            return one_line(f"{reference.kind} {reference.name}", 200)
        labels = self.labels or {}
        if KEDA_LABEL in labels:
            return one_line(f"ScaledObject {labels[KEDA_LABEL]}", 200)
        if labels.get(OWNER_LABEL, MANAGER) != MANAGER:
            return one_line(labels[OWNER_LABEL], 200)
        return ", ".join(self.managers_of("spec")) or NOBODY

    def managers_of(self, *path: str) -> list[str]:
        """Return the other field managers that set a field."""
        entries = (entry for entry in self.managedFields or () if entry.manager != MANAGER)
        return sorted({one_line(entry.manager, 100) for entry in entries if entry.has(*path)})


def conflicts(error: ApiError) -> Mapping[str, str]:
    """Return the manager of each conflicting field of a refused apply; empty for any other error.

    A message is like `conflict with "helm" using autoscaling/v2 at 2026-01-01T00:00:00Z`.
    """
    found: dict[str, str] = {}
    for cause in error.causes:
        if cause.reason == "FieldManagerConflict":
            _, quote, rest = cause.message.partition('"')
            found[cause.field] = one_line(rest.partition('"')[0] if quote else cause.message, 100)
    return found


def joined(words: Iterable[str]) -> str:
    """Return the distinct words in their order, joined for a sentence."""
    return ", ".join(dict.fromkeys(words))


API_VERSION, KIND = "autoscaling/v2", "HorizontalPodAutoscaler"
FRESH_SECONDS = 5.0
"""How long the other autoscalers of a namespace are cached; the HPA itself is always read."""
RIGHT_SECONDS = 60.0
"""How long the right to annotate is cached."""
_OTHER_UID = "UID"


class _OwnedHpaSpec(msgspec.Struct):
    scaleTargetRef: RawScaleTargetRef


class _OwnedHpa(msgspec.Struct):
    metadata: OwnedMeta
    spec: _OwnedHpaSpec


class KubernetesApplier:
    """Applies objects that are ours, and names the owner of others."""

    def __init__(self, client: Client, *, read_seconds_max: float = WRITE_SECONDS) -> None:
        self._client = client
        self._read_seconds_max = read_seconds_max
        self._objects = Objects(client)
        self._scaled_objects = ScaledObjects(client, Discovery(client))
        self._scalers: dict[str, tuple[float, dict[WorkloadRef, dict[str, str]]]] = {}
        self._patching: dict[tuple[str, str], tuple[float, bool]] = {}
        """By kind and namespace: when the right to annotate was checked, and the answer."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        about, target = _subject(manifest)
        began_at = self._client.world.monotonic()
        try:
            before = self._objects.read(about)
            refusal = self._refusal(about, target, before) or self._late_answer(began_at)
            if refusal is not None:
                return refusal
            labelled = _with_our_label(manifest, before)
            after = self._objects.apply(about, labelled, MANAGER, is_dry_run=is_dry_run)
        except (ApiError, RightMissing) as error:
            return _answer_of(error, f"{KIND} {about.namespace}/{about.name}")
        if before is None:
            return ApplyAnswer(ApplyResult.CREATED)
        is_same = _content(before) == _content(after)
        return ApplyAnswer(ApplyResult.UNCHANGED if is_same else ApplyResult.CHANGED)

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        """Set these annotations on a workload, and nothing else.

        A merge patch, since server-side apply would remove every other field that the same manager applied.
        The right is checked first, so that the audit log has no refused requests where it is missing.
        """
        about = ObjectRef(workload.api_version, workload.kind, workload.namespace, workload.name)
        began_at = self._client.world.monotonic()
        try:
            if not self._may_patch(about):
                where = f"{about.kind}s in namespace {about.namespace}"
                return ApplyAnswer(ApplyResult.FORBIDDEN, f"the right to patch {where} is missing")
            before = self._objects.read(about)
            if before is None:
                return ApplyAnswer(ApplyResult.GONE, f"{workload} does not exist")
            meta = self._convert(before.get("metadata"), OwnedMeta, about)
            changed = {
                key: text for key, text in annotations.items() if (meta.annotations or {}).get(key) != text
            }
            if not changed:
                return ApplyAnswer(ApplyResult.UNCHANGED)
            owners = {key: meta.managers_of("metadata", "annotations", key) for key in changed}
            taken = {key: names for key, names in owners.items() if names}
            if taken:
                owner = joined(name for names in taken.values() for name in names)
                detail = f"{joined(taken)} of {workload} was set by {owner}"
                return ApplyAnswer(ApplyResult.NOT_OURS, detail, owner)
            if late := self._late_answer(began_at):
                return late
            change = {"metadata": {"annotations": changed}}
            self._objects.patch(about._replace(uid=meta.uid), change, MANAGER, is_dry_run=is_dry_run)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # the right exists: a webhook answers 403, too
                return ApplyAnswer(ApplyResult.REFUSED, error.message)
            return _answer_of(error, str(workload))
        return ApplyAnswer(ApplyResult.CHANGED)

    def _late_answer(self, began_at: float) -> ApplyAnswer | None:
        """Return LATE where the reads before the write took too long; their results stay cached."""
        spent_seconds = self._client.world.monotonic() - began_at
        if spent_seconds <= self._read_seconds_max:
            return None
        waited = f"{self._client.address} took {spent_seconds:.0f} s to answer"
        return ApplyAnswer(ApplyResult.LATE, f"{waited}, so nothing was sent")

    def _may_patch(self, about: ObjectRef) -> bool:
        """Return whether we may patch a kind in a namespace, checked once a minute."""
        now, key = self._client.world.monotonic(), (about.kind, about.namespace)
        asked_at, is_allowed = self._patching.get(key, (float("-inf"), True))
        if now - asked_at >= RIGHT_SECONDS:
            group = about.api_version.rpartition("/")[0]
            plural = self._objects.resource_of(about.api_version, about.kind).plural
            try:
                is_allowed = self._client.can_i("patch", group, plural, about.namespace)
            except ApiError as error:
                if error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                    raise
                is_allowed = True  # the request itself will show it
            self._patching[key] = (now, is_allowed)
        return is_allowed

    def _refusal(self, about: ObjectRef, target: WorkloadRef, before: Document | None) -> ApplyAnswer | None:
        """Return the refusal if the HPA has another owner, or another autoscaler scales the workload."""
        if before is not None:
            name = f"{KIND} {about.namespace}/{about.name}"
            found = self._convert(before, _OwnedHpa, about)
            if not found.metadata.is_ours:
                owner = found.metadata.owner
                return ApplyAnswer(ApplyResult.NOT_OURS, f"{name} is managed by {owner}", owner)
            scaled = found.spec.scaleTargetRef.workload(about.namespace).canonical
            if scaled != target:
                return ApplyAnswer(
                    ApplyResult.REFUSED, f"{name} is managed by Equipoise and already scales {scaled}"
                )
        others = dict(self._other_scalers(about.namespace).get(target, {}))
        others.pop(f"{KIND} {about.namespace}/{about.name}", None)
        for name, owner in sorted(others.items()):
            return ApplyAnswer(
                ApplyResult.NOT_OURS, f"{name} already scales the workload and is managed by {owner}", owner
            )
        return None

    def _other_scalers(self, namespace: str) -> dict[WorkloadRef, dict[str, str]]:
        """Return the autoscalers of each workload of a namespace: names of objects and their owners."""
        now = self._client.world.monotonic()
        asked_at, cached = self._scalers.get(namespace, (float("-inf"), {}))
        if now - asked_at >= FRESH_SECONDS:
            cached = self._read_scalers(namespace)
            self._scalers[namespace] = (now, cached)
        return cached

    def _read_scalers(self, namespace: str) -> dict[WorkloadRef, dict[str, str]]:
        found: dict[WorkloadRef, dict[str, str]] = {}
        unreadable: list[Outline] = []
        for hpa in list_items(self._client, HPAS.path(namespace), _OwnedHpa, unreadable.append):
            name = f"{KIND} {namespace}/{hpa.metadata.name}"
            owner = "Equipoise" if hpa.metadata.is_ours else hpa.metadata.owner
            ref = hpa.spec.scaleTargetRef.workload(namespace).canonical
            found.setdefault(ref, {})[name] = owner
        if unreadable:
            raise BadAnswer(f"{self._client.address}: the {KIND} {unreadable[0].place} cannot be read")
        for ref, scaled in self._scaled_objects.names(namespace).items():
            found.setdefault(ref, {})[f"ScaledObject {namespace}/{scaled}"] = "KEDA"
        return found

    def _convert(self, found: object, kind: type[T], about: ObjectRef) -> T:
        try:
            return msgspec.convert(found, kind)
        except DECODE_ERRORS as error:
            name = f"{about.kind} {about.namespace}/{about.name}"
            raise BadAnswer(f"{self._client.address}: {name} cannot be read: {error}") from error


def _subject(manifest: Mapping[str, Any]) -> tuple[ObjectRef, WorkloadRef]:
    """Return the HPA of a manifest and the workload that it scales; raise BadInput without both."""
    meta = manifest.get("metadata", {})
    if (manifest.get("apiVersion"), manifest.get("kind")) != (API_VERSION, KIND):
        raise BadInput(f"kind: expected {KIND} of {API_VERSION}, got {manifest.get('kind')!r}")
    for field in ("name", "namespace"):
        if not isinstance(meta.get(field), str) or not meta[field]:
            raise BadInput(f"metadata.{field}: expected text")
    try:
        target = msgspec.convert(manifest.get("spec"), _OwnedHpaSpec).scaleTargetRef
    except DECODE_ERRORS as error:
        raise BadInput(f"spec.scaleTargetRef: {error}") from error
    ref = target.workload(meta["namespace"]).canonical
    return ObjectRef(API_VERSION, KIND, meta["namespace"], meta["name"]), ref


def _with_our_label(manifest: Mapping[str, Any], before: Document | None) -> Document:
    """Return the manifest with our label, and with the UID of the existing object as a precondition."""
    meta = dict(manifest["metadata"])
    meta["labels"] = {**meta.get("labels", {}), OWNER_LABEL: MANAGER}
    if before is not None and "uid" in before["metadata"]:
        meta["uid"] = before["metadata"]["uid"]
    return {**manifest, "metadata": meta}


def _content(document: Document) -> tuple[Any, Any, Any]:
    """Return the parts that an apply can change; a dry run has no resource version to compare."""
    meta = document.get("metadata", {})
    return document.get("spec"), meta.get("labels"), meta.get("annotations")


def _answer_of(error: ApiError | RightMissing, name: str) -> ApplyAnswer:
    """Return the answer for a refusal; raise an error that does not show whether it took effect."""
    if isinstance(error, RightMissing):
        return ApplyAnswer(ApplyResult.FORBIDDEN, str(error))
    if error.status == HTTPStatus.FORBIDDEN:
        return ApplyAnswer(ApplyResult.FORBIDDEN, error.message)
    if error.is_not_found:
        return ApplyAnswer(ApplyResult.GONE, error.message)
    if error.status in REFUSALS:
        return ApplyAnswer(ApplyResult.REFUSED, error.message)
    if error.status == HTTPStatus.CONFLICT:
        if fields := conflicts(error):
            owner = joined(fields.values())
            return ApplyAnswer(ApplyResult.NOT_OURS, f"{joined(fields)} of {name} was set by {owner}", owner)
        if _OTHER_UID in error.message:
            return ApplyAnswer(ApplyResult.GONE, f"{name} was replaced while it was read")
    raise error
