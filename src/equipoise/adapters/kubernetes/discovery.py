"""Which kinds the server has: from an API version and a kind to a path, and whether it can be scaled.

The API's paths.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.core.errors import BadInput

FRESH_SECONDS = 30.0
"""How long an answer that lacks a kind is believed: a CRD may have been installed since."""
KNOWN_SECONDS = 300.0
"""The same for one that has it: the definition may have been changed since."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind lives."""

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
    """Asks once in a while for each API version, and sooner when a kind is missing."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, Resource]]] = {}

    def find(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind, or None when the server has none."""
        now = self._client.world.monotonic()
        with self._lock:
            asked_at, kinds = self._known.get(api_version, (float("-inf"), {}))
        if now - asked_at >= (KNOWN_SECONDS if kind in kinds else FRESH_SECONDS):
            kinds = self._ask(api_version)
            with self._lock:
                self._known[api_version] = (now, kinds)
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
"""With one of these, the path would be that of something else: of all objects of the kind, for instance."""


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
