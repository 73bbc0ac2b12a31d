"""Analytics on the real API server: the seed's manifests and commands, adoption, Crane's definitions."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from equipoise.adapters.kubernetes import Reflector, connect
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.decode import parse_time
from equipoise.adapters.kubernetes.policies import KubernetesAnalyses
from equipoise.core.cluster import WorkloadRef
from equipoise.ports import ApplyAnswer, ApplyResult
from tests.e2e.conftest import Offered, new_namespace
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.contracts.keda import install_scaled_objects, scaled_object
from tests.support.contracts.real import session_of
from tests.support.e2e.crane import GROUP, install_cranes_definitions
from tests.support.e2e.replicas import Operator
from tests.support.recommendation import analytics_facts as desk_facts
from tests.testbed import ControlPlane, Kwok, Prometheus, StartPrometheus, wait_until
from tests.testbed.scenes import deployment, hpa

EXAMPLE = Path(__file__).parents[2] / "examples" / "05-analytics.yaml"
DAYS = 2
RPS = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
SLOWLY = {"scaleDown": {"stabilizationWindowSeconds": 600}}
BUSY = {"owned": 3.0, "scaled": 3.0, "free": 3.0}
"""Workloads beside nginx, and the cores that each of their pods uses."""
IS_BUSY = {"key": "app", "operator": "In", "values": list(BUSY)}
AUTO = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Analytics",
    "metadata": {"name": "auto"},
    "spec": {
        "type": "HPA",
        "completionStrategy": {"completionStrategyType": "Once"},
        "adoptionType": "Auto",
        "resourceSelectors": [
            {
                "kind": "Deployment",
                "labelSelector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": list(BUSY)}]
                },
            }
        ],
        "config": {"ehpa.min-cpu-usage-threshold": "1", "ehpa.fluctuation-threshold": "1"},
    },
}


YOUNGER = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Analytics",
    "spec": {
        "type": "HPA",
        "completionStrategy": {"completionStrategyType": "Once"},
        "resourceSelectors": [{"kind": "Deployment", "name": "nginx-deployment"}],
        "config": {
            "ehpa.min-cpu-usage-threshold": "0",
            "ehpa.fluctuation-threshold": "0",
            "ehpa.default-min-replicas": "9",
        },
    },
}
"""Another opinion about the seed's workload."""


