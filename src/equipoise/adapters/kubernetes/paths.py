"""The API's paths."""

from __future__ import annotations

from urllib.parse import quote

from equipoise.model.errors import BadInput

NO_NAMES = frozenset({"", ".", ".."})
"""With one of these, the path would be that of something else: of all objects of the kind, for instance."""


def path_of(group: str, version: str, plural: str, namespace: str | None = None, *names: str) -> str:
    """Give the path of a collection, or of an object and its subresource."""
    if namespace in {".", ".."} or not NO_NAMES.isdisjoint(names):
        raise BadInput(f"{plural}: expected a name, got {'/'.join((namespace or '', *names))!r}")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return "/".join([f"{root}{within}/{plural}", *(quote(name, safe="") for name in names)])


def proxy_path(namespace: str, service: str, port: str | int, scheme: str = "http", path: str = "/") -> str:
    """Give the path of a Service behind the API server's proxy."""
    prefix = "https:" if scheme == "https" else ""
    where = path_of("", "v1", "services", namespace)
    return f"{where}/{prefix}{quote(service, safe='')}:{quote(str(port), safe='')}/proxy/{path.lstrip('/')}"
