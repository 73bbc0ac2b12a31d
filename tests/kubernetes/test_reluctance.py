"""What says that a pod had better stay: annotations, owners, volumes; and how much an HPA overlooks."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import DEPLOYMENTS, HPAS, PODS
from tests.support.kubernetes.decoding import turned, workload
from tests.support.kubernetes.samples import pod

HPA: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9},
}


def tolerances(behavior: object, decoder: Decoder | None = None) -> tuple[float, float]:
    """Give what an HPA overlooks on its way up and down."""
    record = turned(HPAS, {**HPA, "spec": {**HPA["spec"], "behavior": behavior}}, decoder)
    return record.tolerance_up, record.tolerance_down


@pytest.mark.parametrize(
    ("behavior", "up", "down"),
    [
        (None, 0.1, 0.1),
        ({"scaleUp": {"stabilizationWindowSeconds": 0}}, 0.1, 0.1),
        ({"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0.2"}}, 0.05, 0.2),
        ({"scaleUp": {"tolerance": 0}, "scaleDown": None}, 0.0, 0.1),
        ({"scaleDown": {"tolerance": "1"}}, 0.1, 1.0),
    ],
)
def test_an_hpa_tells_its_own_tolerances(behavior: object, up: float, down: float) -> None:
    """Quantities, since Kubernetes 1.33; the usual tenth where it says nothing."""
    assert tolerances(behavior) == (up, down)


def test_a_tolerance_that_cannot_be_read_is_the_usual_one_and_counted() -> None:
    """One odd field costs that field only."""
    decoder = Decoder()
    assert tolerances({"scaleUp": {"tolerance": "a lot"}}, decoder) == (0.1, 0.1)
    assert decoder.warnings.sentences() == ("a quantity that cannot be read: 1 times, first in shop/web",)


@pytest.mark.parametrize(
    ("expendable", "is_local"),
    [("cache", True), ("cache,scratch", False), ("scratch,cache,other", False), ("", True)],
)
def test_volumes_that_may_be_lost_are_no_local_storage(expendable: str, is_local: bool) -> None:
    """As the cluster autoscaler takes it: every local volume has to be named."""
    raw = pod(volumes=[{"name": "cache", "emptyDir": {}}, {"name": "scratch", "hostPath": {"path": "/x"}}])
    raw["metadata"]["annotations"] = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": expendable
    }
    assert turned(PODS, raw).has_local_storage is is_local


@pytest.mark.parametrize(
    "annotation",
    [
        "equipoise.dev/anything",
        "descheduler.alpha.kubernetes.io/evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
        "karpenter.sh/do-not-disrupt",
        "karpenter.sh/do-not-evict",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
        "autoscaling.keda.sh/paused",
        "autoscaling.keda.sh/paused-replicas",
        "autoscaling.keda.sh/paused-scale-in",
        "autoscaling.keda.sh/paused-scale-out",
    ],
)
def test_words_that_opt_out_are_kept(annotation: str) -> None:
    """On pods, on workloads and on HPAs."""
    marks = {"annotations": {annotation: "true", "other": "x"}}
    for kind, raw in ((PODS, pod()), (DEPLOYMENTS, workload()), (HPAS, HPA)):
        record = turned(kind, {**raw, "metadata": {**raw["metadata"], **marks}})
        assert record.annotations == ((annotation, "true"),)


@pytest.mark.parametrize(
    ("kind", "name", "is_mirror"), [("DaemonSet", "agent", False), ("Node", "node-1", True)]
)
def test_pods_that_belong_to_their_node_are_known(kind: str, name: str, is_mirror: bool) -> None:
    """A DaemonSet's by its owner; a static pod by its mirror's mark and owner."""
    raw = pod()
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": True}
    ]
    if is_mirror:
        raw["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "abc"}
    record = turned(PODS, raw)
    assert (record.owner.kind, record.owner.name, record.is_mirror) == (kind, name, is_mirror)
