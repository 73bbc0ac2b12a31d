"""An API server that keeps any object, swaps by version, and can lose an answer. No kind, no controller."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.kubernetes.server import Asked, Stage

Object = dict[str, Any]
_SUBRESOURCES = ("status",)
_COLLECTIONS = ("/ledgers",)


class SmallApi:
    """The script of a `Player`. Objects are held by the path under which they are read."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.lock = threading.RLock()
        self.answers_to_lose: list[str] = []
        """Methods whose next request is carried out, and then not answered."""
        self.meanwhile: Callable[[], None] | None = None
        """What somebody else does right after an answer was lost."""
        self._version = 100

    def put(self, path: str, item: Object) -> Object:
        """Keep an object, as if somebody had made it."""
        with self.lock:
            return self._keep(path, item)

    def script(self, asked: Asked, stage: Stage) -> None:
        # Head and body go out apart, and without this the body waits 40 ms for the head to be confirmed.
        stage.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            answer = self._answer(asked)
            is_lost = isinstance(answer, dict) and asked.method in self.answers_to_lose
            if is_lost:
                self.answers_to_lose.remove(asked.method)
                if self.meanwhile is not None:
                    self.meanwhile()
        if is_lost:
            stage.cut()
        elif isinstance(answer, dict):
            stage.answer(answer, 201 if asked.method == "POST" else 200)
        else:
            stage.refuse(*answer)

    def _answer(self, asked: Asked) -> Object | tuple[int, str, str]:
        body: Any = json.loads(asked.body) if asked.body else {}
        path = asked.path
        if asked.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return 409, "AlreadyExists", f"{path} already exists"
            return self._keep(path, body)
        for part in _SUBRESOURCES:
            path = path.removesuffix(f"/{part}")
        if asked.method == "GET" and path.endswith(_COLLECTIONS):
            return self._listed(path, asked.query)
        before = self.objects.get(path)
        if before is None:
            return 404, "NotFound", f"{path} not found"
        match asked.method:
            case "GET":
                return before
            case "DELETE":
                return self.objects.pop(path)
            case "PATCH":
                body = _patched(before, body)
        for field in ("resourceVersion", "uid"):
            if body["metadata"].get(field, before["metadata"][field]) != before["metadata"][field]:
                return (
                    409,
                    "Conflict",
                    "the object has been modified; please apply your changes to the latest",
                )
        return self._keep(path, body, before["metadata"]["uid"])

    def _listed(self, path: str, query: Mapping[str, str]) -> Object:
        """Give one page of a collection, of a namespace or of all; a continuation is where to go on."""
        root, _, plural = path.rpartition("/")
        within = "/namespaces/"
        items = [
            item
            for at, item in self.objects.items()
            if at.startswith(root if within in root else f"{root}{within}") and at.split("/")[-2] == plural
        ]
        start = int(query.get("continue") or 0)
        end = start + int(query.get("limit") or len(items))
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return {"metadata": metadata, "items": items[start:end]}

    def _keep(self, path: str, item: Object, uid: str = "") -> Object:
        self._version += 1
        meta = {
            **item["metadata"],
            "resourceVersion": str(self._version),
            "uid": uid or f"uid-{self._version}",
        }
        self.objects[path] = {**item, "metadata": meta}
        return self.objects[path]


def _patched(before: Object, change: Any) -> Object:
    if isinstance(change, list):
        after = json.loads(json.dumps(before))
        for step in change:
            *parents, last = step["path"].strip("/").split("/")
            place = after
            for parent in parents:
                place = place[parent]
            place[last] = step["value"]
        return dict(after)
    merged = dict(before)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = _patched(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged
