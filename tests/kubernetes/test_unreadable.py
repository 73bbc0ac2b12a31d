"""An object that cannot be read costs itself: the others of its kind are listed, watched and looked after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from equipoise.adapters.kubernetes import CachedCluster, KubernetesCluster
from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.cluster import HpaSpecs
from equipoise.adapters.kubernetes.keda_vpa import ScaledObjects
from equipoise.adapters.kubernetes.kinds import PDBS, PODS, list_kind
from equipoise.adapters.kubernetes.pauses import NAMESPACES
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import DefinedKind
from equipoise.crd.targets import Mode
from equipoise.ports import PolicyObject
from tests.support.damage import DEPTH
from tests.support.kubernetes.reflected_kinds import KEPT, Looking, stop_all
from tests.support.kubernetes.samples import pod
from tests.support.kubernetes.server import Asked, Player, Script, Stage, Time, playing, session

GROUP, VERSION, PLURAL = "scalingpolicy.kope.io", "v1alpha1", "scalingpolicies"
WEB = ObjectRef(f"{GROUP}/{VERSION}", "ScalingPolicy", "shop", "web", "uid-web")
TIMINGS = Timings(watch_seconds=(240.0, 240.0), silence_seconds=5.0)


def nested(levels: int) -> bytes:
    """Return JSON that is nested so deeply."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def policy(name: str, version: int = 7, open_field: bytes = b"1", namespace: str = "shop") -> bytes:
    """Return a policy with something in an open field, which no test can write with `json.dumps`."""
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "generation": 3,
    }
    status = {"observedGeneration": 2}
    return b'{"metadata":%s,"spec":{"open":%s},"status":%s}' % (
        json.dumps(meta).encode(),
        open_field,
        json.dumps(status).encode(),
    )


def page(items: list[bytes], version: int = 7) -> bytes:
    """Return a list as a server writes it."""
    return b'{"kind":"List","metadata":{"resourceVersion":"%d"},"items":[%s]}' % (version, b",".join(items))


@contextmanager
def policies_of(script: Script) -> Iterator[tuple[KubernetesPolicies, Player]]:
    """Run a server with this script, and give the policies that are read from it."""
    with playing(script) as player, session(player.url, world=Time().world()) as client:
        made = KubernetesPolicies(
            client, DefinedKind(GROUP, VERSION, "ScalingPolicy", PLURAL, "", {}), timings=TIMINGS
        )
        try:
            yield made, player
        finally:
            made.reflector.stop()


@pytest.mark.parametrize("levels", [DEPTH, 20_000])
@pytest.mark.parametrize("where", ["spec", "metadata", "around"])
def test_a_list_of_500_policies_with_a_deep_one_yields_499_and_the_name_of_that_one(
    levels: int, where: str
) -> None:
    """Wherever it is deep: server-side apply mirrors an open field in `metadata.managedFields`."""
    deep = policy("deep", open_field=nested(levels))
    if where == "metadata":
        deep = policy("deep").replace(
            b'"metadata":{', b'"metadata":{"managedFields":[{"fieldsV1":%s}],' % nested(levels)
        )
        deep = deep.replace(b'"open":1', b'"open":%s' % nested(levels))
    if where == "around":
        deep = b'{"before":%s,%s' % (nested(levels), deep[1:])
    items = [policy(f"policy-{number}") for number in range(499)]
    items.insert(250, deep)
    with policies_of(lambda _, stage: stage.answer(page(items))) as (policies, _):
        found = policies.listed()
        policies.reflector.step()
        kept = policies.reflector.cache.records()
    readable = {f"policy-{number}" for number in range(499)}
    for records in (found, kept):
        assert {each.ref.name for each in records if each.spec} == readable
        (unread,) = [each for each in records if not each.spec]
        assert (unread.ref.namespace, unread.ref.name, unread.ref.uid) == ("shop", "deep", "uid-deep")
        assert (unread.generation, unread.version) == (3, "7")
        assert unread.unreadable == "expected at most 100 levels, got more"
        # What was said of it before stays known, or it would be written anew in every cycle.
        assert unread.status == {"observedGeneration": 2}


@pytest.mark.parametrize("make", KEPT)
@pytest.mark.parametrize("levels", [150, DEPTH])
def test_a_deep_object_of_every_kind_that_is_kept_leaves_the_others(
    make: Callable[[Client], tuple[Reflector[Any], Looking]], levels: int
) -> None:
    """150 levels can be decoded, and not be encoded or compared by whoever has used up some of the stack."""

    def script(asked: Asked, stage: Stage) -> None:
        if "customresourcedefinitions" in asked.path:
            version = {"name": "v1alpha1", "served": True, "subresources": {}}
            stage.answer({"metadata": {"labels": {OWNER_LABEL: MANAGER}}, "spec": {"versions": [version]}})
        elif asked.query.get("watch"):
            stage.refuse(410, "Expired", "too old resource version")
        else:
            stage.answer(page([policy("web"), policy("deep", open_field=nested(levels))]))

    with playing(script) as player, session(player.url, world=Time().world()) as client:
        reflector, look = make(client)
        try:
            reflector.step()
            found = {each.ref.name: each for each in look()}
        finally:
            reflector.stop()
    assert found["web"].unreadable == ""
    assert "levels" in found["deep"].unreadable
    assert [outline.place for outline in reflector.unreadable.values()] == ["shop/deep"]


