"""The seed's walk-through on a real server, key by key, and what the move refuses."""

import json
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, connect, scripts
from equipoise.adapters.redis.scripts import source
from equipoise.core.decision import MovePod
from equipoise.pools.policy import tiers_for_scripts
from equipoise.pools.rebalance import plan, rebalance
from tests.support.pools.redis_proxy import proxy_to
from tests.support.pools.worlds import WALK_THROUGH, dump, write

TARGETS = {"gold": 4, "standard": 3, "basic": 2}


def _move(pools: RedisPools, pod: str, source: str, to: str, epoch: int | None = None, **options: Any) -> str:
    seen = pools.snapshot()
    return pools.move([MovePod(pod, source, to)], seen.version, epoch, **options)[0].code.value


def test_the_walk_through_moves_agent_2_from_basic_to_gold(client: Any, pools: RedisPools) -> None:
    """And nothing else changes but what the seed lists."""
    write(client, WALK_THROUGH, TARGETS)
    before = dump(client)
    assert [action.pod for action in plan(pools).decision.actions] == ["agent-2"]
    assert dump(client) == before
    done = rebalance(pools)
    assert [(outcome.action.pod, outcome.result) for outcome in done.outcomes] == [("agent-2", "Moved")]
    after = dump(client)
    assert after["voice:pool:gold:assigned"] == {"agent-0", "agent-3", "agent-8", "agent-2"}
    assert after["voice:pool:standard:assigned"] == {"agent-1", "agent-4", "agent-5"}
    assert after["voice:pool:basic:available"] == {"agent-6": 0, "agent-7": 0}
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed == {
        "voice:pod:metadata",
        "voice:pod:tier:agent-2",
        "voice:pool:basic:assigned",
        "voice:pool:basic:available",
        "voice:pool:gold:assigned",
        "voice:pool:gold:available",
    }
    assert rebalance(pools).decision.reason.code == "Balanced"


def test_while_all_are_busy_nothing_moves_and_the_next_cycle_does(client: Any, pools: RedisPools) -> None:
    """The seed's second example."""
    write(client, WALK_THROUGH, TARGETS, calls={"agent-2": 2, "agent-6": 1, "agent-7": 3})
    before = dump(client)
    done = rebalance(pools)
    assert (done.decision.reason.code, done.decision.actions) == ("AllBusy", ())
    assert dump(client) == before
    client.zincrby("voice:pool:basic:available", -1, "agent-6")
    assert [action.pod for action in rebalance(pools).decision.actions] == ["agent-6"]


@pytest.mark.parametrize(
    ("source", "destination"),
    [("gold", "standard"), ("basic", "gold"), ("gold", "basic"), ("basic", "economy")],
)
def test_each_kind_of_move_leaves_the_seeds_keys(
    client: Any, pools: RedisPools, source: str, destination: str
) -> None:
    """Exclusive or shared, from and to: every key is what the seed's commands would leave."""
    is_shared = {"gold": False, "standard": False, "basic": True, "economy": True}
    write(client, {source: ["pod", "other"], destination: []}, {source: 1, destination: 1})
    expected = dump(client)
    expected[f"voice:pool:{source}:assigned"] = {"other"}
    expected[f"voice:pool:{source}:available"] = {"other": 0.0} if is_shared[source] else {"other"}
    expected["voice:pod:tier:pod"] = destination
    expected[f"voice:pool:{destination}:assigned"] = {"pod"}
    expected[f"voice:pool:{destination}:available"] = {"pod": 0.0} if is_shared[destination] else {"pod"}
    expected["voice:pod:metadata"]["pod"] = json.dumps({"tier": destination, "name": "pod"})
    assert _move(pools, "pod", source, destination) == "Moved"
    assert dump(client) == expected
    assert _move(pools, "pod", source, destination) == "AlreadyThere"
    assert dump(client) == expected


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("SET", "voice:pod:draining:agent-2", "1"), "Draining"),
        (("SET", "voice:lease:agent-2", "call"), "Leased"),
        (("ZINCRBY", "voice:pool:basic:available", "1", "agent-2"), "Busy"),
        (("ZREM", "voice:pool:basic:available", "agent-2"), "Busy"),
        (("ZINCRBY", "voice:pool:basic:available", "-1", "agent-2"), "Busy"),
        (("SREM", "voice:pool:basic:assigned", "agent-2"), "NotThere"),
        (("SREM", "voice:pool:basic:assigned", "agent-7"), "SourceNotOver"),
        (("SADD", "voice:pool:gold:assigned", "agent-9"), "DestinationFull"),
        (("SADD", "voice:pool:gold:assigned", "agent-2"), "Unsound"),
        (("SADD", "voice:pool:gold:available", "agent-2"), "Unsound"),
        (("SET", "voice:pod:tier:agent-2", "standard"), "Unsound"),
        (("SET", "voice:epoch", "8"), "Fenced"),
        (("SET", "voice:pool:gold:available", "text"), "WrongType"),
        (("RPUSH", "voice:pod:metadata:x", "1"), "Moved"),
    ],
)
def test_a_move_checks_everything_before_its_first_write(
    client: Any, pools: RedisPools, command: tuple[str, ...], answer: str
) -> None:
    """Whatever changed since the plan, it is seen, and nothing is half done."""
    write(client, WALK_THROUGH, TARGETS)
    client.execute_command(*command)
    before = dump(client)
    assert _move(pools, "agent-2", "basic", "gold", epoch=7) == answer
    assert answer == "Moved" or dump(client) == before


