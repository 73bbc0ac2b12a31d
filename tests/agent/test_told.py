"""What the API server tells becomes what the agent works with."""

import json
from typing import Any

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE
from equipoise.core.cluster import ObjectRef
from equipoise.ports import PolicyObject
from equipoise.ports.node import NodeContainer, NodePod
from equipoise.runtime.agent.node_api import read_objects
from tests.support.qos.worlds import EVICT, THROTTLE, Document, pod_qos, policy, rule

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def _pod(**parts: Any) -> NodePod:
    metadata = {"name": "a", "namespace": "d", "uid": "u", "resourceVersion": "7"}
    raw = {"metadata": metadata | parts.pop("metadata", {}), "spec": {}, "status": {}} | parts
    found = PODS_OF_NODE.decode(Decoder(), PODS_OF_NODE.decode_object(json.dumps(raw).encode()))
    assert found is not None
    return found


def test_what_is_in_force_is_told_by_the_status_of_running_containers() -> None:
    """The spec where the status has nothing; a container that does not run is not there."""
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}
    spec = {
        "priority": 5,
        "containers": [
            {"name": "x", "resources": resources | {"limits": {"cpu": "1", "gocrane.io/cpu": "2"}}},
            {"name": "y", "resources": resources},
            {"name": "z"},
        ],
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
    }
    resized = {"requests": {"cpu": "200m"}, "limits": {"cpu": "1500m"}}
    status = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": "1970-01-01T00:01:00Z",
        "containerStatuses": [
            {"name": "x", "containerID": "containerd://aaaaaaaa", "state": RUNNING, "resources": resized},
            {"name": "y", "containerID": "cri-o://bbbbbbbb", "state": RUNNING},
            {"name": "z", "containerID": "", "state": {"waiting": {}}},
        ],
        "initContainerStatuses": [{"name": "side", "containerID": "containerd://cccccccc", "state": RUNNING}],
    }
    pod = _pod(spec=spec, status=status)
    assert pod.containers == (
        NodeContainer("x", "aaaaaaaa", 200 * 10**6, 1500 * 10**6),
        NodeContainer("y", "bbbbbbbb", 100 * 10**6, 10**9),
        NodeContainer("side", "cccccccc"),
    )
    assert (pod.priority, pod.qos_class, pod.started_at, pod.ext_cpu_limit_nanos) == (
        5,
        "Burstable",
        60,
        2 * 10**9,
    )


def test_what_only_the_pod_as_a_whole_has_holds_for_its_containers() -> None:
    """The kubelet writes the pod's limit as the quota of a container that has none of its own."""
    whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    own = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}
    spec = {"resources": whole, "containers": [{"name": "x", "resources": own}, {"name": "y"}]}
    statuses = [
        {"name": "x", "containerID": "containerd://aaaaaaaa", "state": RUNNING, "resources": own},
        {"name": "y", "containerID": "containerd://bbbbbbbb", "state": RUNNING, "resources": {}},
    ]
    pod = _pod(spec=spec, status={"phase": "Running", "containerStatuses": statuses})
    assert pod.containers == (
        NodeContainer("x", "aaaaaaaa", 100 * 10**6, 500 * 10**6),
        NodeContainer("y", "bbbbbbbb", 10**9, 2 * 10**9),
    )


def test_who_is_protected_and_who_leaves_is_told() -> None:
    """By owner, annotation and deletion; a time that makes no sense is none."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "1", "controller": True}
    marks = {"ownerReferences": [owner], "annotations": {"kubernetes.io/config.mirror": "x"}}
    ends = {"deletionTimestamp": "1970-01-01T00:10:00Z", "deletionGracePeriodSeconds": 45}
    pod = _pod(metadata=marks | ends)
    assert (pod.owner, pod.is_mirror, pod.deletion_at, pod.grace_seconds) == ("DaemonSet", True, 600, 45)
    assert (pod.is_leaving(629), pod.is_leaving(631)) == (True, False)
    assert _pod(metadata={"deletionTimestamp": "soon"}).deletion_at is None


def test_only_our_own_taint_counts() -> None:
    """By key and effect."""

    def is_disabled(*taints: dict[str, str]) -> bool:
        raw = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": list(taints)}}
        node = NODE.decode(Decoder(), NODE.decode_object(json.dumps(raw).encode()))
        assert node is not None
        return node.is_disabled

    ours = {"key": "ensurance.equipoise.dev/waterline", "effect": "NoSchedule"}
    assert is_disabled({"key": "x", "effect": "NoSchedule"}, ours)
    assert not is_disabled(ours | {"effect": "NoExecute"})


def _object(document: Document) -> PolicyObject:
    ref = ObjectRef(document["apiVersion"], document["kind"], "", document["metadata"]["name"])
    return PolicyObject(ref, 1, "1", document["spec"], {})


def test_objects_that_do_not_fit_are_left_out_and_said() -> None:
    """The others hold."""
    good = policy(rule("cpu_total_usage", 6000, "evict"), name="good")
    odd = policy(rule("cpu_total_usage", 6000, "none"), name="odd")
    memory = policy(rule("memory_total_usage", 1, "throttle"), name="memory")
    broken = policy(rule("cpu", 1, "evict"), name="broken")
    asked, problems = read_objects(map(_object, (EVICT, THROTTLE, good, odd, memory, broken)))
    assert [one.name for one in asked.policies] == ["good"]
    assert sorted(problem.partition(": expected")[0] for problem in problems) == [
        "NodeQOSEnsurancePolicy broken: spec.objectiveEnsurances[0].metricRule.name",
        "NodeQOSEnsurancePolicy memory: spec.objectiveEnsurances[0].actionName",
        "NodeQOSEnsurancePolicy odd: spec.objectiveEnsurances[0].actionName",
    ]


def test_a_pod_qos_that_allows_an_unknown_action_holds_and_is_said() -> None:
    """A typing error, or an action that comes later: the entry allows nothing, the others do."""
    asked = pod_qos("batch", labelSelector={}, allowedActions=["evict", "evct"])
    policy_, problems = read_objects(map(_object, (EVICT, asked)))
    assert policy_.pods is not None
    assert [one.actions for one in policy_.pods] == [("evict", "evct")]
    (said,) = problems
    assert said.startswith("PodQOS batch: spec.allowedActions[1]: expected the name of an AvoidanceAction")
    assert said.endswith("got 'evct'; the entry has no effect")
