"""Whose autoscaling KEDA has paused, as its ScaledObjects tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from equipoise.adapters.kubernetes import CachedCluster, KubernetesCluster, Unreachable
from equipoise.adapters.kubernetes.errors import RightMissing
from equipoise.adapters.kubernetes.keda_vpa import ABSENT_SECONDS, FRESH_SECONDS, pause_annotation
from equipoise.core.cluster import WorkloadRef
from tests.support.kubernetes.samples import page
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

ALL = "/apis/keda.sh/v1alpha1/scaledobjects"
PAUSED = "autoscaling.keda.sh/paused"
WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")
DISCOVERED = {"resources": [{"name": "scaledobjects", "kind": "ScaledObject", "namespaced": True}]}


def scaled(name: str, namespace: str = "shop", by: str = PAUSED, **target: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": {by: "true"}},
        "spec": {"scaleTargetRef": {"name": name, **target}, "triggers": [{"type": "cron"}]},
    }


def listing(*items: dict[str, Any]) -> Callable[[Asked, Stage], None]:
    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path == ALL
        stage.answer(page(list(items)))

    return script


@pytest.mark.parametrize(
    ("annotations", "by"),
    [
        ({PAUSED: "true"}, PAUSED),
        ({PAUSED: "1"}, PAUSED),
        ({PAUSED: ""}, PAUSED),
        ({PAUSED: "until monday"}, PAUSED),
        ({PAUSED: "false"}, None),
        ({PAUSED: "F"}, None),
        ({f"{PAUSED}-replicas": "0"}, f"{PAUSED}-replicas"),
        ({f"{PAUSED}-replicas": "false"}, f"{PAUSED}-replicas"),
        ({PAUSED: "false", f"{PAUSED}-replicas": "3"}, f"{PAUSED}-replicas"),
        ({f"{PAUSED}-scale-in": "true"}, f"{PAUSED}-scale-in"),
        ({f"{PAUSED}-scale-out": "true"}, f"{PAUSED}-scale-out"),
        ({f"{PAUSED}-scale-in": "false", f"{PAUSED}-scale-out": "0"}, None),
        ({"autoscaling.keda.sh/force-activation": "true"}, None),
        ({}, None),
    ],
)
def test_annotations_pause_as_keda_reads_them(annotations: dict[str, str], by: str | None) -> None:
    """A truth value, or what is none and so counts as true; a number of replicas by being there."""
    assert pause_annotation(annotations) == by


def test_a_pause_names_the_object_and_the_annotation() -> None:
    """Whoever reads it knows what to look at."""
    with playing(listing(scaled("web"))) as player, session(player.url) as client:
        pauses = KubernetesCluster(client).autoscaler_pauses()
    assert pauses == {WEB: "ScaledObject shop/web is paused by autoscaling.keda.sh/paused"}


@pytest.mark.parametrize(
    ("target", "ref"),
    [
        ({}, WEB),
        ({"apiVersion": "apps/v1beta2"}, WEB),
        ({"apiVersion": "", "kind": ""}, WEB),
        ({"kind": "StatefulSet"}, WEB._replace(kind="StatefulSet")),
        (
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"},
            WorkloadRef("argoproj.io/v1alpha1", "Rollout", "shop", "web"),
        ),
    ],
)
def test_a_target_is_named_as_lists_name_it(target: dict[str, str], ref: WorkloadRef) -> None:
    """With KEDA's defaults, and old versions of a built-in group as the one that is listed."""
    with playing(listing(scaled("web", **target))) as player, session(player.url) as client:
        assert list(KubernetesCluster(client).autoscaler_pauses()) == [ref]


def test_a_scaled_object_that_cannot_be_read_is_a_warning() -> None:
    """Somebody else's odd object hides nobody's pause."""
    odd = [
        scaled("odd", kind=7),
        {"metadata": {"name": "bare", "namespace": "shop"}},
        {"metadata": {}, "spec": {"scaleTargetRef": {"name": "unnamed"}}},
    ]
    with playing(listing(*odd, scaled("web"))) as player, session(player.url) as client:
        cluster = KubernetesCluster(client)
        assert list(cluster.autoscaler_pauses()) == [WEB]
        assert cluster.warnings == ("a ScaledObject that cannot be read: 3 times, first in shop/odd",)


