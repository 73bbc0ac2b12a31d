"""A small client of the Kubernetes API, so that a test's instrument is not what it tests."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml

from tests.testbed.certificates import Pair
from tests.testbed.processes import wait_until

Object = Mapping[str, Any]

_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Speaks JSON to an API server, as whoever the certificate or the token names."""

    def __init__(
        self, server: str, ca: Path, *, client: Pair | None = None, token: str | None = None
    ) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(
            ca_certs=str(ca),
            cert_file=str(client.certificate) if client else None,
            key_file=str(client.key) if client else None,
            # A connection to a server that was killed and came back is dead: try once more.
            retries=urllib3.Retry(connect=0, read=1, redirect=0, other=0, allowed_methods={"GET"}),
            timeout=urllib3.Timeout(connect=30.0, read=30.0),
            maxsize=8,
        )

    def close(self) -> None:
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> dict[str, Any]:
        """Ask once; give the decoded answer, or raise what the server said."""
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": content_type, "Accept": accept}
        answer = self._pool.request(method, url, body=data, headers=headers)
        decoded = _decoded(answer.data)
        if answer.status >= 400:
            raise ApiError(answer.status, str(decoded.get("message", answer.data[:500])))
        return decoded

    def answers(self, path: str) -> bool:
        """Tell whether the server is there and says yes."""
        try:
            return self._pool.request("GET", f"{self.server}{path}", timeout=10, retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        return list(self.get(path, **query)["items"])

    def table(self, path: str) -> dict[str, dict[str, Any]]:
        """Give what `kubectl get -o wide` prints of a collection: the cells by object and column."""
        table = self.request("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        columns = [column["name"] for column in table["columnDefinitions"]]
        rows = [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"]]
        return {row["Name"]: row for row in rows}

    def create(self, path: str, body: Object) -> dict[str, Any]:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Object) -> dict[str, Any]:
        return self.request("PATCH", path, body, content_type=_MERGE_PATCH)

    def delete(self, path: str) -> None:
        """Delete an object; one that is gone already is as good."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, *, seconds: int, **query: str) -> Iterator[dict[str, Any]]:
        """Give the events of one watch, until the server ends it after so many seconds."""
        url = f"{self.server}{path}?" + urlencode({"watch": "1", "timeoutSeconds": str(seconds), **query})
        timeout = urllib3.Timeout(connect=30.0, read=seconds + 30.0)
        answer = self._pool.request("GET", url, headers=self._headers, preload_content=False, timeout=timeout)
        try:
            if answer.status >= 400:
                raise ApiError(answer.status, answer.data.decode(errors="replace"))
            buffered = b""
            for chunk in answer.stream(65536):
                *lines, buffered = (buffered + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            answer.close()

    def apply(self, what: str | Object | Iterable[Object]) -> list[dict[str, Any]]:
        """Apply YAML text or objects on the server's side; give what it made of them."""
        return [self._apply_one(item) for item in _objects(what)]

    def _apply_one(self, item: Object) -> dict[str, Any]:
        query = {"fieldManager": "testbed", "force": "true"}
        path = self.path_of(item)
        made = self.request("PATCH", path, item, query=query, content_type=_APPLY_PATCH)
        if item["kind"] == "CustomResourceDefinition":
            wait_until(lambda: _is_established(self.get(path)), f"{path} established", 60)
        return made

    def path_of(self, item: Object) -> str:
        """Give the path of an object, by the server's own list of its resources."""
        version, kind = str(item["apiVersion"]), str(item["kind"])
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, is_namespaced = wait_until(lambda: self._plural(root, kind), f"{kind} served at {root}", 60)
        meta = item["metadata"]
        place = f"/namespaces/{meta.get('namespace', 'default')}" if is_namespaced else ""
        return f"{root}{place}/{plural}/{meta['name']}"

    def _plural(self, root: str, kind: str) -> tuple[str, bool] | None:
        with self._lock:
            if (root, kind) not in self._plurals:
                try:
                    resources = self.get(root)["resources"]
                except ApiError:
                    return None  # the group of a definition that was just applied comes a moment later
                for served in resources:
                    if "/" not in served["name"]:
                        self._plurals[root, served["kind"]] = served["name"], bool(served["namespaced"])
            return self._plurals.get((root, kind))


def _objects(what: str | Object | Iterable[Object]) -> list[Object]:
    if isinstance(what, str):
        return [item for item in yaml.safe_load_all(what) if item]
    if isinstance(what, Mapping):
        return [what]
    return list(what)


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")}
    return decoded if isinstance(decoded, dict) else {"value": decoded}


def _is_established(definition: Object) -> bool:
    # A definition that was just made has null conditions for a moment.
    conditions = definition.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
