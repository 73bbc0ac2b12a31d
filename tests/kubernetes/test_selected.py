"""The pods of a selector: known or unknown, changed or not, gone or only hidden."""

import json
from typing import Any

import pytest

from equipoise.adapters.kubernetes import ApiError
from equipoise.adapters.kubernetes.cluster import KubernetesSelectedPods
from equipoise.adapters.kubernetes.errors import Unreachable
from tests.support.kubernetes.samples import page
from tests.support.kubernetes.server import Asked, Stage, playing, session


def _pod(uid: str = "u1", *, is_ready: bool = True, version: str = "1", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a-0", "namespace": "calls", "uid": uid, "resourceVersion": version} | metadata,
        "spec": {"containers": []},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        },
    }


CHANGES = [
    (_pod(version="2", annotations={"a": "b"}), False),
    (_pod(version="3", is_ready=False), True),
    (_pod(version="4", is_ready=False, deletionTimestamp="2026-01-01T00:00:00Z"), True),
    (_pod("u2", version="5"), True),
]


def test_only_what_decides_about_calls_counts_as_a_change() -> None:
    """Readiness, deletion, another incarnation; the selector goes to the server."""
    waiting = [changed for changed, _ in CHANGES]

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.query["labelSelector"] == "app=voice"
        if "watch" not in asked.query:
            stage.answer(page([_pod()]))
            return
        stage.begin()
        if is_listed:
            stage.chunk(json.dumps({"type": "MODIFIED", "object": waiting.pop(0)}).encode() + b"\n")
        stage.end()

    is_listed: list[bool] = []
    with playing(script) as player, session(player.url) as client:
        pods = KubernetesSelectedPods(client, "calls", "app=voice")
        with pytest.raises(Unreachable, match="not been listed yet"):
            pods.pods()
        pods.reflector.step()
        is_listed.append(True)
        assert pods.has_changed()
        assert [pod.uid for pod in pods.pods()] == ["u1"]
        for changed, is_news in CHANGES:
            assert not pods.has_changed()
            pods.reflector.step()
            assert pods.has_changed() is is_news, changed


@pytest.mark.parametrize(
    ("answer", "uid", "is_gone"),
    [
        ("other", "u1", True),
        ("same", "u1", False),
        ("same", "", False),
        ("none", "u1", True),
        ("none", "", True),
    ],
)
def test_a_pod_is_gone_when_the_server_does_not_know_its_incarnation(
    answer: str, uid: str, *, is_gone: bool
) -> None:
    """By name; one that only lost its label is there."""

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path.startswith("/api/v1/namespaces/calls/pods/a-0")
        if answer == "none":
            stage.refuse(404, "NotFound")
        else:
            stage.answer(_pod("u9" if answer == "other" else "u1"))

    with playing(script) as player, session(player.url) as client:
        assert KubernetesSelectedPods(client, "calls", "app=voice").is_gone("a-0", uid) is is_gone


def test_a_refusal_is_no_proof() -> None:
    """Without the right to ask, nobody is forgotten."""

    def script(_: Asked, stage: Stage) -> None:
        stage.refuse(403, "Forbidden")

    with playing(script) as player, session(player.url) as client, pytest.raises(ApiError, match="403"):
        KubernetesSelectedPods(client, "calls", "app=voice").is_gone("a-0", "u1")
