"""The adapter: what it retries, what it refuses, and what it does not know."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import address_of, has_hash_tag
from equipoise.adapters.redis.pools import DONE
from equipoise.adapters.redis.scripts import source
from equipoise.core.decision import MovePod
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.pools.policy import encode_tiers, policy_from, tiers_for_scripts
from equipoise.ports import Unanswered
from equipoise.runtime.redis import RemotePools
from tests.support.pools.clusters import cluster
from tests.support.pools.redis_proxy import proxy_to
from tests.support.pools.worlds import WALK_THROUGH, config, dump, write
from tests.testbed import wait_until


def test_scripts_that_the_server_forgot_are_sent_again(client: Any, pools: RedisPools) -> None:
    """After SCRIPT FLUSH, a restart or a failover; also in the middle of many moves."""
    pods = [f"a-{number}" for number in range(40)]
    write(client, {"gold": pods, "silver": []}, {"gold": 10, "silver": 30})
    assert pools.allocate("c1").code == "Allocated"
    client.script_flush()
    assert pools.release("c1").code == "Released"
    client.script_flush()
    moves = [MovePod(pod, "gold", "silver") for pod in pods]
    codes = [answer.code.value for answer in pools.move(moves, pools.snapshot().version, None)]
    assert codes == ["Moved"] * 30 + ["SourceNotOver"] * 10


def test_a_config_that_changed_meanwhile_is_read_again(client: Any, pools: RedisPools) -> None:
    """Whoever wrote it; the call goes out once more with the new tiers."""
    write(client, WALK_THROUGH)
    assert pools.allocate("c1", "gold").tier == "gold"
    client.delete("voice:pool:basic:assigned", "voice:pool:basic:available")
    client.set("voice:tier:config", '{"gold": 3, "standard": 3}')
    assert pools.allocate("c2", "basic").code == "NoTier"
    assert pools.release("c1").code == "Released"


class _Forgetful(RedisPools):
    """Another thread finds the config changed right after this one has read it."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, None if name == "_config" else value)


def test_a_config_that_another_thread_forgets_is_still_known_to_who_read_it(client: Any) -> None:
    """`pools serve` asks on many threads, and a change is noticed by all of them at once."""
    write(client, WALK_THROUGH)
    pools = _Forgetful(client, "voice", read_tiers=tiers_for_scripts)
    assert pools.allocate("c1", "gold").code == "Allocated"
    assert pools.release("c1").code == "Released"


def test_a_lost_answer_to_our_own_write_of_the_config_is_recognised(client: Any, pools: RedisPools) -> None:
    """Asked again, it stands there already."""
    write(client, WALK_THROUGH)
    version = pools.snapshot().version
    assert pools.set_config('{"gold": 1}', version).code == "Stored"
    assert pools.set_config('{"gold": 1}', version).code == "Stored"
    assert pools.set_config('{"gold": 2}', version).code == "ConfigChanged"


def test_the_connection_of_another_url_is_closed_once_nobody_asks_there(client: Any, url: str) -> None:
    """A password that changes would leave one more behind each time; whoever asks is not cut off."""
    client.set("voice:tier:config", '{"gold": 1}')
    where = [f"{url}?client_name=first"]
    remote = RemotePools(lambda: where[0], "voice")
    amid, go_on = threading.Event(), threading.Event()

    def ask_slowly(pools: RedisPools) -> str | None:
        amid.set()
        assert go_on.wait(60)
        return pools.snapshot().config

    answers: list[str | None] = []
    asking = threading.Thread(target=lambda: answers.append(remote.ask(ask_slowly)))
    asking.start()
    assert amid.wait(60)
    remote.ask(lambda pools: pools.snapshot())
    where[0] = f"{url}?client_name=second"
    with pytest.raises(WorldFailed, match="in doubt"):
        remote.ask(_failing)
    remote.ask(lambda pools: pools.snapshot())
    assert {"first", "second"} <= _names(client)
    go_on.set()
    asking.join(60)
    assert answers == ['{"gold": 1}']
    wait_until(lambda: "first" not in _names(client), "the first to be closed", 60)
    remote.close()
    wait_until(lambda: "second" not in _names(client), "the second to be closed", 60)


def _failing(pools: RedisPools) -> None:
    raise WorldFailed("in doubt")


def _names(client: Any) -> set[str]:
    return {each["name"] for each in client.client_list()}


def test_a_key_of_a_wrong_type_changes_nothing(client: Any, pools: RedisPools) -> None:
    """Every writer reads what it will write, so it fails before its first write."""
    write(client, WALK_THROUGH)
    client.set("voice:lease:agent-0", "x")
    client.sadd("voice:call:c1", "x")
    client.delete("voice:pool:standard:available")
    client.set("voice:pool:standard:available", "x")
    before = dump(client)
    asked: tuple[Callable[[], object], ...] = (
        lambda: pools.allocate("c1"),
        lambda: pools.allocate("c2", "standard"),
        lambda: pools.release("c1"),
        lambda: pools.heartbeat("c1"),
        lambda: pools.drain("agent-1"),
        lambda: pools.register("agent-9", "u", None),
        lambda: pools.unregister("agent-1", "u", None),
        lambda: pools.repair("agent-1", None),
    )
    for ask in asked:
        with pytest.raises(WorldFailed, match="wrong type"):
            ask()
        assert dump(client) == before
    assert [answer.code for answer in pools.recover(["agent-1"], None)] == ["WrongType"]
    assert dump(client) == before


