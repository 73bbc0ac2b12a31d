"""A node is marked at the moment when it was decided, or in a later round."""

import pytest

from equipoise.adapters.kubernetes import ApiError, KubernetesActuator
from equipoise.adapters.kubernetes.node import TAINT
from equipoise.runtime.agent.node_api import WatchedNode
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

NODE = {"metadata": {"name": "n1", "resourceVersion": "1"}, "spec": {}, "status": {}}
MARKED = NODE | {"spec": {"taints": [TAINT._asdict()]}}


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_node_is_not_marked_later_in_a_round_than_it_was_decided(method: str) -> None:
    """Somebody may have said stop since; and a round that waits neither throttles nor evicts."""
    time, asked_at = Time(), list[float]()

    def script(asked: Asked, stage: Stage) -> None:
        if asked.method == method:
            asked_at.append(time.now)
            stage.refuse(503, "ServiceUnavailable", "busy", Retry_After="20")
        else:
            stage.answer(NODE)

    with playing(script) as player, session(player.url, world=time.world()) as client:
        around = WatchedNode(client, KubernetesActuator(client), "n1")
        with pytest.raises(ApiError, match="503"):
            around.set_scheduling(is_disabled=True, sentence="Too much.")
        around.stop()
    assert len(asked_at) == 1
    assert time.slept == []


def test_a_mark_is_taken_off_however_busy_the_api_server_is() -> None:
    """That is what an agent does last of all, and there is no later round."""
    time, tries, written = Time(), [503, 503], list[str]()

    def script(asked: Asked, stage: Stage) -> None:
        if asked.method == "PATCH" and tries:
            stage.refuse(tries.pop(), "ServiceUnavailable", "busy", Retry_After="20")
        else:
            written.extend([asked.path] * (asked.method == "PATCH"))
            stage.answer(MARKED)

    with playing(script) as player, session(player.url, world=time.world()) as client:
        around = WatchedNode(client, KubernetesActuator(client), "n1")
        around.set_scheduling(is_disabled=False, sentence="Fine.")
        around.stop()
    assert written == ["/api/v1/nodes/n1/status", "/api/v1/nodes/n1"]