def test_a_deep_object_in_a_watch_is_unreadable_until_it_is_readable_again() -> None:
    """Its former state is not believed any more, and nothing is listed anew."""
    deep = nested(DEPTH)
    story = [
        (b"MODIFIED", policy("web", 11, deep)),
        (b"ADDED", policy("other", 12)),
        (b"MODIFIED", policy("web", 13, deep)),
        (b"MODIFIED", policy("web", 14)),
        (b"MODIFIED", policy("web", 15, deep)),
        (b"DELETED", policy("web", 16, deep)),
    ]
    watches = iter(story)

    def script(asked: Asked, stage: Stage) -> None:
        if not asked.query.get("watch"):
            stage.answer(page([policy("web", 10)], 10))
            return
        stage.begin()
        stage.chunk(b'{"type":"%s","object":%s}\n' % next(watches))
        stage.end()

    seen = []
    with policies_of(script) as (policies, player):
        for _ in story:
            policies.reflector.step()
            assert policies.reflector.last_error is None
            records = policies.policies()
            seen.append({each.ref.name: (each.version, bool(each.unreadable)) for each in records})
            assert {name for name, (_, is_unread) in seen[-1].items() if is_unread} == {
                name for _, name in policies.reflector.unreadable
            }
        lists = [asked for asked in player.asked if not asked.query.get("watch")]
    other = {"other": ("12", False)}
    assert seen == [
        {"web": ("11", True)},
        {"web": ("11", True)} | other,
        {"web": ("13", True)} | other,
        {"web": ("14", False)} | other,
        {"web": ("15", True)} | other,
        other,
    ]
    assert len(lists) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[1]", "expected a map, got a list"),
        (b'{"metadata":{"resourceVersion":"5"},"items":[7]}', r"items\[0\]: expected a map, got a number"),
        (b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{}}]}', "items.*name is missing"),
        (b'{"metadata":{"resourceVersion":"5"},"items":[', "truncated"),
        (b"[" * 100_000, "expected a map, got a list"),
        (b'{"items":' + b"[" * 100_000, "."),
    ],
)
def test_what_is_no_list_of_objects_with_names_is_not_taken_for_an_empty_one(body: bytes, why: str) -> None:
    """No API server says such, so nothing of the answer is trusted."""
    with (
        playing(lambda _, stage: stage.answer(body)) as player,
        session(player.url, world=Time().world()) as client,
        pytest.raises(WorldFailed, match=rf"answered GET /api/v1/pods with unexpected content.*{why}"),
    ):
        list_kind(client, PODS)


def test_a_status_is_written_to_an_object_that_cannot_be_read() -> None:
    """The server's answer has the whole object in it, and only its version matters."""
    deep = policy("web", 8, nested(DEPTH))
    with policies_of(lambda _, stage: stage.answer(deep)) as (policies, player):
        policies.write_status(PolicyObject(WEB, 3, "7", {}, {}), {"conditions": []})
    assert [asked.method for asked in player.asked] == ["PATCH"]


def test_a_policy_that_cannot_be_read_is_refused_whatever_it_said_before() -> None:
    """Its workload is not acted on by what an older version of it said, also where it is cached."""
    from equipoise.engine.policies import RejectedPolicy
    from equipoise.proportional.observe import PolicyCache
    from equipoise.rotation.status import assign

    unread = PolicyObject(WEB, 3, "8", {}, {}, unreadable="expected at most 100 levels, got more")
    readings = PolicyCache()
    readings.read([PolicyObject(WEB, 3, "7", {"scaleTargetRef": {}}, {})])
    assert readings.read([unread])[unread.ref] == RejectedPolicy(
        "Unreadable", "The object cannot be read: expected at most 100 levels, got more"
    )
    assigned, refused = assign([unread], [])
    assert assigned == []
    assert refused[unread.ref].code == "Unreadable"


