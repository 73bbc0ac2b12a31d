"""Writes to the real API server: lost answers, events, apply, patches, taints, conditions, pauses."""

import time
from collections.abc import Iterator

import pytest
import yaml

from equipoise.adapters.kubernetes import ApiError, Client
from equipoise.adapters.kubernetes.actions import KubernetesActuator, NodeMarks, Taint
from equipoise.adapters.kubernetes.objects import Objects, write_status
from equipoise.adapters.kubernetes.pauses import NamespacePauses, pause, resume
from equipoise.adapters.kubernetes.store import LedgerStore, entry_name
from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionResult, StoreConflict
from tests.support.contracts.actuator_facts import ANOTHER_UID
from tests.support.contracts.real import RealWorld, install_kinds, session_of
from tests.support.contracts.store_facts import document
from tests.support.contracts.worlds import is_whole, ledger, pods_of, ref_of
from tests.support.e2e.losing_proxy import lossy
from tests.support.e2e.pausing import UNKNOWN, said_of
from tests.support.e2e.tcp_proxy import Wire
from tests.testbed import ControlPlane, Kwok, wait_until

PAUSE_BOUND_SECONDS = 5.0
MANAGER = "equipoise-test"


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A session with all rights."""
    client = session_of(control_plane)
    yield client
    client.close()


@pytest.fixture
def world(control_plane: ControlPlane, kwok: Kwok, client: Client, namespace: str) -> RealWorld:
    """A namespace with nodes to spare."""
    del kwok
    return RealWorld(control_plane, client, namespace)


def test_a_ledger_whose_answer_was_lost_was_written_once(control_plane: ControlPlane, namespace: str) -> None:
    """The real server committed it; the store knows its own hand, and a stranger's."""
    install_kinds(control_plane)
    key = ledger(namespace, "web")
    with lossy(control_plane) as (proxy, client, _):
        store = LedgerStore(client)
        proxy.to_lose = ["POST"]
        first = store.write(key, document(key, n=1), "")
        proxy.to_lose = ["PUT"]
        second = store.write(key, document(key, n=2), first.version)
        assert store.read(key) == second
        with pytest.raises(StoreConflict):
            store.write(key, document(key, n=3), first.version)
        path = f"/apis/equipoise.dev/v1alpha1/namespaces/{namespace}/ledgers/{entry_name(key)}"
        found = control_plane.api.get(path)
        assert found["metadata"]["generation"] == 2


def test_a_key_that_the_definition_does_not_know_is_refused(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """The server would drop it in silence otherwise."""
    install_kinds(control_plane)
    key = ledger(namespace, "web")
    with pytest.raises(ApiError, match="novelty"):
        LedgerStore(client).write(key, document(key) | {"novelty": 1}, "")
    assert LedgerStore(client).read(key).version == ""


def test_a_ledger_vanishes_with_its_workload(
    control_plane: ControlPlane, world: RealWorld, client: Client
) -> None:
    """The real garbage collector takes it."""
    install_kinds(control_plane)
    ref = world.add_workload("web", 1)
    found = world.cluster.workload(ref)
    assert found is not None
    store, key = LedgerStore(client, uid_of=lambda _: found.uid), ledger(world.namespace, "web")
    store.write(key, document(key), "")
    control_plane.api.delete(f"/apis/apps/v1/namespaces/{world.namespace}/deployments/web")
    wait_until(lambda: store.read(key).version == "", "the ledger collected", 240)


def test_an_eviction_whose_answer_was_lost_is_unknown_and_not_repeated(
    control_plane: ControlPlane, world: RealWorld
) -> None:
    """One pod goes, not two, and the caller is told that nobody knows."""
    world.add_workload("web", 3)
    pod = pods_of(world, "web")[0]
    before = {p.uid for p in pods_of(world, "web")}
    with lossy(control_plane) as (proxy, client, player):
        proxy.to_lose = ["POST"]
        with pytest.raises(WorldFailed):
            KubernetesActuator(client).evict(ref_of(pod))
        assert len(player.asked) == 1
    world.until(lambda: is_whole(world, "web", 3), "three pods")
    assert before - {p.uid for p in pods_of(world, "web")} == {pod.uid}


def test_a_wrong_uid_costs_the_budget_all_the_same(world: RealWorld) -> None:
    """The server takes one from the budget before it compares the UID: a mistake is not free."""
    world.add_workload("web", 3)
    world.add_budget("web", "web", 1)
    pod = pods_of(world, "web")[0]
    assert world.actuator.evict(ref_of(pod)._replace(uid=ANOTHER_UID)).result is EvictionResult.GONE
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [0]
    assert world.actuator.evict(ref_of(pod)).result is EvictionResult.BLOCKED


def test_kubectl_describe_shows_the_sentence_with_its_count(
    control_plane: ControlPlane, world: RealWorld, client: Client
) -> None:
    """Where people look first."""
    ref = world.add_workload("web", 1)
    found = world.cluster.workload(ref)
    assert found is not None
    actuator = KubernetesActuator(client)
    about = ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, found.uid)
    for number in (1, 2, 3):
        actuator.record_event(about, "Rotated", f"{number} pods were rotated.")
    shown = control_plane.kubectl("-n", world.namespace, "describe", "deployment", "web")
    (line,) = [line for line in shown.splitlines() if "Rotated" in line]
    assert "3 pods were rotated." in line
    assert "x3" in line
    assert "equipoise" in line
    assert actuator.events.failures == 0


