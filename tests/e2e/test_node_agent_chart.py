"""The chart's DaemonSet on a real kubelet: root without privileges or capabilities is enough to throttle."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import equipoise
from tests.e2e.charts import Helm
from tests.qos.worlds import action, pod_qos, policy, rule
from tests.testbed import binary, wait_until
from tests.testbed.guest import requirements
from tests.testbed.node import RealNode
from tests.testbed.real_pods import PACED, ready_pods, real_pod

PRODUCT = Path(__file__).parents[2] / "src" / "equipoise"
IMAGE = "equipoise.test/equipoise:agent"
PROGRAM = "from equipoise.app.main import main; main()"
ENSURANCE = "/apis/ensurance.crane.io/v1alpha1"


def _objects(folder: Path, namespace: str) -> list[dict[str, Any]]:
    """Render the agent's part of the chart; the image has no `equipoise` on its PATH, but a Python."""
    values = {
        "image": {"repository": "equipoise.test/equipoise", "tag": "agent", "pullPolicy": "Never"},
        "agent": {
            "enabled": True,
            "mode": "Enforce",
            "interval": "1s",
            "taint": True,
            "stateFolder": str(folder / "state"),
            "extraArgs": ["--usage-of=pods"],
        },
    }
    rendered = Helm(folder).template(namespace, values)
    found = [
        one
        for one in rendered
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "agent"
    ]
    (daemons,) = [one for one in found if one["kind"] == "DaemonSet"]
    daemons["spec"]["template"]["spec"]["containers"][0]["command"] = ["python3", "-c", PROGRAM, "agent"]
    return found


def _may_patch_only_its_own_node(node: RealNode, namespace: str) -> None:
    """With the token of the agent's own pod: the node that it runs on, no other, and no cordon."""
    plane = node.control_plane
    chosen = {"labelSelector": "app.kubernetes.io/component=agent"}
    (pod,) = plane.api.items(f"/api/v1/namespaces/{namespace}/pods", **chosen)
    token = plane.kubectl(
        "create", "token", "equipoise-agent", "-n", namespace, "--bound-object-kind=Pod",
        f"--bound-object-name={pod['metadata']['name']}",
    ).strip()  # fmt: skip
    plane.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}}])

    def patch(name: str, spec: dict[str, Any]) -> str:
        words = [
            str(binary("kubectl")),
            f"--server={plane.server}",
            "--kubeconfig=/dev/null",
            f"--token={token}",
            "patch",
            "node",
            name,
        ]
        how = ["--insecure-skip-tls-verify", "--dry-run=server", f"--patch={json.dumps({'spec': spec})}"]
        done = subprocess.run([*words, *how], capture_output=True, text=True, timeout=60, check=False)
        return "" if done.returncode == 0 else done.stderr

    taint = {"taints": [{"key": "ensurance.equipoise.dev/waterline", "effect": "NoSchedule"}]}
    try:
        # The API server takes a moment until a new admission policy holds.
        wait_until(lambda: "only the node that it runs on" in patch("another", taint), "a refusal", 30)
        assert patch(node.name, taint) == ""
        assert "not cordon it" in patch(node.name, {"unschedulable": True})
    finally:
        plane.api.delete("/api/v1/nodes/another")


def test_the_daemon_set_throttles_and_gives_back_when_it_goes(
    real_node: RealNode, real_namespace: str, tmp_path: Path
) -> None:
    """With the chart's own rights, security settings and mounts."""
    plane = real_node.control_plane
    done = equipoise("crds", "apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    real_node.add_python_image(IMAGE, packages=requirements("equipoise"), code=[PRODUCT])
    step = action("step", throttle={"cpuThrottle": {"stepCPURatio": 60}})
    only = pod_qos("only", labelSelector={"matchLabels": {"app": "free"}}, allowedActions=["step"])
    asked = policy(rule("cpu_total_usage", 20, "step"), name="busy")
    try:
        plane.apply([real_pod(real_namespace, "free", command=PACED)])
        ready_pods(real_node, real_namespace, 1, app="free")
        container = real_node.container(real_namespace, "free")
        plane.apply([step, only, asked, *_objects(tmp_path, real_namespace)])
        try:
            wait_until(lambda: real_node.quota(container)[0] != -1, "the pod to be throttled", 60)
        except AssertionError as error:
            chosen = ("-n", real_namespace, "-l", "app.kubernetes.io/component=agent")
            pytest.fail(f"{error}: {plane.kubectl('describe', 'pods', *chosen)[-2500:]}")
        _may_patch_only_its_own_node(real_node, real_namespace)
        plane.api.delete(f"/apis/apps/v1/namespaces/{real_namespace}/daemonsets/equipoise-agent")
        wait_until(lambda: real_node.quota(container)[0] == -1, "the pod to be given back", 60)
    finally:
        for plural, name in (
            ("nodeqosensurancepolicies", "busy"),
            ("avoidanceactions", "step"),
            ("podqoss", "only"),
        ):
            plane.api.delete(f"{ENSURANCE}/{plural}/{name}")
        for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            plane.api.delete(f"/apis/admissionregistration.k8s.io/v1/{plural}/equipoise-agent-own-node")
        for plural in ("clusterrolebindings", "clusterroles"):
            plane.api.delete(f"/apis/rbac.authorization.k8s.io/v1/{plural}/equipoise-agent")
