"""Requests and limits over the API: what is sent, what the answers mean, and what pods tell of changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from equipoise.adapters.kubernetes import KubernetesCluster
from equipoise.adapters.kubernetes.errors import ApiError, RightMissing
from equipoise.adapters.kubernetes.keda_vpa import ABSENT_SECONDS, FRESH_SECONDS, RecentVpas
from equipoise.adapters.kubernetes.kinds import DAEMONSETS, PODS
from equipoise.adapters.kubernetes.sizes import KubernetesSizes, judge_resize
from equipoise.core.cluster import ObjectRef, PodRef, Resize, WorkloadRef
from equipoise.ports.actions import ResizeResult
from tests.support.kubernetes.decoding import turned, with_status
from tests.support.kubernetes.samples import page, pod
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

DNS = PodRef("shop", "dns-1", "uid-1")
WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")
RUNNING = {"running": {"startedAt": "2026-11-01T10:00:10Z"}}


def _error(status: int, reason: str, message: str) -> ApiError:
    return ApiError("http://api", "PATCH /x", status, reason=reason, message=message)


@pytest.mark.parametrize(
    ("status", "reason", "message", "result"),
    [
        (404, "NotFound", 'pods "dns-1" not found', ResizeResult.GONE),
        (404, "NotFound", "the server could not find the requested resource", ResizeResult.UNSUPPORTED),
        (405, "MethodNotAllowed", "the server does not allow this method", ResizeResult.UNSUPPORTED),
        (422, "Invalid", "Pod running on node without support for resize", ResizeResult.UNSUPPORTED),
        (422, "Invalid", "Pod QOS Class may not change as a result of resizing", ResizeResult.REFUSED),
        (400, "BadRequest", "what is that", ResizeResult.REFUSED),
        (403, "Forbidden", 'User "x" cannot patch resource "pods/resize" in', ResizeResult.FORBIDDEN),
        (403, "Forbidden", 'pods "dns-1" is forbidden: exceeded quota: small', ResizeResult.REFUSED),
        (403, "Forbidden", "maximum cpu usage per Container is 200m", ResizeResult.REFUSED),
        (409, "Conflict", "the object has been modified", ResizeResult.OUTDATED),
        (
            409,
            "Conflict",
            "Precondition failed: UID in precondition: a, UID in object meta: b",
            ResizeResult.GONE,
        ),
        (422, "Invalid", "metadata.uid: Invalid value: field is immutable", ResizeResult.GONE),
        (500, "InternalError", "etcd", None),
        (404, "", "default backend - 404", None),
    ],
)
def test_a_refusal_is_an_answer_where_it_tells(
    status: int, reason: str, message: str, result: ResizeResult | None
) -> None:
    """A quota is a 403 as a missing right is; what says nothing stays unknown."""
    answer = judge_resize(_error(status, reason, message))
    assert (answer.result if answer else None) is result


def test_a_change_names_the_uid_the_manager_and_nothing_but_the_values() -> None:
    """As a strategic patch of the subresource; a sidecar is among the init containers."""
    seen: list[Asked] = []

    def script(asked: Asked, stage: Stage) -> None:
        seen.append(asked)
        stage.answer({"metadata": {"name": "dns-1"}})

    with playing(script) as player, session(player.url) as client:
        sizes = KubernetesSizes(client, KubernetesCluster(client))
        values = {"dns": {"requests": {"cpu": "300m"}}, "proxy": {"limits": {"memory": "1Gi"}}}
        first = sizes.resize(DNS, values, sidecars=["proxy"], version="7", is_dry_run=True)
        about = ObjectRef("apps/v1", "DaemonSet", "shop", "log", "uid-2")
        second = sizes.set_template(about, {"dns": {"requests": {"cpu": "300m"}}})
        nameless = sizes.resize(DNS._replace(uid=""), values)
    assert (first.result, second.result) == (ResizeResult.ACCEPTED, ResizeResult.ACCEPTED)
    assert nameless.result is ResizeResult.REFUSED
    assert [asked.path for asked in seen] == [
        "/api/v1/namespaces/shop/pods/dns-1/resize",
        "/apis/apps/v1/namespaces/shop/daemonsets/log",
    ]
    assert json.loads(seen[0].body) == {
        "metadata": {"uid": "uid-1", "resourceVersion": "7"},
        "spec": {
            "containers": [{"name": "dns", "resources": {"requests": {"cpu": "300m"}}}],
            "initContainers": [{"name": "proxy", "resources": {"limits": {"memory": "1Gi"}}}],
        },
    }
    assert json.loads(seen[1].body)["spec"]["template"]["spec"]["containers"][0]["name"] == "dns"
    assert seen[0].query == {"fieldManager": "equipoise", "dryRun": "All"}
    assert seen[0].headers["Content-Type"] == "application/strategic-merge-patch+json"


def test_a_server_without_the_subresource_offers_no_resize() -> None:
    """It is asked again after some minutes, and a yes is believed for good."""
    names, time = ["pods"], Time()

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path == "/api/v1"
        stage.answer({"resources": [{"name": name, "kind": "Pod"} for name in names]})

    with playing(script) as player, session(player.url, world=time.world()) as client:
        sizes = KubernetesSizes(client, KubernetesCluster(client))
        assert not sizes.offers_resize()
        names.append("pods/resize")
        assert not sizes.offers_resize()
        time.sleep(301)
        assert sizes.offers_resize()
        names.clear()
        time.sleep(301)
        assert sizes.offers_resize()


def _managed(*entries: tuple[str, str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:resources": {"f:requests": {"f:cpu": {}}}}
    return {
        "metadata": {
            "managedFields": [
                {
                    "manager": who,
                    "time": at,
                    "fieldsV1": {"f:spec": {"f:containers": {f'k:{{"name":"{name}"}}': fields}}},
                }
                for who, at, name in entries
            ]
        }
    }


@pytest.mark.parametrize(
    ("entries", "who"),
    [
        ([("argocd", "2026-01-01T00:00:00Z", "dns"), ("helm", "2026-01-02T00:00:00Z", "dns")], "helm"),
        ([("argocd", "2026-01-01T00:00:00Z", "dns"), ("equipoise", "2026-01-02T00:00:00Z", "dns")], "argocd"),
        ([("argocd", "2026-01-01T00:00:00Z", "other")], ""),
        ([], ""),
    ],
)
def test_the_last_other_manager_of_a_value_is_named(entries: list[tuple[str, str, str]], who: str) -> None:
    """Whoever set another container is not meant, and we never name ourselves."""
    with (
        playing(lambda _, stage: stage.answer(_managed(*entries))) as player,
        session(player.url) as client,
    ):
        sizes = KubernetesSizes(client, KubernetesCluster(client))
        about = ObjectRef("v1", "Pod", "shop", "dns-1")
        assert sizes.setter_of(about, "dns", "requests", "cpu") == who


def _vpa(name: str, mode: str | None = None, **target: str) -> dict[str, Any]:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name} | target
    policy = {} if mode is None else {"updatePolicy": {"updateMode": mode}}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"targetRef": ref, **policy}}


def test_vpas_that_act_are_told_and_those_that_only_advise_are_not() -> None:
    """Absent, the mode is VPA's own default."""
    items = [
        _vpa("web"),
        _vpa("api", "Recreate"),
        _vpa("idle", "Off"),
        {"metadata": {"name": "x"}, "spec": {}},
    ]
    with playing(lambda _, stage: stage.answer(page(items))) as player, session(player.url) as client:
        found = RecentVpas(client).targets()
    assert found == {
        WEB: "VerticalPodAutoscaler shop/web (Auto)",
        WEB._replace(name="api"): "VerticalPodAutoscaler shop/api (Recreate)",
    }


