"""A small API server in a process of its own: it lists, watches and patches what scaling needs."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAMESPACE = "shop"
PODS_EACH = 2
NODES = 50
CORES = 4
SMOOTHED = {"percentile": {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95}}
Object = dict[str, Any]


class Api:
    """Objects by kind and name, and all that happened to them."""

    def __init__(self, policies: int) -> None:
        self.version = 1
        self.changed = threading.Condition()
        self.objects: dict[str, dict[str, Object]] = {}
        self.log: dict[str, list[Object]] = {}
        self.counts: Counter[str] = Counter()
        for number in range(NODES):
            self.put("nodes", _node(number))
        for number in range(policies):
            self.put("deployments", _deployment(number))
            self.put("scalingpolicies", _policy(number))
            for each in range(PODS_EACH):
                self.put("pods", _pod(number, each))

    def put(self, plural: str, item: Object, event: str = "MODIFIED") -> Object:
        with self.changed:
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            self.objects.setdefault(plural, {})[item["metadata"]["name"]] = item
            self.log.setdefault(plural, []).append({"type": event, "object": item})
            self.changed.notify_all()
        return item

    def set_nodes(self, ready: int) -> None:
        for number in range(NODES):
            node = _node(number)
            node["status"]["conditions"][0]["status"] = "True" if number < ready else "False"
            self.put("nodes", node)

    def patch(self, plural: str, name: str, part: str, body: Any) -> Object:
        item = json.loads(json.dumps(self.objects[plural][name]))
        if part == "resize":
            item["spec"]["containers"][0]["resources"] = body["spec"]["containers"][0]["resources"]
            item["status"]["containerStatuses"][0]["resources"] = item["spec"]["containers"][0]["resources"]
        else:
            item["status"] = body[-1]["value"]
        return self.put(plural, item)


def _meta(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": 1, **more}


def _node(number: int) -> Object:
    return {
        "metadata": {"name": f"node-{number}", "uid": f"node-{number}"},
        "status": {
            "allocatable": {"cpu": str(CORES), "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _containers() -> list[Object]:
    return [{"name": "app", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]


def _deployment(number: int) -> Object:
    labels = {"app": f"w-{number}"}
    return {
        "metadata": _meta(f"w-{number}", labels=labels),
        "spec": {
            "replicas": PODS_EACH,
            "selector": {"matchLabels": labels},
            "template": {"spec": {"containers": _containers()}},
        },
        "status": {
            "replicas": PODS_EACH,
            "readyReplicas": PODS_EACH,
            "updatedReplicas": PODS_EACH,
            "observedGeneration": 1,
        },
    }


def _pod(number: int, each: int) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w-{number}-1", "uid": f"r-{number}"}
    resources = _containers()[0]["resources"]
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return {
        "metadata": _meta(
            f"w-{number}-1-{each}",
            labels={"app": f"w-{number}", "pod-template-hash": "1"},
            ownerReferences=[owner | {"controller": True}],
            creationTimestamp="2026-01-01T00:00:00Z",
        ),
        "spec": {"nodeName": f"node-{number % NODES}", "containers": _containers()},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "app", "state": running, "resources": resources}],
        },
    }


def _policy(number: int) -> Object:
    """Every other one is smoothed."""
    rule = {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": "1m"}}
    spec: Object = {
        "scaleTargetRef": {"kind": "Deployment", "name": f"w-{number}"},
        "containers": [{"name": "app", "resources": {"requests": [rule]}}],
    }
    return {"metadata": _meta(f"p-{number}"), "spec": spec | ({"smoothing": SMOOTHED} if number % 2 else {})}


class Answering(BaseHTTPRequestHandler):
    """Answers as an API server does, as far as it is asked here."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    api: Api

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query, plural = parse_qs(url.query), url.path.rsplit("/", 1)[-1]
        if url.path == "/counts":
            return self._send({"version": self.api.version, **self.api.counts})
        if "watch" in query:
            return self._watch(plural, int(query["resourceVersion"][0]))
        self.api.counts["GET"] += 1
        if url.path == "/api/v1":
            return self._send({"resources": [{"name": "pods/resize", "kind": "Pod"}]})
        if plural == "verticalpodautoscalers":
            return self._send({"kind": "Status", "reason": "NotFound", "message": "no such kind"}, 404)
        with self.api.changed:
            items, version = list(self.api.objects.get(plural, {}).values()), self.api.version
        return self._send({"metadata": {"resourceVersion": str(version)}, "items": items})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/nodes"):
            self.api.set_nodes(int(body))
        else:
            self.api.counts["POST event"] += 1
        self._send({}, 201)

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        *_, plural, name, part = urlsplit(self.path).path.split("/")
        if part not in {"resize", "status"}:  # an event that is said again
            self.api.counts["POST event"] += 1
            return self._send({})
        self.api.counts[f"PATCH {plural}/{part}"] += 1
        return self._send(self.api.patch(plural, name, part, body))

    def _watch(self, plural: str, since: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        at = 0
        while True:
            with self.api.changed:
                if len(self.api.log.get(plural, ())) <= at:
                    self.api.changed.wait(30)
                fresh = self.api.log.get(plural, [])[at:]
            at += len(fresh)
            newer = [each for each in fresh if int(each["object"]["metadata"]["resourceVersion"]) > since]
            lines = "".join(json.dumps(each) + "\n" for each in newer).encode()
            if lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(lines), lines))
                self.wfile.flush()

    def _send(self, body: Object, status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def main() -> None:
    """Serve so many policies until standard input ends."""
    Answering.api = Api(int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