@dataclass
class Scene:
    """A namespace with workloads that have a past, and where that is remembered."""

    plane: ControlPlane
    namespace: str
    prometheus: Prometheus

    def kubectl(self, *words: str) -> str:
        return self.plane.kubectl("-n", self.namespace, *words)

    def read(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def ready(self, name: str) -> tuple[str, str]:
        return self.condition(self.read("analytics", name), "Ready")

    @staticmethod
    def condition(found: Mapping[str, Any], type_: str) -> tuple[str, str]:
        conditions = found.get("status", {}).get("conditions", ())
        return next(((one["status"], one["reason"]) for one in conditions if one["type"] == type_), ("", ""))

    def advice(self, analytics: str) -> dict[str, dict[str, Any]]:
        """Give the Recommendations of an Analytics by workload."""
        label = f"{GROUP}/analytics-name={analytics}"
        items = json.loads(self.kubectl("get", "recommend", "-l", label, "-o", "json"))["items"]
        return {one["spec"]["targetRef"]["name"]: one for one in items}

    def is_advised(self, analytics: str, workload: str) -> bool:
        return "recommendedValue" in self.advice(analytics).get(workload, {}).get("status", {})


def _pods(plane: ControlPlane, namespace: str, count: int) -> dict[str, str]:
    """Wait until all pods run; give the app of each."""

    def running() -> list[dict[str, Any]]:
        found = plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
        return (
            found if len(found) == count and all(one["status"]["phase"] == "Running" for one in found) else []
        )

    found = wait_until(running, f"{count} pods", 120)
    return {one["metadata"]["name"]: one["metadata"]["labels"]["app"] for one in found}


def _past(namespace: str, pods: Mapping[str, str]) -> str:
    """Tell two days of minutes up to now, busy by day."""
    until = time.time() // 60 * 60
    times = until - 60.0 * np.arange(DAYS * 1440)[::-1]
    day = 1.0 + 0.5 * np.sin(2 * np.pi * times / 86400)
    lines = ["# TYPE container_cpu_usage_seconds counter\n"]
    for pod, app in sorted(pods.items()):
        used = np.cumsum(60.0 * BUSY.get(app, 0.001) * day).round(6)
        container = "nginx" if app == "nginx" else "app"
        labels = f'container="{container}",namespace="{namespace}",pod="{pod}"'
        rows = zip(used.tolist(), times.tolist(), strict=True)
        lines += [f"container_cpu_usage_seconds_total{{{labels}}} {value!r} {at:.3f}\n" for value, at in rows]
    return "".join([*lines, "# EOF\n"])


def _settings(**compat: str) -> dict[str, Any]:
    return {
        "balancers": ["recommendation"],
        "intervals": {"recommendation": "1s"},
        "compat": compat,
    }


@pytest.fixture
def scene(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, start_prometheus: StartPrometheus
) -> Scene:
    """The seed's nginx and three busy workloads: one with an HPA, one that KEDA scales, one with neither."""
    del kwok
    done = equipoise("crds", "apply", "analytics", "recommend", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    control_plane.kubectl("-n", namespace, "apply", "-f", str(EXAMPLE))
    install_scaled_objects(control_plane)
    own = hpa(namespace, "owned", 60, 2, 9)
    own["spec"]["metrics"].append(RPS)
    own["spec"]["behavior"] = SLOWLY
    theirs = hpa(namespace, "scaled", 60, 2, 9)
    theirs["metadata"]["labels"] = {"scaledobject.keda.sh/name": "scaled"}
    keda = scaled_object(WorkloadRef("apps/v1", "Deployment", namespace, "scaled"), {})
    control_plane.apply(
        [*(deployment(namespace, name, replicas=2, request="2") for name in BUSY), own, theirs, keda]
    )
    past = _past(namespace, _pods(control_plane, namespace, 1 + 2 * len(BUSY)))
    return Scene(control_plane, namespace, start_prometheus(backfill=past))


def test_the_seeds_manifests_and_commands_work_word_for_word(scene: Scene, tmp_path: Path) -> None:
    """In Preview: advice in the seed's shape, an annotation, inheritance; then Enforce, Auto, and rest."""
    _check_facts(scene)
    _check_rights(scene)
    # Ages are whole seconds, and of two in the same one the name decides.
    born_at = parse_time(scene.read("analytics", "nginx-hpa")["metadata"]["creationTimestamp"])
    wait_until(lambda: time.time() >= born_at + 1.0, "the next second", 30)
    scene.plane.apply(YOUNGER | {"metadata": {"name": "a-younger", "namespace": scene.namespace}})
    with Operator(scene.plane, scene.prometheus.url, scene.namespace, tmp_path, _settings()) as operator:
        scene.plane.apply(AUTO | {"metadata": {"name": "auto", "namespace": scene.namespace}})
        operator.wait_for(lambda: scene.is_advised("nginx-hpa", "nginx-deployment"), "advice for nginx")
        operator.wait_for(
            lambda: len(scene.advice("auto")) == 3 and all(scene.is_advised("auto", name) for name in BUSY),
            "advice",
        )
        operator.wait_for(lambda: scene.ready("nginx-hpa") == ("True", "AnalyticsReady"), "the answer")
        operator.wait_for(lambda: scene.is_advised("a-younger", "nginx-deployment"), "advice of the younger")
        younger = scene.advice("a-younger")["nginx-deployment"]
        assert scene.condition(younger, "Adopted") == ("False", "OlderAnalytics")
        heading, row = scene.kubectl("get", "analytics", "nginx-hpa").splitlines()
        name = _check_shapes(scene)
        # Shown with `pytest -s`.
        print(f"\n$ kubectl get analytics\n{heading}\n{row}")
        print(f"$ kubectl get analytics -o wide\n{scene.kubectl('get', 'analytics', '-o', 'wide')}")
        whole = scene.kubectl("get", "recommend", name, "-o", "yaml")
        print(f"$ kubectl get recommend {name} -o yaml\n{whole}")
        assert heading.split() == ["NAME", "AGE"]
        assert row.split()[0] == "nginx-hpa"
        advice = scene.advice("auto")
        assert {scene.condition(one, "Adopted") for one in advice.values()} == {("False", "Preview")}
        inherited = yaml.safe_load(advice["owned"]["status"]["recommendedValue"])
        assert inherited["metrics"][1:] == [RPS]
        assert inherited["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    _check_rest_and_enforce(scene, tmp_path)


def _check_facts(scene: Scene) -> None:
    """What the loop relies on is true of this server."""
    name, watched = "facts", list[Reflector[Any]]()
    _, seeds = yaml.safe_load_all(EXAMPLE.read_text())
    scene.plane.apply(seeds | {"metadata": {"name": name, "namespace": scene.namespace}})
    with closing(session_of(scene.plane)) as client:
        objects = KubernetesAnalyses(client, watched.append, namespaces=[scene.namespace])
        for reflector in watched:
            reflector.start()
        try:
            wait_until(lambda: all(one.synced.is_set() for one in watched), "both kinds listed", 60)
            (about,) = [one for one in objects.analytics() if one.ref.name == name]
            desk_facts.check(objects, about, lambda found, what: wait_until(found, what, 60))
        finally:
            for reflector in watched:
                reflector.stop()
    scene.kubectl("delete", "analytics", name)


def _check_rights(scene: Scene) -> None:
    """Who may not annotate, as the chart installs it, learns that from the server without a try."""
    token = scene.plane.token(scene.namespace, "default")
    with closing(connect(str(scene.plane.kubeconfig_for("nobody", {"token": token})))) as client:
        web = WorkloadRef("apps/v1", "Deployment", scene.namespace, "nginx-deployment")
        answer = KubernetesApplier(client).annotate(web, {"example.com/note": "1"})
    missing = f"the right to patch Deployments in namespace {scene.namespace} is missing"
    assert answer == ApplyAnswer(ApplyResult.FORBIDDEN, missing)


def _check_shapes(scene: Scene) -> str:
    """Compare with what the seed prints; give the name of the Recommendation."""
    asked = scene.read("analytics", "nginx-hpa")
    status, uid = asked["status"], asked["metadata"]["uid"]
    (entry,) = status["recommendations"]
    target = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "nginx-deployment",
        "namespace": scene.namespace,
    }
    assert set(entry) == {"lastStartTime", "message", "name", "namespace", "targetRef", "uid"}
    assert (entry["message"], entry["targetRef"], entry["namespace"]) == ("Success", target, scene.namespace)
    (ready,) = status["conditions"]
    assert (ready["message"], ready["reason"], ready["status"]) == (
        "Analytics is ready",
        "AnalyticsReady",
        "True",
    )
    found = scene.read("recommend", entry["name"])
    meta = found["metadata"]
    assert (meta["generateName"], meta["uid"]) == ("nginx-hpa-hpa-", entry["uid"])
    assert meta["labels"] == {
        f"{GROUP}/analytics-name": "nginx-hpa",
        f"{GROUP}/analytics-type": "HPA",
        f"{GROUP}/analytics-uid": uid,
        "app": "nginx",
    }
    owner = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Analytics", "name": "nginx-hpa", "uid": uid}
    assert meta["ownerReferences"] == [owner | {"blockOwnerDeletion": False, "controller": False}]
    assert found["spec"] == {
        "adoptionType": "StatusAndAnnotation",
        "completionStrategy": {"completionStrategyType": "Once"},
        "targetRef": target,
        "type": "HPA",
    }
    assert found["status"]["conditions"][0]["reason"] == "RecommendationReady"
    utilization = {"name": "cpu", "target": {"averageUtilization": 30, "type": "Utilization"}}
    value = found["status"]["recommendedValue"]
    assert yaml.safe_load(value) == {
        "maxReplicas": 2,
        "metrics": [{"resource": utilization, "type": "Resource"}],
        "minReplicas": 2,
    }
    assert found["status"]["confidence"] == "low", "two of seven days"
    annotations = scene.read("deployment", "nginx-deployment")["metadata"]["annotations"]
    assert annotations[f"{GROUP}/hpa-recommendation"] == value
    return str(entry["name"])


def _check_rest_and_enforce(scene: Scene, folder: Path) -> None:
    """With Enforce the next operator applies one HPA, leaves two alone, and then writes nothing more."""
    enforcing = folder / "enforcing"
    enforcing.mkdir()
    before = _versions_of_others(scene)

    def adopted(name: str) -> tuple[str, str]:
        return scene.condition(scene.advice("auto")[name], "Adopted")

    settings = _settings(mode="Enforce")
    with Operator(scene.plane, scene.prometheus.url, scene.namespace, enforcing, settings) as operator:
        operator.wait_for(lambda: adopted("free") == ("True", "Applied"), "an HPA of ours")
        left = {("False", "NotOurs")}
        operator.wait_for(lambda: {adopted("owned"), adopted("scaled")} == left, "two left alone")
        made = scene.read("hpa", "free")["spec"]
        wanted = yaml.safe_load(scene.advice("auto")["free"]["status"]["recommendedValue"])
        assert (made["minReplicas"], made["maxReplicas"]) == (wanted["minReplicas"], wanted["maxReplicas"])
        assert _versions_of_others(scene) == before
        _check_quiet(scene, operator, "auto")
        assert operator.metric("equipoise_actions_total", balancer="recommendation", result="Created") == 1
    for journal in (folder, enforcing):
        replayed = equipoise("journal", "replay", "--all", "--file", str(journal / "journal.db"))
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        assert not replayed.stdout.startswith("0 replayed")


def _versions_of_others(scene: Scene) -> list[str]:
    """What the controller writes of its own does not count."""
    return [json.dumps(scene.read("hpa", f"keda-hpa-{name}")["spec"]) for name in ("owned", "scaled")]


def _check_quiet(scene: Scene, operator: Operator, analytics: str) -> None:
    """Nothing is written in three cycles more."""

    def cycles() -> float:
        return operator.metric("equipoise_cycles_total", balancer="recommendation", result="done") or 0.0

    def versions() -> list[str]:
        found = [scene.read("analytics", analytics), *scene.advice(analytics).values()]
        return [one["metadata"]["resourceVersion"] for one in found]

    operator.wait_for(lambda: scene.ready(analytics) == ("True", "AnalyticsReady"), "the answer")
    # What was seen so far may be the middle of a cycle, or the answer of an earlier operator.
    begun = cycles() + 1
    operator.wait_for(lambda: cycles() >= begun, "the end of the cycle")
    before, until = versions(), cycles() + 3
    operator.wait_for(lambda: cycles() >= until, "three cycles more")
    assert versions() == before


@pytest.fixture
def cranes(offered: Offered, tmp_path: Path, start_prometheus: StartPrometheus) -> Iterator[Scene]:
    """A cluster that Crane's own definitions are in, with the seed's nginx."""
    with ExitStack() as stack:
        with offered():
            plane = stack.enter_context(ControlPlane(tmp_path / "cranes"))
            kwok = Kwok(plane, tmp_path / "cranes")
            stack.callback(kwok.stop)
            kwok.start()
            kwok.add_node("kwok-1")
        install_cranes_definitions(plane)
        namespace = stack.enter_context(new_namespace(plane))
        plane.kubectl("-n", namespace, "apply", "-f", str(EXAMPLE))
        past = _past(namespace, _pods(plane, namespace, 1))
        yield Scene(plane, namespace, start_prometheus(backfill=past))


def test_cranes_own_definitions_are_respected_and_taken_over_when_told(cranes: Scene, tmp_path: Path) -> None:
    """`auto` says that it does nothing; `on` answers in the status that is there, and comes to rest."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/analytics.{GROUP}"
    before = cranes.plane.api.get(path)["metadata"]["resourceVersion"]
    done = equipoise("crds", "apply", "analytics", "recommend", "--kubeconfig", str(cranes.plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Foreign") == 2
    _check_facts(cranes)
    with Operator(cranes.plane, cranes.prometheus.url, cranes.namespace, tmp_path, _settings()) as operator:
        operator.wait_for(lambda: cranes.ready("nginx-hpa") == ("False", "ForeignController"), "a word of it")
        assert cranes.advice("nginx-hpa") == {}
    taking = tmp_path / "taking"
    taking.mkdir()
    settings = _settings(crane="on")
    with Operator(cranes.plane, cranes.prometheus.url, cranes.namespace, taking, settings) as operator:
        operator.wait_for(lambda: cranes.is_advised("nginx-hpa", "nginx-deployment"), "advice")
        _check_quiet(cranes, operator, "nginx-hpa")
        found = cranes.advice("nginx-hpa")["nginx-deployment"]
        assert found["metadata"]["generateName"] == "nginx-hpa-hpa-"
        assert yaml.safe_load(found["status"]["recommendedValue"])["minReplicas"] == 2
        assert set(found["status"]) == {"conditions", "lastUpdateTime", "recommendedValue"}
        asked = cranes.read("analytics", "nginx-hpa")
        assert asked["status"]["recommendations"][0]["message"] == "Success"
    assert cranes.plane.api.get(path)["metadata"]["resourceVersion"] == before
