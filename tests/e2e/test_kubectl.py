"""The real kubectl finds and completes `kubectl equipoise …`; `kubectl get` says something for every kind."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from equipoise import __version__
from equipoise.cli.manifests import KINDS
from equipoise.core.cluster import RulesCondition
from tests.e2e.conftest import Offered
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.crd.analytics_manifests import ANALYTICS_GOOD
from tests.support.crd.manifests import AT, WORKLOAD, ledger
from tests.support.crd.manifests import TARGET as ROTATED
from tests.support.crd.manifests import policy as rotation_policy
from tests.support.crd.scaling_manifests import SCALING_GOOD
from tests.support.e2e.replicas import Operator
from tests.support.qos.worlds import EVICT, THROTTLE, action, pod_qos, policy, rule
from tests.testbed import ControlPlane, StartControlPlane, binary, wait_until
from tests.testbed.scenes import deployment, namespaced

SCRIPTS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def kubectl(offered: Offered) -> Path:
    """The real command."""
    with offered():
        return Path(binary("kubectl"))


def _run(kubectl: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SCRIPTS), os.environ["PATH"]])
    return subprocess.run(
        [str(kubectl), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PATH": path, "COLUMNS": "100"} | environment,
    )


def test_kubectl_finds_and_completes_the_plugin(kubectl: Path) -> None:
    """By its name on the PATH; help and mistakes name the command as it was called."""
    assert str(SCRIPTS / "kubectl-equipoise") in _run(kubectl, "plugin", "list").stdout
    assert _run(kubectl, "equipoise", "--version").stdout == f"equipoise {__version__}\n"
    assert (
        "Usage: kubectl equipoise rotation plan"
        in _run(kubectl, "equipoise", "rotation", "plan", "--help").stdout
    )
    wrong = _run(kubectl, "equipoise", "rotate")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: No such command 'rotate'")
    offered = _run(kubectl, "__complete", "equipoise", "ro").stdout
    assert offered.splitlines()[0].split("\t")[0] == "rotation"
    deeper = _run(kubectl, "__complete", "equipoise", "rotation", "plan", "--name").stdout
    assert deeper.startswith("--namespace\t")


def test_the_plugin_asks_the_cluster_of_kubectls_own_configuration(
    kubectl: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """`KUBECONFIG` as kubectl has it; what to run is said as a kubectl user runs it."""
    control_plane.apply(namespaced(namespace))
    config = str(control_plane.kubeconfig)
    words = ("__complete", "equipoise", "rotation", "plan", "-n", namespace[:-1])
    # A completion waits for 1.5 s at most; a machine that stalls offers nothing.
    wait_until(
        lambda: namespace in _run(kubectl, *words, KUBECONFIG=config).stdout.splitlines(),
        "the name of the namespace",
        60,
    )
    done = _run(kubectl, "equipoise", "pause", "-n", namespace, "--reason", "a test", KUBECONFIG=config)
    assert done.returncode == 0, done.stderr
    noted = control_plane.api.get(f"/api/v1/namespaces/{namespace}")["metadata"]["annotations"]
    assert any("pause" in key for key in noted)
    done = _run(kubectl, "equipoise", "resume", "-n", namespace, KUBECONFIG=config)
    assert done.returncode == 0, done.stderr


NODES = "/api/v1/nodes"
ENSURANCE = "/apis/ensurance.crane.io/v1alpha1"
BUSY = policy(
    rule("cpu_total_usage", 6000, "evict", "cpu"),
    rule("memory_total_usage", "10Gi", "throttle", "memory"),
    name="busy",
    selector={"matchLabels": {"pool": "batch"}},
)
RECLAIM = action("reclaim", throttle={"memoryThrottle": {"forceGC": True}})
LATER = {
    "apiVersion": BUSY["apiVersion"],
    "kind": "NodeQOS",
    "metadata": {"name": "later"},
    "spec": {"rules": [rule("cpu_load_1_min", 8, "close", "load")]},
}
ALLOWED = pod_qos("batch", labelSelector={}, allowedActions=["evict"])
EVERY_SECOND = (
    "from equipoise.qos import status; status.INTERVAL_SECONDS = 1.0; "
    "from equipoise.cli.main import main; main()"
)
"""The operator as it is, but for how often it looks."""


def _node(plane: ControlPlane, name: str, pool: str) -> None:
    metadata = {"name": name, "labels": {"pool": pool}}
    plane.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}})


def _report(plane: ControlPlane, node: str, rules: dict[str, bool | None]) -> None:
    """Set a node's condition as its agent does."""
    found = RulesCondition.of(rules)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    condition = {"type": found.TYPE, "status": found.status, "reason": found.reason, "message": found.message}
    condition |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    patch = "application/strategic-merge-patch+json"
    body = {"status": {"conditions": [condition]}}
    plane.api.request("PATCH", f"{NODES}/{node}/status", body, content_type=patch)


