"""From the API's words to records."""

from __future__ import annotations

import gc
import json
import math
import tracemalloc
from typing import Any

import pytest

from equipoise.adapters.kubernetes.cache import Pool
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import (
    DEPLOYMENTS,
    HPAS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
)
from equipoise.core.cluster import Container, Hpa, Owner, Pod, WorkloadRef
from tests.support.kubernetes.decoding import turned, with_status, workload
from tests.support.kubernetes.samples import page, pod


def test_a_pod_becomes_a_record() -> None:
    """Every field that a balancer reads, and no more."""
    record = turned(PODS, pod())
    assert record == Pod(
        namespace="shop",
        name="web-1",
        uid="uid-shop-web-1",
        resource_version="7",
        node="node-1",
        phase="Running",
        is_ready=True,
        ready_since=1793527230.0,
        created_at=1793527200.0,
        deletion_at=None,
        owner=Owner("apps/v1", "ReplicaSet", "web-abc", "rs-1"),
        labels=(("app", "web"), ("pod-template-hash", "abc")),
        annotations=(),
        containers=(Container("app", 0.25, 128 * 2.0**20, 1.0, 256 * 2.0**20),),
        restarts=0,
        restarted_at=None,
        priority=100,
        priority_class="high",
        qos_class="Burstable",
        has_local_storage=False,
        is_mirror=False,
        is_disruption_target=False,
    )


def test_a_pod_that_was_just_created_is_read() -> None:
    """No node, no status, no labels, nothing asked for."""
    record = turned(
        PODS, {"metadata": {"name": "a", "namespace": "b"}, "spec": {"containers": [{"name": "c"}]}}
    )
    assert (record.node, record.phase, record.is_ready, record.owner) == ("", "", False, None)
    assert record.containers == (Container("c"),)
    assert record.cpu_request_cores is None


def test_native_sidecars_count_as_containers() -> None:
    """As for the HPA: init containers that restart always, but no others."""
    first = [
        {"name": "mesh", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"name": "migrate", "resources": {"requests": {"cpu": "4"}}},
    ]
    record = turned(PODS, pod(initContainers=first))
    assert [c.name for c in record.containers] == ["app", "mesh"]
    assert record.cpu_request_cores == pytest.approx(0.35)


def test_pod_level_requests_make_the_containers_unknown() -> None:
    """The HPA then goes by the pod's own request; a sum of containers would be another number."""
    decoder = Decoder()
    record = turned(PODS, pod(resources={"requests": {"cpu": "2"}}), decoder)
    assert record.cpu_request_cores is None
    assert record.containers[0].memory_request_bytes == 128 * 2.0**20
    assert "pod-level" in decoder.warnings.sentences()[0]


def test_restarts_are_summed_and_the_latest_is_found() -> None:
    """The end of the last run or the start of this one, of containers that did restart."""
    statuses = [
        {
            "restartCount": 2,
            "state": {"running": {"startedAt": "2026-11-01T12:00:10Z"}},
            "lastState": {"terminated": {"finishedAt": "2026-11-01T12:00:00Z"}},
        },
        {"restartCount": 1, "lastState": {"terminated": {"finishedAt": "2026-11-01T11:00:00Z"}}},
        {"restartCount": 0, "state": {"running": {"startedAt": "2026-11-01T13:00:00Z"}}},
    ]
    record = turned(PODS, with_status(pod(), containerStatuses=statuses))
    assert (record.restarts, record.restarted_at) == (3, 1793534410.0)


def test_oom_kills_are_read_with_their_times() -> None:
    """Of the last run of a container, or of this one, which may not be restarted."""
    ended = {"finishedAt": "2026-11-01T12:00:00Z", "reason": "OOMKilled"}
    statuses = [
        {"name": "app", "lastState": {"terminated": ended}},
        {"name": "proxy", "lastState": {"terminated": ended | {"reason": "Error"}}},
        {"name": "job", "state": {"terminated": ended}},
    ]
    record = turned(PODS, with_status(pod(), containerStatuses=statuses))
    assert record.oom_kills == (("app", 1793534400.0), ("job", 1793534400.0))


