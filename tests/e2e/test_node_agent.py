"""`equipoise agent` on a real kubelet and containerd: real pods throttled, evicted and given back."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.qos.worlds import action, pod_qos, policy, rule
from tests.testbed import free_port, wait_until
from tests.testbed.node import RealNode
from tests.testbed.processes import is_answering
from tests.testbed.real_pods import BURN, PACED, ready_pods, real_deployment, real_pod, resize
from tests.testbed.scenes import namespaced

ENSURANCE = "/apis/ensurance.crane.io/v1alpha1"
WATERLINE = 30
"""Millicores, far below what one paced process gets even on a busy machine."""
HOME = "equipoise-agent-test"


class Agent:
    """`equipoise agent` as the node's own process runs it, looking every second."""

    def __init__(self, node: RealNode, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.state = folder / "state.json"
        self.log = folder / "agent.log"
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def words(self, *more: str) -> list[str]:
        program = "from equipoise.cli.main import main; main()"
        kubeconfig = self.node.control_plane.kubeconfig
        where = ("--cgroups", str(self.node.root / "sys/fs/cgroup"), "--state", str(self.state))
        who = ("--node", self.node.name, "--kubeconfig", str(kubeconfig), "--operator-namespace", HOME)
        return [sys.executable, "-c", program, "agent", *who, *where, "--usage-of", "pods", *more]

    def start(self, *more: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        how = ("--mode", "Enforce", "--interval", "1s", "--http-address", self.url.removeprefix("http://"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words(*how, *more), stderr=log, stdout=log)
        self.wait_for(lambda: is_answering(f"{self.url}/readyz"), "the agent to be ready", 300)

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        try:
            wait_until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log.read_text()[-3000:]}") from error

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def metrics(self) -> str:
        with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
            return pool.request("GET", f"{self.url}/metrics").data.decode()

    def resident_mib(self) -> float:
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture(scope="module", autouse=True)
def kinds(real_node: RealNode) -> None:
    done = equipoise("crds", "apply", "--kubeconfig", str(real_node.control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    real_node.control_plane.apply(namespaced(HOME))


@pytest.fixture
def agent(real_node: RealNode, tmp_path: Path) -> Iterator[Agent]:
    """An agent to start, and nothing of it left afterwards."""
    made = Agent(real_node, tmp_path)
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)
        for plural in ("nodeqosensurancepolicies", "avoidanceactions", "podqoss"):
            for one in real_node.control_plane.api.items(f"{ENSURANCE}/{plural}"):
                real_node.control_plane.api.delete(f"{ENSURANCE}/{plural}/{one['metadata']['name']}")


def _only(namespace: str, *actions: str) -> dict[str, Any]:
    """Let only pods of this namespace be acted on."""
    scope = {"scopeName": "Namespace", "operator": "In", "values": [namespace]}
    return pod_qos("only", scopeSelector={"matchExpressions": [scope]}, allowedActions=list(actions))


def _ask(node: RealNode, namespace: str, then: dict[str, Any]) -> None:
    name = then["metadata"]["name"]
    asked = policy(rule("cpu_total_usage", WATERLINE, name), name="busy")
    node.control_plane.apply([then, _only(namespace, name), asked])


def _quota(node: RealNode, namespace: str, pod: str) -> int:
    return node.quota(node.container(namespace, pod))[0]


def _events(node: RealNode, namespace: str, kind: str) -> set[str]:
    found = node.control_plane.api.items(f"/api/v1/namespaces/{namespace}/events")
    return {one["reason"] for one in found if one["involvedObject"]["kind"] == kind}


def _planned(node: RealNode) -> set[str]:
    """Ask from outside whom an agent would throttle, by what the kubelet measures."""
    where = ("--node", node.name, "--kubeconfig", str(node.control_plane.kubeconfig), "-o", "json")
    done = equipoise("qos", "plan", *where)
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    return {one["pod"].partition("/")[2] for one in decision["actions"] if one["kind"] == "ThrottlePod"}


def test_real_pods_are_throttled_and_given_back_whatever_becomes_of_the_agent(
    real_node: RealNode, real_namespace: str, agent: Agent
) -> None:
    """By a policy that is applied; over a SIGKILL and a resize, until SIGTERM."""
    api = real_node.control_plane.api
    limited = {"requests": {"cpu": "10m"}, "limits": {"cpu": "400m"}}
    real_node.control_plane.apply(
        [
            real_pod(real_namespace, "free", command=PACED),
            real_pod(real_namespace, "limited", command=BURN, **limited),
        ]
    )
    ready_pods(real_node, real_namespace, 2)
    assert [_quota(real_node, real_namespace, name) for name in ("free", "limited")] == [-1, 40000]
    step = action("step", coolDownSeconds=3600, throttle={"cpuThrottle": {"stepCPURatio": 60}})
    _ask(real_node, real_namespace, step)
    wait_until(lambda: _planned(real_node) == {"free", "limited"}, "a live plan to throttle both", 120)
    agent.start()
    agent.wait_for(lambda: _quota(real_node, real_namespace, "free") != -1, "the free pod to be throttled")
    agent.wait_for(lambda: "Throttle" in _events(real_node, real_namespace, "Pod"), "an event on the pod")
    throttled = 'equipoise_agent_actions_total{kind="ThrottlePod",result="Done"}'
    agent.wait_for(lambda: throttled in agent.metrics(), "it to be counted")
    assert agent.resident_mib() < 80
    agent.end(signal.SIGKILL)
    assert _quota(real_node, real_namespace, "free") > 0
    # A resize while nobody looks: what is given back is the limit of now.
    resize(real_node, real_namespace, "limited", limits={"cpu": "500m"})
    agent.start()
    api.delete(f"{ENSURANCE}/nodeqosensurancepolicies/busy")
    agent.wait_for(
        lambda: [_quota(real_node, real_namespace, name) for name in ("free", "limited")] == [-1, 50000],
        "everything to be given back",
    )
    _ask(real_node, real_namespace, step)
    agent.wait_for(lambda: _quota(real_node, real_namespace, "free") != -1, "the free pod to be throttled")
    agent.end(signal.SIGTERM)
    assert [_quota(real_node, real_namespace, name) for name in ("free", "limited")] == [-1, 50000]


def _said_of(node: RealNode, namespace: str, reason: str) -> set[str]:
    """Name the pods that have an event with this reason."""
    found = node.control_plane.api.items(f"/api/v1/namespaces/{namespace}/events")
    return {one["involvedObject"]["name"] for one in found if one["reason"] == reason}


def _damage(state: Path) -> None:
    """Put one byte that is not UTF-8 into a name."""
    before, name, after = state.read_bytes().partition(b'"pod":"')
    state.write_bytes(before + name + b"\xff" + after[1:])


def test_a_lost_state_file_costs_no_real_container_its_cpu(
    real_node: RealNode, real_namespace: str, agent: Agent
) -> None:
    """After a SIGKILL and one byte that is not UTF-8, or no file: found from the cgroups, and given back.

    A container whose quota is its own limit is left alone; one that is being resized is said and left until
    that is over.
    """
    limits = {"requests": {"cpu": "10m"}, "limits": {"cpu": "300m"}}
    throttled = {"free": -1, "limited": 30000, "resized": 30000}
    real_node.control_plane.apply(
        [
            real_pod(real_namespace, "free", command=PACED),
            real_pod(real_namespace, "limited", command=BURN, **limits),
            real_pod(real_namespace, "resized", command=BURN, **limits),
            real_pod(real_namespace, "whole", **limits),
        ]
    )
    ready_pods(real_node, real_namespace, 4)
    step = action("step", coolDownSeconds=3600, throttle={"cpuThrottle": {"stepCPURatio": 60}})

    def quotas() -> dict[str, int]:
        return {name: _quota(real_node, real_namespace, name) for name in (*throttled, "whole")}

    def throttle_and_kill() -> None:
        _ask(real_node, real_namespace, step)
        agent.start()
        agent.wait_for(lambda: all(quotas()[name] != us for name, us in throttled.items()), "all throttled")
        agent.end(signal.SIGKILL)
        real_node.control_plane.api.delete(f"{ENSURANCE}/nodeqosensurancepolicies/busy")

    assert quotas() == throttled | {"whole": 30000}
    throttle_and_kill()
    _damage(agent.state)
    agent.start()
    agent.wait_for(lambda: quotas() == throttled | {"whole": 30000}, "everything to be given back")
    assert "equipoise_agent_state_file_damaged 1.0" in agent.metrics()
    agent.wait_for(lambda: "StateFileDamaged" in _described(real_node), "the node to tell of it")
    agent.wait_for(
        lambda: _said_of(real_node, real_namespace, "ThrottleFound") == set(throttled), "each pod to tell"
    )
    agent.end()
    throttle_and_kill()
    agent.state.unlink()
    resize(real_node, real_namespace, "resized", requests={"cpu": "1k"}, limits={"cpu": "1k"})
    agent.start()
    agent.wait_for(
        lambda: _said_of(real_node, real_namespace, "QuotaUnclear") == {"resized"}, "the doubt to be said"
    )
    agent.wait_for(
        lambda: quotas() | {"resized": 0} == throttled | {"whole": 30000, "resized": 0},
        "the rest to be given back",
    )
    assert 0 < quotas()["resized"] < 30000
    resize(real_node, real_namespace, "resized", requests={"cpu": "10m"}, limits={"cpu": "300m"})
    agent.wait_for(lambda: quotas() == throttled | {"whole": 30000}, "the last to be given back")
    assert "whole" not in _said_of(real_node, real_namespace, "ThrottleFound")


def test_real_pods_are_evicted_budgets_respected_and_a_pause_obeyed(
    real_node: RealNode, real_namespace: str, agent: Agent
) -> None:
    """A PodDisruptionBudget that allows none sends the walk on to the next pod."""
    api = real_node.control_plane.api
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": real_namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
    }
    real_node.control_plane.apply(
        [
            budget,
            real_deployment(real_namespace, "kept", replicas=1, command=PACED),
            real_deployment(real_namespace, "spare", replicas=1, command=PACED),
        ]
    )
    (kept,) = ready_pods(real_node, real_namespace, 1, app="kept")
    (spare,) = ready_pods(real_node, real_namespace, 1, app="spare")
    api.patch(
        f"/api/v1/namespaces/{real_namespace}", {"metadata": {"annotations": {"equipoise.dev/paused": "me"}}}
    )
    agent.start()
    _ask(
        real_node,
        real_namespace,
        action("evict", eviction={"terminationGracePeriodSeconds": 0}, sortBy=["name"]),
    )
    agent.wait_for(lambda: 'reason="HeldByPause"' in agent.metrics(), "the pause to hold an eviction")
    assert _names(real_node, real_namespace) == {kept, spare}
    api.patch(
        f"/api/v1/namespaces/{real_namespace}", {"metadata": {"annotations": {"equipoise.dev/paused": None}}}
    )
    agent.wait_for(lambda: spare not in _names(real_node, real_namespace), "the spare pod to be evicted")
    assert kept in _names(real_node, real_namespace)
    blocked = 'kind="EvictPod",result="Blocked"'
    agent.wait_for(lambda: blocked in agent.metrics(), "the refusal to be counted")


def _described(node: RealNode) -> str:
    return node.control_plane.kubectl("describe", "node", node.name)


def _names(node: RealNode, namespace: str) -> set[str]:
    found = node.control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return {one["metadata"]["name"] for one in found}


def test_a_taint_is_set_and_cleared_also_across_a_restart_and_by_cleanup(
    real_node: RealNode, real_namespace: str, agent: Agent
) -> None:
    """With its condition; an agent that was killed leaves it, and its successor takes it off."""
    api = real_node.control_plane.api

    def is_tainted() -> bool:
        taints = api.get(f"/api/v1/nodes/{real_node.name}")["spec"].get("taints") or []
        return any(one["key"] == "ensurance.equipoise.dev/waterline" for one in taints)

    real_node.control_plane.apply([real_pod(real_namespace, "free", command=PACED)])
    ready_pods(real_node, real_namespace, 1)
    agent.start()
    # A machine that stands still measures little for a moment: that must not take it off before the kill.
    close = action("close", coolDownSeconds=3600)
    _ask(real_node, real_namespace, close)
    agent.wait_for(is_tainted, "the taint to be set")
    # Agents write no status: what a person looks at is the node.
    real_node.control_plane.apply([policy(rule("cpu_total_usage", 1, "none"), name="odd")])
    words = (
        "EquipoiseWaterlineCrossed",
        "crossed: busy/",
        "DisableScheduling",
        "PolicyLeftOut",
        "NodeQOSEnsurancePolicy odd: spec.",
    )
    agent.wait_for(lambda: all(map(_described(real_node).__contains__, words)), "the node to tell of it")
    left_out = "equipoise_agent_policies_left_out 1.0"
    agent.wait_for(lambda: left_out in agent.metrics(), "what was left out to be counted")
    agent.end(signal.SIGKILL)
    assert is_tainted()
    api.delete(f"{ENSURANCE}/nodeqosensurancepolicies/busy")
    agent.start()
    agent.wait_for(lambda: not is_tainted(), "the taint to be cleared")
    _ask(real_node, real_namespace, close)
    agent.wait_for(is_tainted, "the taint to be set again")
    agent.end(signal.SIGKILL)
    done = subprocess.run(agent.words("--cleanup"), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, is_tainted()) == (0, False), done.stderr
    assert "1 given back" in done.stdout
    conditions = api.get(f"/api/v1/nodes/{real_node.name}")["status"]["conditions"]
    (said,) = [one for one in conditions if one["type"] == "EquipoiseWaterlineCrossed"]
    assert said["status"] == "False"


def test_it_refuses_to_start_beside_cranes_own_agent(
    real_node: RealNode, real_namespace: str, agent: Agent
) -> None:
    """Two hands on one quota: one line, and nothing is changed."""
    real_node.control_plane.apply([real_pod(real_namespace, "crane-agent")])
    ready_pods(real_node, real_namespace, 1)
    done = subprocess.run(
        agent.words("--http-address", f"127.0.0.1:{free_port()}"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "is Crane's agent" in done.stderr.splitlines()[-1]