@pytest.fixture
def served(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane of a test's own with our kinds and three nodes: some kinds are for all nodes."""
    plane = start_control_plane(scheduler=False)
    done = equipoise("crds", "apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    plane.apply(namespaced("shop"))
    for name, pool in (("n1", "batch"), ("n2", "batch"), ("n3", "web")):
        _node(plane, name, pool)
    return plane


def _operator(plane: ControlPlane, folder: Path) -> Operator:
    settings = {"balancers": ["proportional"], "intervals": {"proportional": "1s"}}
    return Operator(plane, "http://127.0.0.1:9", "shop", folder, settings, EVERY_SECOND)


def _wide(plane: ControlPlane, plural: str, name: str, *columns: str) -> tuple[object, ...]:
    """Give what kubectl prints of an object in these columns."""
    row = plane.api.table(f"{ENSURANCE}/{plural}").get(name, {})
    return tuple(row.get(column) for column in columns)


def test_kubectl_get_says_something_for_every_kind(served: ControlPlane, tmp_path: Path) -> None:
    """Each kind has a cell beyond its name and age, by the server's own table; and kubectl prints it."""
    asked = [
        rotation_policy(ROTATED),
        SCALING_GOOD["least"],
        ANALYTICS_GOOD["least"],
        ANALYTICS_GOOD["a recommendation"],
        ledger({"workload": WORKLOAD}),
    ]
    named = [each | {"metadata": each["metadata"] | {"namespace": "shop"}} for each in asked]
    cluster_wide = [BUSY, LATER, EVICT, THROTTLE, RECLAIM, action("close"), ALLOWED]
    served.apply([deployment("shop", "kube-dns", replicas=1, request="1"), *named, *cluster_wide])
    path = "/apis/analysis.crane.io/v1alpha1/namespaces/shop/recommendations/nginx-hpa"
    ready = {"type": "Ready", "status": "True", "reason": "Recommend", "message": ""}
    ready |= {"lastTransitionTime": AT}
    served.api.patch(f"{path}/status", {"status": {"conditions": [ready]}})
    with _operator(served, tmp_path) as operator:

        def is_ready() -> bool:
            return _wide(served, "podqoss", "batch", "Ready") == ("True",)

        operator.wait_for(is_ready, "the status of the kinds of the agents")
        scaled = f"{named[1]['apiVersion']}/namespaces/shop/scalingpolicies"
        operator.wait_for(
            lambda: served.api.table(f"/apis/{scaled}")["kube-dns"]["Ready"] is not None, "a ScalingPolicy's"
        )
        for kind in KINDS:
            place = "/namespaces/shop" if kind.is_namespaced else ""
            rows = served.api.table(f"/apis/{kind.api_version}{place}/{kind.plural}")
            assert rows, kind.name
            for row in rows.values():
                assert {cell for column, cell in row.items() if column not in {"Name", "Age"}} - {None, ""}, (
                    row
                )
                assert row.get("Ready", "True") is not None or kind.name in {"RotationPolicy", "Analytics"}
        assert "READY" in served.kubectl("get", "recommend", "-n", "shop")
        printed = served.kubectl("get", "avoid").splitlines()
    assert printed[0].split() == ["NAME", "ACTION", "COOLDOWN", "READY", "NODES", "CROSSED", "AGE"]
    assert [line.split()[:2] for line in printed[1:]] == [
        ["close", "DisableScheduling"],
        ["evict", "Evict"],
        ["reclaim", "ReclaimMemory"],
        ["throttle", "ThrottleCPU"],
    ]


def test_the_counts_follow_the_conditions_of_the_nodes(served: ControlPlane, tmp_path: Path) -> None:
    """Unknown, crossed on one, on two, on none; nothing is written while they stay; invalid says why."""
    served.apply([BUSY, LATER, EVICT, RECLAIM, action("close"), ALLOWED])
    columns = ("Ready", "Nodes", "Crossed", "Unknown", "Reason")
    with _operator(served, tmp_path) as operator:

        def wait_for(plural: str, name: str, *cells: object) -> None:
            try:
                operator.wait_for(
                    lambda: _wide(served, plural, name, *columns) == cells, f"{name}: {cells}", 60
                )
            except AssertionError as error:
                raise AssertionError(f"{_wide(served, plural, name, *columns)}") from error

        wait_for("nodeqosensurancepolicies", "busy", "False", None, None, None, "InvalidAction")
        (why,) = _wide(served, "nodeqosensurancepolicies", "busy", "Why")
        assert why == (
            "spec.objectiveEnsurances[1].actionName: expected the name of an AvoidanceAction, got 'throttle'."
        )
        served.apply([action("throttle", throttle=RECLAIM["spec"]["throttle"])])
        wait_for("nodeqosensurancepolicies", "busy", "True", 2, None, 2, "Accepted")
        wait_for("nodeqoss", "later", "True", 3, None, 3, "Accepted")
        _report(served, "n1", {"busy/cpu": True, "busy/memory": False, "later/load": False})
        wait_for("nodeqosensurancepolicies", "busy", "True", 2, 1, 1, "Accepted")
        wait_for("nodeqoss", "later", "True", 3, 0, 2, "Accepted")
        wait_for("avoidanceactions", "evict", "True", 2, 1, 1, "Accepted")
        wait_for("podqoss", "batch", "True", 2, 1, 1, "Accepted")
        _report(served, "n2", {"busy/cpu": True, "busy/memory": True, "later/load": False})
        wait_for("nodeqosensurancepolicies", "busy", "True", 2, 2, 0, "Accepted")
        wait_for("avoidanceactions", "throttle", "True", 2, 1, 0, "Accepted")
        path = f"{ENSURANCE}/nodeqosensurancepolicies/busy"
        version, cycles = served.api.get(path)["metadata"]["resourceVersion"], _cycles(operator)
        _report(served, "n2", {"busy/cpu": False, "busy/memory": True, "later/load": False})
        operator.wait_for(lambda: _cycles(operator) >= cycles + 4, "four more rounds")
        assert served.api.get(path)["metadata"]["resourceVersion"] == version
        for node in ("n1", "n2"):
            _report(served, node, {"busy/cpu": False, "busy/memory": False, "later/load": False})
        wait_for("nodeqosensurancepolicies", "busy", "True", 2, 0, 0, "Accepted")
        served.apply(
            policy(*BUSY["spec"]["objectiveEnsurances"], name="busy", selector={"matchLabels": {"pool": "x"}})
        )
        wait_for("nodeqosensurancepolicies", "busy", "False", 0, 0, 0, "NoNodes")
        assert operator.metric("equipoise_cycles_total", balancer="qos", result="failed") is None


def _cycles(operator: Operator) -> float:
    return operator.metric("equipoise_cycles_total", balancer="qos", result="done") or 0.0