@pytest.mark.parametrize(
    ("volumes", "is_local"),
    [
        ([{"name": "a", "emptyDir": {}}], True),
        ([{"name": "a", "emptyDir": {"medium": "Memory"}}], True),
        ([{"name": "a", "hostPath": {"path": "/x"}}], True),
        ([{"name": "a", "configMap": {"name": "x"}}], False),
        ([], False),
    ],
)
def test_local_storage_is_seen(volumes: list[dict[str, Any]], is_local: bool) -> None:
    """What a pod would lose by moving."""
    assert turned(PODS, pod(volumes=volumes)).has_local_storage is is_local


def test_marks_and_conditions_are_seen() -> None:
    """Annotations that matter are kept, others dropped; mirror pods, deletions, disruption targets."""
    raw = pod()
    raw["metadata"]["annotations"] = {
        "karpenter.sh/do-not-disrupt": "true",
        "equipoise.dev/pause": "true",
        "kubernetes.io/config.mirror": "abc",
        "big": "x" * 1000,
    }
    raw["metadata"]["deletionTimestamp"] = "2026-11-01T10:00:00Z"
    raw["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": None},
        {"type": "DisruptionTarget", "status": "True"},
    ]
    record = turned(PODS, raw)
    assert record.annotations == (("equipoise.dev/pause", "true"), ("karpenter.sh/do-not-disrupt", "true"))
    assert (record.is_mirror, record.is_disruption_target, record.is_ready) == (True, True, False)
    assert (record.deletion_at, record.ready_since) == (1793527200.0, None)


def test_what_cannot_be_read_is_unknown_and_counted() -> None:
    """One bad quantity or time costs that field, not the list; an unknown creation is never old enough."""
    raw = pod()
    raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "much"
    raw["metadata"]["creationTimestamp"] = "yesterday"
    raw["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-01T10:00:00"
    decoder = Decoder()
    record = turned(PODS, raw, decoder)
    assert (record.cpu_request_cores, record.ready_since, record.created_at) == (None, None, math.inf)
    assert set(decoder.warnings.sentences()) == {
        "a quantity that cannot be read: 1 times, first in shop/web-1",
        "a time that cannot be read: 2 times, first in shop/web-1",
    }


def test_a_node_becomes_a_record() -> None:
    """Its allocatable size, readiness and cordon."""
    raw = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "3", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    record = turned(NODES, raw)
    assert (record.cpu_cores, record.memory_bytes, record.pods_max) == (3.92, 15 * 2.0**30, 110)
    assert (record.is_ready, record.is_cordoned, record.labels) == (True, True, (("zone", "a"),))
    bare = turned(NODES, {"metadata": {"name": "n"}})
    assert (bare.is_ready, bare.cpu_cores, bare.pods_max) == (False, 0.0, 0)


def test_workloads_become_records() -> None:
    """Replicas default to one; only ReplicaSets without an owner are workloads, and all theirs are new."""
    record = turned(DEPLOYMENTS, workload())
    assert record.ref == WorkloadRef("apps/v1", "Deployment", "shop", "web")
    assert (record.replicas_wanted, record.replicas_seen, record.replicas_ready, record.replicas_updated) == (
        1,
        3,
        2,
        1,
    )
    assert (record.generation, record.generation_observed) == (4, 3)
    assert record.selector.matches({"app": "web"})
    assert turned(STATEFULSETS, workload(replicas=0)).replicas_wanted == 0
    assert turned(REPLICASETS, workload()).replicas_updated == 3
    owned = workload()
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    ]
    assert turned(REPLICASETS, owned) is None


def test_a_selector_that_cannot_be_read_leans_to_the_safe_side() -> None:
    """A workload then has no pods, and a budget protects every pod."""
    odd = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
    assert not turned(DEPLOYMENTS, workload(selector=odd)).selector.matches({"a": "2"})
    assert not turned(DEPLOYMENTS, workload(selector=None)).selector.matches({})
    assert turned(PDBS, {"metadata": {"name": "b"}, "spec": {"selector": odd}}).selector.matches({"a": "2"})


