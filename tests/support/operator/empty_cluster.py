"""A cluster without workloads."""

import json
import threading

from tests.support.kubernetes.server import Asked, Stage


class EmptyCluster:
    """Lists nothing, watches in silence, and keeps one Lease by compare-and-swap."""

    def __init__(self) -> None:
        self.lease: dict[str, object] | None = None
        self.version = 1
        self.lock = threading.Lock()

    def __call__(self, asked: Asked, stage: Stage) -> None:
        if asked.path == "/version":
            stage.answer({"gitVersion": "v1.35.0"})
        elif "/leases" in asked.path:
            with self.lock:
                self._lease(asked, stage)
        elif asked.query.get("watch"):
            stage.begin()
            stage.hang()
        elif asked.method == "GET":
            stage.answer({"metadata": {"resourceVersion": "5"}, "items": []})
        else:
            stage.refuse(405)

    def _lease(self, asked: Asked, stage: Stage) -> None:
        if asked.method == "GET":
            stage.answer(self.lease) if self.lease else stage.refuse(404, "NotFound", "leases not found")
            return
        sent = json.loads(asked.body)
        if self.lease and sent["metadata"].get("resourceVersion") != str(self.version):
            stage.refuse(409, "Conflict", "it has moved on")
            return
        self.version += 1
        sent["metadata"]["resourceVersion"] = str(self.version)
        self.lease = sent
        stage.answer(sent, 201 if asked.method == "POST" else 200)

    def holder(self) -> object:
        spec = (self.lease or {}).get("spec") or {}
        return spec.get("holderIdentity") if isinstance(spec, dict) else None
