"""The ledger store: names, owners, and answers that are lost after the write was done."""

import re

import pytest

from equipoise.adapters.kubernetes import Unreachable
from equipoise.adapters.kubernetes.objects import write_status
from equipoise.adapters.kubernetes.store import LedgerStore, LedgerTooLarge, entry_name
from equipoise.core.cluster import WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import BYTES_MAX, Ledger
from equipoise.ports import NotInstalled, StoreConflict
from tests.support.contracts.servers import small_api
from tests.support.contracts.small_api import SmallApi
from tests.support.contracts.store_facts import document
from tests.support.contracts.worlds import ledger
from tests.support.kubernetes.server import Asked, Stage, playing, session

KEY = ledger("shop", "web")
COLLECTION = "/apis/equipoise.dev/v1alpha1/namespaces/shop/ledgers"
PATH = f"{COLLECTION}/{entry_name(KEY)}"


def test_a_create_whose_answer_was_lost_is_known_for_our_own() -> None:
    """It is there, it is ours, and it is no conflict."""
    with small_api() as (api, client):
        api.answers_to_lose = ["POST"]
        stored = LedgerStore(client).write(KEY, document(KEY, n=1), "")
        assert LedgerStore(client).read(KEY) == stored


def test_an_update_whose_answer_was_lost_is_known_for_our_own() -> None:
    """The second attempt is told that the version has moved on; it was the first one that moved it."""
    with small_api() as (api, client):
        store = LedgerStore(client)
        first = store.write(KEY, document(KEY, n=1), "")
        api.answers_to_lose = ["PUT"]
        second = store.write(KEY, document(KEY, n=2), first.version)
        assert second.version != first.version
        assert store.read(KEY) == second


def test_somebody_elses_equal_document_is_a_conflict_all_the_same() -> None:
    """Not the content is compared but the write: two leaders may well want the same."""
    with small_api() as (_, client):
        store, other = LedgerStore(client), LedgerStore(client)
        first = store.write(KEY, document(KEY, n=1), "")
        other.write(KEY, document(KEY, n=2), first.version)
        with pytest.raises(StoreConflict):
            store.write(KEY, document(KEY, n=2), first.version)


def test_our_write_under_somebody_elses_is_a_conflict() -> None:
    """The answer was lost, and then another wrote: whoever reads again finds what is there."""
    with small_api() as (api, client):
        store = LedgerStore(client)
        first = store.write(KEY, document(KEY, n=1), "")

        def meanwhile() -> None:
            api.put(PATH, {**api.objects[PATH], "metadata": {"name": "x", "annotations": {}}})

        api.answers_to_lose, api.meanwhile = ["PUT"], meanwhile
        with pytest.raises(StoreConflict):
            store.write(KEY, document(KEY, n=2), first.version)


def test_a_write_that_nobody_ever_answers_is_unknown() -> None:
    """Neither done nor refused: it raises what says so."""
    with playing(lambda _, stage: stage.cut()) as player, session(player.url) as client:
        with pytest.raises(Unreachable):
            LedgerStore(client).write(KEY, document(KEY), "")
        assert len(player.asked) > 1


