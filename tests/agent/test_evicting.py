"""An agent's evictions: whose a pod is, the intent in the workload's ledger first, and who else is at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from equipoise.adapters.kubernetes import Client, KubernetesActuator
from equipoise.adapters.kubernetes.store import LedgerStore, entry_name
from equipoise.core.cluster import Owner, WorkloadRef
from equipoise.core.decision import EvictPod
from equipoise.core.ledger import Entry, Ledger
from equipoise.ports.node import NodePod
from equipoise.runtime.agent.node_api import OwnerLookup, ledger_evictor
from tests.support.agent.machines import Scene, policies, told
from tests.support.contracts.servers import small_api
from tests.support.contracts.small_api import SmallApi
from tests.support.qos.worlds import policy, rule

NOW = 1_800_000_000.0
WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")
APPS = "/apis/apps/v1/namespaces/shop"
EVICTION = "/api/v1/namespaces/shop/pods/web-1/eviction/web-1"
OF_SET = NodePod("shop", "web-1", "u1", controller=Owner("apps/v1", "ReplicaSet", "web-abc", "r1"))
ACTION = EvictPod("shop/web-1", uid="u1")


def _controller(name: str, uid: str, ready: int = 3, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": uid}
    if owner is not None:
        metadata["ownerReferences"] = [owner | {"controller": True}]
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {}}}
    return {"metadata": metadata, "spec": spec, "status": {"replicas": 3, "readyReplicas": ready}}


@contextmanager
def _shop(ready: int = 3) -> Iterator[tuple[SmallApi, Client]]:
    with small_api() as (api, client):
        made_by = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d1"}
        api.put(f"{APPS}/replicasets/web-abc", _controller("web-abc", "r1", owner=made_by))
        api.put(f"{APPS}/deployments/web", _controller("web", "d1", ready))
        api.put(f"{APPS}/replicasets/bare", _controller("bare", "r2"))
        yield api, client


def _ledger(client: Client) -> Ledger:
    return Ledger.from_data(LedgerStore(client).read(WEB).data)


@pytest.mark.parametrize(
    ("owner", "whose"),
    [
        (("apps/v1", "ReplicaSet", "web-abc"), ("apps/v1", "Deployment", "web")),
        (("apps/v1", "ReplicaSet", "bare"), ("apps/v1", "ReplicaSet", "bare")),
        (("batch/v1", "Job", "night"), ("batch/v1", "Job", "night")),
        (("apps/v1", "StatefulSet", "gone"), None),
        (None, None),
    ],
    ids=["behind a ReplicaSet", "of nobody's ReplicaSet", "a Job", "gone", "bare"],
)
def test_whose_a_pod_is(owner: tuple[str, str, str] | None, whose: tuple[str, str, str] | None) -> None:
    """As the operator names it: a Deployment, not its ReplicaSet; kinds that we do not read are whole."""
    pod = NodePod("shop", "p", "u", controller=None if owner is None else Owner(*owner, "x"))
    with _shop() as (_, client):
        found = OwnerLookup(client).owner_of(pod)
    if whose is None:
        assert found is None
    else:
        assert found is not None
        assert (found.ref, found.is_whole) == (WorkloadRef(whose[0], whose[1], "shop", whose[2]), True)


def test_an_eviction_is_in_the_ledger_which_goes_with_its_workload() -> None:
    """Done is Done; another agent that comes at once is told for whom it waits."""
    with _shop() as (api, client):
        one, other = (ledger_evictor(client, KubernetesActuator(client)) for _ in range(2))
        assert one.evict(ACTION, OF_SET, NOW).result == "Accepted"
        (entry,) = _ledger(client).entries
        assert (entry.balancer, entry.pod, entry.uid, entry.epoch, entry.state) == (
            *("qos", "web-1", "u1", 0),
            "Done",
        )
        kept = api.objects[f"/apis/equipoise.dev/v1alpha1/namespaces/shop/ledgers/{entry_name(WEB)}"]
        made = api.objects[f"{APPS}/deployments/web"]["metadata"]["uid"]
        assert [owner["uid"] for owner in kept["metadata"]["ownerReferences"]] == [made]
        late = other.evict(ACTION, OF_SET, NOW + 30)
        assert (late.result, "The balancer qos acted on web-1 of this workload 30s ago" in late.detail) == (
            "Fenced",
            True,
        )
        del api.objects[EVICTION]
        assert one.evict(ACTION, OF_SET, NOW + 30).result == "Accepted"


def test_nothing_is_sent_while_a_balancer_is_at_the_workload_or_it_is_not_whole() -> None:
    """Two minutes after a rotation; and for an hour as long as pods are missing."""
    with _shop(ready=2) as (api, client):
        agent = ledger_evictor(client, KubernetesActuator(client))
        entry = Entry("r", "r", "rotation", "EvictPod", "web-2", "u2", NOW, 9)
        LedgerStore(client).write(WEB, Ledger().with_intent(entry).to_data(), "")
        for later in (1, 119, 121, 3599):
            assert agent.evict(ACTION, OF_SET, NOW + later).result == "Fenced"
        assert EVICTION not in api.objects
        api.put(f"{APPS}/deployments/web", _controller("web", "d1", 3))
        assert agent.evict(ACTION, OF_SET, NOW + 121).result == "Accepted"


def test_a_ledger_that_cannot_be_read_keeps_the_pod() -> None:
    """Not knowing does nothing; a pod that nobody replaces needs no ledger."""
    with _shop() as (api, client):
        path = f"/apis/equipoise.dev/v1alpha1/namespaces/shop/ledgers/{entry_name(WEB)}"
        api.put(path, {"metadata": {"name": entry_name(WEB)}, "data": {"entries": [{"at": "soon"}]}})
        agent = ledger_evictor(client, KubernetesActuator(client))
        came = agent.evict(ACTION, OF_SET, NOW)
        assert came.result == "Fenced"
        assert came.detail.startswith("the ledger of its workload could not be read: its content is invalid")
        assert agent.evict(ACTION, NodePod("shop", "web-1", "u1"), NOW).result == "Accepted"


def test_a_round_goes_on_with_another_pod_when_one_has_to_wait() -> None:
    """The pod of a workload that somebody else is at is left for a while, with the reason."""
    with _shop() as (_, client):
        entry = Entry("r", "r", "rotation", "EvictPod", "web-2", "u2", NOW, 9)
        LedgerStore(client).write(WEB, Ledger().with_intent(entry).to_data(), "")
        scene = Scene()
        scene.around.asked = policies(policy(rule("cpu_total_usage", 6000, "evict")))
        scene.around.clock_at = NOW
        held = Owner("apps/v1", "ReplicaSet", "web-abc", "r1")
        scene.add(told("a", namespace="shop", controller=held), 4)
        scene.add(told("b", namespace="shop"), 4)
        scene.loop.evictor = ledger_evictor(client, scene.around)  # type: ignore[arg-type]  # it evicts, too
        rounds = scene.rounds(2)
    assert [name for name, _ in scene.around.evictions] == ["b"]
    results = {one.action.pod: one.result for one in rounds[1].outcomes}
    assert results == {"shop/a": "Fenced", "shop/b": "Accepted"}
