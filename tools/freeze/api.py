"""A small API server for what is recorded live: it keeps any object, and remembers every write."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Object = dict[str, Any]
SUBRESOURCES = ("status", "scale", "eviction", "resize")
RESOURCES = ("pods", "pods/resize", "pods/eviction", "deployments", "deployments/scale", "replicasets")
GROUP = re.compile(r"/api/(v1)|/apis/([^/]+/v[^/]+)")
WATCH_STEP_SECONDS = 0.05


class Api:
    """Objects by the path at which they are read, and who wrote what."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[str, str, Any]] = []
        """Method, path and body of every request that was no reading."""
        self.reads: set[str] = set()
        self.changed = threading.Condition()
        self.is_closing = False
        self._version = 100

    def add(self, path: str, item: Object) -> Object:
        """Keep an object as if somebody had made it."""
        with self.changed:
            self._version += 1
            metadata = {
                "uid": f"uid-{self._version}",
                "generation": 1,
                "creationTimestamp": "2026-07-01T00:00:00Z",
                **item["metadata"],
                "resourceVersion": str(self._version),
            }
            self.objects[path] = {**item, "metadata": metadata}
            self.changed.notify_all()
            return self.objects[path]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Return the status and the document that answer a request."""
        with self.changed:
            if method == "GET":
                self.reads.add(path)
                return self._read(path, query)
            self.writes.append((method, path, body))
            if "dryRun" in query or path.startswith("/apis/authorization.k8s.io/"):
                return HTTPStatus.CREATED, {**body, "status": {"allowed": True}}
            if method == "POST" and not path.endswith(SUBRESOURCES):
                path = f"{path}/{_name(body)}"
                if path in self.objects:
                    return _refusal(HTTPStatus.CONFLICT, "AlreadyExists")
                return HTTPStatus.CREATED, self.add(path, body)
            return self._change(method, path, body)

    def _read(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        if path == "/version":
            return HTTPStatus.OK, {"major": "1", "minor": "35", "gitVersion": "v1.35.0"}
        if path in self.objects:
            return HTTPStatus.OK, self.objects[path]
        if group := GROUP.fullmatch(path):
            resources = [{"name": name, "namespaced": True, "kind": "", "verbs": []} for name in RESOURCES]
            return HTTPStatus.OK, {"groupVersion": group[1] or group[2], "resources": resources}
        root, _, plural = path.rpartition("/")
        items = [
            item
            for at, item in sorted(self.objects.items())
            if at.rpartition("/")[0].rpartition("/")[2] == plural
            and at.rpartition("/")[0].startswith(root)
            and _fits(item, query)
        ]
        if items or plural.endswith("s"):
            return HTTPStatus.OK, {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        return _refusal(HTTPStatus.NOT_FOUND, "NotFound")

    def _change(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        head, _, last = path.rpartition("/")
        place = head if last in SUBRESOURCES else path
        before = self.objects.get(place)
        if before is None:
            return _refusal(HTTPStatus.NOT_FOUND, "NotFound")
        if method == "DELETE" or last == "eviction":
            del self.objects[place]
            self._version += 1
            self.changed.notify_all()
            return HTTPStatus.CREATED, {"kind": "Status", "status": "Success"}
        version = body.get("metadata", {}).get("resourceVersion") if isinstance(body, dict) else None
        if version not in {None, before["metadata"]["resourceVersion"]}:
            return _refusal(HTTPStatus.CONFLICT, "Conflict")
        after = body if method == "PUT" else _merged(before, body)
        kept = {key: before["metadata"][key] for key in ("uid", "generation", "creationTimestamp")}
        return HTTPStatus.OK, self.add(place, {**after, "metadata": {**after["metadata"], **kept}})


def _name(body: Any) -> str:
    metadata = body["metadata"]
    return str(metadata.get("name") or f"{metadata['generateName']}x")


def _fits(item: Object, query: Mapping[str, str]) -> bool:
    """Tell whether labels, and the node of a pod, are those that were asked for."""
    labels = item["metadata"].get("labels", {})
    asked = [one.partition("=") for one in query.get("labelSelector", "").split(",") if "=" in one]
    return all(labels.get(name) == value.lstrip("=") for name, _, value in asked)


def _merged(before: Object, change: Any) -> Object:
    if isinstance(change, list):
        return _patched(before, change)
    merged = dict(before)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _patched(before: Object, steps: list[Object]) -> Object:
    """Do the steps of a JSON patch that add, replace or remove."""
    after: Object = json.loads(json.dumps(before))
    for step in steps:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        place: Any = after
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        key: Any = int(last) if isinstance(place, list) and last != "-" else last
        if step["op"] == "remove":
            del place[key]
        elif step["op"] in {"add", "replace"}:
            if isinstance(place, list) and step["op"] == "add":
                place.insert(len(place) if key == "-" else key, step["value"])
            else:
                place[key] = step["value"]
    return after


def _refusal(status: HTTPStatus, reason: str) -> tuple[int, Any]:
    return status, {
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "code": status,
        "message": reason,
    }


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if query.get("watch"):
                self._watch(parts.path, int(query.get("resourceVersion") or 0))
                return
            status, document = api.answer(
                self.command, parts.path, query, json.loads(content) if content else {}
            )
            answer = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

        def _watch(self, path: str, since: int) -> None:
            """Tell of what is added or changed, until the server closes; what has gone is not told."""
            self.send_response(HTTPStatus.OK)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.close_connection = True
            plural = path.rpartition("/")[2]
            while not api.is_closing:
                with api.changed:
                    newer = [
                        (int(item["metadata"]["resourceVersion"]), item)
                        for at, item in api.objects.items()
                        if at.split("/")[-2] == plural and int(item["metadata"]["resourceVersion"]) > since
                    ]
                    if not newer:
                        api.changed.wait(WATCH_STEP_SECONDS)
                try:
                    for version, item in sorted(newer, key=lambda one: one[0]):
                        line = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                        since = version
                except OSError:
                    return

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Answering


@contextmanager
def serving(api: Api) -> Iterator[str]:
    """Serve on a free port of this machine, and return the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who ends has no more to hear
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        api.is_closing = True
        server.shutdown()
        server.server_close()
        thread.join()
