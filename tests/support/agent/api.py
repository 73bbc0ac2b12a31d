"""The few answers of an API server that an agent needs, and a node in a folder."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL
from equipoise.runtime.agent.run import Agent, AgentSettings
from equipoise.runtime.logs import make_log
from equipoise.runtime.settings import Logs
from tests.support.agent.trees import write
from tests.support.kubernetes.server import Asked, Stage, playing
from tests.support.qos.worlds import Document

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeqosensurancepolicies"
PLURALS = {
    "NodeQOSEnsurancePolicy": "nodeqosensurancepolicies",
    "AvoidanceAction": "avoidanceactions",
    "PodQOS": "podqoss",
}
UID, ID = "uid-a", "ab" * 32


@dataclass
class Api:
    """Lists by path, which may be kept waiting; watches tell what was added since."""

    owner: str | None = MANAGER
    """Who has installed the kinds; None: nobody can be asked."""
    lists: dict[str, list[Document]] = field(default_factory=dict)
    are_open: threading.Event = field(default_factory=threading.Event)
    events: list[Document] = field(default_factory=list)
    patches: int = 0
    """How often an event was counted up."""
    looks: int = 0
    version: int = 1

    def __post_init__(self) -> None:
        self.are_open.set()
        self.add(NODES, {"metadata": {"name": "n1", "uid": "uid-n1"}})
        self.add(NAMESPACES, {"metadata": {"name": "d"}})
        self.add(NAMESPACES, {"metadata": {"name": "equipoise-system"}})

    def add(self, path: str, document: Document) -> None:
        self.version += 1
        metadata = {"resourceVersion": str(self.version), **document["metadata"]}
        self.lists.setdefault(path, []).append(document | {"metadata": metadata})

    def ask(self, document: Document) -> None:
        """Apply a policy."""
        self.add(f"/apis/{document['apiVersion']}/{PLURALS[document['kind']]}", document)

    def script(self, asked: Asked, stage: Stage) -> None:
        if asked.method == "POST":
            self.events.append(json.loads(asked.body))
            stage.answer({}, 201)
        elif asked.method == "PATCH":
            self.patches += 1
            stage.answer({})
        elif asked.path.startswith(DEFINITION):
            self._define(stage)
        elif asked.query.get("watch"):
            self._watch(asked, stage)
        elif not self.are_open.wait(60):
            stage.hang()
        else:
            found = self.lists.get(asked.path, [])
            stage.answer({"metadata": {"resourceVersion": str(self.version)}, "items": found})

    def _define(self, stage: Stage) -> None:
        self.looks += 1
        if self.owner is None:
            stage.refuse(500, "InternalError", "not now")
            return
        versions = [{"name": "v1alpha1", "served": True, "subresources": {"status": {}}}]
        stage.answer({"metadata": {"labels": {OWNER_LABEL: self.owner}}, "spec": {"versions": versions}})

    def _watch(self, asked: Asked, stage: Stage) -> None:
        since = int(asked.query["resourceVersion"])
        stage.begin()
        while not stage.server.closing.wait(0.02):
            for one in list(self.lists.get(asked.path, [])):
                version = int(one["metadata"]["resourceVersion"])
                if version > since:
                    since = version
                    stage.chunk(json.dumps({"type": "ADDED", "object": one}).encode() + b"\n")

    def reasons(self, kind: str) -> list[str]:
        return [one["reason"] for one in self.events if one["involvedObject"]["kind"] == kind]


def running_pod(name: str = "a", **metadata: Any) -> Document:
    """Give a pod of one container without a limit."""
    status = {"name": "c", "containerID": f"containerd://{ID}", "state": {"running": {}}}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": UID, **metadata},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [status]},
    }


def machine(folder: Path) -> Path:
    """Make the cgroups of a node with that pod, and give the file of its quota."""
    place = folder / "kubepods" / "besteffort" / f"pod{UID}" / ID
    write(folder, cgroup_controllers="cpu memory")
    for part in (folder / "kubepods", place):
        write(part, cpu_stat="usage_usec 1000\n", cpu_max="max 100000\n")
        write(part, memory_current="4096\n", memory_stat="inactive_file 0\nactive_file 0\n")
    return place / "cpu.max"


@contextmanager
def agent_of(api: Api, folder: Path, **settings: Any) -> Iterator[Agent]:
    """Give an agent of that node that nobody has started."""
    machine(folder / "cgroup")
    with playing(api.script) as player:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                    "clusters": [{"name": "k", "cluster": {"server": player.url}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        given: dict[str, Any] = {
            "node": "n1",
            "interval_seconds": 0.05,
            "state_file": str(folder / "state.json"),
            "cgroups": str(folder / "cgroup"),
            "is_of_pods": True,
            "http_address": "127.0.0.1:0",
            "kubeconfig": str(kubeconfig),
        }
        made = Agent(AgentSettings(**(given | settings)), make_log(Logs(level="error")))
        try:
            yield made
        finally:
            made.stopping.set()
            made.stop()
