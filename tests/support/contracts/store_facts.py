"""What holds of every store."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from equipoise.core.cluster import WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import BYTES_MAX, Entry, EntryState, Ledger
from equipoise.ports import StoreConflict
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import StoreWorld, ledger

STORE: Contract[StoreWorld] = Contract("Store")

TOO_MANY_BYTES = 300_000
"""More than any world's bound."""


def document(key: WorkloadRef, **memory: Any) -> dict[str, Any]:
    """Give a whole ledger, as the runtime writes it, with these words of memory."""
    workload = key
    return {
        "workload": {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name},
        "epoch": 3,
        "entriesTotal": 1,
        "entries": [
            {
                "id": "a-1",
                "balancer": "rotation",
                "action": "EvictPod",
                "pod": "web-1",
                "uid": "6a3c",
                "at": "2026-11-15T08:00:00Z",
                "state": "Intent",
                "epoch": 3,
            }
        ],
        "memory": {"rotation": memory},
    }


@STORE.fact
def an_absent_entry_reads_empty(world: StoreWorld) -> None:
    """Nobody has to make an entry before reading it."""
    stored = world.store.read(ledger(world.namespace, "absent"))
    assert (dict(stored.data), stored.version) == ({}, "")


@STORE.fact
def a_written_document_comes_back_equal(world: StoreWorld) -> None:
    """Every shape that JSON has, with nothing rounded, dropped or reordered."""
    key = ledger(world.namespace, "shapes")
    words = {"text": 'ü " \\ \n', "whole": 2**53 - 1, "part": 0.1, "less": -1e-9, "yes": True, "none": None}
    written = document(key, **words, list=[1, [2, {"a": []}], {}], deep={"a": {"b": {"c": "d"}}})
    stored = world.store.write(key, written, "")
    assert stored.data == written
    assert stored.version
    again = world.store.read(key)
    assert again.data == written
    assert again.version == stored.version


@STORE.fact
def every_write_has_a_version_of_its_own(world: StoreWorld) -> None:
    """A version stands for one state."""
    key = ledger(world.namespace, "versions")
    versions, version = set(), ""
    for number in range(5):
        version = world.store.write(key, document(key, number=number), version).version
        assert world.store.read(key).version == version
        versions.add(version)
    assert len(versions) == 5


@STORE.fact
def a_write_with_an_old_version_conflicts_and_changes_nothing(world: StoreWorld) -> None:
    """Compare, then swap."""
    key = ledger(world.namespace, "old")
    first = world.store.write(key, document(key, by="first"), "")
    second = world.store.write(key, document(key, by="second"), first.version)
    with pytest.raises(StoreConflict):
        world.store.write(key, document(key, by="late"), first.version)
    assert world.store.read(key) == second


@STORE.fact
def an_entry_is_made_only_once(world: StoreWorld) -> None:
    """Two who both saw nothing do not both write."""
    key = ledger(world.namespace, "once")
    first = world.store.write(key, document(key, by="first"), "")
    with pytest.raises(StoreConflict):
        world.store.write(key, document(key, by="second"), "")
    assert world.store.read(key) == first


@STORE.fact
def an_entry_that_is_absent_has_no_version_to_match(world: StoreWorld) -> None:
    """Who has read an entry that is gone by now has to read again."""
    made = world.store.write(ledger(world.namespace, "made"), document(ledger(world.namespace, "made")), "")
    key = ledger(world.namespace, "gone")
    with pytest.raises(StoreConflict):
        world.store.write(key, document(key), made.version)
    assert world.store.read(key).version == ""


@STORE.fact
def a_write_replaces_the_whole_document(world: StoreWorld) -> None:
    """What is left out is forgotten, not merged."""
    key = ledger(world.namespace, "whole")
    first = world.store.write(key, document(key, old=1, both=1), "")
    world.store.write(key, document(key, both=2, new=3), first.version)
    assert world.store.read(key).data["memory"] == {"rotation": {"both": 2, "new": 3}}


@STORE.fact
def concurrent_increments_lose_none(world: StoreWorld) -> None:
    """Everyone who retries after a conflict gets their turn, and no turn is overwritten."""
    key = ledger(world.namespace, "counter")
    threads, each = 6, 5

    def add_one() -> None:
        for _ in range(each):
            while True:
                stored = world.store.read(key)
                count = stored.data.get("memory", {}).get("rotation", {}).get("count", 0)
                try:
                    world.store.write(key, document(key, count=count + 1), stored.version)
                    break
                except StoreConflict:
                    continue

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(add_one) for _ in range(threads)]:
            done.result(180)
    assert world.store.read(key).data["memory"]["rotation"]["count"] == threads * each


@STORE.fact
def entries_of_different_workloads_are_apart(world: StoreWorld) -> None:
    """A Deployment and a StatefulSet of one name have two ledgers."""
    one, other = ledger(world.namespace, "web"), ledger(world.namespace, "web", "StatefulSet")
    first = world.store.write(one, document(one, of="one"), "")
    second = world.store.write(other, document(other, of="other"), "")
    assert world.store.read(one) == first
    assert world.store.read(other) == second