def test_a_plan_of_an_older_config_moves_nothing(client: Any, pools: RedisPools) -> None:
    """The version is the text itself, whoever wrote it."""
    write(client, WALK_THROUGH, TARGETS)
    version = pools.snapshot().version
    client.set("voice:tier:config", client.get("voice:tier:config") + " ")
    answers = pools.move([MovePod("agent-2", "basic", "gold")], version, None)
    assert [answer.code for answer in answers] == ["ConfigChanged"]


def test_a_newer_leader_fences_the_older(client: Any, pools: RedisPools) -> None:
    """The epoch only rises."""
    write(client, WALK_THROUGH, {"gold": 5, "standard": 3, "basic": 1})
    assert _move(pools, "agent-2", "basic", "gold", epoch=4) == "Moved"
    assert client.get("voice:epoch") == "4"
    assert _move(pools, "agent-6", "basic", "gold", epoch=3) == "Fenced"
    done = rebalance(pools, epoch=3)
    assert (done.decision.reason.code, done.decision.actions) == ("HeldByLeader", ())
    assert [action.pod for action in rebalance(pools).decision.actions] == ["agent-6"]


def test_a_pod_whose_keys_contradict_each_other_does_not_stop_the_others(
    client: Any, pools: RedisPools
) -> None:
    """The next idle one goes instead."""
    write(client, WALK_THROUGH, TARGETS)
    client.set("voice:pod:tier:agent-2", "standard")
    assert [action.pod for action in rebalance(pools).decision.actions] == ["agent-6"]


def test_what_was_before_is_told_from_before_the_first_move(client: Any, pools: RedisPools) -> None:
    """Also when one of the planned pods refuses, and the rest is planned anew amid the moves."""
    write(client, {"gold": ["a-0", "a-1", "a-2"], "silver": []}, {"gold": 1, "silver": 2})
    client.set("voice:pod:tier:a-0", "silver")
    decision = rebalance(pools).decision
    assert [action.pod for action in decision.actions] == ["a-1", "a-2"]
    assert decision.reason.sentence.startswith(
        "2 pods were moved. Plan: gold has 2 pods more than its target;"
    )
    assert decision.reason.numbers["assigned"] == {"gold": 3, "silver": 0}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{"tier": "basic", "n": 12345678901234567, "e": []}',
            '{"tier": "gold", "n": 12345678901234567, "e": []}',
        ),
        ('{"a": {"tier": "x"}, "tier":null}', '{"a": {"tier": "x"}, "tier":"gold"}'),
        (
            '{"q": "\\"tier\\": 1\\\\", "tier": {"deep": ["]}"]}}',
            '{"q": "\\"tier\\": 1\\\\", "tier": "gold"}',
        ),
        ('{"name": "ü"}', '{"name": "ü","tier":"gold"}'),
        (" { } ", ' { "tier":"gold"} '),
        ('{"tier": "basic"', '{"tier": "basic"'),
        ('["tier"]', '["tier"]'),
        ("text", "text"),
    ],
)
def test_metadata_keeps_every_byte_but_the_tier(
    client: Any, pools: RedisPools, before: str, after: str
) -> None:
    """Unknown fields are somebody's; malformed text is left, and reported."""
    write(client, WALK_THROUGH, TARGETS)
    client.hset("voice:pod:metadata", "agent-2", before)
    outcome = rebalance(pools).outcomes[0]
    assert client.hget("voice:pod:metadata", "agent-2") == after
    assert (outcome.detail == "metadata is malformed") == (before == after)


