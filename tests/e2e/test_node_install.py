"""The whole product as a user installs it: an image, Helm, a real kubelet; then an upgrade, and the end."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.e2e.conftest import new_namespace
from tests.support.e2e.charts import Helm
from tests.support.e2e.installing import BALANCERS, ENSURANCE, LABELS, RELEASE, TOKEN, Shop, claims
from tests.testbed import RealNode, StartPrometheus, StartRedis, binary, wait_until
from tests.testbed.product import USER, add_product_image
from tests.testbed.real_pods import ready_pods

SHOP_PODS = 3 + 1 + 2 + 1 + 2
SERVE_PORT = 8081
NO_CAPABILITIES = "0000000000000000"
CALL = {"call": "c1", "tier": "gold"}
ROOT_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture
def shop(real_node: RealNode, real_namespace: str, start_redis: StartRedis, tmp_path: Path) -> Iterator[Shop]:
    """A shop whose pods run, and a Redis that pods reach; nothing of ours is left afterwards."""
    # Pods are not on this machine's loopback.
    opened = ["--bind", "127.0.0.1", real_node.address, "--protected-mode", "no"]
    redis = start_redis(extra_args=opened)
    with ExitStack() as stack:
        home = stack.enter_context(new_namespace(real_node.control_plane))
        made = Shop(real_node, Helm(tmp_path), home, real_namespace, redis, tmp_path)
        stack.callback(made.remove_qos)
        made.open()
        yield made


def test_five_balancers_act_as_pods_and_an_upgrade_and_the_end_leave_everything_right(
    shop: Shop, start_prometheus: StartPrometheus
) -> None:
    """Non-root, read-only, with tokens of their own; users' objects and every quota are as they should."""
    plane = shop.node.control_plane
    image = add_product_image(shop.node)
    ready_pods(shop.node, shop.namespace, SHOP_PODS)
    prometheus = start_prometheus(
        backfill=shop.past(), host=shop.node.address, scrape_configs=[shop.node.scrape_config()]
    )
    shop.prepare()
    hot = shop.heat()
    values = shop.values(image, prometheus)
    said = shop.helm.install(plane, RELEASE, shop.home, values)
    assert f"http://{RELEASE}-pools.{shop.home}:{SERVE_PORT}/" in said
    try:
        shop.ask()
        given = _all_act(shop, hot)
        _confined(shop)
        _own_node_only(shop)
        kept = _facts(shop)
        _upgraded(shop, values, given)
        assert _facts(shop) == kept
        shop.close_node()
        shop.wait_for(shop.is_tainted, "the taint")
    finally:
        shop.helm.uninstall(plane, RELEASE, shop.home)
    assert (shop.quota("free"), shop.is_tainted()) == (-1, False), "given back when Helm says that it is done"
    assert _facts(shop) == kept
    _nothing_is_left(shop)


def _all_act(shop: Shop, hot: str) -> str:
    """Each of the five does its own; give the pod that a call got."""
    (dns,) = shop.names("dns")
    shop.wait_for(lambda: len(shop.ours("operator")) == 2 and list(shop.leaders()) == [RELEASE], "a leader")
    shop.wait_for(lambda: sorted(map(len, shop.tiers().values())) == [1, 1], "the fleet in two tiers")
    shop.wait_for(lambda: _allocated(shop), "a pod for a call")
    shop.set_tiers(gold=2, silver=0)
    shop.wait_for(lambda: shop.tiers().get("gold") == ["voice-0", "voice-1"], "a move to the other tier")
    shop.wait_for(lambda: shop.quota(dns) == 30_000, "300m for one node, in place")
    assert shop.names("dns") == [dns]
    shop.wait_for(lambda: shop.quota("free") > 0, "the burner to be throttled")
    shop.wait_for(lambda: "advised" in _autoscaled(shop), "advice that is adopted")
    shop.wait_for(lambda: hot not in shop.names("web"), "the hot pod to be evicted")
    shop.wait_for(lambda: _verified(shop), "a verified rotation")
    return _allocated(shop)