@STORE.fact
def long_names_that_are_alike_are_apart(world: StoreWorld) -> None:
    """However a store names its entries."""
    keys = [ledger(world.namespace, f"{'a' * 60}.{tail}") for tail in ("b", "c", "b-c", "b.c")]
    versions = [world.store.write(key, document(key, of=key.name), "").version for key in keys]
    assert [world.store.read(key).version for key in keys] == versions
    assert [world.store.read(k).data["memory"]["rotation"]["of"] for k in keys] == [k.name for k in keys]


@STORE.fact
def too_much_is_refused_and_nothing_changes(world: StoreWorld) -> None:
    """Never cut short in silence: the caller has to forget something."""
    key = ledger(world.namespace, "large")
    before = world.store.write(key, document(key, small=True), "")
    with pytest.raises(WorldFailed, match="bytes"):
        world.store.write(key, document(key, large="x" * TOO_MANY_BYTES), before.version)
    assert world.store.read(key) == before


@STORE.fact
def what_was_handed_over_is_a_copy(world: StoreWorld) -> None:
    """Memory is changed by writing only."""
    key = ledger(world.namespace, "copy")
    written = document(key, list=[1])
    expected = copy.deepcopy(written)
    stored = world.store.write(key, written, "")
    written["memory"]["rotation"]["list"].append(2)
    read = world.store.read(key)
    read.data["memory"]["rotation"]["list"].append(3)
    assert world.store.read(key).data == expected
    assert stored.data == expected


@STORE.fact
def the_runtimes_ledger_is_kept_as_it_is(world: StoreWorld) -> None:
    """Intent, outcome and epoch come back as the fence wrote them."""
    key = ledger(world.namespace, "runtime")
    intent = Entry("r1-0", "r1", "rotation", "EvictPod", "web-1", "6a3c", 1_763_200_000.5, epoch=4)
    written = Ledger().with_intent(intent)
    stored = world.store.write(key, written.to_data(), "")
    assert Ledger.from_data(stored.data) == Ledger.from_data(world.store.read(key).data) == written
    settled = written.settled("r1-0", EntryState.DONE)
    world.store.write(key, settled.to_data(), stored.version)
    assert Ledger.from_data(world.store.read(key).data) == settled


@STORE.fact
def an_entry_says_whose_it_is(world: StoreWorld) -> None:
    """Also where its writer did not."""
    key = ledger(world.namespace, "whose")
    world.store.write(key, Ledger().to_data(), "")
    whose = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "whose"}
    assert world.store.read(key).data["workload"] == whose


@STORE.fact
def a_namespace_without_entries_reads_empty(world: StoreWorld) -> None:
    """Nobody has to make anything before reading all of it."""
    assert dict(world.store.read_all(world.namespace)) == {}


@STORE.fact
def all_entries_read_as_each_does_by_itself(world: StoreWorld) -> None:
    """The same data and the same versions, by workload, however long or alike the names are."""
    keys = [
        ledger(world.namespace, "web"),
        ledger(world.namespace, "web", "StatefulSet"),
        ledger(world.namespace, f"{'a' * 60}.b"),
    ]
    for number, key in enumerate(keys):
        world.store.write(key, document(key, number=number), "")
    found = world.store.read_all(world.namespace)
    assert dict(found) == {key: world.store.read(key) for key in keys}


@STORE.fact
def a_namespace_narrows_what_is_read_at_once(world: StoreWorld) -> None:
    """Everywhere includes here, and elsewhere does not."""
    key = ledger(world.namespace, "narrow")
    stored = world.store.write(key, document(key), "")
    assert world.store.read_all()[key] == stored
    assert dict(world.store.read_all("no-such-namespace")) == {}


@STORE.fact
def an_entry_that_was_read_with_all_others_is_swapped_by_its_version(world: StoreWorld) -> None:
    """And only once: whoever comes second with it has to read again."""
    key = ledger(world.namespace, "swap")
    world.store.write(key, document(key, by="first"), "")
    seen = world.store.read_all(world.namespace)[key]
    written = world.store.write(key, document(key, by="second"), seen.version)
    assert world.store.read_all(world.namespace)[key] == written
    with pytest.raises(StoreConflict):
        world.store.write(key, document(key, by="late"), seen.version)


@STORE.fact
def an_entry_holds_what_it_may_and_not_a_byte_more(world: StoreWorld) -> None:
    """The bound is the same everywhere, so that what fits in the simulator fits in a cluster."""
    key = ledger(world.namespace, "bound")
    room_left = BYTES_MAX - len(json.dumps(document(key, text=""), separators=(",", ":")))
    before = world.store.write(key, document(key, text="x" * room_left), "")
    with pytest.raises(WorldFailed, match="bytes"):
        world.store.write(key, document(key, text="x" * (room_left + 1)), before.version)
    assert world.store.read(key) == before