def test_a_pod_without_metadata_gets_none(client: Any, pools: RedisPools) -> None:
    """What a foreign allocator did not write is not missed."""
    write(client, WALK_THROUGH, TARGETS)
    client.delete("voice:pod:metadata")
    assert len(rebalance(pools).decision.actions) == 1
    assert not client.exists("voice:pod:metadata")


def test_merchants_and_tiers_outside_the_chain_are_not_touched(client: Any, pools: RedisPools) -> None:
    """Only the default chain is rebalanced."""
    write(client, WALK_THROUGH, TARGETS)
    config = json.loads(client.get("voice:tier:config"))
    config["tiers"]["vip"] = {"type": "exclusive", "target": 0}
    client.set("voice:tier:config", json.dumps(config))
    client.sadd("voice:pool:vip:assigned", "agent-20")
    client.sadd("voice:pool:vip:available", "agent-20")
    client.set("voice:pod:tier:agent-20", "vip")
    client.sadd("voice:merchant:m1:assigned", "agent-21")
    client.set("voice:pod:tier:agent-21", "merchant:m1")
    before = dump(client)
    assert [action.pod for action in rebalance(pools).decision.actions] == ["agent-2"]
    after = dump(client)
    for key in ("pool:vip:assigned", "pool:vip:available", "pod:tier:agent-20", "merchant:m1:assigned"):
        assert after[f"voice:{key}"] == before[f"voice:{key}"]
    assert _move(pools, "agent-20", "vip", "gold") == "NoTier"
    assert pools.drain("agent-21").code == "Merchant"


def test_a_marked_pod_is_delivered_by_its_release(client: Any, pools: RedisPools) -> None:
    """So convergence waits for the longest call, not for a lucky moment."""
    write(client, {"basic": ["agent-0"], "gold": []}, {"basic": 0, "gold": 1})
    assert pools.allocate("c1").pod == "agent-0"
    done = rebalance(pools, marks_busy=True)
    assert [outcome.result for outcome in done.outcomes] == ["Pending"]
    assert pools.snapshot().pending == {"agent-0": "gold"}
    answer = pools.release("c1")
    assert (answer.tier, answer.detail) == ("gold", "moved from basic")
    assert client.smembers("voice:pool:gold:available") == {"agent-0"}
    assert not client.exists("voice:pending", "voice:lease:agent-0", "voice:pool:basic:assigned")
    assert json.loads(client.hget("voice:pod:metadata", "agent-0"))["tier"] == "gold"


def test_a_mark_that_nobody_needs_any_more_is_dropped(client: Any, pools: RedisPools) -> None:
    """The counts are checked again at the moment of the release."""
    write(client, {"basic": ["agent-0", "agent-1"], "gold": []}, {"basic": 0, "gold": 1})
    call = pools.allocate("c1", "basic")
    assert _move(pools, call.pod, "basic", "gold", marks_busy=True) == "Pending"
    other = {"agent-0": "agent-1", "agent-1": "agent-0"}[call.pod]
    assert _move(pools, other, "basic", "gold") == "Moved"
    assert pools.release("c1").tier == "basic"
    assert not client.exists("voice:pending")


@pytest.mark.parametrize("is_sent", [True, False], ids=["lost on its way back", "lost on its way there"])
def test_an_answer_lost_amid_many_moves_leaves_what_is_known(
    client: Any, pools: RedisPools, url: str, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    """Those before it are told as moved, those in it as unknown, those behind it were never sent."""
    names = [f"a-{number}" for number in range(7)]
    write(client, {"gold": names, "silver": []}, {"gold": 0, "silver": 7})
    monkeypatch.setattr(scripts, "BATCH", 2)
    for writer in ("snapshot", "move"):
        client.script_load(source(writer))
    with proxy_to(url) as line:
        far = RedisPools(
            connect(line.url, "voice", timeout_seconds=60.0), "voice", line.url, read_tiers=tiers_for_scripts
        )
        line.lose("answer" if is_sent else "request", "refused", skips=3)  # a look, a move, two moves
        done = rebalance(far)
        far.close()
    assert [outcome.result for outcome in done.outcomes] == [
        *["Moved"] * 3,
        *["Unanswered"] * 2,
        *["Failed"] * 2,
    ]
    assert [action.pod for action in done.decision.actions] == names[:3]
    assert [held.reason for held in done.decision.held] == ["HeldByHealth"] * 4
    assert "the outcome is unknown" in done.failure
    assert client.scard("voice:pool:silver:assigned") == (5 if is_sent else 3)
    rest = rebalance(pools)
    assert rest.failure == ""
    assert len(rest.decision.actions) == (2 if is_sent else 4)
    assert client.scard("voice:pool:silver:assigned") == 7
