"""A kind that was not there when an agent last asked may be by now: who may be acted on is not guessed."""

import pytest

from equipoise.adapters.kubernetes import KubernetesActuator, Unreachable
from equipoise.runtime.agent.node_api import WatchedNode
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session
from tests.support.qos.worlds import API, EVICT, Document, pod_qos, policy, rule

POLICIES, ACTIONS, PODQOSS = (
    f"/apis/{API}/{plural}" for plural in ("nodeqosensurancepolicies", "avoidanceactions", "podqoss")
)
ASKED = policy(rule("cpu_total_usage", 60, "evict"))
ONLY_BATCH = pod_qos(labelSelector={"matchLabels": {"kind": "batch"}}, allowedActions=["evict"])


class Server:
    """Kinds that are installed, with their objects; watches end at once."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Document]] = {"/api/v1/nodes": [], "/api/v1/pods": []}

    def script(self, asked: Asked, stage: Stage) -> None:
        if asked.path not in self.lists:
            stage.refuse(404, "", "404 page not found")
        elif asked.query.get("watch"):
            stage.begin()
            stage.end()
        else:
            items = [_told(one, place) for place, one in enumerate(self.lists[asked.path])]
            stage.answer({"metadata": {"resourceVersion": "9"}, "items": items})


def _told(one: Document, place: int) -> Document:
    return one | {"metadata": one["metadata"] | {"uid": f"uid-{place}", "resourceVersion": str(place + 1)}}


def test_without_the_kind_of_podqos_all_pods_may_be_acted_on_only_where_it_is_not_installed() -> None:
    """An agent ran before the kinds were there, and found the first of them before the last."""
    server = Server()
    with playing(server.script) as player, session(player.url, world=Time().world(0.0)) as client:
        around = WatchedNode(client, KubernetesActuator(client), "n1")
        pods = around._policies["PodQOS"].reflector
        others = [each for each in around._reflectors if each is not pods]
        try:
            for reflector in around._reflectors:
                reflector.step()
            assert not around.policy().policies
            server.lists |= {POLICIES: [ASKED], ACTIONS: [EVICT], PODQOSS: [ONLY_BATCH]}
            for reflector in others:
                reflector.step()
            with pytest.raises(Unreachable, match="podqoss"):
                around.policy()
            pods.step()
            found = around.policy()
            assert found.policies
            assert found.pods is not None
        finally:
            around.stop()


def test_where_nobody_installed_podqos_all_pods_may_be_acted_on_and_the_server_is_asked_once() -> None:
    """Agents by the thousand must not ask for it in every round."""
    server = Server()
    server.lists |= {POLICIES: [ASKED], ACTIONS: [EVICT]}
    with playing(server.script) as player, session(player.url, world=Time().world(0.0)) as client:
        around = WatchedNode(client, KubernetesActuator(client), "n1")
        try:
            for reflector in around._reflectors:
                reflector.step()
            before = len(player.asked)
            assert around.policy().policies
            assert around.policy().pods is None
            assert [asked.path for asked in player.asked[before:]] == [PODQOSS]
        finally:
            around.stop()
