"""What HPAs ask for comes word for word, whatever kinds of metrics there will be."""

from typing import Any

from equipoise.adapters.kubernetes.cluster import HpaSpecs
from equipoise.core.cluster import HpaSpec, WorkloadRef
from tests.support.kubernetes.samples import page
from tests.support.kubernetes.server import Asked, Stage, playing, session

PATH = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
ODD = {"type": "Lunar", "lunar": {"phase": ["full", 1, None]}}


def _hpa(name: str, **spec: Any) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1beta1"}
    metadata = {"name": name, "namespace": "shop", "labels": {"b": "2", "a": "1"}}
    return {"metadata": metadata, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}}


def test_metrics_and_behavior_are_not_interpreted() -> None:
    """An old version of the API names the same workload."""
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4}]}}

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path == PATH
        stage.answer(page([_hpa("one", metrics=[ODD], behavior=behavior, minReplicas=2), _hpa("two")]))

    web = WorkloadRef("apps/v1", "Deployment", "shop", "web")
    labels = (("a", "1"), ("b", "2"))
    with playing(script) as player, session(player.url) as client:
        assert HpaSpecs(client).specs("shop") == [
            HpaSpec("one", web, (ODD,), behavior, labels, 2, 3),
            HpaSpec("two", web, (), None, labels, 1, 3),
        ]


def test_an_hpa_that_cannot_be_read_is_named() -> None:
    """Advice that lost its metrics unseen would take them from the workload; others are not lost for it."""

    def script(_: Asked, stage: Stage) -> None:
        stage.answer(page([_hpa("odd", metrics="many"), _hpa("web")]))

    with playing(script) as player, session(player.url) as client:
        web, odd = HpaSpecs(client).specs("shop")
    assert (web.name, web.unreadable) == ("web", "")
    assert (odd.name, odd.target.namespace, odd.target.name) == ("odd", "shop", "")
    assert odd.unreadable == "spec.metrics: expected a list, got text"
