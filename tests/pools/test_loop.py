"""The pools' loop on a real server, with Kubernetes' list as a test says it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools
from equipoise.cli.replay import replay
from equipoise.core.cluster import Pod
from equipoise.core.decision import Record, RegisterPod
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolAnswer
from equipoise.pools.invariants import violations
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.policy import read_policy, tiers_for_scripts
from equipoise.ports import CycleReport, Unanswered
from tests.support.pools.fleet import UIDS, World, make_loop, pod
from tests.support.pools.worlds import config, dump, write


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def loop(world: World, pools: RedisPools) -> PoolsLoop:
    return make_loop(world, pools)


def codes(report: CycleReport) -> list[str]:
    return [decision.reason.code.value for decision in report.decisions]


def results(report: CycleReport) -> list[str]:
    return [outcome.result for outcome in report.outcomes]


def is_clean(pools: RedisPools) -> bool:
    seen = pools.snapshot(is_thorough=True)
    return violations(read_policy(seen.config, "config"), seen) == []


def test_pods_are_registered_in_order_and_forgotten_when_they_are_gone(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """From an empty server with a config to full tiers; then a scale-down whose ends were seen."""
    client.set("voice:tier:config", '{"gold": 2, "silver": 1}')
    world.listed = [pod(name) for name in UIDS][:3]
    report = loop.cycle(0.0)
    assert results(report) == ["Registered"] * 3
    assert client.smembers("voice:pool:gold:assigned") == {"agent-0", "agent-1"}
    assert client.hget("voice:pod:agent-2", "uid") == "uid-2"
    assert client.get("voice:epoch") == "5"
    assert codes(loop.cycle(60.0)) == ["InStep", "Balanced"]
    world.listed[2] = pod("agent-2", deletion_at=70.0)
    assert results(loop.cycle(61.0)) == ["Drained"]
    world.listed = world.listed[:2]
    assert results(loop.cycle(62.0)) == ["Unregistered"]
    assert client.smembers("voice:pool:silver:assigned") == set()
    assert is_clean(pools)


def test_a_cycle_ends_with_a_rebalancing_and_everything_can_be_decided_again(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """The seed's walk-through, by the loop: agent-2 moves to gold; the records replay to the last bit."""
    write(client, {"gold": list(UIDS)[:3], "standard": list(UIDS)[3:5], "basic": list(UIDS)[5:]})
    world.listed = [pod(name) for name in UIDS]
    assert results(loop.cycle(0.0)) == ["Known"] * 9
    client.set("voice:tier:config", _config(gold=4, standard=2, basic=3))
    report = loop.cycle(60.0)
    moves = [outcome for outcome in report.outcomes if outcome.result == "Moved"]
    assert [(move.action.pod, move.action.destination) for move in moves] == [("agent-5", "gold")]  # type: ignore[union-attr]
    assert codes(report) == ["InStep", "Rebalance"]
    assert codes(loop.cycle(120.0)) == ["InStep", "Balanced"]
    assert report.decisions[1].extra["tiers"]["gold"] == {
        "target": 4,
        "calls": 0,
        "idle": 3,
        "busy": 0,
        "draining": 0,
    }
    world.paused = "by a person"
    client.set("voice:tier:config", _config(gold=3, standard=2, basic=4))
    assert codes(loop.cycle(180.0)) == ["InStep", "HeldByPause"]
    again = replay(Record.from_json(record.to_json()) for record in world.records)
    assert (again.replayed, again.different) == (8, [])
    assert is_clean(pools)


def _config(**targets: int) -> str:
    import json

    return json.dumps(config(**targets))


@pytest.mark.parametrize("why", ["preview", "follower", "pause"])
def test_who_may_not_act_changes_nothing(client: Any, pools: RedisPools, world: World, why: str) -> None:
    """In preview, without the lease, and while somebody has said stop; yet it says what it would do."""
    write(client, {"gold": ["agent-0", "agent-1"], "silver": []}, {"gold": 1, "silver": 1})
    world.listed = [pod("agent-0"), pod("agent-1"), pod("agent-2")]
    loop = make_loop(world, pools, is_acting=why != "preview")
    if why == "follower":
        world.lead = None
    if why == "pause":
        world.paused = "by a person"
    before = dump(client)
    report = loop.cycle(0.0)
    assert dump(client) == before
    assert report.outcomes == []
    expected = {"preview": "Reconcile", "follower": "HeldByLeader", "pause": "HeldByPause"}[why]
    assert codes(report)[0] == expected
    assert report.decisions[1].extra["broken"] == 0, "a pod that no tier has yet is not a broken one"
    assert report.warnings == []