def _config(namespace: str, **data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace},
        "data": data,
    }


def test_apply_owns_its_fields_and_is_refused_others(client: Client, namespace: str) -> None:
    """A conflict names the field and its owner; a dry run changes nothing."""
    objects = Objects(client)
    about = ObjectRef("v1", "ConfigMap", namespace, "settings")
    objects.apply(about, _config(namespace, a="1", b="1"), MANAGER)
    with pytest.raises(ApiError) as refused:
        objects.apply(about, _config(namespace, a="2"), "another")
    assert refused.value.status == 409
    assert [(cause.field, MANAGER in cause.message) for cause in refused.value.causes] == [(".data.a", True)]
    dry = objects.apply(about, _config(namespace, c="2"), "another", is_dry_run=True)
    assert dry["data"]["c"] == "2"
    assert objects.apply(about, _config(namespace, b="1"), MANAGER)["data"] == {"b": "1"}


def test_patches_hold_to_the_object_that_was_meant(world: RealWorld, client: Client) -> None:
    """By a UID that must still be right."""
    ref = world.add_workload("web", 1)
    found = world.cluster.workload(ref)
    assert found is not None
    objects = Objects(client)
    about = ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, found.uid)
    after = objects.patch(about, {"metadata": {"annotations": {"equipoise.dev/note": "1"}}}, MANAGER)
    assert after["metadata"]["annotations"]["equipoise.dev/note"] == "1"
    with pytest.raises(ApiError) as refused:
        objects.patch(about._replace(uid=ANOTHER_UID), {"metadata": {"annotations": {"x": "y"}}}, MANAGER)
    assert refused.value.status in {409, 422}  # a UID is said to be immutable


THINGS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def test_a_status_is_replaced_against_its_version(control_plane: ControlPlane, namespace: str) -> None:
    """Whole, and nothing but it; also when the answer is lost: once, and no conflict."""
    api, place = control_plane.api, f"/apis/example.org/v1/namespaces/{namespace}/things"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(definitions, yaml.safe_load(THINGS))
    wait_until(lambda: api.answers(place), "things served", 60)
    thing = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"a": 1}}
    api.create(place, thing)
    path = f"{place}/one"
    with lossy(control_plane) as (proxy, client, _):
        first = api.get(path)["metadata"]["resourceVersion"]
        proxy.to_lose = ["PATCH"]
        second = write_status(client, path, {"reason": "NoHotPods", "list": [1]}, first)
        third = write_status(client, path, {"reason": "Rotate"}, second)
        found = api.get(path)
        assert (found["status"], found["spec"]) == ({"reason": "Rotate"}, {"a": 1})
        assert found["metadata"]["resourceVersion"] == third
        with pytest.raises(StoreConflict):
            write_status(client, path, {"reason": "Late"}, second)
        assert api.get(path)["status"] == {"reason": "Rotate"}
    api.delete(f"{definitions}/things.example.org")