@pytest.mark.parametrize("writer", [*DONE, "snapshot"])
def test_every_script_takes_its_keys_from_one_prefix(writer: str) -> None:
    """So a hash tag in it puts them into one slot of a cluster."""
    own = source(writer)
    assert "KEYS[2]" not in own
    assert "prefix .. ':" in own


def _connected(url: str, timeout_seconds: float) -> Any:
    """Connect with little patience, as often as a busy machine makes it too little."""
    for _ in range(20):
        with suppress(WorldFailed):
            return connect(url, "voice", timeout_seconds=timeout_seconds)
    raise AssertionError("nobody answers")


def test_silence_after_the_deed_is_unknown_and_asking_again_is_safe(
    url: str, client: Any, pools: RedisPools
) -> None:
    """Neither yes nor no; the same call then learns which pod it has."""
    write(client, {"gold": ["a-0", "a-1"]})
    pools.allocate("c0")  # from here on the server knows the script
    pools.release("c0")
    with proxy_to(url) as line:
        deaf = RedisPools(
            _connected(line.url, timeout_seconds=3.0), "voice", line.url, read_tiers=tiers_for_scripts
        )
        line.lose("silence")
        with pytest.raises(Unanswered, match="the outcome is unknown"):
            deaf.allocate("c1")
        wait_until(lambda: client.exists("voice:call:c1"), "the deed, on a busy machine", 60)
        deaf.close()
    given = pools.allocate("c1")
    assert given.detail == "again"
    assert client.scard("voice:pool:gold:available") == 1


def test_a_server_that_is_not_there_is_a_plain_no() -> None:
    """Nothing was sent, so nothing happened."""
    with pytest.raises(WorldFailed, match="not reachable") as failed:
        connect("redis://127.0.0.1:1", "voice")
    assert not isinstance(failed.value, Unanswered)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://x", "expected redis://"),
        ("redis://localhost:port", "--redis"),
    ],
)
def test_an_address_that_makes_no_sense_is_bad_input(url: str, words: str) -> None:
    """The option is named."""
    with pytest.raises(BadInput, match=words):
        connect(url, "voice")


def test_an_address_is_shown_without_its_password() -> None:
    """Errors end up in logs."""
    assert address_of("redis://user:secret@host:7/2") == "redis://host:7"


@pytest.mark.parametrize(
    ("prefix", "is_tagged"),
    [("voice", False), ("{voice}", True), ("a{b}c", True), ("{}x", False), ("{x", False)],
)
def test_a_hash_tag_is_what_the_cluster_takes_for_one(prefix: str, is_tagged: bool) -> None:
    """The first braces, if there is something in them."""
    assert has_hash_tag(prefix) == is_tagged


def test_the_tiers_travel_with_the_chain_first() -> None:
    """In the order in which they are filled."""
    policy = policy_from(config(gold=1, basic=2) | {"default_chain": ["basic"]}, "test")
    assert encode_tiers(policy) == "basic shared 2 5 1;gold exclusive 1 5 0;"


def test_a_cluster_needs_a_hash_tag_and_works_with_one() -> None:
    """Three masters: every script, every key of a fleet in one slot."""
    with cluster() as url:
        with pytest.raises(BadInput, match=r"expected a hash tag such as \{voice\}"):
            connect(url, "voice")
        client: Any = connect(url, "{voice}")
        pools = RedisPools(client, "{voice}", url, read_tiers=tiers_for_scripts)
        text = '{"gold": {"type": "exclusive", "target": 1}, "basic": {"type": "shared", "target": 1}}'
        assert pools.set_config(text, "").code == "Stored"
        for number in range(2):
            assert pools.register(f"a-{number}", "u", 1).code == "Registered"
        assert pools.register("a-2", "u", 1).tier == "basic"
        assert pools.unregister("a-0", "u", 1).code == "Unregistered"
        assert pools.allocate("c1").tier == "basic"
        assert pools.heartbeat("c1").code == "Renewed"
        seen = pools.snapshot(is_thorough=True)
        assert {pool.tier: len(pool.assigned) for pool in seen.pools} == {"gold": 0, "basic": 2}
        idle = next(pod for pod, keys in seen.pods.items() if not keys.calls)
        busy = next(pod for pod, keys in seen.pods.items() if keys.calls)
        moves = [MovePod(busy, "basic", "gold"), MovePod(idle, "basic", "gold")]
        codes = [answer.code.value for answer in pools.move(moves, seen.version, 1)]
        assert codes == ["Leased", "Moved"]
        assert pools.drain(idle).code == "Drained"
        assert pools.undrain(idle).code == "Undrained"
        assert pools.release("c1").code == "Released"
        assert pools.recover([idle], 1)[0].code == "Healthy"
        assert pools.repair(idle, 1).code == "Sound"
        pools.close()


def test_an_old_server_is_refused(client: Any, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Rather than failing at the first script."""
    monkeypatch.setattr(Redis, "info", lambda *_: {"redis_version": "5.0.14"})
    with pytest.raises(WorldFailed, match=r"expected Redis 6\.2 or newer"):
        connect(url, "voice")
