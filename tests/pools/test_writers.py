"""Register, allocate, release, heartbeat, drain, recover: what each does, and asked twice does once."""

import json
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools
from equipoise.core.decision import RegisterPod
from equipoise.pools.policy import tiers_for_scripts
from tests.support.pools.worlds import dump, write


def _small(client: Any) -> None:
    write(client, {"gold": ["a-0"], "basic": ["a-1"]}, {"gold": 1, "basic": 2})


def test_a_call_gets_a_pod_of_the_chain_and_the_same_again(client: Any, pools: RedisPools) -> None:
    """Exclusive pods one call each, shared ones up to their limit; the same call never two."""
    _small(client)
    assert (pools.allocate("c1").pod, pools.allocate("c2").pod) == ("a-0", "a-1")
    state = dump(client)
    assert pools.allocate("c1").detail == "again"
    assert dump(client) == state
    assert [pools.allocate(f"c{number}").code for number in range(3, 8)] == ["Allocated"] * 4 + ["NoneFree"]
    assert pools.allocate("c9", "gold").code == "NoneFree"
    assert pools.allocate("c9", "silver").code == "NoTier"
    assert client.get("voice:lease:a-0") == "c1"
    assert 0 < client.pttl("voice:lease:a-0") <= 900_000
    assert client.zscore("voice:pool:basic:available", "a-1") == 5


def test_the_least_loaded_shared_pod_is_taken(client: Any, pools: RedisPools) -> None:
    """Calls spread."""
    write(client, {"basic": ["a-0", "a-1"]}, calls={"a-0": 1})
    assert pools.allocate("c1").pod == "a-1"


def test_pods_that_only_look_free_are_not_given(client: Any, pools: RedisPools) -> None:
    """Draining, leased, assigned elsewhere: whatever a foreign program left behind."""
    write(client, {"gold": [f"a-{number}" for number in range(40)]})
    for number in range(39):
        client.set(f"voice:{'lease' if number % 2 else 'pod:draining'}:a-{number}", "x")
    assert pools.allocate("c1").pod == "a-39"
    assert pools.allocate("c2").code == "NoneFree"


def test_a_call_of_another_allocator_is_not_taken_over(client: Any, pools: RedisPools) -> None:
    """Its record has no pod of ours."""
    _small(client)
    client.hset("voice:call:c1", mapping={"_lock": "1"})
    assert pools.allocate("c1").code == "CallTaken"


def test_a_release_is_owner_checked_and_idempotent(client: Any, pools: RedisPools) -> None:
    """The second changes nothing, and a stranger's neither."""
    _small(client)
    before = dump(client)
    assert pools.allocate("c1").pod == "a-0"
    held = dump(client)
    assert pools.release("c1", "a-1").code == "NotOwner"
    assert pools.release("c9").code == "UnknownCall"
    assert dump(client) == held
    assert pools.release("c1", "a-0").code == "Released"
    assert dump(client) == before
    assert pools.release("c1").code == "UnknownCall"
    assert dump(client) == before


def test_a_late_release_never_frees_the_next_callers_pod(client: Any, pools: RedisPools) -> None:
    """A lease of somebody else keeps the pod taken."""
    _small(client)
    pools.allocate("c1")
    client.set("voice:lease:a-0", "foreign")
    assert pools.release("c1").code == "Released"
    assert client.get("voice:lease:a-0") == "foreign"
    assert not client.exists("voice:pool:gold:available")


def test_a_shared_release_keeps_the_lease_until_the_last_call(client: Any, pools: RedisPools) -> None:
    """One key stands for all calls of a shared pod."""
    write(client, {"basic": ["a-1"]})
    for call in ("c1", "c2"):
        pools.allocate(call)
    pools.release("c2")
    assert client.exists("voice:lease:a-1")
    assert client.zscore("voice:pool:basic:available", "a-1") == 1
    pools.release("c1")
    assert not client.exists("voice:lease:a-1")
    assert client.zscore("voice:pool:basic:available", "a-1") == 0


def test_a_heartbeat_renews_lease_and_record(client: Any, pools: RedisPools) -> None:
    """And tells when the pod is no longer the caller's."""
    _small(client)
    pools.allocate("c1")
    client.delete("voice:lease:a-0")
    client.pexpire("voice:call:c1", 1000)
    assert pools.heartbeat("c1").code == "Renewed"
    assert client.get("voice:lease:a-0") == "c1"
    assert client.pttl("voice:call:c1") > 1_000_000
    client.set("voice:lease:a-0", "foreign")
    assert pools.heartbeat("c1").code == "LeaseLost"
    assert pools.heartbeat("c9").code == "UnknownCall"


def test_a_drained_pod_gets_no_calls_and_comes_back_with_those_it_has(client: Any, pools: RedisPools) -> None:
    """A shared pod's count survives the drain."""
    write(client, {"basic": ["a-1"]})
    for call in ("c1", "c2"):
        pools.allocate(call)
    assert pools.drain("a-1").detail == "2"
    assert pools.drain("a-1").code == "Drained"
    assert client.ttl("voice:pod:draining:a-1") == -1
    assert pools.allocate("c3").code == "NoneFree"
    assert pools.release("c1").detail == "draining"
    assert pools.undrain("a-1").code == "Undrained"
    assert pools.undrain("a-1").code == "NotDraining"
    assert client.zscore("voice:pool:basic:available", "a-1") == 1
    assert pools.drain("nobody").code == "NotThere"


