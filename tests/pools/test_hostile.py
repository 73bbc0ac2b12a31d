"""What others left in the keys: wrong types, marks, numbers and names that make no sense."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.pools import DONE
from equipoise.adapters.redis.scripts import source
from equipoise.core.decision import MovePod, ResumePod, SuspendPod
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.pools import PoolAnswer
from equipoise.pools.invariants import violations
from equipoise.pools.observe import count_tiers
from equipoise.pools.policy import read_policy, tiers_for_scripts
from tests.support.pools.worlds import dump, write

Writer = Callable[[RedisPools], PoolAnswer]
KEYS = (
    *("pool:gold:assigned", "pool:gold:available", "pool:basic:assigned", "pool:basic:available"),
    *("pod:tier:a-0", "pod:draining:a-0", "lease:a-0", "pod:metadata", "call:c1", "pod:a-0:calls"),
    *("pod:a-0", "epoch", "pending", "suspects"),
)
WRITERS: dict[str, Writer] = {
    "allocate": lambda pools: pools.allocate("c1"),
    "allocate shared": lambda pools: pools.allocate("c1", "basic"),
    "release": lambda pools: pools.release("c0"),
    "heartbeat": lambda pools: pools.heartbeat("c0"),
    "drain": lambda pools: pools.drain("a-0"),
    "undrain": lambda pools: pools.undrain("a-0"),
    "register": lambda pools: pools.register("a-0", "u2", 9),
    "register new": lambda pools: pools.register("a-9", "u9", 9),
    "unregister": lambda pools: pools.unregister("a-0", "", 9),
    "suspend": lambda pools: pools.reconcile([SuspendPod("a-0", "u1")], 9)[0],
    "resume": lambda pools: pools.reconcile([ResumePod("a-0", "u1")], 9)[0],
    "recover": lambda pools: pools.recover(["a-0"], 9)[0],
    "move": lambda pools: pools.move([MovePod("a-0", "gold", "basic")], pools.snapshot().version, 9)[0],
    "mend": lambda pools: pools.repair("a-0", 9),
}
REFUSALS = {"WrongType", "Failed"}
MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "pools.md"


def _world(client: Any) -> None:
    client.flushall()
    write(client, {"gold": ["a-0", "a-1"], "basic": ["a-2"]}, {"gold": 1, "basic": 2})
    client.hset("voice:pod:a-0", "uid", "u1")


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_that_meets_a_wrong_type_has_changed_nothing(
    client: Any, pools: RedisPools, name: str
) -> None:
    """Whichever key it is, and whichever tier it is of: it is read before the first write."""
    refused = 0
    for key in KEYS:
        _world(client)
        if name in {"release", "heartbeat"}:
            pools.allocate("c0", "gold")
        client.delete(f"voice:{key}")
        client.rpush(f"voice:{key}", "x")
        before = dump(client)
        try:
            is_refused = WRITERS[name](pools).code in REFUSALS
        except WorldFailed:
            is_refused = True
        refused += is_refused
        assert not is_refused or dump(client) == before, key
    assert refused > 1, "the wrong types were met"


RIGHTS = "~voice:* +@read +@write +@scripting +@connection +info +time"


def test_a_user_with_the_rights_of_the_manual_can_do_everything(client: Any, url: str) -> None:
    """With less, a script would stop half-way; with these, it never does."""
    assert RIGHTS.replace("voice", "PREFIX") in MANUAL.read_text()
    client.execute_command("ACL", "SETUSER", "pools", "reset", "on", ">s3cret", *RIGHTS.split())
    try:
        own = connect(url.replace("unix://", "unix://pools:s3cret@"), "voice")
        with own:
            pools = RedisPools(own, "voice", url, read_tiers=tiers_for_scripts)
            for name, writer in WRITERS.items():
                _world(client)
                if name in {"release", "heartbeat"}:
                    pools.allocate("c0", "gold")
                assert writer(pools).code not in REFUSALS, name
            assert pools.set_config("{}", pools.snapshot().version).code == "Stored"
            assert pools.snapshot(is_thorough=True).pods
    finally:
        client.execute_command("ACL", "DELUSER", "pools")


def test_a_resumed_pod_keeps_the_drain_of_another_program(client: Any, pools: RedisPools) -> None:
    """It took the place of ours while the pod was unready: by its time, or by what it says."""
    suspend, resume = SuspendPod("a-0", "u1"), ResumePod("a-0", "u1")
    for words in (("3", "EX", "360"), ("draining",)):
        _world(client)
        assert pools.reconcile([suspend], 1)[0].code == "Drained"
        client.execute_command("SET", "voice:pod:draining:a-0", *words)
        assert pools.reconcile([resume], 1)[0].code == "Draining"
        assert client.exists("voice:pod:draining:a-0")
        assert not client.hexists("voice:pod:a-0", "suspended"), "it is not ours any more"
        assert client.smembers("voice:pool:gold:available") == {"a-1"}


def test_a_suspension_whose_mark_has_gone_is_forgotten(client: Any, pools: RedisPools) -> None:
    """Else the pod would be resumed in every cycle."""
    _world(client)
    pools.reconcile([SuspendPod("a-0", "u1")], 1)
    client.delete("voice:pod:draining:a-0")
    assert pools.reconcile([ResumePod("a-0", "u1")], 1)[0].code == "NotDraining"
    assert pools.snapshot().pods["a-0"].suspended == ""


@pytest.mark.parametrize("mark", ["true", "", "nan", "-nan", "-7", "x" * 5000])
def test_a_mark_that_is_no_count_of_calls_counts_for_none(client: Any, pools: RedisPools, mark: str) -> None:
    """Else an undrain would fail half-way: the mark gone, and the pod in no pool."""
    write(client, {"basic": ["a-0"]})
    client.zrem("voice:pool:basic:available", "a-0")
    client.set("voice:pod:draining:a-0", mark)
    assert pools.undrain("a-0").code == "Undrained"
    assert client.zscore("voice:pool:basic:available", "a-0") == 0


def test_to_suspend_does_not_lengthen_another_programs_drain(client: Any, pools: RedisPools) -> None:
    """A draining pod that is available loses its place, and the mark keeps its time."""
    _world(client)
    client.set("voice:pod:draining:a-0", "x", ex=360)
    pools.reconcile([SuspendPod("a-0", "u1")], 1)
    assert client.smembers("voice:pool:gold:available") == {"a-1"}
    assert 0 < client.ttl("voice:pod:draining:a-0") <= 360


KEY_WORDS = (
    "metadata",
    "tier",
    "draining",
    "calls",
    "assigned",
    "available",
    "config",
    "lease",
    "call",
    "pod",
    "a-0",
)
REFUSED_NAMES = ("metadata", "tier", "draining")


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_pod_whose_keys_would_be_anothers_is_not_taken_in(
    client: Any, pools: RedisPools, name: str
) -> None:
    """`PREFIX:pod:metadata` is the hash of all pods, `PREFIX:pod:tier:calls` the tier of the pod `calls`."""
    write(client, {"gold": ["a-0", "calls"], "basic": []}, {"gold": 1, "basic": 2})
    client.sadd("voice:pool:gold:assigned", name)
    client.sadd("voice:pool:gold:available", name)
    client.set(f"voice:pod:tier:{name}", "gold")
    before = dump(client)
    for answer in (
        pools.register(name, "u", 1),
        pools.unregister(name, "", 1),
        pools.drain(name),
        pools.undrain(name),
        pools.recover([name], 1)[0],
        pools.move([MovePod(name, "gold", "basic")], pools.snapshot().version, 1)[0],
    ):
        assert (answer.code, answer.detail) == (
            "Unsound",
            "its name is a part of other keys, so it gets no calls",
        )
    assert dump(client) == before
    assert {pools.allocate(f"c{number}").pod for number in range(2)} == {"a-0", "calls"}
    assert pools.allocate("c3").code == "NoneFree"
    seen = pools.snapshot(is_thorough=True, also=[name])
    assert violations(read_policy(seen.config, "config"), seen) == []


def test_no_two_pods_that_are_taken_in_share_a_key(client: Any, pools: RedisPools) -> None:
    """Nor has one a key of the whole fleet: each pair of names that keys are made of, every verb."""
    for first, second in combinations(KEY_WORDS, 2):
        client.flushall()
        client.set("voice:tier:config", '{"gold": 2}')
        taken = [
            name for name in (first, second) if pools.register(name, f"u-{name}", 1).code == "Registered"
        ]
        assert taken == [name for name in (first, second) if name not in REFUSED_NAMES]
        calls = [pools.allocate(f"c{number}").pod for number in range(len(taken))]
        assert sorted(calls) == sorted(taken)
        seen = pools.snapshot(is_thorough=True, also=[first, second])
        assert violations(read_policy(seen.config, "config"), seen) == [], (first, second)
        assert {name: seen.pods[name].uid for name in taken} == {name: f"u-{name}" for name in taken}
        for name in taken:
            assert pools.drain(name).code == "Drained"
            assert pools.undrain(name).code == "Undrained"
        assert {pools.release(f"c{number}").code for number in range(len(taken))} <= {"Released"}
        for name in taken:
            assert pools.unregister(name, f"u-{name}", 1).code == "Unregistered"
        assert set(dump(client)) <= {"voice:tier:config", "voice:epoch"}


def test_a_pod_of_a_third_tier_too_does_not_move(client: Any, pools: RedisPools) -> None:
    """It must be in the source's `assigned`, and in no other."""
    write(
        client, {"gold": ["a-0", "a-1"], "silver": ["a-2"], "basic": []}, {"gold": 1, "silver": 1, "basic": 1}
    )
    client.sadd("voice:pool:silver:assigned", "a-0")
    before = dump(client)
    moves = [MovePod("a-0", "gold", "basic")]
    assert pools.move(moves, pools.snapshot().version, None)[0].code == "Unsound"
    assert dump(client) == before


