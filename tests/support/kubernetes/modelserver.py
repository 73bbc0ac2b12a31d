"""A model of the API server's lists and watches of pods, with moods: it cuts, forgets, falls silent."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.kubernetes.samples import page, pod
from tests.support.kubernetes.server import Asked, Stage

Mood = Literal["end", "cut", "gone", "gone-event", "silent", "garbage", "half-line", "bookmark"]


@dataclass
class ModelServer:
    """Pods by name, and everything that happened to them since the last compaction."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    version: int = 100
    compacted: int = 0
    moods: list[Mood] = field(default_factory=list)
    """For the next watches, in order; an empty list means that they end well."""
    uids: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    snapshots: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def create(self, name: str) -> None:
        with self.lock:
            self.uids += 1
            self._put("ADDED", name, f"uid-{self.uids}")

    def change(self, name: str) -> None:
        with self.lock:
            self._put("MODIFIED", name, self.pods[name]["metadata"]["uid"])

    def delete(self, name: str) -> None:
        with self.lock:
            self.version += 1
            gone = self.pods.pop(name)
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self.log.append((self.version, "DELETED", gone))

    def _put(self, event: str, name: str, uid: str) -> None:
        self.version += 1
        self.pods[name] = pod(name, version=str(self.version), uid=uid)
        self.log.append((self.version, event, self.pods[name]))

    def compact(self) -> None:
        """Forget the past: whoever did not see it must list anew."""
        with self.lock:
            self.version += 1
            self.compacted = self.version
            self.log.clear()
            self.snapshots.clear()

    def state(self) -> dict[str, tuple[str, str]]:
        with self.lock:
            return {n: (p["metadata"]["uid"], p["metadata"]["resourceVersion"]) for n, p in self.pods.items()}

    def script(self, asked: Asked, stage: Stage) -> None:
        if asked.query.get("watch"):
            self._watch(asked, stage)
        else:
            self._list(asked, stage)

    def _list(self, asked: Asked, stage: Stage) -> None:
        """Serve pages of one snapshot, which a compaction takes away."""
        token, limit = asked.query.get("continue"), int(asked.query["limit"])
        with self.lock:
            version, start = token.split(":") if token else (str(self.version), "0")
            if token and version not in self.snapshots:
                stage.refuse(410, "Expired", "The provided continue parameter is too old")
                return
            items = self.snapshots.setdefault(version, list(self.pods.values()))
        begin = int(start)
        more = f"{version}:{begin + limit}" if begin + limit < len(items) else None
        stage.answer(page(items[begin : begin + limit], version, more))

    def _watch(self, asked: Asked, stage: Stage) -> None:
        since = int(asked.query["resourceVersion"])
        with self.lock:
            mood: Mood = self.moods.pop(0) if self.moods else "end"
            events = [(kind, raw) for version, kind, raw in self.log if version > since]
            is_gone, version = since < self.compacted, self.version
        if is_gone and mood != "gone-event":
            stage.refuse(410, "Expired", "too old resource version")
            return
        stage.begin()
        if mood in {"gone", "gone-event", "garbage"}:
            events = events[: len(events) // 2]
        for kind, raw in events:
            line = json.dumps({"type": kind, "object": raw}).encode() + b"\n"
            middle = len(line) // 2
            stage.chunk(line[:middle])
            stage.chunk(line[middle:])
        self._finish(stage, mood, version)

    def _finish(self, stage: Stage, mood: Mood, version: int) -> None:
        error = {
            "type": "ERROR",
            "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"},
        }
        if mood in {"gone", "gone-event"}:
            stage.chunk(json.dumps(error).encode() + b"\n")
        if mood == "garbage":
            stage.chunk(b'{"type":"DELETED","object":{"metadata":{}}}\n')
        if mood == "half-line":
            stage.chunk(b'{"type":"ADDED","object":{"meta')
        if mood == "bookmark":
            marked = {
                "type": "BOOKMARK",
                "object": {"kind": "Pod", "metadata": {"resourceVersion": str(version)}},
            }
            stage.chunk(json.dumps(marked).encode() + b"\n")
        if mood == "silent":
            stage.hang()
        elif mood in {"cut", "half-line"}:
            stage.cut()
        else:
            stage.end()