def test_an_exclusive_pod_undrained_in_a_call_is_free_after_it(client: Any, pools: RedisPools) -> None:
    """Not before."""
    write(client, {"gold": ["a-0"]})
    pools.allocate("c1")
    pools.drain("a-0")
    pools.undrain("a-0")
    assert pools.allocate("c2").code == "NoneFree"
    pools.release("c1")
    assert pools.allocate("c2").pod == "a-0"


def test_a_new_pod_goes_where_one_is_missing_and_else_to_the_last_tier(
    client: Any, pools: RedisPools
) -> None:
    """The chain's order; the last tier takes what is too many."""
    write(client, {"gold": [], "basic": []}, {"gold": 1, "basic": 1})
    homes = [pools.register(f"a-{number}", f"u{number}", 1).tier for number in range(3)]
    assert homes == ["gold", "basic", "basic"]
    assert pools.register("a-0", "u0", 1).code == "Known"
    assert client.smembers("voice:pool:gold:available") == {"a-0"}
    assert client.zscore("voice:pool:basic:available", "a-2") == 0


def test_a_reused_name_is_another_pod(client: Any, pools: RedisPools) -> None:
    """Its predecessor's calls end with it, and its predecessor's end does not end it."""
    write(client, {"gold": []}, {"gold": 1})
    pools.register("a-0", "u1", 1, json.dumps({"zone": "b"}))
    pools.allocate("c1")
    assert pools.register("a-0", "u2", 1).code == "Replaced"
    assert pools.release("c1").code == "UnknownCall"
    assert pools.allocate("c2").pod == "a-0"
    assert pools.unregister("a-0", "u1", 1).code == "OtherUid"
    assert pools.drain("a-0", "u1").code == "OtherUid"
    assert pools.unregister("a-0", "u2", 1).code == "Unregistered"
    assert set(dump(client)) == {"voice:tier:config", "voice:epoch"}


def test_a_pod_that_comes_back_in_a_foreign_call_is_not_free(client: Any, pools: RedisPools) -> None:
    """Its lease says so."""
    write(client, {"gold": []}, {"gold": 1})
    client.set("voice:lease:a-0", "foreign")
    assert pools.register("a-0", "u1", 1).code == "Registered"
    assert not client.exists("voice:pool:gold:available")


@pytest.fixture
def impatient(client: Any) -> RedisPools:
    """Pools whose leases end at once, so that two sweeps are always far enough apart."""
    return RedisPools(client, "voice", lease_seconds=0.001, record_seconds=60, read_tiers=tiers_for_scripts)


def test_two_sweeps_bring_a_lost_pod_back_and_one_does_not(client: Any, pools: RedisPools) -> None:
    """And they must be a lease apart."""
    _small(client)
    client.spop("voice:pool:gold:available")
    assert [pools.recover(["a-0"], None)[0].code for _ in range(3)] == ["Suspected", "Waiting", "Waiting"]
    client.hset("voice:suspects", "a-0", "1 " + client.hget("voice:suspects", "a-0").split()[1])
    assert [pools.recover(["a-0"], None)[0].code for _ in range(2)] == ["Recovered", "Healthy"]
    assert client.smembers("voice:pool:gold:available") == {"a-0"}


def test_a_sweep_by_a_clock_that_was_ahead_is_not_waited_for(client: Any, pools: RedisPools) -> None:
    """A server whose clock was set back, or whose successor's is behind, would keep the pod out till then."""
    _small(client)
    client.spop("voice:pool:gold:available")
    assert pools.recover(["a-0"], None)[0].code == "Suspected"
    signature = client.hget("voice:suspects", "a-0").split()[1]
    client.hset("voice:suspects", "a-0", f"99999999999999 {signature}")
    assert [pools.recover(["a-0"], None)[0].code for _ in range(2)] == ["Suspected", "Waiting"]


def test_what_is_held_or_changed_between_two_sweeps_is_not_recovered(
    client: Any, impatient: RedisPools
) -> None:
    """A lease, a call, a drain, a change of its record."""
    _small(client)
    client.spop("voice:pool:gold:available")
    for command, word in [
        (("SET", "voice:lease:a-0", "x"), "Healthy"),
        (("SET", "voice:pod:draining:a-0", "x"), "Healthy"),
        (("HSET", "voice:pod:a-0", "status", "allocated"), "Suspected"),
    ]:
        assert impatient.recover(["a-0"], None)[0].code == "Suspected"
        client.execute_command(*command)
        assert impatient.recover(["a-0"], None)[0].code == word
        client.delete("voice:lease:a-0", "voice:pod:draining:a-0", "voice:suspects")