def _allocated(shop: Shop) -> str:
    """Ask for a pod by HTTP, of the first server that answers; without a token there is none."""
    for server in shop.ours("pools"):
        if "podIP" not in server["status"]:
            continue
        try:
            status, text = shop.http(server, SERVE_PORT, "POST", "/v1/allocate", CALL, TOKEN)
            refused, _ = shop.http(server, SERVE_PORT, "POST", "/v1/allocate", CALL)
        except urllib3.exceptions.HTTPError:
            continue
        if status == 200:
            assert refused == 401
            return str(json.loads(text)["pod"])
    return ""


def _autoscaled(shop: Shop) -> dict[str, str]:
    """Give the UIDs of the HPAs by what they scale."""
    path = f"/apis/autoscaling/v2/namespaces/{shop.namespace}/horizontalpodautoscalers"
    found = shop.node.control_plane.api.items(path)
    return {one["spec"]["scaleTargetRef"]["name"]: one["metadata"]["uid"] for one in found}


def _verified(shop: Shop) -> bool:
    path = f"/apis/equipoise.dev/v1alpha1/namespaces/{shop.namespace}/rotationpolicies/web"
    return "realisedImprovementPercent" in shop.node.control_plane.api.get(path).get("status", {})


def _confined(shop: Shop) -> None:
    """As the kernel sees the processes: who they are, what they may, where they can write."""
    for component, user in (("operator", USER), ("pools", USER), ("agent", 0)):
        for pod in shop.ours(component):
            name = pod["metadata"]["name"]
            _wait_until_ready(shop, pod)
            container = shop.node.container(shop.home, name)
            first = min(map(int, (shop.node.cgroup(container) / "cgroup.procs").read_text().split()))
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{first}/status").read_text().splitlines()
            )
            assert status["Uid"].split() == [str(user)] * 4
            assert (status["CapEff"], status["CapBnd"]) == (NO_CAPABILITIES, NO_CAPABILITIES)
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            mounts = [line.split() for line in Path(f"/proc/{first}/mountinfo").read_text().splitlines()]
            (root,) = [words for words in mounts if words[4] == "/"]
            assert "ro" in root[5].split(",")
            _check_token(Path(f"/proc/{first}/root") / ROOT_ACCOUNT / "token", name, component)


def _check_token(file: Path, pod: str, component: str) -> None:
    """A token of the pod's own that ends within the hour; who serves calls has none."""
    assert file.exists() == (component != "pools")
    if file.exists():
        said = claims(file.read_text())
        assert said["kubernetes.io"]["pod"]["name"] == pod
        assert said["exp"] - said["iat"] < 3700


def _wait_until_ready(shop: Shop, pod: dict[str, Any]) -> None:
    shop.wait_for(lambda: _is_ready(shop, pod), f"{pod['metadata']['name']} to be ready")


def _is_ready(shop: Shop, pod: dict[str, Any]) -> bool:
    path = f"/api/v1/namespaces/{shop.home}/pods/{pod['metadata']['name']}"
    conditions = shop.node.control_plane.api.get(path)["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _own_node_only(shop: Shop) -> None:
    """With the token of the agent's own pod: the node that it runs on, no other, and no cordon."""
    plane = shop.node.control_plane
    (pod,) = shop.ours("agent")
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['metadata']['name']}")
    token = plane.kubectl("create", "token", f"{RELEASE}-agent", "-n", shop.home, *bound).strip()
    plane.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}}])

    def patch(name: str, spec: dict[str, Any]) -> str:
        who = [f"--server={plane.server}", "--kubeconfig=/dev/null", f"--token={token}"]
        how = ["--insecure-skip-tls-verify", "--dry-run=server", f"--patch={json.dumps({'spec': spec})}"]
        words = [str(binary("kubectl")), *who, "patch", "node", name, *how]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return "" if done.returncode == 0 else done.stderr

    taint = {"taints": [{"key": "ensurance.equipoise.dev/waterline", "effect": "NoSchedule"}]}
    try:
        # The API server takes a moment until a new admission policy holds.
        wait_until(lambda: "only the node that it runs on" in patch("another", taint), "a refusal", 60)
        assert patch(shop.node.name, taint) == ""
        assert "not cordon it" in patch(shop.node.name, {"unschedulable": True})
    finally:
        plane.api.delete("/api/v1/nodes/another")


