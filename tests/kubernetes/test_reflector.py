"""The cache follows the cluster whatever the connection does, and misses no deletion."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from equipoise.adapters.kubernetes import ApiError, Client, Reflector
from equipoise.adapters.kubernetes.cache import Cache, Change, ChangeType
from equipoise.adapters.kubernetes.connection import Lines, LineTooLong
from equipoise.adapters.kubernetes.kinds import PODS
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.adapters.kubernetes.reflector import Timings
from equipoise.core.cluster import Pod
from tests.support.kubernetes.certificates import authority, issue, serving
from tests.support.kubernetes.modelserver import ModelServer, Mood
from tests.support.kubernetes.server import LIMITS, Asked, Player, Script, Stage, Time, playing, session

TIMINGS = Timings(silence_seconds=30.0)
QUICK = Timings(silence_seconds=0.4)
"""For servers that fall silent."""
MOODS: list[Mood] = ["end", "cut", "gone", "gone-event", "garbage", "half-line", "bookmark"]


class Diary:
    """What a listener was told, and the state that follows from it."""

    def __init__(self) -> None:
        self.state: dict[str, tuple[str, str]] = {}
        self.told: list[tuple[str, str]] = []
        self.added: Counter[str] = Counter()
        self.deleted: Counter[str] = Counter()

    def write(self, kind: ChangeType, old: Pod | None, new: Pod | None) -> None:
        if old is not None and kind == ChangeType.DELETED:
            assert self.state.pop(old.name)[0] == old.uid
            self.deleted[old.uid] += 1
        if new is not None:
            assert (new.name in self.state) == (kind == ChangeType.MODIFIED)
            self.state[new.name] = (new.uid, new.resource_version)
            self.added[new.uid] += kind == ChangeType.ADDED
        either = new or old
        assert either is not None
        self.told.append((kind.value, either.name))


@contextmanager
def reflecting(
    model: ModelServer, diary: Diary | None = None, timings: Timings = TIMINGS
) -> Iterator[tuple[Reflector[Pod], Player]]:
    """A reflector that is stepped by hand against a model."""
    with playing(model.script) as player, session(player.url, world=Time().world(0.0)) as client:
        reflector = Reflector(
            client, PODS, timings=timings, page_size=3, on_change=diary.write if diary else None
        )
        try:
            yield reflector, player
        finally:
            reflector.stop()


def catch_up(reflector: Reflector[Pod], model: ModelServer) -> None:
    """Step until a watch has ended well; the machine may be slow, so a few silences are forgiven."""
    model.moods.clear()
    for _ in range(20):
        reflector.step()
        if reflector.last_error is None:
            return
    raise AssertionError(reflector.last_error)


def check(reflector: Reflector[Pod], model: ModelServer, diary: Diary) -> None:
    """The cache is the server's list; the listener's story leads there; every death was told once."""
    cached = {pod.name: (pod.uid, pod.resource_version) for pod in reflector.cache.records()}
    assert cached == model.state()
    assert diary.state == cached
    living = {uid for uid, _ in cached.values()}
    assert all(diary.added[uid] == 1 for uid in diary.added)
    assert diary.deleted == Counter(uid for uid in diary.added if uid not in living)


def live(seed: int, model: ModelServer, reflector: Reflector[Pod], diary: Diary) -> bool:
    """Let things happen, with a watch in some mood in between, and check after each."""
    chance = random.Random(seed)
    for _ in range(15):
        for _ in range(chance.randrange(6)):
            name = f"pod-{chance.randrange(8)}"
            if name not in model.pods:
                model.create(name)
            elif chance.random() < 0.4:
                model.delete(name)
                if chance.random() < 0.5:
                    model.create(name)
            else:
                model.change(name)
        if chance.random() < 0.2:
            model.compact()
        mood = chance.choice(MOODS) if chance.random() < 0.95 else "silent"
        model.moods = [mood]
        reflector.step()
        if chance.random() < 0.7:
            catch_up(reflector, model)
            check(reflector, model, diary)
    catch_up(reflector, model)
    check(reflector, model, diary)
    return True


@pytest.mark.parametrize("seed", range(6))
def test_the_cache_equals_the_servers_list_after_any_trouble(seed: int) -> None:
    """Cuts, 410s, compactions, silence, half lines, names used again: no deletion is missed."""
    model, diary = ModelServer(), Diary()
    with reflecting(model, diary, QUICK) as (reflector, _):
        assert live(seed, model, reflector, diary)


def test_a_reflector_that_drops_deletions_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: once for events, once for what a new list no longer has."""

    def deaf(self: Cache[Pod], namespace: str, name: str) -> list[Change[Pod]]:
        return []

    def forgetful(self: Cache[Pod], records: list[Pod]) -> list[Change[Pod]]:
        return [change for record in records for change in self.put(record)]

    for method, broken in (("drop", deaf), ("replace", forgetful)):
        model, diary = ModelServer(), Diary()
        with monkeypatch.context() as patch, reflecting(model, diary, QUICK) as (reflector, _):
            patch.setattr(Cache, method, broken)
            with pytest.raises(AssertionError):
                all(live(seed, model, reflector, diary) for seed in range(8))


