"""Whose a CustomResourceDefinition is, and whether its objects have a status of their own."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.discovery import ApiResourceList
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.ownership import MANAGER, OWNER_LABEL
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.model.crd.definition import Standing

GROUP, VERSION, PLURAL = "apiextensions.k8s.io", "v1", "customresourcedefinitions"


class Definition(NamedTuple):
    """What can be told of a definition."""

    standing: Standing
    has_status: bool = True
    """Whether the status is a subresource; without, it is a part of the object like any other."""
    note: str = ""


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Version(msgspec.Struct):
    name: str
    served: bool = False
    subresources: dict[str, Any] | None = None


class _Spec(msgspec.Struct):
    versions: list[_Version] = []


class _Raw(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


def look_at(client: Client, group: str, version: str, plural: str) -> Definition:
    """Look at the definition of a kind; without the right to, as far as the kinds that are served tell."""
    name = f"{plural}.{group}"
    try:
        found = client.get_as(_Raw, path_of(GROUP, VERSION, PLURAL, None, name))
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
