"""Changes in place on a real kubelet: the same container gets a new limit, or restarts after it was said."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.running import equipoise_anew as equipoise
from tests.testbed import wait_until
from tests.testbed.node import RealNode
from tests.testbed.real_pods import ready_pods, real_deployment

RESTART = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


@pytest.fixture(scope="module", autouse=True)
def crds(real_node: RealNode) -> None:
    """Our kinds: a restart is written into a ledger."""
    done = equipoise("crds", "apply", "--kubeconfig", str(real_node.control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr


def _policy(folder: Path, name: str, section: str, per_node: str) -> str:
    """Write a policy: so much CPU for each node, of which there is one."""
    function = {"input": "nodes", "slope": per_node}
    rule = {"resource": "cpu", "function": function}
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": name},
        "updateMode": "InPlace",
        "containers": [{"name": "app", "resources": {section: [rule]}}],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(spec))
    return str(path)


def _run(node: RealNode, namespace: str, verb: str, policy: str) -> dict[str, Any]:
    where = ("-n", namespace, "--kubeconfig", str(node.control_plane.kubeconfig), "-o", "json")
    done = equipoise("proportional", verb, "--policy", policy, *where)
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    return dict(decision)


def _quota(node: RealNode, namespace: str, pod: str) -> int | None:
    """Give the quota that a pod's container has in the kernel; None while it restarts."""
    try:
        return node.quota(node.container(namespace, pod))[0]
    except FileNotFoundError:
        return None


def _restarts(node: RealNode, namespace: str, pod: str) -> int:
    found = node.control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    return int(found["status"]["containerStatuses"][0]["restartCount"])


def test_a_change_in_place_restarts_nothing_and_one_that_must_restart_says_so_before(
    real_node: RealNode, real_namespace: str, tmp_path: Path
) -> None:
    """The same container id with a new quota in its cgroup; another id where resizePolicy says so."""
    limited = {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}
    quiet = real_deployment(real_namespace, "quiet", replicas=1, **limited)
    loud = real_deployment(real_namespace, "loud", replicas=1, **limited)
    loud["spec"]["template"]["spec"]["containers"][0]["resizePolicy"] = RESTART
    greedy = real_deployment(real_namespace, "greedy", replicas=1, requests={"cpu": "50m"})
    real_node.control_plane.apply([quiet, loud, greedy])
    pods = {
        name: ready_pods(real_node, real_namespace, 1, app=name)[0] for name in ("quiet", "loud", "greedy")
    }
    before = {name: real_node.container(real_namespace, pod) for name, pod in pods.items()}

    policy = _policy(tmp_path, "quiet", "limits", "300m")
    assert (
        _run(real_node, real_namespace, "plan", policy)["message"]
        == "Pods are resized in place; nothing restarts."
    )
    assert _quota(real_node, real_namespace, pods["quiet"]) == 10_000
    done = _run(real_node, real_namespace, "apply", policy)
    assert [outcome["result"] for outcome in done["outcomes"]] == ["Accepted"]
    wait_until(lambda: _quota(real_node, real_namespace, pods["quiet"]) == 30_000, "the new quota", 60)
    assert real_node.container(real_namespace, pods["quiet"]) == before["quiet"]
    assert _restarts(real_node, real_namespace, pods["quiet"]) == 0

    policy = _policy(tmp_path, "loud", "limits", "300m")
    said = _run(real_node, real_namespace, "plan", policy)["message"]
    assert "the container app restarts (resizePolicy)" in said
    assert _restarts(real_node, real_namespace, pods["loud"]) == 0
    _run(real_node, real_namespace, "apply", policy)
    wait_until(lambda: _restarts(real_node, real_namespace, pods["loud"]) == 1, "the restart", 180)
    wait_until(lambda: _quota(real_node, real_namespace, pods["loud"]) == 30_000, "its new quota", 180)
    assert real_node.container(real_namespace, pods["loud"]).id != before["loud"].id

    policy = _policy(tmp_path, "greedy", "requests", "900")
    _run(real_node, real_namespace, "apply", policy)
    wait_until(
        lambda: _run(real_node, real_namespace, "plan", policy)["reason"] == "Infeasible",
        "the node's refusal",
        90,
    )
    sentence = _run(real_node, real_namespace, "plan", policy)["sentence"]
    assert f"The node cannot allocate it to {pods['greedy']} (" in sentence
    assert real_node.container(real_namespace, pods["greedy"]) == before["greedy"]
