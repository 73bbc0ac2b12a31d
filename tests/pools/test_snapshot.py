"""What one look sees: a small fleet at one moment, a large one page by page, and the same of both."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, snapshot
from equipoise.adapters.redis.snapshot import SnapshotPage
from equipoise.core.decision import MovePod, SuspendPod
from equipoise.pools.invariants import violations
from equipoise.pools.policy import read_policy
from tests.support.pools.worlds import write

PODS = [f"a-{number}" for number in range(30)]
TIERS = {"gold": PODS[:12], "silver": PODS[12:16], "basic": PODS[16:]}


def _fleet(client: Any, pools: RedisPools) -> None:
    """Pods in every state, and keys of every wrong type."""
    write(client, TIERS, {"gold": 11, "silver": 5, "basic": 14})
    for number in range(20):
        pools.allocate(f"c{number}")
    pools.move([MovePod("a-1", "gold", "silver")], pools.snapshot().version, 4, marks_busy=True)
    pools.drain("a-2")
    pools.reconcile([SuspendPod("a-3", ""), SuspendPod("a-20", "")], 4)
    pools.register("a-4", "u4", 4)
    client.delete("voice:pod:tier:a-5", "voice:call:c3", "voice:lease:a-6")
    for key in (
        "lease:a-7",
        "pod:draining:a-8",
        "pod:tier:a-9",
        "pod:a-10",
        "pod:a-11:calls",
        "call:c0",
        "epoch",
    ):
        client.delete(f"voice:{key}")
        client.rpush(f"voice:{key}", "x")
    client.sadd("voice:pool:gold:assigned", "a-13", "found-in-a-set")
    client.zadd("voice:pool:basic:available", {"found-free": 2, "a-20": "inf"})
    client.hset("voice:pod:metadata", "found-in-metadata", "{")
    client.set("voice:pod:tier:found-by-its-key", "silver")
    client.sadd("voice:pool:old:assigned", "left-behind")


def _shown(pools: RedisPools, **options: Any) -> Any:
    """Return what was seen, in an order of its own."""
    seen = pools.snapshot(**options)
    tiers = {
        each.tier: (
            each.assigned_type,
            each.available_type,
            sorted(each.assigned),
            dict(sorted(each.available.items())),
        )
        for each in seen.pools
    }
    pods = {pod: (keys, sorted(keys.calls)) for pod, keys in sorted(seen.pods.items())}
    found = sorted(map(str, violations(read_policy(seen.config, "config"), seen)))
    others = (seen.version, seen.epoch, seen.unreadable_epoch, seen.wrong, seen.pending, seen.metadata)
    return tiers, pods, found, others


@pytest.mark.parametrize("size", [1, 7, 35])
@pytest.mark.parametrize("is_thorough", [False, True])
def test_page_by_page_the_same_is_seen(
    client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch, size: int, *, is_thorough: bool
) -> None:
    """However small the pages are, and whoever else is asked for."""
    _fleet(client, pools)
    also = ["nobody", "a-0", "found-free"]
    whole = _shown(pools, is_thorough=is_thorough, also=also)
    assert len(whole[1]) == (36 if is_thorough else 34)
    monkeypatch.setattr(snapshot, "PAGE", size)
    assert _shown(pools, is_thorough=is_thorough, also=also) == whole


def test_a_large_fleet_is_read_some_at_a_time(client: Any, pools: RedisPools) -> None:
    """No script keeps the server from others for longer than a page takes."""
    count = 5 * snapshot.PAGE
    write(client, {"gold": [f"a-{number}" for number in range(count)]})
    pools.snapshot()
    before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert len(pools.snapshot().pods) == count
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] - before >= 5


def test_pods_that_only_their_keys_name_are_read_though_every_tier_is_empty(
    client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sets are gone, and there are more such pods than a page has."""
    write(client, {"gold": []})
    for pod in PODS:
        client.set(f"voice:pod:tier:{pod}", "gold")
    monkeypatch.setattr(snapshot, "PAGE", 7)
    seen = pools.snapshot(is_thorough=True)
    found = violations(read_policy(seen.config, "config"), seen)
    assert {each.pod for each in found} == set(PODS)


def test_a_pod_that_moves_while_it_is_looked_for_is_found(
    client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went to a tier that was listed already, before its own was."""
    write(client, TIERS, {"gold": 13, "silver": 4, "basic": 13})
    client.delete("voice:pod:metadata")
    monkeypatch.setattr(snapshot, "PAGE", 5)
    names = snapshot.PoolsReader._names
    looks = []

    def moving(self: snapshot.PoolsReader, page: SnapshotPage) -> Iterator[str]:
        looks.append(1)
        for pod in names(self, page):
            if pod in TIERS["silver"] and not client.sismember("voice:pool:gold:assigned", "a-29"):
                client.execute_command("EVAL", MOVED, 0)
            yield pod

    monkeypatch.setattr(snapshot.PoolsReader, "_names", moving)
    seen = pools.snapshot()
    assert len(looks) == 2
    assert {pool.tier: len(pool.assigned) for pool in seen.pools} == {"gold": 13, "silver": 4, "basic": 13}
    assert violations(read_policy(seen.config, "config"), seen) == []


MOVED = """
redis.call('SREM', 'voice:pool:basic:assigned', 'a-29')
redis.call('ZREM', 'voice:pool:basic:available', 'a-29')
redis.call('SADD', 'voice:pool:gold:assigned', 'a-29')
redis.call('SADD', 'voice:pool:gold:available', 'a-29')
redis.call('SET', 'voice:pod:tier:a-29', 'gold')
"""


def test_a_config_that_changes_between_two_pages_begins_the_look_anew(
    client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages are read with the same tiers."""
    write(client, TIERS)
    monkeypatch.setattr(snapshot, "PAGE", 5)
    names = snapshot.PoolsReader._names
    texts = [json.dumps({"gold": 12, "silver": 4}), client.get("voice:tier:config")]

    def changing(self: snapshot.PoolsReader, page: SnapshotPage) -> Iterator[str]:
        if texts:
            client.set("voice:tier:config", texts.pop(0))
        return names(self, page)

    monkeypatch.setattr(snapshot.PoolsReader, "_names", changing)
    seen = pools.snapshot()
    assert {pool.tier: len(pool.assigned) for pool in seen.pools} == {"gold": 12, "silver": 4, "basic": 14}


def test_a_record_of_a_wrong_type_is_named_with_its_pod(client: Any, pools: RedisPools) -> None:
    """Else a writer would refuse, and `fsck` find nothing."""
    write(client, {"gold": ["a-0"]})
    pools.allocate("c1")
    client.set("voice:call:c1", "x")
    seen = pools.snapshot()
    found = violations(read_policy(seen.config, "config"), seen)
    assert [(each.invariant, each.key) for each in found] == [("KeyType", "voice:call:c1")]