def test_a_dead_callers_place_on_a_shared_pod_is_given_back(client: Any, impatient: RedisPools) -> None:
    """Also while others call; a foreign call keeps its place."""
    write(client, {"basic": ["a-1"]}, calls={"a-1": 1})
    for call in ("c1", "c2"):
        impatient.allocate(call)
    client.delete("voice:call:c1")
    assert impatient.recover(["a-1"], None)[0].code == "Suspected"
    impatient.heartbeat("c2")
    client.hset("voice:suspects", "a-1", "1 " + client.hget("voice:suspects", "a-1").split()[1])
    assert impatient.recover(["a-1"], None)[0].code == "Recovered"
    assert client.zscore("voice:pool:basic:available", "a-1") == 2
    assert client.smembers("voice:pod:a-1:calls") == {"c2"}


def test_a_dry_writer_answers_and_changes_nothing(client: Any, pools: RedisPools) -> None:
    """The same checks, the same words."""
    _small(client)
    pools.allocate("c1")
    before = dump(client)
    dry = RedisPools(client, "voice", is_dry=True, read_tiers=tiers_for_scripts)
    assert dry.allocate("c2").pod == "a-1"
    assert dry.release("c1").pod == "a-0"
    assert dry.drain("a-1").code == "Drained"
    assert dry.undrain("a-1").code == "NotDraining"
    assert dry.register("a-9", "u", 7).code == "Registered"
    assert dry.unregister("a-0", "", None).code == "Unregistered"
    assert dry.set_config("{}", dry.snapshot().version).code == "Stored"
    assert dump(client) == before


@pytest.mark.parametrize("ended", ["replaced", "forgotten"])
def test_a_call_that_comes_again_outlives_the_pod_that_it_had_before(
    client: Any, impatient: RedisPools, ended: str
) -> None:
    """Its record ran out, it came again to another pod, and the old one's end does not end it."""
    write(client, {"gold": ["a-0", "a-1"]})
    lasting = RedisPools(client, "voice", read_tiers=tiers_for_scripts)
    first = lasting.allocate("c1").pod
    lasting.reconcile([RegisterPod("a-0", "u-a-0"), RegisterPod("a-1", "u-a-1")], 1)
    client.delete("voice:call:c1", f"voice:lease:{first}")
    second = lasting.allocate("c1").pod
    assert second != first
    if ended == "replaced":
        assert lasting.register(first, "u-new", 1).code == "Replaced"
    else:
        assert lasting.unregister(first, "", 1).code == "Unregistered"
    assert lasting.heartbeat("c1").code == "Renewed"
    client.delete(f"voice:lease:{second}")
    assert {impatient.recover([second], 1)[0].code for _ in range(3)} == {"Healthy"}
    assert [lasting.allocate(f"c{number}").pod for number in (2, 3)].count(second) == 0
    assert (lasting.release("c1").code, lasting.release("c1").code) == ("Released", "UnknownCall")


def test_the_pod_that_a_call_had_before_is_free_again(client: Any, impatient: RedisPools) -> None:
    """Drained, undrained, swept, released: nowhere does the call's new record speak for the old pod."""
    write(client, {"gold": ["a-0", "a-1"]})
    lasting = RedisPools(client, "voice", read_tiers=tiers_for_scripts)
    first = lasting.allocate("c1").pod
    client.delete("voice:call:c1", f"voice:lease:{first}")
    second = lasting.allocate("c1").pod
    assert lasting.snapshot().pods[first].calls == ()
    assert lasting.drain(first).detail == "0"
    assert lasting.undrain(first).code == "Undrained"
    assert client.smembers("voice:pool:gold:available") == {first}
    assert lasting.allocate("c2").pod == first
    assert lasting.release("c2").code == "Released"
    assert client.smembers("voice:pool:gold:available") == {first}
    client.srem("voice:pool:gold:available", first)
    client.sadd("voice:pod:" + first + ":calls", "c1")
    assert impatient.recover([first], None)[0].code == "Suspected"
    client.hset("voice:suspects", first, "1 " + client.hget("voice:suspects", first).split()[1])
    assert impatient.recover([first], None)[0].code == "Recovered"
    assert not client.exists(f"voice:pod:{first}:calls")
    assert lasting.snapshot().pods[second].calls == ("c1",)


def test_a_call_that_comes_again_to_its_shared_pod_is_counted_once(client: Any, pools: RedisPools) -> None:
    """Its place there was never given back."""
    write(client, {"basic": ["a-1"]})
    pools.allocate("c1")
    client.delete("voice:call:c1", "voice:lease:a-1")
    assert pools.allocate("c1").pod == "a-1"
    assert client.zscore("voice:pool:basic:available", "a-1") == 1
    assert pools.release("c1").code == "Released"
    assert client.zscore("voice:pool:basic:available", "a-1") == 0


def test_a_drain_that_is_asked_for_again_tells_the_same_calls(client: Any, pools: RedisPools) -> None:
    """Those of a foreign allocator too, which only the mark remembers."""
    write(client, {"basic": ["a-1"]}, calls={"a-1": 2})
    pools.allocate("c1")
    assert [pools.drain("a-1").detail for _ in range(2)] == ["3", "3"]
