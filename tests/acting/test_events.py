"""Events: counted up where they repeat, bounded, and never a reason to fail."""

import json

from equipoise.adapters.kubernetes.actions import REMEMBERED_MAX, REPEAT_SECONDS, Events, bounded
from equipoise.core.cluster import ObjectRef
from tests.support.contracts.small_api import SmallApi
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

ABOUT = ObjectRef("apps/v1", "Deployment", "shop", "web", "uid-1")


def test_the_same_reason_within_ten_minutes_is_counted_up() -> None:
    """One line with a count and the newest sentence, not a list of them."""
    api, time = SmallApi(), Time()
    with playing(api.script) as player, session(player.url, world=time.world()) as client:
        events = Events(client)
        for number in (1, 2, 3):
            events.record(ABOUT, "Rotated", f"{number} pods")
            time.now += REPEAT_SECONDS - 1
        events.record(ABOUT, "PdbBlocked", "none", is_warning=True)
    rotated, blocked = sorted(api.objects.values(), key=lambda event: -event["count"])
    assert (rotated["count"], rotated["message"], rotated["type"]) == (3, "3 pods", "Normal")
    assert rotated["lastTimestamp"] > rotated["firstTimestamp"]
    assert rotated["involvedObject"]["uid"] == "uid-1"
    assert (blocked["count"], blocked["type"]) == (1, "Warning")
    assert events.failures == 0


def test_after_ten_minutes_it_is_told_anew() -> None:
    """What comes back after a while is news."""
    api, time = SmallApi(), Time()
    with playing(api.script) as player, session(player.url, world=time.world()) as client:
        events = Events(client)
        events.record(ABOUT, "Rotated", "first")
        time.now += REPEAT_SECONDS
        events.record(ABOUT, "Rotated", "second")
    assert sorted(event["message"] for event in api.objects.values()) == ["first", "second"]


def test_an_event_that_the_server_forgot_is_made_anew() -> None:
    """Events live for an hour there."""
    api = SmallApi()
    with playing(api.script) as player, session(player.url) as client:
        events = Events(client)
        events.record(ABOUT, "Rotated", "first")
        api.objects.clear()
        events.record(ABOUT, "Rotated", "second")
    (event,) = api.objects.values()
    assert (event["count"], event["message"]) == (1, "second")


def test_a_failure_is_counted_and_not_raised() -> None:
    """Neither a refusal nor a dead server ends a cycle, and nothing is tried again and again."""

    def refuse(asked: Asked, stage: Stage) -> None:
        stage.refuse(403, "Forbidden", "no events for you")

    with playing(refuse) as player:
        with session(player.url) as client:
            events = Events(client)
            events.record(ABOUT, "Rotated", "it was")
        assert len(player.asked) == 1
    with session(player.url) as client:
        events._client = client
        events.record(ABOUT, "Rotated", "it was")
    assert events.failures == 2
    assert events.last_error is not None


def test_an_object_without_a_namespace_is_told_of_in_default() -> None:
    """As the API wants it for nodes."""
    api = SmallApi()
    with playing(api.script) as player, session(player.url) as client:
        Events(client).record(ObjectRef("v1", "Node", "", "n" * 260), "Tainted", "busy")
    ((path, event),) = api.objects.items()
    assert path.startswith("/api/v1/namespaces/default/events/n")
    assert len(event["metadata"]["name"]) <= 253


def test_a_sentence_is_bounded_and_never_cut_within_a_character() -> None:
    """By bytes, as the API counts."""
    assert bounded("short") == "short"
    long = bounded("ü" * 2000)
    assert len(long.encode()) <= 1024
    assert long.endswith("…")
    assert set(long) == {"ü", "…"}
    assert json.dumps(bounded("\udcff"))


def test_memory_of_events_is_bounded() -> None:
    """However many objects there are."""
    api = SmallApi()
    with playing(api.script) as player, session(player.url) as client:
        events = Events(client)
        for number in range(20):
            events._written[(ABOUT._replace(name=str(number)), "x", False)] = events._create(
                ABOUT, "x", "y", 0.0, is_warning=False
            )
        filler = next(iter(events._written.values()))
        events._written.update(
            {(ABOUT._replace(name=f"a{n}"), "x", False): filler for n in range(REMEMBERED_MAX)}
        )
        events.record(ABOUT, "Rotated", "z")
    assert len(events._written) == REMEMBERED_MAX