def test_vpas_are_asked_for_seldom_where_there_are_none() -> None:
    """And every few seconds where there are."""
    asked_at, time, answers = [], Time(), [404, 200, 200]

    def script(asked: Asked, stage: Stage) -> None:
        asked_at.append(asked.path)
        status = answers[len(asked_at) - 1]
        if status == 404:
            stage.refuse(404, "NotFound", "no such kind")
        else:
            stage.answer(page([_vpa("web")]))

    with playing(script) as player, session(player.url, world=time.world()) as client:
        vpas = RecentVpas(client)
        assert vpas.targets() == {}
        time.sleep(ABSENT_SECONDS - 1)
        assert vpas.targets() == {}
        time.sleep(2)
        assert list(vpas.targets()) == [WEB]
        time.sleep(FRESH_SECONDS + 1)
        assert list(vpas.targets()) == [WEB]
    assert len(asked_at) == 3


def test_not_being_let_see_vpas_is_no_absence_of_them() -> None:
    """Unless the server has no such kind at all."""
    served = [{"name": "verticalpodautoscalers", "kind": "VerticalPodAutoscaler", "namespaced": True}]

    def script(asked: Asked, stage: Stage) -> None:
        if asked.path == "/apis/autoscaling.k8s.io/v1":
            stage.answer({"resources": served})
        else:
            stage.refuse(403, "Forbidden", "cannot list")

    with playing(script) as player, session(player.url) as client:
        with pytest.raises(RightMissing, match="verticalpodautoscalers"):
            RecentVpas(client).targets()
        served.clear()
        assert RecentVpas(client).targets() == {}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([("PodResizePending", "True", "Infeasible", "too big")], Resize("Infeasible", "too big")),
        ([("PodResizePending", "True", "Deferred", "full")], Resize("Deferred", "full")),
        ([("PodResizePending", "False", "Deferred", "")], None),
        ([("PodResizeInProgress", "True", "", "")], Resize("InProgress")),
        ([("PodResizeInProgress", "True", "Error", "cgroup")], Resize("Error", "cgroup")),
    ],
)
def test_a_pods_conditions_tell_what_its_node_has_not_done(
    conditions: list[tuple[str, str, str, str]], expected: Resize | None
) -> None:
    """In the kubelet's own words."""
    told = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, status, reason, message in conditions
    ]
    assert turned(PODS, with_status(pod(), conditions=told)).resize == expected