def test_an_empty_list_and_an_unknown_list_change_nothing(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """Not even after a day."""
    write(client, {"gold": list(UIDS)})
    world.listed = [pod(name) for name in UIDS]
    loop.cycle(0.0)
    before = dump(client)
    world.listed = []
    for at in (60.0, 120.0, 86400.0):
        assert codes(loop.cycle(at))[0] == "HeldByHealth"
    world.unknown = True
    with pytest.raises(WorldFailed, match="not been listed"):
        loop.cycle(86460.0)
    assert dump(client) == before


def test_pods_that_went_while_nobody_looked_are_asked_for_by_name(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """More than may be lost at once: only those that the server does not know are forgotten."""
    write(client, {"gold": list(UIDS)})
    world.listed = [pod(name) for name in list(UIDS)[:4]]
    world.gone = {"agent-5", "agent-8"}
    report = loop.cycle(0.0)
    forgotten = [outcome.action.pod for outcome in report.outcomes if outcome.result == "Unregistered"]
    assert forgotten == ["agent-5", "agent-8"]
    assert len(report.decisions[0].held) == 3
    again = replay(Record.from_json(record.to_json()) for record in world.records)
    assert (again.replayed, again.different) == (2, [])


def test_a_reused_name_ends_the_old_calls(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """And a late release of one of them does not touch the new pod."""
    client.set("voice:tier:config", '{"gold": 1}')
    world.listed = [pod("agent-0")]
    loop.cycle(0.0)
    assert pools.allocate("old").pod == "agent-0"
    world.listed = [pod("agent-0", "another")]
    assert results(loop.cycle(60.0)) == ["Replaced"]
    assert pools.allocate("new").pod == "agent-0"
    assert pools.release("old").code == "UnknownCall"
    assert client.get("voice:lease:agent-0") == "new"
    assert is_clean(pools)


def test_an_older_leader_is_refused_by_the_server(client: Any, pools: RedisPools, world: World) -> None:
    """Its lease has passed to another that it does not know of yet."""
    write(client, {"gold": ["agent-0", "agent-1"], "silver": []}, {"gold": 1, "silver": 1})
    world.listed = [pod("agent-0"), pod("agent-1")]
    make_loop(World(world.listed, lead=8), pools).cycle(0.0)
    client.set("voice:tier:config", '{"gold": 2, "silver": 0}')
    before = dump(client)
    old = make_loop(World([*world.listed, pod("agent-2")], lead=7), pools)
    assert set(results(old.cycle(1.0))) == {"Fenced"}
    assert dump(client) == before


def test_a_refused_leader_says_why_and_what_to_do(client: Any, pools: RedisPools, world: World) -> None:
    """An epoch that is none, and one that is above its own; neither is passed over in silence."""
    write(client, {"gold": ["agent-0", "agent-1"], "silver": []}, {"gold": 1, "silver": 1})
    world.listed = [pod("agent-0"), pod("agent-1")]
    for epoch, result, words in (
        ("inf", "EpochUnreadable", ("got 'inf'", "run `equipoise pools fsck --repair`")),
        ("99", "Fenced", ("is 99, and this process leads in epoch 5", "then delete it")),
    ):
        client.set("voice:epoch", epoch)
        before = dump(client)
        report = make_loop(world, pools).cycle(0.0)
        assert set(results(report)) == {result}
        assert dump(client) == before
        assert all(each in "\n".join(report.warnings) for each in words)
    client.delete("voice:epoch")
    report = make_loop(world, pools).cycle(60.0)
    assert (set(results(report)), report.warnings) == ({"Known", "Moved"}, [])


def test_a_lost_pod_is_put_back_by_two_sweeps_a_lease_apart(client: Any, world: World, url: str) -> None:
    """A foreign allocator died between taking it and leasing it."""
    pools = RedisPools(client, "voice", url, lease_seconds=0.2, read_tiers=tiers_for_scripts)
    loop = make_loop(world, pools, interval_seconds=0.001)
    write(client, {"gold": ["agent-0"]})
    world.listed = [pod("agent-0")]
    loop.cycle(0.0)
    client.spop("voice:pool:gold:available")
    assert results(loop.cycle(1.0)) == []
    assert client.blpop("nothing", 0.25) is None
    assert results(loop.cycle(2.0)) == ["Recovered"]
    assert client.smembers("voice:pool:gold:available") == {"agent-0"}


def test_sweeps_go_on_when_the_clock_is_set_back(client: Any, world: World, loop: PoolsLoop) -> None:
    """Else nobody would be put back until it is where it was."""
    write(client, {"gold": ["agent-0"]})
    world.listed = [pod("agent-0")]
    loop.cycle(86400.0)
    client.spop("voice:pool:gold:available")
    loop.cycle(60.0)
    assert client.hkeys("voice:suspects") == ["agent-0"]


def test_whose_turn_ended_in_the_cycle_marks_nobody(client: Any, pools: RedisPools, world: World) -> None:
    """Also when it begins to lead anew meanwhile: what it saw is of another turn."""
    write(client, {"gold": ["agent-0"], "silver": []}, {"gold": 0, "silver": 1})
    world.listed = [pod("agent-0")]
    pools.reconcile([RegisterPod("agent-0", "uid-0")], 5)
    pools.allocate("c1")
    for before, after in ((5, 7), (None, 7)):
        world.lead = before
        loop = make_loop(world, pools, pods=partial(_listed_in_turn, world, after))
        state = dump(client)
        loop.cycle(0.0)
        assert dump(client) == state


def _listed_in_turn(world: World, epoch: int) -> list[Pod]:
    world.lead = epoch
    return world.listed


def test_a_busy_pod_is_marked_and_its_release_delivers_it(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """So that convergence is bounded by the longest call; it is marked once."""
    client.set("voice:tier:config", '{"gold": 1, "silver": 0}')
    world.listed = [pod("agent-0")]
    loop.cycle(0.0)
    pools.allocate("c1")
    client.set("voice:tier:config", '{"gold": 0, "silver": 1}')
    report = loop.cycle(60.0)
    assert (codes(report)[1], results(report)) == ("AllBusy", ["Pending"])
    assert results(loop.cycle(120.0)) == []
    assert pools.release("c1").tier == "silver"
    assert codes(loop.cycle(180.0)) == ["InStep", "Balanced"]


def test_a_suspended_pod_keeps_its_calls_and_a_persons_drain_stays(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """What the loop drains it undrains; what a person drains it leaves."""
    client.set("voice:tier:config", '{"basic": {"type": "shared", "target": 4}}')
    names = ["agent-0", "agent-1", "agent-2", "agent-3"]
    world.listed = [pod(name) for name in names]
    loop.cycle(0.0)
    busy = pools.allocate("c1").pod
    world.listed = [pod(name, is_ready=name != busy) for name in names]
    assert results(loop.cycle(1.0)) == ["Drained"]
    assert pools.heartbeat("c1").code == "Renewed"
    world.listed = [pod(name) for name in names]
    assert results(loop.cycle(2.0)) == ["Undrained"]
    assert client.zscore("voice:pool:basic:available", busy) == 1
    pools.drain("agent-3")
    assert results(loop.cycle(3.0)) == []
    world.listed = [pod(name, is_ready=name != "agent-3") for name in names]
    assert results(loop.cycle(4.0)) == []
    world.listed = [pod(name) for name in names]
    assert results(loop.cycle(5.0)) == []
    assert client.exists("voice:pod:draining:agent-3")


def test_merchants_and_contradictions_are_left_alone(
    client: Any, pools: RedisPools, world: World, loop: PoolsLoop
) -> None:
    """The first is not ours; the second is for `fsck`, and the cycle says so."""
    write(client, {"gold": ["agent-0", "agent-1"], "silver": ["agent-2"]})
    client.set("voice:pod:tier:agent-7", "merchant:m1")
    client.sadd("voice:pool:silver:assigned", "agent-0")
    world.listed = [pod(name) for name in ("agent-0", "agent-1", "agent-2", "agent-7")]
    report = loop.cycle(0.0)
    assert results(report)[:2] == ["Known", "Known"]
    assert client.get("voice:pod:tier:agent-7") == "merchant:m1"
    assert report.warnings == ["voice: 1 invariant is violated; run `equipoise pools fsck` for details"]


class Flaky:
    """Pools whose server goes away in the middle of a move."""

    def __init__(self, pools: RedisPools, answer: Callable[[list[PoolAnswer]], Any]) -> None:
        self._pools = pools
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pools, name)

    def move(self, *arguments: Any, **options: Any) -> Any:
        return self._answer(self._pools.move(*arguments, **options))


def test_a_failing_server_ends_the_cycle_and_the_next_one_goes_on(
    client: Any, pools: RedisPools, world: World
) -> None:
    """Nothing is guessed: the failure is told, and the state is read anew."""

    def lost(answers: list[PoolAnswer]) -> Any:
        raise Unanswered("redis: no answer")

    write(client, {"gold": ["agent-0", "agent-1"], "silver": []}, {"gold": 1, "silver": 1})
    world.listed = [pod("agent-0"), pod("agent-1")]
    with pytest.raises(Unanswered):
        make_loop(world, Flaky(pools, lost)).cycle(0.0)
    assert codes(make_loop(world, pools).cycle(60.0)) == ["InStep", "Balanced"]
    assert is_clean(pools)


def test_it_is_woken_by_a_change_and_by_the_lease(world: World, pools: RedisPools, client: Any) -> None:
    """Not otherwise: at rest it looks once a minute."""
    client.set("voice:tier:config", '{"gold": 1}')
    changes = [False, True, False, False]
    loop = make_loop(world, pools, has_changed=lambda: changes.pop(0))
    loop.cycle(0.0)
    assert loop.is_woken()
    assert not loop.is_woken()
    world.lead = 6
    assert loop.is_woken()