def hpa(**spec: Any) -> Hpa:
    raw = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 9,
            **spec,
        },
        "status": {"currentReplicas": 3, "desiredReplicas": 4, "lastScaleTime": "2026-11-01T10:00:00Z"},
    }
    record = turned(HPAS, raw)
    assert isinstance(record, Hpa)
    return record


def test_an_hpa_becomes_a_record() -> None:
    """Its target lies in its own namespace; at least one replica by default."""
    record = hpa()
    assert record.target == WorkloadRef("apps/v1", "Deployment", "shop", "web")
    assert (record.replicas_min, record.replicas_max, record.scaled_at) == (1, 9, 1793527200.0)
    assert hpa(minReplicas=0).replicas_min == 0


@pytest.mark.parametrize(
    ("metric", "seen"),
    [
        (
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
            },
            ("Resource", "cpu", "Utilization", 70.0, ""),
        ),
        (
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "700m"}},
            },
            ("Resource", "cpu", "AverageValue", 0.7, ""),
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "memory",
                    "container": "app",
                    "target": {"type": "AverageValue", "averageValue": "1Gi"},
                },
            },
            ("ContainerResource", "memory", "AverageValue", 2.0**30, "app"),
        ),
        (
            {
                "type": "Pods",
                "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
            },
            ("Pods", "rps", "AverageValue", 1000.0, ""),
        ),
        (
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "hits"},
                    "describedObject": {"kind": "Ingress", "name": "x"},
                    "target": {"type": "Value", "value": "2k"},
                },
            },
            ("Object", "hits", "Value", 2000.0, ""),
        ),
        (
            {
                "type": "External",
                "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}},
            },
            ("External", "queue", "Value", 30.0, ""),
        ),
    ],
)
def test_all_metrics_of_an_hpa_are_read(
    metric: dict[str, Any], seen: tuple[str, str, str, float, str]
) -> None:
    """Every type, every kind of target."""
    (read,) = hpa(metrics=[metric]).metrics
    assert (read.type, read.name, read.target_type, read.target_value, read.container) == seen


def test_a_metric_that_cannot_be_read_has_no_target() -> None:
    """NaN exceeds nothing and equals nothing."""
    odd = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "?"}},
    }
    assert math.isnan(hpa(metrics=[odd]).metrics[0].target_value)
    assert math.isnan(hpa(metrics=[{"type": "Future"}]).metrics[0].target_value)


@pytest.mark.parametrize(
    ("spec", "selects"),
    [
        ({}, None),
        ({"selector": None}, None),
        ({"selector": {}}, True),
        ({"selector": {"matchLabels": {"a": "c"}}}, False),
    ],
)
def test_a_budget_without_a_selector_selects_nothing(spec: dict[str, Any], selects: bool | None) -> None:
    """And one with an empty selector everything, as policy/v1 has it."""
    record = turned(
        PDBS, {"metadata": {"name": "b", "generation": 2}, "spec": spec, "status": {"observedGeneration": 2}}
    )
    assert record.is_current
    assert (record.selector.matches({"a": "b"}) if record.selector else None) is selects


def test_alike_pods_share_what_is_alike() -> None:
    """Containers, labels, owners and names of nodes are held once."""
    decoder = Decoder()
    one, other = (turned(PODS, pod(name), decoder) for name in ("a", "b"))
    assert one.containers is other.containers
    assert one.labels is other.labels
    assert one.owner is other.owner
    assert one.node is other.node


def test_the_pool_of_shared_values_is_bounded() -> None:
    """It forgets rather than grows, and what was forgotten is still right."""
    pool = Pool(entries_max=10)
    assert [pool.share(str(i)) for i in range(100)] == [str(i) for i in range(100)]
    assert len(pool) <= 10


def test_a_pod_is_held_in_little_memory() -> None:
    """At most 2 KiB each, the promise; it is nearer to 0.6."""
    raws = [pod(f"web-{i:05}", f"ns-{i % 10}", str(100_000 + i), f"{i:036}") for i in range(2_000)]
    body = json.dumps(page(raws)).encode()
    decoder = Decoder()
    gc.collect()
    tracemalloc.start()
    try:
        records = [decoder.pod(raw) for raw in PODS.decode_page(body).items or ()]
        gc.collect()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / len(records) < 800
