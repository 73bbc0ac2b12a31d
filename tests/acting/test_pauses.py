"""Pauses: who said stop, and what is not known."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from equipoise.adapters.kubernetes import Client, Unreachable
from equipoise.adapters.kubernetes.pauses import (
    PAUSED,
    PAUSED_EVERYWHERE,
    NamespacePauses,
    pause,
    read_pause,
    resume,
)
from equipoise.core.errors import WorldFailed
from tests.support.contracts.servers import small_api
from tests.support.contracts.small_api import SmallApi
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

BOUND_SECONDS = 10.0


class Namespaces:
    """Serves namespaces with annotations; a watch ends at once."""

    def __init__(self, **annotations: dict[str, str]) -> None:
        self.annotations = annotations
        self.lock = threading.Lock()

    def script(self, asked: Asked, stage: Stage) -> None:
        with self.lock:
            items = [
                {
                    "metadata": {
                        "name": name.replace("_", "-"),
                        "uid": name,
                        "resourceVersion": "1",
                        "annotations": notes,
                    }
                }
                for name, notes in self.annotations.items()
            ]
        if asked.query.get("watch"):
            stage.begin()
            for item in items:
                stage.chunk(json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n")
            stage.end()
        else:
            stage.answer({"metadata": {"resourceVersion": "1"}, "items": items})


@contextmanager
def _seen(time: Time, **annotations: dict[str, str]) -> Iterator[NamespacePauses]:
    with (
        playing(Namespaces(**annotations).script) as player,
        session(player.url, world=time.world()) as client,
    ):
        pauses = NamespacePauses(client)
        pauses.reflector.step()
        yield pauses
        pauses.reflector.stop()


def test_a_paused_namespace_is_paused_and_its_neighbour_is_not() -> None:
    """The annotation's words are shown wherever something is held."""
    with _seen(Time(), shop={PAUSED: "alice: load test"}, yard={}, equipoise_system={}) as pauses:
        assert pauses.pause_of("shop") == "namespace shop is paused (alice: load test)"
        assert pauses.pause_of("yard") is None


@pytest.mark.parametrize(
    ("value", "is_paused"),
    [("true", True), ("", True), ("no idea", True), ("false", False), (" False ", False)],
)
def test_anything_but_false_is_a_stop(value: str, is_paused: bool) -> None:
    """Whoever sets it in a hurry means it."""
    with _seen(Time(), shop={PAUSED: value}) as pauses:
        assert (pauses.pause_of("shop") is not None) is is_paused


def test_everything_is_paused_by_the_operators_own_namespace_only() -> None:
    """The same annotation elsewhere stops nobody, so that a tenant cannot stop the others."""
    with _seen(Time(), shop={}, equipoise_system={PAUSED_EVERYWHERE: "bob"}) as pauses:
        assert pauses.pause_of("shop") == "all of Equipoise is paused (bob)"
    with _seen(Time(), shop={PAUSED_EVERYWHERE: "mallory"}, yard={}) as pauses:
        assert pauses.pause_of("yard") is None
        assert pauses.pause_of("shop") is None


def test_not_knowing_raises() -> None:
    """Before the first list, for a namespace that nobody heard of, and when the server fell silent."""
    time = Time()
    with _seen(time, shop={}) as pauses:
        with pytest.raises(WorldFailed, match="namespace nowhere: not found"):
            pauses.pause_of("nowhere")
        time.now += 4.9
        assert pauses.pause_of("shop") is None
        time.now += 0.2
        with pytest.raises(
            Unreachable, match=r"last answer of the API server is 5\.1 s old; the limit is 5 s"
        ):
            pauses.pause_of("shop")
    with session("http://127.0.0.1:9") as client:
        pauses = NamespacePauses(client)
        with pytest.raises(Unreachable, match="not known yet"):
            pauses.pause_of("shop")
        pauses.reflector.stop()


def _api(*names: str) -> SmallApi:
    api = SmallApi()
    for name in names:
        api.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "annotations": {"theirs": "1"}}})
    return api


def _notes(api: SmallApi, name: str) -> dict[str, str]:
    return dict(api.objects[f"/api/v1/namespaces/{name}"]["metadata"]["annotations"])


@contextmanager
def _with(api: SmallApi) -> Iterator[Client]:
    with playing(api.script) as player, session(player.url) as client:
        yield client


def test_pause_and_resume_touch_one_annotation() -> None:
    """And say what was there."""
    api = _api("shop", "equipoise-system")
    with _with(api) as client:
        pause(client, "shop", "alice: load\ntest")
        assert _notes(api, "shop") == {"theirs": "1", PAUSED: "alice: load test"}
        pause(client, None, "bob")
        assert _notes(api, "equipoise-system") == {"theirs": "1", PAUSED_EVERYWHERE: "bob"}
        assert read_pause(client, None) == "bob"
        assert resume(client, "shop") == "alice: load test"
        assert resume(client, "shop") is None
        assert resume(client, None) == "bob"
    assert _notes(api, "shop") == _notes(api, "equipoise-system") == {"theirs": "1"}


def test_a_pause_whose_answer_was_lost_is_sent_again() -> None:
    """Stop means stop."""
    api = _api("shop")
    with _with(api) as client:
        api.answers_to_lose = ["PATCH"]
        pause(client, "shop", "alice")
    assert _notes(api, "shop")[PAUSED] == "alice"


def test_a_namespace_that_is_not_there_is_named() -> None:
    """With what to do about it."""
    with small_api() as (_, client):
        with pytest.raises(WorldFailed, match=r"^namespace shop: not found$"):
            pause(client, "shop", "alice")
        with pytest.raises(WorldFailed, match="namespace equipoise-system: not found; --operator-namespace"):
            resume(client, None)


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>Welcome</html>",
        b"null",
        b"[[[",
        {"kind": "PodList", "items": []},
        {"metadata": {"name": "shop", "annotations": {"theirs": "1"}}},
        {"metadata": {"name": "other", "annotations": {PAUSED: "alice"}}},
    ],
    ids=["a page", "null", "broken", "a list", "unchanged", "another"],
)
def test_a_stop_is_believed_only_when_the_namespace_comes_back_with_it(answer: object) -> None:
    """Whatever else answers with 200 may be no API server: nobody may think that all stands still."""

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.method == "PATCH"
        stage.answer(answer)

    with (
        playing(script) as player,
        session(player.url) as client,
        pytest.raises(WorldFailed, match="unexpected content"),
    ):
        pause(client, "shop", "alice")