def test_events_are_told_in_order() -> None:
    """As the server sent them; a name that was used again is a deletion and an addition."""
    model, diary = ModelServer(), Diary()
    with reflecting(model, diary) as (reflector, _):
        model.create("a")
        catch_up(reflector, model)
        model.change("a")
        model.create("b")
        model.delete("a")
        model.create("a")
        catch_up(reflector, model)
        model.delete("a")
        model.create("a")
        model.delete("b")
        model.compact()
        catch_up(reflector, model)
    story = [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("ADDED", "a")]
    assert diary.told == [*story, ("DELETED", "b"), ("DELETED", "a"), ("ADDED", "a")]


def test_a_watch_resumes_after_the_last_bookmark() -> None:
    """Without a list; a bookmark counts as a version seen."""
    model = ModelServer()
    with reflecting(model) as (reflector, player):
        model.create("a")
        catch_up(reflector, model)
        model.version += 50
        model.moods = ["bookmark"]
        reflector.step()
        catch_up(reflector, model)
    watches = [asked.query for asked in player.asked if "watch" in asked.query]
    assert [query["resourceVersion"] for query in watches] == ["101", "101", "151"]
    assert all(
        query["allowWatchBookmarks"] == "true" and int(query["timeoutSeconds"]) == 240 for query in watches
    )
    assert (reflector.counters.lists, reflector.counters.watches, reflector.counters.bookmarks) == (1, 3, 1)


def test_a_silent_link_is_noticed_and_tried_anew_at_once() -> None:
    """A silence is no reason to list: the watch resumes where it was."""
    model = ModelServer(moods=["silent"] * 100)
    with reflecting(model, timings=QUICK) as (reflector, _):
        delays = [reflector.step()]
        while not reflector.counters.silences and len(delays) < 10:
            delays.append(reflector.step())  # a busy machine may not even have begun to answer
        assert delays[-1] == 0.0
        assert "silent" in str(reflector.last_error)
        assert (reflector.counters.silences, reflector.counters.failures) == (1, len(delays) - 1)
        catch_up(reflector, model)
    assert reflector.counters.lists == 1


def scripted(after_list: Script) -> Script:
    """An empty list, then something else for the watch."""

    def script(asked: Asked, stage: Stage) -> None:
        if asked.query.get("watch"):
            after_list(asked, stage)
        else:
            stage.answer({"metadata": {"resourceVersion": "5"}, "items": None})

    return script


def said(line: bytes) -> Script:
    def script(asked: Asked, stage: Stage) -> None:
        stage.begin()
        stage.chunk(line)
        stage.end()

    return script