def test_a_missing_definition_is_not_an_empty_ledger() -> None:
    """Without the kind there is no memory, and nothing may be done on the strength of it."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.answer(b"404 page not found\n", 404)

    with playing(script) as player, session(player.url) as client:
        with pytest.raises(NotInstalled, match="equipoise crds apply"):
            LedgerStore(client).read(KEY)
        with pytest.raises(NotInstalled, match="equipoise crds apply"):
            LedgerStore(client).read_all()


def test_a_ledger_that_was_deleted_meanwhile_is_a_conflict() -> None:
    """Its reader has to read again, and finds it empty."""
    with small_api() as (api, client):
        store = LedgerStore(client)
        first = store.write(KEY, document(KEY), "")
        api.objects.clear()
        with pytest.raises(StoreConflict):
            store.write(KEY, document(KEY), first.version)
        assert store.read(KEY).version == ""


def test_a_ledger_belongs_to_its_workload_once_that_is_known() -> None:
    """It is collected with it; and who does not know the owner does not take it away."""
    with small_api() as (api, client):
        known = LedgerStore(client, uid_of=lambda _: "uid-9")
        first = known.write(KEY, document(KEY), "")
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-9"}
        assert api.objects[PATH]["metadata"]["ownerReferences"] == [owner]
        unknowing = LedgerStore(client)
        unknowing.read(KEY)
        unknowing.write(KEY, document(KEY, n=2), first.version)
        assert api.objects[PATH]["metadata"]["ownerReferences"] == [owner]


def test_what_is_written_says_whose_it_is_and_is_judged_strictly() -> None:
    """A key that the definition does not know must not vanish in silence."""
    with playing(SmallApi().script) as player, session(player.url) as client:
        written = LedgerStore(client).write(KEY, {"epoch": 1}, "")
        assert player.asked[0].query == {"fieldValidation": "Strict"}
    assert written.data["workload"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused(value: float) -> None:
    """A NaN would come back as nothing."""
    with small_api() as (api, client):
        with pytest.raises(ValueError, match="not JSON compliant"):
            LedgerStore(client).write(KEY, document(KEY, n=value), "")
        assert api.objects == {}


def test_the_bound_is_exact_and_says_both_numbers() -> None:
    """The caller prunes; nothing is cut."""
    with small_api() as (_, client):
        store = LedgerStore(client)
        with pytest.raises(LedgerTooLarge, match=f"bytes, expected at most {BYTES_MAX}"):
            store.write(KEY, document(KEY, n="x" * BYTES_MAX), "")


def test_all_ledgers_come_in_pages() -> None:
    """In a few requests, never one for each workload."""
    api = SmallApi()
    keys = [ledger("shop", f"web-{number}") for number in range(1100)]
    for key in keys:
        path = f"{COLLECTION}/{entry_name(key)}"
        api.put(path, {"metadata": _meta(entry_name(key)), "data": document(key)})
    with playing(api.script) as player, session(player.url) as client:
        assert set(LedgerStore(client).read_all()) == set(keys)
        assert [asked.query.get("limit") for asked in player.asked] == ["500"] * 3


def test_a_ledger_that_makes_no_sense_hides_no_other() -> None:
    """It is given as it is where it says whose it is; else it is nobody's, and a warning."""
    other = WorkloadRef("apps/v1", "Deployment", "shop", "api")
    senseless = {"workload": document(KEY)["workload"], "entries": [{"at": "yesterday"}]}
    stranger = {**document(KEY), "epoch": 99}
    with small_api() as (api, client):
        api.put(PATH, {"metadata": _meta(entry_name(KEY)), "data": senseless})
        for name, data in (
            ("stranger", stranger),
            ("text", "x"),
            ("bare", {}),
            ("list", {"workload": []}),
            ("nameless", {"workload": {"kind": "Deployment"}}),
        ):
            api.put(f"{COLLECTION}/{name}", {"metadata": _meta(name), "data": data})
        store = LedgerStore(client)
        written = store.write(other, document(other), "")
        found = store.read_all("shop")
        assert found[other] == written
        assert found[KEY] == store.read(KEY)
        assert found[KEY].data == senseless
        assert set(found) == {other, KEY}
        (warning,) = store.warnings
        assert warning.startswith("a Ledger that names no workload: 5 times, first in shop/")
        with pytest.raises(WorldFailed, match="its content is invalid"):
            Ledger.from_data(found[KEY].data)


def test_an_old_version_of_a_group_names_the_same_ledger() -> None:
    """As workloads are listed, whatever the writer called it."""
    old = KEY._replace(api_version="apps/v1beta1")
    with small_api() as (_, client):
        store = LedgerStore(client)
        written = store.write(old, document(old), "")
        assert dict(store.read_all()) == {KEY: written}


def test_reading_all_takes_no_ledger_from_its_owner() -> None:
    """Who has read it with all the others writes it back with the owner it had."""
    with small_api() as (api, client):
        LedgerStore(client, uid_of=lambda _: "uid-9").write(KEY, document(KEY), "")
        owners = api.objects[PATH]["metadata"]["ownerReferences"]
        store = LedgerStore(client)
        seen = store.read_all()[KEY]
        store.write(KEY, document(KEY, n=2), seen.version)
        assert api.objects[PATH]["metadata"]["ownerReferences"] == owners
        api.objects.clear()
        assert store.read_all("shop") == {}
        store.write(KEY, document(KEY), "")
        assert "ownerReferences" not in api.objects[PATH]["metadata"]


def _meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "shop"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Deployment", "web"), ("Rollout", "a.b.c"), ("StatefulSet", "x" * 253), ("D", "-.-"), ("Größe", "ü")],
)
def test_names_of_entries_are_valid_whatever_the_workload_is_called(kind: str, name: str) -> None:
    """A label of DNS: at most 63 of a to z, digits and dashes."""
    found = entry_name(WorkloadRef("apps/v1", kind, "shop", name))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", found)


def test_a_status_is_replaced_by_compare_and_swap() -> None:
    """Whole, against the version that was read; a lost answer is no conflict, a stale version is one."""
    path = "/apis/equipoise.dev/v1alpha1/namespaces/shop/rotationpolicies/web"
    with small_api() as (api, client):
        made = api.put(path, {"metadata": {"name": "web"}, "spec": {"topK": 2}, "status": {"old": 1}})
        old = made["metadata"]["resourceVersion"]
        api.answers_to_lose = ["PATCH"]
        new = write_status(client, path, {"reason": "NoHotPods"}, old)
        assert api.objects[path]["status"] == {"reason": "NoHotPods"}
        assert api.objects[path]["spec"] == {"topK": 2}
        assert api.objects[path]["metadata"]["resourceVersion"] == new != old
        with pytest.raises(StoreConflict):
            write_status(client, path, {"reason": "Rotate"}, old)
        assert api.objects[path]["status"] == {"reason": "NoHotPods"}


def test_a_store_for_some_namespaces_reads_all_of_those_only() -> None:
    """An operator for some namespaces has rights there only: a list of the whole cluster is refused."""
    with small_api() as (_, client):
        keys = [ledger(namespace, "web") for namespace in ("shop", "stall", "bank")]
        for key in keys:
            LedgerStore(client).write(key, document(key, n=1), "")
        confined = LedgerStore(client, namespaces=("shop", "stall"))
        assert set(confined.read_all()) == set(keys[:2])
        assert set(confined.read_all("stall")) == {keys[1]}
