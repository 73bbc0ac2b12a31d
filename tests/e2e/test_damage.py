"""The most damaged objects that a real API server accepts cost their own tenants, and nobody else."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from equipoise.adapters.journal import Query, open_reader
from equipoise.adapters.kubernetes import KubernetesActuator, connect
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.qos.loop import QosLoop
from equipoise.runtime.agent.node_api import WatchedNode
from tests.support.agent.machines import Disk, Machine
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.damaged import (
    BULK,
    DAMAGE,
    NODE_DAMAGE,
    POD_DAMAGE,
    damage_to,
    damage_to_pod,
    damaged_scopes,
    node_policy,
    nothing,
)
from tests.support.e2e.replicas import Operator
from tests.support.e2e.tenants import NODE, create, loose_definition, pod_named, pods_of, tenant
from tests.testbed import (
    ControlPlane,
    RedisServer,
    StartControlPlane,
    StartPrometheus,
    StartRedis,
    wait_until,
)

HEALTHY, FLEET = "healthy", "fleet"
LOADS = (1.2, 0.3, 0.3)
PAST_SECONDS, AHEAD_SECONDS, STEP_SECONDS = 3600, 1800, 15
RUNNING = {
    "name": "app",
    "image": "i",
    "imageID": "",
    "ready": True,
    "restartCount": 0,
    "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}},
}
FIRST = {
    "rotation": ("healthy/web", "Rotate"),
    "proportional": ("healthy/web", "Set"),
    "recommendation": ("healthy/web for web", "Recommend"),
    "pools": ("voice/pods", "Reconcile"),
}
"""What each balancer decides first for who is well."""


class Quiet:
    """Nobody said stop, and nobody is asked."""

    def pause_of(self, namespace: str) -> None:
        del namespace

    def now(self) -> float:
        return time.time()


@dataclass
class Cluster:
    """An API server without controllers: every object is just as a test made it."""

    plane: ControlPlane
    redis: RedisServer
    prometheus_url: str


def _past(pods: list[str]) -> str:
    """A past of steady loads, and a future, so that it is never too old for a busy machine."""
    until = time.time() + AHEAD_SECONDS
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for pod, cores in zip(pods, LOADS, strict=True):
        labels = f'container="app",namespace="{HEALTHY}",pod="{pod}",instance="n",job="kubelet"'
        for age in range(PAST_SECONDS + AHEAD_SECONDS, -1, -STEP_SECONDS):
            used = cores * (PAST_SECONDS + AHEAD_SECONDS - age)
            lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {used:.3f} {until - age:.3f}")
    return "\n".join([*lines, "# EOF", ""])


def _make_nodes(plane: ControlPlane) -> None:
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "500"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    for meta in ({"name": NODE}, {"name": "node-odd", "annotations": {"example.com/odd": BULK}}):
        node = {"apiVersion": "v1", "metadata": meta, "spec": {}}
        create(plane, {"Node": node, "status/Node": status})


def _make(plane: ControlPlane) -> None:
    """Make the nodes, the tenants, and the fleet."""
    _make_nodes(plane)
    for name in (HEALTHY, *DAMAGE, *POD_DAMAGE):
        objects, pods = tenant(name), list(pods_of(name).values())
        damage_to(name)(objects)
        damage_to_pod(name)(pods[0])
        for part in (objects, *pods):
            create(plane, part)
    base = tenant(FLEET)
    create(plane, {kind: base[kind] for kind in ("Namespace", "ServiceAccount")})
    for number, damage in enumerate((None, None, *POD_DAMAGE.values())):
        one = pod_named(FLEET, f"agent-{number}", {"pool": "voice"}, None)
        if damage is not None:
            damage(one)
        create(plane, one)


@pytest.fixture
def cluster(
    start_control_plane: StartControlPlane, start_redis: StartRedis, start_prometheus: StartPrometheus
) -> Cluster:
    """All tenants, before anybody looks at them."""
    plane = start_control_plane(controllers=False, scheduler=False)
    done = equipoise("crds", "apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    plane.api.apply(loose_definition("ScaledObject", "scaledobjects", "keda.sh", "v1alpha1"))
    group = "autoscaling.k8s.io"
    plane.api.apply(loose_definition("VerticalPodAutoscaler", "verticalpodautoscalers", group, "v1"))
    _make(plane)
    redis = start_redis()
    redis.client().set("voice:tier:config", json.dumps({"gold": 2, "silver": len(POD_DAMAGE)}))
    past = _past(sorted(pods_of(HEALTHY)))
    return Cluster(plane, redis, start_prometheus(backfill=past).url)


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """The operator as a user runs it, for all namespaces and with all balancers; ready, or it fails."""
    balancers = ["rotation", "proportional", "recommendation", "pools"]
    pools = {"redisUrl": cluster.redis.url, "namespace": FLEET, "selector": "pool=voice", "mode": "Enforce"}
    settings = {"namespaces": [], "balancers": balancers, "pools": pools, "intervals": {}}
    with Operator(cluster.plane, cluster.prometheus_url, HEALTHY, tmp_path, settings) as started:
        yield started


def _records(operator: Operator, balancer: str) -> list[Record]:
    """What it has recorded so far, oldest first."""
    reader = open_reader(operator.journal)
    try:
        return sorted(reader.records(Query(balancer=balancer)), key=lambda one: one.at)
    finally:
        reader.close()


def test_who_is_well_has_its_decision_in_the_first_cycle_beside_every_damaged_object(
    cluster: Cluster, operator: Operator
) -> None:
    """With the caches synced and every loop's first cycle done well, `/readyz` says ok; no cycle failed."""
    for balancer, (subject, reason) in FIRST.items():
        operator.wait_for(lambda balancer=balancer: _records(operator, balancer), f"records of {balancer}")  # type: ignore[misc]
        records = _records(operator, balancer)
        own = [one for one in records if one.decision.subject == subject]
        assert own, f"{balancer}: {sorted({one.decision.subject for one in records})}"
        assert own[0].at - records[0].at < 1.0, "it is of the first cycle"
        assert own[0].decision.reason.code.value == reason, own[0].decision.reason.sentence
    for result in ("failed", "bug"):
        assert operator.metric("equipoise_cycles_total", result=result) is None
    assert operator.metric("equipoise_failed_turns_total", cause="bug") is None
    members = cluster.redis.client(decode_responses=True).smembers("voice:pool:gold:assigned")
    assert {"agent-0", "agent-1"} <= members


