"""From the declaration of a kind to its CustomResourceDefinition."""

from enum import StrEnum
from typing import Any

from equipoise.model.crd.kind import Column, Kind
from equipoise.model.crd.schema import Schema, structural

OWNER_LABEL = "app.kubernetes.io/managed-by"
OWNER = "equipoise"
"""Marks the definitions that are ours: only those are ever changed."""


class Standing(StrEnum):
    """Whose the definition of a kind is."""

    ABSENT = "Absent"
    """Nobody has installed it."""
    OURS = "Ours"
    FOREIGN = "Foreign"
    """Somebody else's, who may have a controller for it; or nobody may tell us whose."""


def definition(kind: Kind) -> dict[str, Any]:
    """Give the whole object, ready to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.definition_name,
            "labels": {"app.kubernetes.io/part-of": OWNER, OWNER_LABEL: OWNER},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": _names(kind),
            "versions": [_version(kind)],
        },
    }


def schema_of(kind: Kind) -> Schema:
    """Give the structural schema of a whole object of this kind."""
    parts = {part: structural(model) for part, model in kind.body.items()}
    return {
        "description": kind.description,
        "type": "object",
        **({"required": list(kind.required)} if kind.required else {}),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **parts,
        },
    }


def _names(kind: Kind) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {"name": kind.version, "served": True, "storage": True}
    if kind.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    if "status" in kind.body:
        version["subresources"] = {"status": {}}
    version["schema"] = {"openAPIV3Schema": schema_of(kind)}
    return version


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.priority:
        shown["priority"] = column.priority
    return shown
