"""The API's paths."""

from __future__ import annotations

from urllib.parse import quote


def path_of(group: str, version: str, plural: str, namespace: str | None = None, *names: str) -> str:
    """Give the path of a collection, or of an object and its subresource."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return "/".join([f"{root}{within}/{plural}", *(quote(name, safe="") for name in names)])


def proxy_path(namespace: str, service: str, port: str | int, scheme: str = "http", path: str = "/") -> str:
    """Give the path of a Service behind the API server's proxy."""
    prefix = "https:" if scheme == "https" else ""
    where = path_of("", "v1", "services", namespace)
    return f"{where}/{prefix}{quote(service, safe='')}:{quote(str(port), safe='')}/proxy/{path.lstrip('/')}"
