"""`recommendation plan` on the real API server and a real Prometheus with days of history."""

import csv
import json
import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.transport import Direct
from equipoise.cli.journal import CommandJournal
from equipoise.cli.recommendation_live import RecommendationRequest, apply_recommendation, plan_recommendation
from equipoise.cli.schemas import json_schema
from equipoise.cli.session import ClusterRequest
from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import plan_document
from equipoise.ports.cluster import CPU
from equipoise.recommendation.adopt import Adopted
from equipoise.recommendation.advisor import AdviceScope
from equipoise.recommendation.settings import AdviceType, read_policy
from equipoise.runtime.metrics_source import PrometheusOptions
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.contracts.keda import install_scaled_objects, scaled_object
from tests.support.e2e.accounts import account_with
from tests.support.e2e.unscaled import unscaled_workloads
from tests.testbed import ControlPlane, Kwok, Prometheus, StartPrometheus
from tests.testbed.scenes import deployment, hpa, running_pods

DAYS = 4
AUTOSCALING, HPAS = "/apis/autoscaling/v2", "horizontalpodautoscalers"
KEYS = {
    "ehpa.deployment-min-replicas": "2",
    "ehpa.pod-min-ready-seconds": "0",
    "ehpa.min-cpu-usage-threshold": "1",
}
GONE = ("web-6b8c9d7f5-bcdfg", "web-6b8c9d7f5-hjklm")
"""Pods of a revision that no pod tells of any more."""
OF_ANOTHER = "web-7d9f6c5b4-qrstv"
"""It looks like one of theirs; kube-state-metrics knows better."""
LEAP = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
SLOWLY = {"scaleDown": {"stabilizationWindowSeconds": 600}}


@dataclass(frozen=True)
class Scene:
    """A namespace, its Prometheus, and until when that knows."""

    control_plane: ControlPlane
    server: Prometheus
    namespace: str
    until: float
    pods: Mapping[str, str]
    """The workload of each pod that was measured."""

    def options(self) -> tuple[str, ...]:
        """Say where the two are."""
        where = ("--kubeconfig", str(self.control_plane.kubeconfig), "--prometheus-url", self.server.url)
        return ("-n", self.namespace, *where)

    def apply(self, *names: str, kubeconfig: Path | None = None, **keys: str) -> dict[str, Adopted]:
        """Apply as the command does, from the past only, which is quick."""
        where = str(kubeconfig or self.control_plane.kubeconfig)
        prometheus = PrometheusOptions(url=self.server.url)
        cluster = ClusterRequest(where, namespace=self.namespace, prometheus=prometheus)
        policy = read_policy(
            KEYS | {f"ehpa.{key.replace('_', '-')}": value for key, value in keys.items()}, ""
        )
        asked = AdviceScope(policy, self.namespace, names, None)
        done = apply_recommendation(RecommendationRequest(cluster, asked), CommandJournal(), self.until)
        return {each.decision.subject.rpartition("/")[2]: each for each in done}

    def hpas(self) -> dict[str, Any]:
        """Give the HPAs that there are, by name."""
        found = self.control_plane.api.items(f"{AUTOSCALING}/namespaces/{self.namespace}/{HPAS}")
        return {one["metadata"]["name"]: one for one in found}

    def plan(self, source: HistorySource, about: AdviceType = AdviceType.HPA, **keys: str) -> dict[str, Any]:
        """Decide as the command does, at the moment up to which the server knows."""
        cluster = ClusterRequest(
            str(self.control_plane.kubeconfig),
            namespace=self.namespace,
            prometheus=PrometheusOptions(url=self.server.url),
        )
        policy = read_policy(
            KEYS | {f"ehpa.{key.replace('_', '-')}": value for key, value in keys.items()}, ""
        )
        asked = AdviceScope(policy, self.namespace, about=about)
        document = plan_document(
            "recommendation",
            plan_recommendation(RecommendationRequest(cluster, asked, source), self.until),
        )
        found: dict[str, Any] = {one["subject"].rpartition("/")[2]: one for one in document["decisions"]}
        return found


