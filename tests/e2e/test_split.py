"""Two operators with two Leases, and an agent, on a real API server: one at a time takes pods."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.kubernetes import KubernetesActuator, connect
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import Owner, WorkloadRef
from equipoise.core.decision import EvictPod, Outcome
from equipoise.core.ledger import Entry, EntryState, Ledger
from equipoise.engine.guards import OTHERS_SECONDS
from equipoise.ports.node import NodePod
from equipoise.runtime.agent.node_api import ledger_evictor
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Operator
from tests.support.e2e.rotation_workload import AFTER_CORES, HPA_PERCENT, Scene, wait_for_loads
from tests.testbed import ControlPlane, Kwok, Prometheus, wait_until
from tests.testbed.processes import NotInTime
from tests.testbed.scenes import SIX_LOADS, deployment, hpa, running_pods

ALONE, RACED, TAKEN = "alone", "raced", "taken"
"""Workloads: one that only rotation is asked for, one that all are, one that an agent was at before."""
BALANCERS = {"rotation", "proportional"}
"""Of the two operators; the agent's is `qos`."""
FAR_AHEAD = 4_000_000_000
"""An epoch that no Lease of ours has for centuries."""
CPU = {"resource": "cpu", "function": {"input": "nodes", "base": "1100m", "slope": "1m"}}


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Our kinds, installed by our own command."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def scenes(
    control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus, namespace: str
) -> dict[str, Scene]:
    """Three times six pods, two of them hot, whose container restarts when its CPU changes; no budgets."""
    made = {}
    for name in (ALONE, RACED, TAKEN):
        wanted = deployment(namespace, name, replicas=len(SIX_LOADS), request="1")
        template = wanted["spec"]["template"]
        template["metadata"]["annotations"] = {"kwok.x-k8s.io/usage-cpu": f"{round(AFTER_CORES * 1000)}m"}
        restart = {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
        template["spec"]["containers"][0]["resizePolicy"] = [restart]
        control_plane.apply(wanted)
        pods = running_pods(control_plane, namespace, name, len(SIX_LOADS))
        for pod, load in zip(pods, SIX_LOADS, strict=True):
            kwok.set_load(namespace, pod, cpu=f"{round(load * 1000)}m")
        control_plane.apply(hpa(namespace, name, HPA_PERCENT, len(SIX_LOADS), 12))
        letters = dict(zip("ABCDEF", pods, strict=True))
        made[name] = Scene(control_plane, kwok, prometheus, namespace, name, letters)
    for scene in made.values():
        wait_for_loads(scene, dict(zip(scene.pods.values(), SIX_LOADS, strict=True)))
    return made


class Agent:
    """The agent's way to evict, and what came of it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client = connect(str(plane.kubeconfig))
        self._evictor = ledger_evictor(self.client, KubernetesActuator(self.client))
        self.outcomes: dict[str, list[Outcome]] = {ALONE: [], RACED: [], TAKEN: []}

    def evict(self, scene: Scene) -> Outcome:
        """Ask for C, whose successor uses as much: the HPA stays content."""
        (pod,) = [one["metadata"] for one in scene.list_pods() if one["metadata"]["name"] == scene.pods["C"]]
        (maker,) = pod["ownerReferences"]
        owner = Owner(maker["apiVersion"], maker["kind"], maker["name"], maker["uid"])
        told = NodePod(scene.namespace, pod["name"], pod["uid"], controller=owner)
        action = EvictPod(f"{scene.namespace}/{pod['name']}", uid=pod["uid"], grace_seconds=1)
        self.outcomes[scene.name].append(self._evictor.evict(action, told, time.time()))
        return self.outcomes[scene.name][-1]

    def until_accepted(self, scene: Scene, stop: threading.Event) -> None:
        """Ask again and again, as an agent whose node is above its waterline."""
        while not stop.wait(0.05) and self.evict(scene).result != "Accepted":
            continue


@pytest.fixture
def agent(control_plane: ControlPlane) -> Iterator[Agent]:
    """An agent, with the rights of an administrator."""
    made = Agent(control_plane)
    with closing(made.client):
        yield made


def _ledger(scene: Scene, agent: Agent) -> Ledger:
    ref = WorkloadRef("apps/v1", "Deployment", scene.namespace, scene.name)
    return Ledger.from_data(LedgerStore(agent.client).read(ref).data)


def _deeds(scene: Scene, agent: Agent) -> list[Entry]:
    """Give what was done, or may have been, the oldest first."""
    found = [entry for entry in _ledger(scene, agent).entries if entry.state is not EntryState.FAILED]
    return sorted(found, key=lambda entry: entry.at)


def _balancers(scene: Scene, agent: Agent) -> set[str]:
    return {entry.balancer for entry in _deeds(scene, agent)}


def _assert_one_at_a_time(scene: Scene, agent: Agent) -> None:
    """Between two deeds of two balancers lies the hold: by their own times, however long the test took."""
    for before, after in pairwise(_deeds(scene, agent)):
        waited = after.at - before.at
        assert before.balancer == after.balancer or waited > OTHERS_SECONDS - 1, (before, after)


def _scaling(scene: Scene) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": scene.name}
    containers = [{"name": "app", "resources": {"requests": [CPU]}}]
    return {
        "apiVersion": "scalingpolicy.kope.io/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": scene.name, "namespace": scene.namespace},
        "spec": {"scaleTargetRef": target, "containers": containers},
    }


def _said(scene: Scene, kind: str) -> str:
    path = {
        "rotation": scene.policy_path,
        "proportional": f"/apis/scalingpolicy.kope.io/v1alpha1/namespaces/{scene.namespace}"
        f"/scalingpolicies/{scene.name}",
    }[kind]
    last = scene.control_plane.api.get(path).get("status", {}).get("lastDecision", {})
    return f"{last.get('reason')}: {last.get('sentence')}"


def _wait_until_held(raced: Scene, taken: Scene, agent: Agent) -> None:
    """Wait until all have been held where another was first.

    Everybody is listened to at once, from the beginning: a hold ends, and then another may act and say so.
    """
    held: dict[str, set[str]] = {RACED: set(), TAKEN: set()}

    def all_were_held() -> bool:
        for balancer in BALANCERS:
            if "HeldByBudget: The balancer qos acted on" in _said(taken, balancer):
                held[TAKEN].add(balancer)
            if "acted on" in _said(raced, balancer):
                held[RACED].add(balancer)
        if any("acted on" in outcome.detail for outcome in agent.outcomes[RACED]):
            held[RACED].add("qos")
        first = {entry.balancer for entry in _deeds(raced, agent)[:1]}
        return held[TAKEN] == BALANCERS and bool(first) and held[RACED] >= {*BALANCERS, "qos"} - first

    try:
        wait_until(all_were_held, "all others held at the second and the third", 180)
    except NotInTime as error:
        says = {(scene.name, name): _said(scene, name) for scene in (raced, taken) for name in BALANCERS}
        raise AssertionError(f"{error}; held were {held}; they say: {says}") from error


def _start(stack: ExitStack, scene: Scene, balancer: str, folder: Path) -> Operator:
    place = folder / balancer
    place.mkdir()
    settings = {
        "balancers": [balancer],
        "compat": {"mode": "Enforce"},
        "intervals": {"rotation": "1s", "proportional": "1s"},
        "proportional": {"change": "0s", "rollout": "0s"},
    }
    made = Operator(scene.control_plane, scene.prometheus.url, scene.namespace, place, settings)
    return stack.enter_context(made)


def test_two_operators_and_an_agent_never_take_pods_of_one_workload_at_once(
    scenes: dict[str, Scene], agent: Agent, tmp_path: Path
) -> None:
    """Whoever comes second waits and says for whom; an epoch of one balancer's Lease fences no other."""
    alone, raced, taken = scenes[ALONE], scenes[RACED], scenes[TAKEN]
    key = WorkloadRef("apps/v1", "Deployment", alone.namespace, ALONE)
    ahead = Ledger(epoch=FAR_AHEAD, epochs={"proportional": FAR_AHEAD})
    LedgerStore(agent.client).write(key, ahead.to_data(), "")
    plane, stop = alone.control_plane, threading.Event()
    with ExitStack() as stack:
        eyes = {name: stack.enter_context(scene.watched()) for name, scene in scenes.items()}
        operators = [_start(stack, alone, name, tmp_path) for name in ("rotation", "proportional")]
        assert agent.evict(taken).result == "Accepted"
        hand = threading.Thread(target=agent.until_accepted, args=(raced, stop), daemon=True)
        hand.start()
        plane.apply([scene.policy() for scene in scenes.values()] + [_scaling(raced), _scaling(taken)])
        try:
            _wait_until_held(raced, taken, agent)
            wait_until(lambda: _balancers(alone, agent) == {"rotation"}, "a rotation of the first", 120)
        finally:
            stop.set()
            hand.join(60)
        assert len(operators) == 2
    assert _deeds(taken, agent)[0].balancer == "qos"
    for scene in (raced, taken):
        _assert_one_at_a_time(scene, agent)
    epochs = _ledger(alone, agent).epochs
    assert epochs["proportional"] == FAR_AHEAD
    assert 0 < epochs["rotation"] < FAR_AHEAD
    for name, seen in eyes.items():
        assert seen.ready_min >= len(SIX_LOADS) - 1, (name, seen.evicted)