def test_a_namespace_is_asked_for_alone() -> None:
    """Rights in one namespace are enough for it."""

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path == "/apis/keda.sh/v1alpha1/namespaces/shop/scaledobjects"
        stage.answer(page([scaled("web")]))

    with playing(script) as player, session(player.url) as client:
        assert list(KubernetesCluster(client).autoscaler_pauses("shop")) == [WEB]


def test_without_keda_nobodys_autoscaling_is_paused() -> None:
    """The server does not know the kind."""
    with (
        playing(lambda _, stage: stage.answer(b"404 page not found\n", 404)) as player,
        session(player.url) as client,
    ):
        assert KubernetesCluster(client).autoscaler_pauses() == {}


def test_who_may_not_look_is_told_which_right_is_missing() -> None:
    """Unknown is not unpaused."""

    def script(asked: Asked, stage: Stage) -> None:
        if asked.path == "/apis/keda.sh/v1alpha1":
            stage.answer(DISCOVERED)
        else:
            stage.refuse(403, "Forbidden", "scaledobjects.keda.sh is forbidden")

    with playing(script) as player, session(player.url) as client:
        cluster = KubernetesCluster(client)
        with pytest.raises(RightMissing, match=r"to list scaledobjects\.keda\.sh in all") as caught:
            cluster.autoscaler_pauses()
        assert (caught.value.verb, caught.value.resource) == ("list", "scaledobjects.keda.sh")
        with pytest.raises(RightMissing, match="in namespace shop is missing"):
            cluster.autoscaler_pauses("shop")


def test_who_may_not_look_where_there_is_no_keda_misses_nothing() -> None:
    """The server asks for rights before it looks for the kind, and everyone may ask for the kinds."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.refuse(*((403, "Forbidden") if "scaledobjects" in asked.path else (404, "NotFound")), "no")

    with playing(script) as player, session(player.url) as client:
        assert KubernetesCluster(client).autoscaler_pauses() == {}


def test_a_cached_answer_is_asked_for_again_after_a_while() -> None:
    """At most four times a minute, however often the loops ask; all namespaces at once."""
    clock, items = Time(), [scaled("web"), scaled("api", "bank")]

    def script(asked: Asked, stage: Stage) -> None:
        del asked
        stage.answer(page(items))

    with playing(script) as player, session(player.url, world=clock.world()) as client:
        cluster = CachedCluster(client)
        assert set(cluster.autoscaler_pauses()) == {WEB, WEB._replace(namespace="bank", name="api")}
        assert list(cluster.autoscaler_pauses("shop")) == [WEB]
        items.clear()
        clock.now += FRESH_SECONDS - 1
        assert list(cluster.autoscaler_pauses("shop")) == [WEB]
        assert len(player.asked) == 1
        clock.now += 1
        assert cluster.autoscaler_pauses() == {}
        assert len(player.asked) == 2


def test_a_missing_keda_is_remembered_for_longer() -> None:
    """It is looked for again, since it may be installed any day."""
    clock, is_there = Time(), [False]

    def script(asked: Asked, stage: Stage) -> None:
        del asked
        if is_there[0]:
            stage.answer(page([scaled("web")]))
        else:
            stage.refuse(404, "NotFound", "no such kind")

    with playing(script) as player, session(player.url, world=clock.world()) as client:
        cluster = CachedCluster(client, namespace="shop")
        assert cluster.autoscaler_pauses() == {}
        is_there[0] = True
        clock.now += ABSENT_SECONDS - 1
        assert cluster.autoscaler_pauses() == {}
        assert len(player.asked) == 1
        clock.now += 1
        assert list(cluster.autoscaler_pauses()) == [WEB]


def test_a_cache_that_cannot_ask_again_says_so() -> None:
    """An old answer is not passed off as a new one; the next call asks again."""
    clock, is_down = Time(), [False]

    def script(asked: Asked, stage: Stage) -> None:
        del asked
        if is_down[0]:
            stage.cut()
        else:
            stage.answer(page([scaled("odd", kind=7)]))

    with playing(script) as player, session(player.url, world=clock.world()) as client:
        cluster = CachedCluster(client)
        assert cluster.autoscaler_pauses() == {}
        assert cluster.warnings == ("a ScaledObject that cannot be read: 1 times, first in shop/odd",)
        is_down[0] = True
        clock.now += FRESH_SECONDS
        with pytest.raises(Unreachable):
            cluster.autoscaler_pauses()
        is_down[0] = False
        assert cluster.autoscaler_pauses() == {}