def _stateful_set(namespace: str, name: str, replicas: int) -> dict[str, Any]:
    made = deployment(namespace, name, replicas=replicas, request="500m")
    made["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return made | {"kind": "StatefulSet"}


def _bare(namespace: str, name: str) -> dict[str, Any]:
    made = deployment(namespace, name, replicas=2, request="1")
    del made["spec"]["template"]["spec"]["containers"][0]["resources"]
    return made


def _series(metric: str, labels: Mapping[str, str], times: Any, values: Any) -> str:
    head = metric + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} "
    rows = zip(values.tolist(), times.tolist(), strict=True)
    return "".join(f"{head}{value!r} {at:.3f}\n" for value, at in rows)


def _past(namespace: str, pods: Mapping[str, str], until: float) -> str:
    """Tell days of minutes: every pod follows the day, a little late; memory is known of web only."""
    chance = np.random.default_rng(11)
    minutes = until - 60.0 * np.arange(DAYS * 1440)[::-1]
    cpu, memory = ["# TYPE container_cpu_usage_seconds counter\n"], []
    for pod, workload in {**pods, OF_ANOTHER: "another"}.items():
        times = (minutes + chance.uniform(-2.0, 2.0, len(minutes))).round(3)
        if pod in GONE:
            times = times[: 1440 * 2]
        day = 1.0 + 0.6 * np.sin(2 * math.pi * times / 86400)
        cores = (
            {"web": 3.0, "db": 1.0, "another": 50.0}.get(workload, 2.0)
            * day
            * chance.gamma(50, 0.02, len(times))
        )
        labels = {"container": "app", "namespace": namespace, "pod": pod}
        used = np.cumsum(np.diff(times, prepend=times[0]) * cores).round(9)
        cpu.append(_series("container_cpu_usage_seconds_total", labels, times, used))
        if workload == "web":
            bytes_ = (1e8 + 1e6 * chance.integers(0, 20, len(times))).astype(float)
            memory.append(_series("container_memory_working_set_bytes", labels, times, bytes_))
    owner = {
        "namespace": namespace,
        "replicaset": OF_ANOTHER[:-6],
        "owner_kind": "Rollout",
        "owner_name": "web",
    }
    owned = _series("kube_replicaset_owner", owner, minutes[-10:], np.ones(10))
    gauges = [
        "# TYPE container_memory_working_set_bytes gauge\n",
        *memory,
        "# TYPE kube_replicaset_owner gauge\n",
    ]
    return "".join([*cpu, *gauges, owned, "# EOF\n"])


@pytest.fixture
def scene(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, start_prometheus: StartPrometheus
) -> Scene:
    """Five workloads by the real controllers, three of them measured, and an HPA."""
    del kwok
    own = hpa(namespace, "web", 60, 4, 9)
    own["spec"]["metrics"].append(LEAP)
    own["spec"]["behavior"] = SLOWLY
    wanted = {"web": 4, "db": 3, "bare": 2, "idle": 2, "small": 1}
    objects = [
        *(
            deployment(namespace, name, replicas=wanted[name], request="2")
            for name in ("web", "idle", "small")
        ),
        *(_stateful_set(namespace, "db", 3), _bare(namespace, "bare"), own),
    ]
    control_plane.apply(objects)
    pods = {
        pod: name
        for name, count in wanted.items()
        for pod in running_pods(control_plane, namespace, name, count)
    }
    measured = {pod: name for pod, name in pods.items() if name != "idle"} | dict.fromkeys(GONE, "web")
    until = math.ceil(time.time() / 60) * 60.0
    server = start_prometheus(backfill=_past(namespace, measured, until))
    return Scene(control_plane, server, namespace, until, measured)