@pytest.mark.parametrize(
    "after_list",
    [
        said(b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'),
        said(b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n'),
        said(b"<html>\n"),
        said(b'{"type":"MODIFIED"}\n'),
        said(b'{"type":"RENAMED","object":{}}\n'),
        said(b'{"type":"BOOKMARK","object":{"metadata":{}}}\n'),
        said(b'{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{}}}\n'),
        lambda _, stage: stage.refuse(410, "Expired"),
        lambda _, stage: stage.refuse(404, "NotFound"),
    ],
)
def test_what_cannot_be_followed_leads_to_a_new_list(after_list: Script) -> None:
    """After a wait that grows, since a server that does this always must not be hammered."""
    with playing(scripted(after_list)) as player, session(player.url, world=Time().world()) as client:
        reflector = Reflector(client, PODS, timings=TIMINGS)
        delays = [reflector.step() for _ in range(3)]
        reflector.stop()
    assert reflector.counters.lists == 3
    assert 0 < delays[0] < delays[1] < delays[2]
    assert reflector.last_error is not None


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_reported_and_asked_again_slowly(status: int) -> None:
    """Someone has to give us the right first; the cache stays."""
    with (
        playing(scripted(lambda _, stage: stage.refuse(status, "No"))) as player,
        session(player.url, world=Time().world()) as client,
    ):
        reflector = Reflector(client, PODS, timings=TIMINGS)
        assert reflector.step() >= 2.0
        assert isinstance(reflector.last_error, ApiError)
        reflector.step()
        reflector.stop()
    assert reflector.counters.lists == 1


def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    """Nor is one that is healthy asked late: a watch that brought something is followed at once."""
    model = ModelServer()
    with reflecting(model) as (reflector, _):
        catch_up(reflector, model)
        assert reflector.step() > 0
        model.create("a")
        assert reflector.step() == 0.0


def test_staleness_is_told_from_the_last_word_of_the_server() -> None:
    """Infinite before anything was heard."""
    model, clock = ModelServer(), Time()
    with playing(model.script) as player, session(player.url, world=clock.world()) as client:
        reflector = Reflector(client, PODS, timings=TIMINGS)
        assert reflector.last_contact_age_seconds(clock.now) == float("inf")
        assert not reflector.synced.is_set()
        reflector.step()
        assert reflector.synced.is_set()
        assert reflector.last_contact_age_seconds(clock.now + 70) == 70
        reflector.stop()


def test_a_failing_listener_does_not_stop_the_cache() -> None:
    """Its fault is counted, and the next changes are told."""
    model, names = ModelServer(), []

    def listener(kind: ChangeType, old: Pod | None, new: Pod | None) -> None:
        names.append(new.name if new else "")
        raise KeyError("mine")

    with playing(model.script) as player, session(player.url, world=Time().world()) as client:
        reflector = Reflector(client, PODS, timings=TIMINGS, on_change=listener)
        for name in ("a", "b"):
            model.create(name)
            reflector.step()
        reflector.stop()
    assert (sorted(names), reflector.counters.listener_failures, len(reflector.cache)) == (["a", "b"], 2, 2)


@pytest.mark.parametrize("way", ["chunked", "closing", "tls", "headers", "list"])
def test_stop_returns_promptly_from_a_blocked_read(way: str, tmp_path: Path) -> None:
    """Whatever it waits for: an event, the headers of a watch, a list."""
    is_blocked = threading.Event()

    def script(asked: Asked, stage: Stage) -> None:
        if not asked.query.get("watch") and way != "list":
            stage.answer({"metadata": {"resourceVersion": "5"}})
            return
        if way not in {"headers", "list"}:
            stage.begin(chunked=way != "closing")
        is_blocked.set()
        stage.hang()

    ca = authority()
    tls = serving(issue(ca, "api", names=("127.0.0.1",)), tmp_path) if way == "tls" else None
    with playing(script, tls) as player:
        target = Target(
            Endpoint(player.url, ca_data=ca.cert if tls else None), Identity(), "default", "the test"
        )
        client = Client(target, limits=LIMITS)
        reflector = Reflector(client, PODS, timings=Timings(silence_seconds=60.0))
        reflector.start()
        assert is_blocked.wait(60)
        assert reflector.stop(30.0)  # left alone, every one of these waits for a minute or more
        client.close()


def test_lines_come_out_whole_and_bounded() -> None:
    """However the bytes were split; a line without end is refused."""
    text = b'{"a":1}\n\n{"b":2}\r\n{"c":3}\n{"rest'
    for size in (1, 2, 3, 7, 100):
        lines = Lines()
        out = [line for i in range(0, len(text), size) for line in lines.feed(text[i : i + size])]
        assert [line.strip() for line in out] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    lines = Lines(length_max=10)
    assert lines.feed(b"xxxxxx") == []
    with pytest.raises(LineTooLong):
        lines.feed(b"xxxxxx")
    with pytest.raises(LineTooLong):
        Lines(length_max=10).feed(b"x" * 11 + b"\n")
