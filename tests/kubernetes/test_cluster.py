"""The port over an API server: by direct lists and from caches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from equipoise.adapters.kubernetes import ApiError, CachedCluster, KubernetesCluster, Unreachable
from equipoise.adapters.kubernetes.errors import BadAnswer
from equipoise.adapters.kubernetes.reflector import AGE_MAX_SECONDS
from equipoise.core.cluster import WorkloadRef
from equipoise.ports import Cluster
from tests.support.kubernetes.modelserver import ModelServer
from tests.support.kubernetes.reflected_kinds import running
from tests.support.kubernetes.samples import page, pod
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

ROLLOUT = WorkloadRef("argoproj.io/v1alpha1", "Rollout", "shop", "web")


def workload(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "5"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}},
    }


OBJECTS: dict[str, list[dict[str, Any]]] = {
    "/api/v1/pods": [pod("a"), pod("b", "other")],
    "/api/v1/namespaces/shop/pods": [pod("a")],
    "/api/v1/nodes": [{"metadata": {"name": "node-1", "uid": "n"}}],
    "/apis/apps/v1/deployments": [workload("web")],
    "/apis/apps/v1/statefulsets": [workload("db")],
    "/apis/apps/v1/replicasets": [workload("bare")],
    "/apis/autoscaling/v2/horizontalpodautoscalers": [
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5},
        }
    ],
    "/apis/policy/v1/poddisruptionbudgets": [{"metadata": {"name": "web", "namespace": "shop"}, "spec": {}}],
}
SINGLE: dict[str, object] = {
    "/apis/apps/v1/namespaces/shop/deployments/web": workload("web"),
    "/apis/argoproj.io/v1alpha1": {
        "resources": [
            {"name": "rollouts", "kind": "Rollout", "namespaced": True},
            {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
            {"name": "plans", "kind": "Plan", "namespaced": True},
        ]
    },
    "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web": {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "r",
            "annotations": {"equipoise.dev/rotate": "false"},
        },
    },
    "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web/scale": {
        "metadata": {"name": "web", "namespace": "shop", "uid": "r"},
        "spec": {"replicas": 4},
        "status": {"replicas": 3, "selector": "app=web,tier!=db"},
    },
}


def script(asked: Asked, stage: Stage) -> None:
    if asked.query.get("watch"):
        stage.begin()
        stage.hang()
    elif asked.path in OBJECTS:
        stage.answer(page(OBJECTS[asked.path]))
    elif asked.path in SINGLE:
        stage.answer(SINGLE[asked.path])
    else:
        stage.refuse(404, "NotFound", "no such thing")


def look(cluster: Cluster) -> None:
    """What every implementation must show of the cluster above."""
    assert {(p.namespace, p.name) for p in cluster.pods()} == {("shop", "a"), ("other", "b")}
    assert [p.name for p in cluster.pods("shop")] == ["a"]
    assert [n.name for n in cluster.nodes()] == ["node-1"]
    assert {str(w.ref) for w in cluster.workloads()} == {
        "Deployment shop/web",
        "StatefulSet shop/db",
        "ReplicaSet shop/bare",
    }
    (hpa,) = cluster.hpas()
    assert hpa.target == WorkloadRef("apps/v1", "Deployment", "shop", "web")
    (pdb,) = cluster.pdbs()
    assert pdb.selector is None
    deployment = cluster.workload(WorkloadRef("apps/v1", "Deployment", "shop", "web"))
    assert deployment is not None
    assert deployment.replicas_wanted == 2
    assert cluster.workload(WorkloadRef("apps/v1", "Deployment", "shop", "gone")) is None
    rollout = cluster.workload(ROLLOUT)
    assert rollout is not None
    assert (rollout.replicas_wanted, rollout.replicas_seen, rollout.replicas_ready) == (4, 3, 3)
    assert rollout.annotations == (("equipoise.dev/rotate", "false"),)
    assert rollout.selector.matches({"app": "web"})
    assert not rollout.selector.matches({"app": "web", "tier": "db"})
    for kind, name in (("Rollout", "gone"), ("Plan", "web"), ("Unknown", "web")):
        assert cluster.workload(ROLLOUT._replace(kind=kind, name=name)) is None


def test_kinds_without_a_scale_are_listed_as_far_as_they_can_be() -> None:
    """A kind that is not defined costs nothing, one that may not be listed a warning."""
    container = {"name": "app", "resources": {"requests": {"cpu": "250m"}}}
    template = {"template": {"spec": {"containers": [container]}}}
    cron_job = {
        "metadata": {"name": "nightly", "namespace": "shop"},
        "spec": {"jobTemplate": {"spec": template}},
    }

    def answer(asked: Asked, stage: Stage) -> None:
        if asked.path == "/apis/batch/v1/cronjobs":
            stage.answer(page([cron_job]))
        elif asked.path == "/apis/apps/v1/daemonsets":
            stage.refuse(403, "Forbidden", "daemonsets is forbidden")
        else:
            stage.refuse(404, "NotFound", "no such thing")

    with playing(answer) as player, session(player.url) as client:
        cluster = KubernetesCluster(client)
        (found,) = cluster.unscaled_workloads()
        assert (str(found.ref), found.ref.api_version) == ("CronJob shop/nightly", "batch/v1")
        assert [(one.name, one.cpu_request_cores) for one in found.containers] == [("app", 0.25)]
        (warning,) = cluster.warnings
        assert "daemonsets that cannot be listed" in warning


def test_a_cluster_is_seen_by_direct_lists() -> None:
    """Each call asks the server."""
    with playing(script) as player, session(player.url) as client:
        look(KubernetesCluster(client))


def test_a_cluster_is_seen_from_caches() -> None:
    """The same, after every kind was listed; before that it says so instead of showing nothing."""
    with playing(script) as player, session(player.url) as client:
        cluster = CachedCluster(client)
        with pytest.raises(Unreachable, match="the pods have not been listed yet"):
            cluster.pods()
        with running(cluster):
            look(cluster)
            assert cluster.warnings == ()


def test_a_cache_that_was_cut_off_is_no_longer_believed() -> None:
    """Beyond a few silences of a watch what it holds may be anything: unknown, not old."""
    clock = Time()
    with playing(script) as player, session(player.url, world=clock.world()) as client:
        cluster = CachedCluster(client)
        with running(cluster):
            pass
        clock.now += AGE_MAX_SECONDS - 1
        assert len(cluster.pods()) == 2
        clock.now += 2
        with pytest.raises(Unreachable, match="the pods are unknown: the last answer of the API server is"):
            cluster.pods()
        with pytest.raises(Unreachable, match="the deployments are unknown"):
            cluster.workloads()


def test_long_lists_come_in_pages() -> None:
    """With a limit and a continuation, at one version."""
    model = ModelServer()
    for i in range(1100):
        model.create(f"pod-{i}")
    with playing(model.script) as player, session(player.url) as client:
        assert len(KubernetesCluster(client).pods()) == 1100
    assert [asked.query.get("limit") for asked in player.asked] == ["500"] * 3
    assert [bool(asked.query.get("continue")) for asked in player.asked] == [False, True, True]


def test_an_expired_continuation_begins_the_list_anew() -> None:
    """And gives each pod once; a server that always forgets is given up."""
    model = ModelServer()
    for i in range(600):
        model.create(f"pod-{i}")
    forgetting = [1]

    def forgetful(asked: Asked, stage: Stage) -> None:
        if asked.query.get("continue") and forgetting[0] > 0:
            forgetting[0] -= 1
            model.compact()
        model.script(asked, stage)

    with playing(forgetful) as player, session(player.url) as client:
        pods = KubernetesCluster(client).pods()
        assert len({p.name for p in pods}) == len(pods) == 600
        assert len(player.asked) == 4
        forgetting[0] = 99
        with pytest.raises(ApiError, match="410 Expired"):
            KubernetesCluster(client).pods()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html><title>Login</title>", "an HTML page titled 'Login'"),
        (
            json.dumps(page([pod(), {"metadata": {}}])).encode(),
            r"items\[1\].metadata: name is missing",
        ),
        (b'{"metadata":{},"items":[', "truncated"),
        (b"[]", "expected a map, got a list"),
    ],
)
def test_a_list_that_is_none_is_told_in_one_line(body: bytes, why: str) -> None:
    """With the address, the path, and the object at fault."""
    with (
        playing(lambda _, stage: stage.answer(body)) as player,
        session(player.url) as client,
        pytest.raises(BadAnswer, match=why) as caught,
    ):
        KubernetesCluster(client).pods()
    assert str(caught.value).startswith(f"{player.url} answered GET /api/v1/pods with unexpected content")


def test_an_unreadable_quantity_is_a_warning() -> None:
    """The list goes on without it."""
    odd = pod("odd")
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1 core"
    with (
        playing(lambda _, stage: stage.answer(page([odd, pod("fine")]))) as player,
        session(player.url) as client,
    ):
        cluster = KubernetesCluster(client)
        assert [p.cpu_request_cores for p in cluster.pods()] == [None, 0.25]
        assert cluster.warnings == ("a quantity that cannot be read: 1 times, first in shop/odd",)


def test_a_refused_list_is_an_error_with_its_status() -> None:
    """Missing rights are told, not shown as an empty cluster."""
    with (
        playing(lambda _, stage: stage.refuse(403, "Forbidden", "pods is forbidden")) as player,
        session(player.url, world=Time().world()) as client,
        pytest.raises(ApiError, match="refused GET /api/v1/pods: 403 Forbidden: pods is forbidden"),
    ):
        KubernetesCluster(client).pods()