def _policies_of(around: WatchedNode) -> int:
    """How many policies of the node are known by now."""
    try:
        return len(around.policy().policies)
    except WorldFailed:
        return 0


def test_a_pod_that_is_well_is_decided_on_beside_damaged_policies_and_pods_of_its_node(
    start_control_plane: StartControlPlane,
) -> None:
    """What the agent watches of its node, beside every damage: the throttle is what it is without them."""
    plane = start_control_plane(controllers=False, scheduler=False)
    done = equipoise("crds", "apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    _make_nodes(plane)
    base = tenant(HEALTHY)
    create(plane, {kind: base[kind] for kind in ("Namespace", "ServiceAccount")})
    for name, damage in ({HEALTHY: nothing} | POD_DAMAGE).items():
        one = pod_named(HEALTHY, name, {}, None)
        one["status/Pod"]["containerStatuses"] = [RUNNING | {"containerID": f"containerd://{name}00000000"}]
        damage(one)
        create(plane, one)
    for name in (HEALTHY, *NODE_DAMAGE):
        create(plane, node_policy(name, NODE_DAMAGE.get(name, {})))
    for one in damaged_scopes(HEALTHY):
        create(plane, one)
    client = connect(str(plane.kubeconfig), None)
    around = WatchedNode(client, KubernetesActuator(client), NODE)
    around.start()
    try:
        wait_until(lambda: _policies_of(around) >= len(NODE_DAMAGE), "the node's policies", 60)
        machine, quiet = Machine(), Quiet()
        (well,) = [pod for pod in around.pods() if pod.name == HEALTHY]
        machine.start(well, 3.0)
        loop = QosLoop(NODE, machine, around, quiet, quiet, Disk(), is_enforced=False)  # type: ignore[arg-type]
        loop.cycle(quiet.now())
        machine.pass_time(10.0)
        done_ = loop.cycle(quiet.now())
    finally:
        around.stop()
    assert done_.decision.reason.code.value == "Throttle", done_.decision.reason.sentence
    assert [action.pod for action in done_.decision.actions] == [f"{HEALTHY}/{HEALTHY}"]
    assert list(done_.failed_turns) == []
    assert any("missing-action" in problem for problem in around.problems)