def test_ten_thousand_dead_calls_are_forgotten_at_once(client: Any) -> None:
    """More than Lua can pass to one command."""
    pools = RedisPools(client, "voice", lease_seconds=0.001, read_tiers=tiers_for_scripts)
    write(client, {"basic": ["a-0"]}, calls={"a-0": 10_000})
    client.sadd("voice:pod:a-0:calls", *(f"c{number}" for number in range(10_000)))
    codes = [pools.recover(["a-0"], None)[0].code]
    client.hset("voice:suspects", "a-0", "1 " + client.hget("voice:suspects", "a-0").split()[1])
    codes.append(pools.recover(["a-0"], None)[0].code)
    assert codes == ["Suspected", "Recovered"]
    assert client.zscore("voice:pool:basic:available", "a-0") == 0
    assert not client.exists("voice:pod:a-0:calls")


def test_numbers_without_end_are_counted_as_what_is_known(client: Any, pools: RedisPools) -> None:
    """A count of calls that is infinite, an epoch that nobody can read."""
    write(client, {"basic": ["a-0", "a-1"]})
    client.zadd("voice:pool:basic:available", {"a-0": float("inf"), "a-1": float("-inf")})
    client.set("voice:epoch", "9" * 5000)
    seen = pools.snapshot()
    assert seen.epoch is None
    assert count_tiers(read_policy(seen.config, "config"), seen)["basic"]["calls"] == 0