def test_what_stands_for_an_unreadable_object_leans_to_the_safe_side() -> None:
    """A pod counts and is not ready, a budget protects its namespace, a namespace counts as paused."""
    odd = pod("odd")
    odd["spec"]["containers"] = "many"
    budget = {"metadata": {"name": "odd", "namespace": "shop"}, "spec": {"selector": 7}}
    space = {"metadata": {"name": "shop", "annotations": "none"}}
    answers = {"pods": [odd, pod("fine")], "poddisruptionbudgets": [budget], "namespaces": [space]}

    def script(asked: Asked, stage: Stage) -> None:
        items = answers[asked.path.rpartition("/")[2]]
        stage.answer({"metadata": {"resourceVersion": "5"}, "items": items})

    with playing(script) as player, session(player.url, world=Time().world()) as client:
        cluster = KubernetesCluster(client)
        why = "spec.containers: expected a list, got text"
        unread, fine = cluster.pods()
        assert (unread.name, unread.is_ready, fine.is_ready) == ("odd", False, True)
        assert (unread.owner, unread.labels) == (fine.owner, fine.labels)
        (protecting,) = list_kind(client, PDBS).records
        assert protecting.selector is not None
        assert protecting.selector.matches({"any": "pod"})
        assert protecting.disruptions_allowed == 0
        (marks,) = list_kind(client, NAMESPACES).records
        assert marks.paused == "the namespace cannot be read (metadata.annotations: expected a map, got text)"
        assert cluster.warnings == (f"a Pod that cannot be read: 1 times, first in shop/odd ({why})",)


def test_a_node_that_cannot_be_read_makes_the_size_of_the_cluster_unknown() -> None:
    """To leave it out would scale down whatever follows the size of the cluster."""
    fine = {"metadata": {"name": "fine"}, "status": {"allocatable": {"cpu": "4"}}}
    odd = {"metadata": {"name": "odd"}, "status": "none"}

    def script(asked: Asked, stage: Stage) -> None:
        if asked.query.get("watch"):
            stage.refuse(410, "Expired")
        else:
            stage.answer({"metadata": {"resourceVersion": "5"}, "items": [fine, odd]})

    with playing(script) as player, session(player.url, world=Time().world()) as client:
        cached = CachedCluster(client)
        for reflector in cached.reflectors:
            if reflector.kind.plural == "nodes":
                reflector.step()
        for cluster in (KubernetesCluster(client), cached):
            with pytest.raises(WorldFailed, match="node odd cannot be read, so the cluster's size"):
                cluster.nodes()
        stop_all(cached.reflectors)


def test_an_unreadable_object_of_another_controller_costs_its_namespace_at_most() -> None:
    """A ScaledObject, a VerticalPodAutoscaler, an HPA and a Ledger, each beside a sound one elsewhere."""
    from equipoise.adapters.kubernetes.cache import Warnings
    from equipoise.adapters.kubernetes.keda_vpa import RecentVpas
    from equipoise.adapters.kubernetes.objects import Discovery
    from equipoise.ports.actions import every_workload

    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "targetRef": target, "maxReplicas": 3}
    paused = {"autoscaling.keda.sh/paused": "true"}
    sound = {"metadata": {"name": "web", "namespace": "shop", "annotations": paused}, "spec": spec}
    deep = policy("deep", open_field=nested(DEPTH), namespace="tenant")
    body = page([json.dumps(sound).encode(), deep])
    web = WorkloadRef("apps/v1", "Deployment", "shop", "web")
    with (
        playing(lambda _, stage: stage.answer(body)) as player,
        session(player.url, world=Time().world()) as client,
    ):
        warnings = Warnings()
        assert set(ScaledObjects(client, Discovery(client)).pauses(None, warnings) or {}) == {web}
        assert warnings.sentences() == ("a ScaledObject that cannot be read: 1 times, first in tenant/deep",)
        targets = RecentVpas(client).targets()
        assert set(targets) == {web, every_workload("tenant")}
        assert [(one.target.name, bool(one.unreadable)) for one in HpaSpecs(client).specs()] == [
            ("web", False),
            ("", True),
        ]
        store = LedgerStore(client)
        assert store.read_all() == {}
        assert "tenant/deep" in store.warnings[0]


def test_a_vpa_that_cannot_be_read_holds_the_policies_of_its_namespace_alone() -> None:
    """It may set the requests of any workload there, and of none elsewhere."""
    from equipoise.ports.actions import every_workload
    from equipoise.proportional.observe import PolicyCache, assign

    class Asked:
        def advised(self) -> Any:
            return {
                every_workload(
                    "tenant"
                ): "VerticalPodAutoscaler tenant/deep, which cannot be read (it is deep)"
            }

        def workload(self, ref: Any) -> None:
            del ref

    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "containers": [
            {
                "name": "web",
                "resources": {
                    "requests": [{"resource": "cpu", "function": {"input": "cores", "slope": "10m"}}]
                },
            }
        ],
    }
    made = [
        PolicyObject(ObjectRef("v1", "ScalingPolicy", space, "web", space), 1, "7", spec, {})
        for space in ("shop", "tenant")
    ]
    sizes: Any = Asked()
    _, refused = assign(made, PolicyCache().read(made), sizes, Mode.PREVIEW)
    assert [refused[each.ref].code for each in made] == ["NoWorkload", "Conflict"]
    assert refused[made[1].ref].sentence == (
        "spec.scaleTargetRef: VerticalPodAutoscaler tenant/deep, which cannot be read (it is deep), "
        "may set the requests of Deployment tenant/web, so nothing is changed"
    )