@pytest.mark.parametrize(
    ("cpu", "state", "expected"),
    [
        ("250m", RUNNING, None),
        ("0.25", RUNNING, None),
        ("100m", RUNNING, Resize("InProgress")),
        ("100m", {"waiting": {}}, None),
        ("odd", RUNNING, Resize("InProgress")),
    ],
)
def test_a_container_that_has_something_else_is_being_changed(
    cpu: str, state: dict[str, Any], expected: Resize | None
) -> None:
    """Compared as amounts, not as text; one that does not run has nothing yet."""
    status = {"name": "app", "state": state, "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    assert turned(PODS, with_status(pod(), containerStatuses=[status])).resize == expected


def test_a_container_is_told_with_what_restarts_it_and_whether_it_is_a_sidecar() -> None:
    """Both decide how it is changed in place."""
    policies = [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    ]
    raw = pod(
        containers=[{"name": "app", "resizePolicy": policies}],
        initContainers=[{"name": "proxy", "restartPolicy": "Always"}, {"name": "once"}],
    )
    app, proxy = turned(PODS, raw).containers
    assert (app.restarts_for, app.is_sidecar) == (("memory",), False)
    assert (proxy.name, proxy.restarts_for, proxy.is_sidecar) == ("proxy", (), True)


def test_a_daemon_set_counts_its_nodes() -> None:
    """It has no replicas of its own; OnDelete replaces no pod by itself."""
    raw = {
        "metadata": {"name": "log", "namespace": "shop", "uid": "u", "generation": 2},
        "spec": {
            "selector": {"matchLabels": {"app": "log"}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}},
        },
        "status": {
            "desiredNumberScheduled": 5,
            "currentNumberScheduled": 4,
            "updatedNumberScheduled": 3,
            "numberReady": 2,
            "observedGeneration": 2,
        },
    }
    found = turned(DAEMONSETS, raw)
    counts = (found.replicas_wanted, found.replicas_seen, found.replicas_updated, found.replicas_ready)
    assert counts == (5, 4, 3, 2)
    assert (found.containers[0].cpu_request_cores, found.replaces_pods) == (1.0, False)