def test_a_live_cluster_gets_the_advice_of_its_week(scene: Scene, tmp_path: Path) -> None:
    """By remote read and by PromQL the same, and the same as from a file with those numbers."""
    found = scene.plan(HistorySource.REMOTE_READ)
    assert found == scene.plan(HistorySource.PROMQL)
    reasons = {name: one["reason"] for name, one in found.items()}
    assert reasons == {
        "web": "Recommend",
        "db": "Recommend",
        "bare": "NoRequest",
        "idle": "NoSamples",
        "small": "TooFewReplicas",
    }
    web = found["web"]
    assert (web["kind"], found["db"]["kind"]) == ("Deployment", "StatefulSet")
    assert (web["numbers"]["replicas"], web["numbers"]["pods_available"]) == (4, 4)
    assert web["numbers"]["coverage"] == pytest.approx(DAYS / 7, abs=0.01)
    assert web["numbers"]["peak_cores"] == pytest.approx(6 * 3.0 * 1.6, rel=0.2), "six pods, two of them gone"
    assert web["current"]["hpas"] == [
        {"name": "keda-hpa-web", "minReplicas": 4, "maxReplicas": 9, "targetUtilization": 60}
    ]
    assert web["current"]["containers"] == [{"name": "app", "requests": {"cpu": "2", "memory": "256Mi"}}]
    assert web["recommended"]["metrics"][1:] == [LEAP]
    assert web["recommended"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    asks = "1 replica; advice needs at least 2 (ehpa.deployment-min-replicas)"
    assert asks in found["small"]["sentence"]
    assert (found["idle"]["numbers"]["pods_unknown"], web["numbers"]["pods_unknown"]) == (2, 0)
    _compare_with_file(scene, tmp_path / "usage.csv")


def _compare_with_file(scene: Scene, file: Path) -> None:
    alone = scene.plan(HistorySource.AUTO, reference_hpa="false")
    requests = {"web": "2", "db": "500m", "bare": "", "small": "2"}
    with (
        closing(PrometheusClient(Direct(PrometheusSettings(scene.server.url)))) as client,
        file.open("w", newline="") as text,
    ):
        rows = csv.writer(text)
        rows.writerow(["timestamp", "namespace", "workload", "pod", "value", "request"])
        for lot in PrometheusHistory(client).read((CPU,), scene.until - 7 * 86400 + 60, scene.until, 60):
            for pod, values in zip(lot.pods, lot.values, strict=True):
                name = scene.pods.get(pod)
                for at, value in zip(lot.timestamps.tolist(), values.tolist(), strict=True):
                    if name is not None and not math.isnan(value):
                        rows.writerow([at, scene.namespace, name, pod, repr(value), requests[name]])
    keys = KEYS | {"ehpa.reference-hpa": "false"}
    arguments = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    done = equipoise("recommendation", "plan", "--from", str(file), "-o", "json", *arguments)
    assert done.returncode == 0, done.stderr
    from_file = {one["subject"].rpartition("/")[2]: one for one in json.loads(done.stdout)["decisions"]}
    counted = {"replicas", "pods", "pods_available", "pods_unknown"}
    for name in ("web", "db"):
        for key in ("reason", "recommended", "prediction", "confidence"):
            assert alone[name][key] == from_file[name][key], (name, key)
        for key in from_file[name]["numbers"].keys() - counted:
            assert alone[name]["numbers"][key] == from_file[name]["numbers"][key], (name, key)
    assert from_file["web"]["numbers"]["replicas"] == 6


def test_the_command_prints_manifests_and_says_why_not(scene: Scene, tmp_path: Path) -> None:
    """As a user types it; also requests, with the memory that is known."""
    settings = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
    done = equipoise("recommendation", "plan", *scene.options(), *settings, "-o", "hpa")
    assert done.returncode == 0, done.stderr
    targets = {made["spec"]["scaleTargetRef"]["name"]: made for made in yaml.safe_load_all(done.stdout)}
    assert {name: made["spec"]["scaleTargetRef"]["kind"] for name, made in targets.items()} == {
        "web": "Deployment",
        "db": "StatefulSet",
    }
    reasons = [line.split(": ")[2] for line in done.stderr.splitlines()]
    assert reasons == ["NoRequest", "NoSamples", "TooFewReplicas"]
    scene.control_plane.apply(list(targets.values()))
    asked = ("recommendation", "plan", "deploy/web", *scene.options(), *settings, "--type", "Resource")
    done = equipoise(*asked, "-o", "json", "--source", "promql", "--no-forecast")
    assert (done.returncode, done.stderr) == (0, "")
    (decision,) = json.loads(done.stdout)["decisions"]
    (container,) = decision["recommended"]["containers"]
    assert container["name"] == "app"
    assert container["requests"]["memory"] == str(math.ceil(1.19e8 * 1.15))
    assert container["requests"]["cpu"].endswith("m")
    picture = tmp_path / "web.png"
    done = equipoise(
        "recommendation", "plan", "web", "db", *scene.options(), *settings, "--plot", str(picture)
    )
    assert "advice for 2. Nothing was changed." in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    many = equipoise("recommendation", "plan", *scene.options(), "--plot", str(picture))
    assert (many.returncode, many.stdout) == (2, "")
    assert "--plot: expected 1 to 4 workloads, got 5; name those to draw" in many.stderr


def test_a_plan_without_a_type_has_hpas_and_requests(scene: Scene) -> None:
    """Also of kinds without a scale; Argo's is not defined here, which costs nothing."""
    scene.control_plane.apply(unscaled_workloads(scene.namespace))
    keys = KEYS | {"ehpa.min-cpu-usage-threshold": "1000"}
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    done = equipoise("recommendation", "plan", *scene.options(), *settings, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = {one["subject"].rpartition("/")[2]: one for one in json.loads(done.stdout)["decisions"]}
    reasons = [(found[name]["kind"], found[name]["reason"]) for name in ("web", "agent", "nightly")]
    assert reasons == [("Deployment", "LowUsage"), ("DaemonSet", "NoSamples"), ("CronJob", "NoSamples")]
    assert found["web"]["recommended"] is None
    assert found["web"]["wouldRecommend"]["minReplicas"] >= 2
    (container,) = found["web"]["containers"]
    assert container["recommended"]["requests"]["memory"] == str(math.ceil(1.19e8 * 1.15))


def test_a_cluster_or_a_prometheus_that_fails_is_one_line(scene: Scene) -> None:
    """Nothing is advised from half of the world."""
    nowhere = ("--prometheus-url", "http://127.0.0.1:9", "--prometheus-timeout", "3s")
    where = ("-n", scene.namespace, "--kubeconfig", str(scene.control_plane.kubeconfig))
    for arguments, status, words in (
        ((*where, *nowhere), 1, "127.0.0.1:9"),
        (where, 1, "no Prometheus"),
        (("absent", *scene.options()), 1, "workload absent: not found in namespace"),
        ((*scene.options(), "-A"), 2, "-n and -A"),
        ((*scene.options(), "--replicas", "3"), 2, "--replicas: expected it beside --from"),
    ):
        done = equipoise("recommendation", "plan", *arguments, "-o", "json")
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert words in done.stderr


def test_apply_makes_what_is_advised_and_takes_nothing(scene: Scene, tmp_path: Path) -> None:
    """As a user types it: a dry run, the deed, the same again; whose the other HPA is, is told by name."""
    settings = [word for key, value in KEYS.items() for word in ("--set", f"{key}={value}")]
    command = ("recommendation", "apply", *scene.options(), *settings)
    foreign = scene.hpas()
    done = equipoise(*command, "--dry-run", "-o", "json")
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), json_schema("recommendation-apply"))
    assert _outcomes(done.stdout) == {"web": ("NotOurs", "NotOurs"), "db": ("Recommend", "Created")}
    assert scene.hpas().keys() == foreign.keys()
    diary, minute = str(tmp_path / "diary.jsonl"), time.time() // 60
    assert _outcomes(equipoise(*command, "-o", "json", "--journal", diary).stdout)["db"][1] == "Created"
    made = scene.hpas()["db"]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "equipoise"}
    assert made["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}
    events = scene.control_plane.api.items(f"/api/v1/namespaces/{scene.namespace}/events")
    told = [one["message"] for one in events if one["reason"] == "Recommend"]
    assert len(told) == 1
    assert "Its HPA was created: " in told[0]
    again = equipoise(*command, "-o", "json")
    for _ in range(5):
        if time.time() // 60 == minute:
            break  # else a minute more of the past may be other advice: ask twice within one
        minute = time.time() // 60
        equipoise(*command)
        again = equipoise(*command, "-o", "json")
    assert (again.returncode, _outcomes(again.stdout)["db"]) == (0, ("Recommend", "Unchanged"))
    assert scene.hpas()["keda-hpa-web"]["spec"] == foreign["keda-hpa-web"]["spec"]
    replayed = equipoise("journal", "replay", "--all", "--file", diary)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    named = equipoise(*command, "web")
    assert named.returncode == 1
    taken = f"HorizontalPodAutoscaler {scene.namespace}/keda-hpa-web already scales the workload"
    assert f"{taken} and is managed by testbed: it is left alone. Change it there" in named.stderr


def _outcomes(document: str) -> dict[str, tuple[str, str]]:
    """Give the reason and the result of each workload for which anything was tried."""
    return {
        one["subject"].rpartition("/")[2]: (one["reason"], one["outcomes"][0]["result"])
        for one in json.loads(document)["decisions"]
        if one["outcomes"]
    }


def test_apply_leaves_alone_what_is_taken_paused_or_forbidden(scene: Scene) -> None:
    """Another field manager, KEDA, an annotation, a pause and a missing right: each by its name."""
    api, namespace = scene.control_plane.api, scene.namespace
    assert scene.apply("db")["db"].decision.reason.code.value == "Recommend"
    path = f"{AUTOSCALING}/namespaces/{namespace}/{HPAS}"
    edit, merge = {"spec": {"maxReplicas": 50}}, "application/merge-patch+json"
    api.request("PATCH", f"{path}/db", edit, query={"fieldManager": "an-editor"}, content_type=merge)
    api.delete(f"{path}/keda-hpa-web")
    install_scaled_objects(scene.control_plane)
    web = WorkloadRef("apps/v1", "Deployment", namespace, "web")
    scene.control_plane.apply(scaled_object(web, {}))
    taken = scene.apply()
    assert taken["db"].decision.reason.sentence.startswith(
        f".spec.maxReplicas of HorizontalPodAutoscaler {namespace}/db was set by an-editor"
    )
    assert (
        f"ScaledObject {namespace}/web already scales the workload and is managed by KEDA"
        in taken["web"].decision.reason.sentence
    )
    assert {name: one["spec"]["maxReplicas"] for name, one in scene.hpas().items()} == {"db": 50}
    api.delete(api.path_of(scaled_object(web, {})))
    rules = [
        {"apiGroups": ["", "apps", "autoscaling", "keda.sh"], "resources": ["*"], "verbs": ["get", "list"]}
    ]
    with account_with(scene.control_plane, namespace, "reader", rules) as token:
        reader = scene.control_plane.kubeconfig_for("reader", {"token": token})
        (forbidden,) = scene.apply("web", kubeconfig=reader).values()
    assert forbidden.has_failed
    assert f'cannot patch resource "{HPAS}"' in forbidden.decision.reason.sentence
    deployment_path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    for value, code in (("false", "OptedOut"), ("true", "Recommend")):
        api.patch(deployment_path, {"metadata": {"annotations": {"equipoise.dev/recommend": value}}})
        if code == "Recommend":
            paused = {"metadata": {"annotations": {"equipoise.dev/paused": "a freeze"}}}
            api.patch(f"/api/v1/namespaces/{namespace}", paused)
            assert scene.apply("web")["web"].decision.reason.sentence.endswith("is paused (a freeze).")
            api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": None}})
        assert scene.apply("web")["web"].decision.reason.code.value == code
    assert scene.hpas()["web"]["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "equipoise"