def test_taints_and_conditions_leave_what_others_wrote(
    control_plane: ControlPlane, kwok: Kwok, client: Client
) -> None:
    """Added once, changed by value, removed alone; and quiet when there is nothing new."""
    kwok.add_node("kwok-marked")
    path, marks = "/api/v1/nodes/kwok-marked", NodeMarks(client)
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    control_plane.api.patch(path, {"spec": {"taints": [theirs]}})
    mine = Taint("equipoise.dev/busy", "PreferNoSchedule", "cpu")
    assert [marks.add_taint("kwok-marked", mine) for _ in range(2)] == [True, False]
    assert marks.add_taint("kwok-marked", mine._replace(value="memory"))
    assert {t["key"]: t.get("value") for t in control_plane.api.get(path)["spec"]["taints"]} == {
        "theirs": None,
        "equipoise.dev/busy": "memory",
    }
    assert marks.remove_taint("kwok-marked", "equipoise.dev/busy", "PreferNoSchedule")
    assert not marks.remove_taint("kwok-marked", "equipoise.dev/busy", "PreferNoSchedule")
    assert control_plane.api.get(path)["spec"]["taints"] == [theirs]
    said = ("EquipoiseBusy", "True", "Waterline", "CPU is above 6 cores.")
    assert [marks.set_condition("kwok-marked", *said) for _ in range(2)] == [True, False]
    conditions = {c["type"]: c for c in control_plane.api.get(path)["status"]["conditions"]}
    assert conditions["EquipoiseBusy"]["message"] == "CPU is above 6 cores."
    assert conditions["Ready"]["status"] == "True"
    control_plane.api.delete(path)


def _follow(pauses: NamespacePauses, client: Client, where: str | None, operator: str, seen: str) -> None:
    """Pause and resume; once more where it took long, since a stall of the machine is nobody's fault here."""
    took: list[float] = []
    while not took or (took[-1] > PAUSE_BOUND_SECONDS and len(took) < 3):
        began = time.monotonic()
        pause(client, where, "alice", operator_namespace=operator)
        wait_until(lambda: "alice" in (said_of(pauses, seen) or ""), "paused", 60)
        paused = time.monotonic()
        assert resume(client, where, operator_namespace=operator) == "alice"
        wait_until(lambda: said_of(pauses, seen) is None, "resumed", 60)
        took.append(max(paused - began, time.monotonic() - paused))
    print(f"a pause, and its end, were seen after {took[-1]:.2f} s at most")
    assert took[-1] <= PAUSE_BOUND_SECONDS, took


def test_a_pause_arrives_within_five_seconds_and_so_does_its_end(client: Client, namespace: str) -> None:
    """Through the watch, without a restart."""
    pauses = NamespacePauses(client, operator_namespace=namespace)
    pauses.reflector.start()
    try:
        assert pauses.reflector.synced.wait(60)
        wait_until(lambda: said_of(pauses, "default") is None, "no pause yet", 60)
        _follow(pauses, client, namespace, namespace, namespace)
        _follow(pauses, client, None, namespace, "default")
        watches = pauses.reflector.counters.watches
        wait_until(lambda: pauses.reflector.counters.watches > watches + 1, "another watch", 60)
        wait_until(lambda: said_of(pauses, namespace) is None, "no pause", 60)
        assert pauses.reflector.counters.lists == 1
    finally:
        assert pauses.reflector.stop(60)


def test_over_a_dead_link_nobody_knows_within_five_seconds(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A link that carries nothing and says nothing: then nothing may be done."""
    port = int(control_plane.server.rpartition(":")[2])
    with Wire("127.0.0.1", port) as wire:
        client = _through(control_plane, wire.port)
        pauses = NamespacePauses(client)
        pauses.reflector.start()
        try:
            assert pauses.reflector.synced.wait(60)
            wait_until(lambda: said_of(pauses, namespace) is None, "no pause yet", 60)
            took: list[float] = []
            while not took or (took[-1] > PAUSE_BOUND_SECONDS + 1 and len(took) < 3):
                wire.freeze()
                frozen = time.monotonic()
                wait_until(lambda: said_of(pauses, namespace) == UNKNOWN, "not knowing", 60)
                took.append(time.monotonic() - frozen)
                wire.open()
                wait_until(lambda: said_of(pauses, namespace) is None, "knowing again", 60)
            assert took[-1] <= PAUSE_BOUND_SECONDS + 1, took
        finally:
            assert pauses.reflector.stop(60)
            client.close()


def _through(control_plane: ControlPlane, port: int) -> Client:
    from equipoise.adapters.kubernetes import connect
    from tests.testbed import kubeconfig

    file = kubeconfig.write(
        control_plane.folder / "wire.kubeconfig",
        f"https://127.0.0.1:{port}",
        control_plane.ca,
        kubeconfig.user_of(control_plane.admin),
    )
    return connect(str(file), environment={})
