"""Proportional scaling on a real API server: nodes come and go, and the operator runs as a user runs it."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import jsonschema
import pytest

from equipoise.cli.schemas import json_schema
from tests.e2e.conftest import new_namespace
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Operator
from tests.support.e2e.scaling_cluster import SETTINGS, Scaled, install_vpas, vpa
from tests.testbed import ControlPlane, Kwok, wait_until
from tests.testbed.granting import Granting

PERCENTILE = {"percentile": {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95}}


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Our kinds, installed by our own command, and the kind of VPA."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    install_vpas(control_plane)


@pytest.fixture(scope="module")
def scaled(control_plane: ControlPlane, kwok: Kwok) -> Iterator[Scaled]:
    """Five nodes of 4 cores."""
    with new_namespace(control_plane) as name:
        scene = Scaled(control_plane, kwok, name)
        with scene.cleaned(), Granting(control_plane, name):
            for _ in range(5):
                scene.add_node()
            yield scene


class Operators:
    """One operator after the other, which act."""

    def __init__(self, scaled: Scaled, new_folder: Callable[[str], Path]) -> None:
        self._scaled = scaled
        self._new_folder = new_folder
        self._stack = ExitStack()
        self.now = self.start()

    def start(self) -> Operator:
        scene, folder = self._scaled, self._new_folder("operator")
        settings = SETTINGS | {"prometheus": {}}
        started = Operator(scene.plane, "", scene.namespace, folder, settings)
        return self._stack.enter_context(started)

    def restart(self) -> None:
        """End it as Kubernetes would, and start another."""
        process = self.now.replica.process
        process.send_signal(signal.SIGTERM)
        self.now.wait_for(lambda: process.poll() is not None, "the operator to stop", 60)
        self.now = self.start()

    def end(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def operators(scaled: Scaled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """The first one finds a VPA."""
    scaled.plane.apply(vpa(scaled.namespace, "advised", "Auto"))
    made = Operators(scaled, tmp_path_factory.mktemp)
    yield made
    made.end()


@pytest.fixture
def operator(operators: Operators) -> Operator:
    """The one that runs."""
    return operators.now


def test_all_kinds_of_targets_follow_the_nodes_without_a_restart(scaled: Scaled, operator: Operator) -> None:
    """Nodes come and go, pods come by scaling and by new nodes; every one has its value, none restarts."""
    scaled.add_deployment("dns", 2)
    scaled.add_daemon_set("log")
    scaled.add_policy("dns")
    scaled.add_policy("log", "DaemonSet")
    for kind, name in (("StatefulSet", "db"), ("ReplicaSet", "bare")):
        scaled.add_set(kind, name)
        scaled.add_policy(name, kind)
    operator.wait_for(scaled.have("dns", "300m", 2), "300m for 20 cores")
    operator.wait_for(scaled.have("log", "300m", 5), "the same on every node")
    pods = scaled.uids("dns")
    added = scaled.add_node()
    operator.wait_for(scaled.have("dns", "340m", 2), "340m for 24 cores")
    operator.wait_for(scaled.have("log", "340m", 6), "the same for the pod of the new node")
    for name in ("db", "bare"):
        operator.wait_for(scaled.have(name, "340m", 1), f"the same for {name}")
    scaled.take_node(added)
    operator.wait_for(scaled.have("dns", "300m", 2), "300m again")
    where = f"/apis/apps/v1/namespaces/{scaled.namespace}/deployments/dns"
    scaled.plane.api.patch(where, {"spec": {"replicas": 4}})
    operator.wait_for(scaled.have("dns", "300m", 4), "the value for pods of the old template")
    operator.wait_for(lambda: scaled.status("dns").get("podsAtTarget") == "4/4", "4/4 in the status")
    operator.wait_for(lambda: scaled.condition("dns", "Applied") == "AllPods", "all pods have it")
    assert pods < scaled.uids("dns")
    assert (scaled.restarts("dns"), scaled.restarts("log")) == (0, 0)
    assert (scaled.template("deployments", "dns"), scaled.template("daemonsets", "log")) == ("100m", "100m")
    status = scaled.status("dns")
    assert status["message"] == "Pods are resized in place; nothing restarts."
    assert status["resources"][0]["lastChange"]["after"] == "300m"
    planned = equipoise(
        *("proportional", "plan", "dns", "-n", scaled.namespace, "-o", "json"),
        *("--kubeconfig", str(scaled.plane.kubeconfig)),
    )
    assert planned.returncode == 0, planned.stderr
    jsonschema.validate(json.loads(planned.stdout), json_schema("proportional-plan"))
    (decision,) = json.loads(planned.stdout)["decisions"]
    assert (decision["reason"], decision["numbers"]["inputs"]) == ("Unchanged", {"cores": "20"})


def test_an_update_of_all_nodes_changes_nothing_where_it_is_smoothed(
    scaled: Scaled, operators: Operators
) -> None:
    """Without smoothing the same update is at least two changes; the operator restarts amid it."""
    operator = operators.now
    for name in ("smooth", "plain"):
        scaled.add_deployment(name, 1)
    scaled.add_policy("smooth", smoothing=PERCENTILE)
    scaled.add_policy("plain")
    for name in ("smooth", "plain"):
        operator.wait_for(scaled.have(name, "300m", 1), f"300m for {name}")
    operator.wait_for(lambda: scaled.reason("smooth") == "Unchanged", "a settled window")
    before = {name: scaled.writes(name) for name in ("smooth", "plain")}
    for number, node in enumerate(scaled.nodes[:5]):
        scaled.take_node(node)
        operators.now.wait_for(scaled.have("plain", "260m", 1), "260m while a node is away")
        if number == 2:
            operators.now.wait_for(
                lambda: scaled.reason("smooth") == "HeldByPercentile", "what it holds it by"
            )
            operators.restart()
        scaled.put_node(node)
        operators.now.wait_for(scaled.have("plain", "300m", 1), "300m when it is back")
    after = {name: scaled.writes(name) - before[name] for name in before}
    assert after["smooth"] == 0
    assert after["plain"] >= 2
    decisions = "equipoise_decisions_total"
    last = operators.now
    assert not last.metric(decisions, balancer="proportional", reason="WarmingUp")
    assert last.metric(decisions, balancer="proportional", reason="HeldByPercentile")
    assert scaled.status("smooth")["window"]["observations"] > 5
    replayed = equipoise("journal", "replay", "--all", "--file", str(operator.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_who_fights_and_who_was_there_first_are_named(
    scaled: Scaled, operator: Operator, tmp_path: Path
) -> None:
    """Two writes against another manager, then a condition; what a VPA or two policies want is left."""
    (pod,) = scaled.add_deployment("fought", 1)
    for name in ("advised", "shared"):
        scaled.add_deployment(name, 1)
    for name, target in (("advised", ""), ("one", "shared"), ("two", "shared"), ("fought", "")):
        scaled.add_policy(name, target=target)
    for _ in range(2):
        operator.wait_for(scaled.have("fought", "300m", 1), "300m")
        scaled.put_back(pod, "100m", "argocd-controller")
    operator.wait_for(lambda: scaled.condition("fought", "Applied") == "FoughtBy", "the fight given up")
    assert "argocd-controller" in scaled.status("fought")["lastDecision"]["sentence"]
    cycles = operator.metric("equipoise_cycles_total", balancer="proportional") or 0
    operator.wait_for(
        lambda: (operator.metric("equipoise_cycles_total", balancer="proportional") or 0) > cycles + 2,
        "three looks more",
    )
    assert scaled.requests("fought") == ["100m"]
    assert scaled.writes("fought") == 4  # two of ours, two of the other's
    for name in ("advised", "one", "two"):
        assert scaled.condition(name, "Ready") == "Conflict"
    assert "VerticalPodAutoscaler" in scaled.status("advised")["conditions"][0]["message"]
    where = ("-n", scaled.namespace, "--kubeconfig", str(scaled.plane.kubeconfig))
    refused = equipoise("proportional", "plan", "one", *where)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Conflict: spec.scaleTargetRef: " in refused.stderr
    policy = tmp_path / "third.json"
    policy.write_text(json.dumps(scaled.spec("shared")))
    refused = equipoise("proportional", "apply", "--policy", str(policy), *where)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is also the target of one, two" in refused.stderr
    assert scaled.writes("advised") == scaled.writes("shared") == 0


def test_a_rollout_says_so_before_and_apply_does_it_once(
    scaled: Scaled, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A policy in a file, by hand: the plan says that pods are replaced; the ledger knows of it."""
    scaled.add_deployment("rolled", 2)
    pods = scaled.uids("rolled")
    function = {"input": "cores", "base": "100m", "slope": "10m"}
    policy = tmp_path / "policy.json"
    policy.write_text(
        json.dumps(
            {
                "scaleTargetRef": {"kind": "Deployment", "name": "rolled"},
                "nodeSelector": {"matchLabels": {"scaled": scaled.namespace}},
                "updateMode": "Rollout",
                "containers": [
                    {"name": "app", "resources": {"requests": [{"resource": "cpu", "function": function}]}}
                ],
            }
        )
    )
    where = ("-n", scaled.namespace, "--kubeconfig", str(control_plane.kubeconfig), "-o", "json")
    dry = equipoise("proportional", "apply", "--policy", str(policy), "--dry-run", *where)
    assert dry.returncode == 0, dry.stderr
    (decision,) = json.loads(dry.stdout)["decisions"]
    assert decision["reason"] == "Set"
    assert "every pod is replaced" in decision["message"]
    assert scaled.template("deployments", "rolled") == "100m"
    done = equipoise("proportional", "apply", "--policy", str(policy), *where)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), json_schema("proportional-plan"))
    before, _, after = done.stderr.partition("\n")
    assert "every pod is replaced" in before
    assert "Accepted" not in before
    assert "Accepted" in after
    (decision,) = json.loads(done.stdout)["decisions"]
    assert [outcome["result"] for outcome in decision["outcomes"]] == ["Accepted"]
    assert scaled.template("deployments", "rolled") == "300m"
    again = equipoise("proportional", "apply", "--policy", str(policy), *where)
    assert json.loads(again.stdout)["decisions"][0]["reason"] == "Unchanged"
    ledgers = f"/apis/equipoise.dev/v1alpha1/namespaces/{scaled.namespace}/ledgers"
    own = [
        one
        for one in control_plane.api.items(ledgers)
        if one["metadata"]["name"].startswith("deployment-rolled-")
    ]
    entries = [
        e for each in own for e in each["data"]["entries"]
    ]  # those of other tests' workloads are theirs
    assert [(e["balancer"], e["action"], e["state"]) for e in entries] == [
        ("proportional", "SetResources", "Done")
    ]
    wait_until(lambda: pods.isdisjoint(scaled.uids("rolled")), "every pod replaced", 60)
