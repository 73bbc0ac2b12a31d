"""What fsck finds, what it lets pass, and what it mends."""

from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools
from equipoise.pools.invariants import Violation, notes, violations
from equipoise.pools.policy import read_policy
from tests.support.pools.worlds import WALK_THROUGH, dump, write


def _found(pools: RedisPools) -> list[Violation]:
    seen = pools.snapshot(is_thorough=True)
    policy = None if "voice:tier:config" in seen.wrong else read_policy(seen.config, "config")
    return violations(policy, seen)


def _notes(pools: RedisPools) -> list[str]:
    seen = pools.snapshot(is_thorough=True)
    return notes(read_policy(seen.config, "config"), seen)


BROKEN: dict[str, tuple[list[tuple[str, ...]], set[str], bool]] = {
    "in two tiers": ([("SADD", "voice:pool:gold:assigned", "agent-1")], {"OneAssigned"}, True),
    "in none": (
        [("SREM", "voice:pool:gold:assigned", "agent-0")],
        {"OneAssigned", "AvailableWithinAssigned"},
        True,
    ),
    "only a tier key": ([("SET", "voice:pod:tier:agent-9", "gold")], {"OneAssigned"}, True),
    "only metadata": ([("HSET", "voice:pod:metadata", "agent-9", "{}")], {"OneAssigned"}, False),
    "available elsewhere": (
        [("SADD", "voice:pool:gold:available", "agent-1")],
        {"AvailableWithinAssigned"},
        True,
    ),
    "tier key disagrees": ([("SET", "voice:pod:tier:agent-0", "basic")], {"TierKeyAgrees"}, True),
    "tier key missing": ([("DEL", "voice:pod:tier:agent-0")], {"TierKeyAgrees"}, True),
    "draining yet available": ([("SET", "voice:pod:draining:agent-2", "1")], {"DrainingNotAvailable"}, True),
    "available of a wrong type": (
        [("DEL", "voice:pool:gold:available"), ("ZADD", "voice:pool:gold:available", "0", "agent-0")],
        {"KeyType"},
        False,
    ),
    "assigned of a wrong type": (
        [("DEL", "voice:pool:gold:assigned"), ("RPUSH", "voice:pool:gold:assigned", "agent-0")],
        {"KeyType", "OneAssigned", "AvailableWithinAssigned"},
        False,
    ),
    "tier key of a wrong type": (
        [("DEL", "voice:pod:tier:agent-0"), ("RPUSH", "voice:pod:tier:agent-0", "x")],
        {"KeyType"},
        False,
    ),
    "config of a wrong type": (
        [("DEL", "voice:tier:config"), ("RPUSH", "voice:tier:config", "x")],
        {"KeyType"},
        False,
    ),
    "metadata of a wrong type": (
        [("DEL", "voice:pod:metadata"), ("SET", "voice:pod:metadata", "x")],
        {"KeyType"},
        False,
    ),
    "pending moves of a wrong type": ([("SET", "voice:pending", "x")], {"KeyType"}, False),
    "suspects of a wrong type": ([("SET", "voice:suspects", "x")], {"KeyType"}, False),
    "busy in another shared tier": (
        [("ZADD", "voice:pool:basic:available", "2", "agent-0")],
        {"AvailableWithinAssigned"},
        False,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_broken_invariant_is_found_and_the_safe_ones_are_mended(
    client: Any, pools: RedisPools, name: str
) -> None:
    """Each by its name; what has two possible ends is left alone."""
    commands, expected, is_mended = BROKEN[name]
    write(client, WALK_THROUGH)
    assert _found(pools) == []
    for command in commands:
        client.execute_command(*command)
    found = _found(pools)
    assert {each.invariant.value for each in found} == expected
    assert all(each.key.startswith("voice:") and each.detail for each in found)
    if is_mended:
        for pod in {each.pod for each in found}:
            assert pools.repair(pod, None).code == "Mended"
            assert pools.repair(pod, None).code == "Sound"
        assert _found(pools) == []
    elif name in {"only metadata", "busy in another shared tier"}:
        before = dump(client)
        assert pools.repair(found[0].pod, None).code == "Unsafe"
        assert dump(client) == before


def test_what_a_foreign_allocator_leaves_out_or_is_about_to_do_is_no_violation(
    client: Any, pools: RedisPools
) -> None:
    """Missing metadata, leases and records; a pod between SPOP and lease; merchants."""
    write(client, WALK_THROUGH)
    client.delete("voice:pod:metadata")
    client.spop("voice:pool:gold:available")
    client.zadd("voice:pool:basic:available", {"agent-2": 3})
    client.set("voice:lease:agent-1", "foreign")
    client.set("voice:pod:tier:agent-30", "merchant:m1")
    client.sadd("voice:merchant:m1:assigned", "agent-30")
    client.hset("voice:pod:metadata", "agent-30", "not json")
    assert _found(pools) == []
    said = "\n".join(_notes(pools))
    for words in (
        "it has no call and no lease",
        "agent-1: it is available in standard although it has a lease",
        "malformed",
    ):
        assert words in said


def test_pods_of_a_tier_that_the_config_forgot_are_noticed(client: Any, pools: RedisPools) -> None:
    """They are assigned, if to a tier that nobody rebalances."""
    write(client, WALK_THROUGH)
    client.sadd("voice:pool:old:assigned", "agent-40")
    client.set("voice:pod:tier:agent-40", "old")
    assert _found(pools) == []
    back = "`equipoise pools config set old=exclusive:1` adds it"
    assert _notes(pools) == [f"old: 1 pod is in this tier, which the config does not have; {back}"]
