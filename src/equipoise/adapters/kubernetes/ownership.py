"""Whose an object is: what its owner, its labels and its field managers say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.structs import OwnerReference

MANAGER = "equipoise"
"""Our field manager, and what the label of what we make says."""
OWNER_LABEL = "app.kubernetes.io/managed-by"
KEDA_LABEL = "scaledobject.keda.sh/name"
NOBODY = "somebody who left no name"


class ManagedFields(msgspec.Struct):
    """Which fields one manager set, and how."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fieldsV1: dict[str, Any] = {}

    def has(self, *path: str) -> bool:
        """Whether it set this field, or any field below it."""
        place: Any = self.fieldsV1
        for name in path:
            if not isinstance(place, dict) or f"f:{name}" not in place:
                return False
            place = place[f"f:{name}"]
        return True


class OwnedMeta(msgspec.Struct):
    """Metadata, as far as it tells whose an object is."""

    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None
    managedFields: list[ManagedFields] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether we made it by server-side apply and it still says so; a label alone anybody can write."""
        has_applied = any(
            entry.manager == MANAGER and entry.operation == "Apply" and entry.has("spec")
            for entry in self.managedFields or ()
        )
        is_controlled = any(reference.controller for reference in self.ownerReferences or ())
        return has_applied and (self.labels or {}).get(OWNER_LABEL) == MANAGER and not is_controlled

    @property
    def owner(self) -> str:
        """Who has it, if it is not ours, as far as it tells."""
        for reference in self.ownerReferences or ():
            return one_line(f"{reference.kind} {reference.name}", 200)
        labels = self.labels or {}
        if KEDA_LABEL in labels:
            return one_line(f"ScaledObject {labels[KEDA_LABEL]}", 200)
        if labels.get(OWNER_LABEL, MANAGER) != MANAGER:
            return one_line(labels[OWNER_LABEL], 200)
        return ", ".join(self.managers_of("spec")) or NOBODY

    def managers_of(self, *path: str) -> list[str]:
        """Name the others who set a field."""
        entries = (entry for entry in self.managedFields or () if entry.manager != MANAGER)
        return sorted({one_line(entry.manager, 100) for entry in entries if entry.has(*path)})


def conflicts(error: ApiError) -> Mapping[str, str]:
    """Tell who has set which fields, from the server's refusal of an apply; empty when it is about else."""
    return {
        cause.field: _manager(cause.message)
        for cause in error.causes
        if cause.reason == "FieldManagerConflict"
    }


def _manager(message: str) -> str:
    """Read the name out of `conflict with "helm" using autoscaling/v2 at 2026-01-01T00:00:00Z`."""
    _, quote, rest = message.partition('"')
    return one_line(rest.partition('"')[0] if quote else message, 100)


def joined(words: Iterable[str]) -> str:
    """List different words in their order, for a sentence."""
    return ", ".join(_distinct(words))


def _distinct(words: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys(words)