def _facts(shop: Shop) -> dict[str, Any]:
    """Give what must be the same over an upgrade and after the end."""
    plane = shop.node.control_plane
    mine = {"labelSelector": "app in (web,dns,voice,free)"}  # who is advised may be scaled meanwhile
    pods = [
        one for one in plane.api.items(shop.pods_path, **mine) if "deletionTimestamp" not in one["metadata"]
    ]
    asked = (
        f"/apis/equipoise.dev/v1alpha1/namespaces/{shop.namespace}/rotationpolicies",
        f"/apis/scalingpolicy.kope.io/v1alpha1/namespaces/{shop.namespace}/scalingpolicies",
        f"/apis/analysis.crane.io/v1alpha1/namespaces/{shop.namespace}/analytics",
        f"/apis/analysis.crane.io/v1alpha1/namespaces/{shop.namespace}/recommendations",
    )
    return {
        "pods": sorted((one["metadata"]["uid"], _restarts(one)) for one in pods),
        "quotas": {name: shop.quota(name) for app in ("web", "dns") for name in shop.names(app)},
        "autoscaled": _autoscaled(shop),
        "asked": sorted(one["metadata"]["uid"] for path in asked for one in plane.api.items(path)),
        "busy": plane.api.get(f"{ENSURANCE}/nodeqosensurancepolicies/busy")["metadata"]["uid"],
        "tiers": shop.tiers(),
    }


def _restarts(pod: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in pod["status"]["containerStatuses"])


def _upgraded(shop: Shop, values: dict[str, Any], given: str) -> None:
    """Other pods of ours take over, one operator for each balancer: nobody acts a second time.

    What was throttled is so again.
    """
    components = ("operator", "pools", "agent")
    old = {one["metadata"]["uid"] for name in components for one in shop.ours(name)}
    changed = {"split": True, "replicaCount": 1, "podAnnotations": {"example.test/changed": "yes"}}
    more = {**changed, "agent": {**values["agent"], "interval": "2s"}}
    shop.helm.install(shop.node.control_plane, RELEASE, shop.home, values | more)

    def are_new() -> bool:
        found = [one for name in components for one in shop.ours(name)]
        is_new = len(found) == len(BALANCERS) + 2 + 1 and not old & {one["metadata"]["uid"] for one in found}
        return is_new and all(_is_ready(shop, one) for one in found) and len(shop.leaders()) == len(BALANCERS)

    shop.wait_for(are_new, "pods of the new release")
    shop.wait_for(lambda: _allocated(shop) == given, "the same pod for the same call")

    def looked() -> dict[tuple[str, str], float] | None:
        try:
            seen = shop.metrics()
        except urllib3.exceptions.HTTPError:  # a busy machine is late
            return None
        return seen if all(seen.get(("cycles", name), 0) >= 2 for name in BALANCERS) else None

    seen = shop.wait_for(looked, "two looks of the new leaders at everything")
    assert {name: seen.get(("actions", name), 0) for name in BALANCERS} == dict.fromkeys(BALANCERS, 0)
    shop.wait_for(lambda: shop.quota("free") > 0, "the burner to be throttled again")


def _nothing_is_left(shop: Shop) -> None:
    """Of the release; what users made is there, and the definitions of their kinds."""
    kubectl = shop.node.control_plane.kubectl
    shop.wait_for(lambda: not kubectl("get", "pods", "-n", shop.home, "-o", "name"), "our pods to be gone")
    kinds = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    chosen = f"{LABELS}/instance={RELEASE}"
    words = ("get", ",".join(kinds), "-A", "-l", chosen, "-o", "name", "--ignore-not-found")
    shop.wait_for(lambda: kubectl(*words) == "", "all objects of the release to be gone")
    defined = kubectl("get", "crds", "-o", "name")
    assert "rotationpolicies.equipoise.dev" in defined