ODD_EPOCHS = ["inf", "nan", "-1", "1e300", "0x7f", "2147483648", "9" * 5000, "", " 7", "seven"]


@pytest.mark.parametrize("epoch", ODD_EPOCHS)
def test_an_epoch_that_no_leader_can_have_refuses_them_until_it_is_forgotten(
    client: Any, pools: RedisPools, epoch: str
) -> None:
    """Infinity would fence off every leader for ever, and no number none; callers go on meanwhile."""
    _world(client)
    client.set("voice:epoch", epoch)
    before = dump(client)
    for writer in ("register", "unregister", "suspend", "resume", "recover", "move", "mend"):
        assert WRITERS[writer](pools).code == "EpochUnreadable", writer
    assert dump(client) == before
    seen = pools.snapshot()
    found = violations(read_policy(seen.config, "config"), seen)
    assert [(each.invariant, each.key) for each in found] == [("EpochReadable", "voice:epoch")]
    assert "expected a whole number up to 2147483647" in found[0].detail
    assert len(found[0].detail) < 200
    assert pools.allocate("c1").code == "Allocated"
    assert pools.drain("a-1").code == "Drained"
    assert pools.forget_odd_epoch().code == "Mended"
    assert pools.forget_odd_epoch().code == "Sound"
    assert WRITERS["recover"](pools).code == "Healthy"
    assert client.get("voice:epoch") == "9"


def test_a_sound_epoch_is_not_forgotten(client: Any, pools: RedisPools) -> None:
    """However high it is: only a person can know that no leader is of it."""
    _world(client)
    client.set("voice:epoch", "2147483647")
    assert pools.forget_odd_epoch().code == "Sound"
    assert WRITERS["recover"](pools).code == "Fenced"
    seen = pools.snapshot()
    assert (seen.epoch, seen.unreadable_epoch) == (2147483647, None)


def test_a_count_of_calls_that_was_lowered_too_often_comes_right(client: Any, pools: RedisPools) -> None:
    """Below 0 its pod would never get a call again, nor move."""
    for score in (-1.0, -7.0, float("-inf")):
        client.flushall()
        write(client, {"basic": ["a-0"]}, calls={"a-0": 0})
        client.zadd("voice:pool:basic:available", {"a-0": score})
        assert pools.allocate("c1").pod == "a-0"
        assert client.zscore("voice:pool:basic:available", "a-0") == 1
        assert pools.release("c1").code == "Released"
        assert client.zscore("voice:pool:basic:available", "a-0") == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://:s3cret@host", "expected redis://HOST:PORT"),
        ("s3cret", "expected redis://HOST:PORT"),
        ("redis://:s3cret#x@host", "%2F"),
        ("redis://me:s3cret/x@host", "%2F"),
        ("redis://[s3cret@host", "%2F"),
        ("redis://:s3cret@host/db", "the number of a database"),
        ("redis://:s3cret@host?colour=s3cret", "after the [?], got colour"),
        ("redis://:s3cret@host?socket_timeout=s3cret", "after the [?], got socket_timeout"),
    ],
)
def test_a_refused_url_shows_nothing_of_the_password(url: str, words: str) -> None:
    """Wherever in the URL a careless hand has put it."""
    with pytest.raises(BadInput, match=words) as refused:
        connect(url, "voice")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("writer", [*DONE, "snapshot"])
def test_a_script_is_sent_with_its_keys_written_out(writer: str) -> None:
    """No function is left that only names a key: each would cost time at every call."""
    assert "_key(" not in source(writer)
