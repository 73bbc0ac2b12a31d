"""`rotation plan` and `doctor` on the real API server, the real Prometheus, the real metrics-server."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from equipoise.rotation.observe import SAMPLE_AGE_MAX_SECONDS
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.rotation_workload import DECISION_SECONDS, wait_for_decision
from tests.testbed import ControlPlane, MetricsServer, Prometheus, wait_until
from tests.testbed.scenes import SIX_LOADS


def _plan(
    control_plane: ControlPlane, namespace: str, *arguments: str, age: str = "0s", is_known: bool = True
) -> dict[str, Any]:
    """Plan, and give the one decision; no `age` is the default one.

    A busy machine scrapes late: while usage is unknown for that, it is asked again.
    """
    youngest = ("--set", f"minPodAge={age}") if age else ()

    def decided() -> dict[str, Any] | None:
        done = equipoise(
            *("rotation", "plan", "web", "-n", namespace, "-o", "json"),
            *("--kubeconfig", str(control_plane.kubeconfig), *youngest, *arguments),
        )
        assert done.returncode == 0, done.stderr
        (decision,) = json.loads(done.stdout)["decisions"]
        assert isinstance(decision, dict)
        return None if is_known and decision["reason"] == "MetricsIncomplete" else decision

    return wait_until(decided, "a decision from usage that is known", DECISION_SECONDS)


def _letters(decision: dict[str, Any], pods: dict[str, str]) -> tuple[str, str]:
    """Who goes in the first wave, and who waits, in order."""
    names = {name: letter for letter, name in pods.items()}
    now, later = ("".join(names[action["pod"]] for action in decision[part]) for part in ("actions", "held"))
    return now, later


def test_the_seeds_six_pods_on_a_real_cluster_give_the_seeds_decision(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """Read from the API server and Prometheus: A, B, F, E, for 34.8 % but for the noise of scraping.

    A goes in the first wave; the others wait for theirs, since the budget lets one go at a time.
    """
    improved = pytest.approx(34.78, abs=1.0)
    decision = wait_for_decision(
        lambda: _plan(control_plane, namespace, "--prometheus-url", measured.url, is_known=False),
        lambda it: _letters(it, six) == ("A", "BFE") and it["numbers"]["improvement_percent"] == improved,
    )
    assert decision["reason"] == "Rotate"
    assert {held["reason"] for held in decision["held"]} == {"PdbBlocked"}
    assert decision["subject"] == f"{namespace}/web"
    numbers = decision["numbers"]
    assert numbers["target_cores"] == 0.7
    assert numbers["threshold_cores"] == 1.05
    uids = {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
    }
    planned = [*decision["actions"], *decision["held"]]
    assert all(action["uid"] == uids[action["pod"]] for action in planned)


def test_young_pods_are_not_judged_by_default(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """Ten minutes must pass before a pod's usage says something about the pod."""
    del six
    decision = _plan(control_plane, namespace, "--prometheus-url", measured.url, age="")
    assert decision["reason"] == "NoHotPods"
    assert decision["numbers"]["candidates"] == 0


def test_a_matcher_of_another_cluster_leaves_nothing_known(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """Extra matchers are on every query: the samples of this cluster are not another's."""
    del six
    decision = _plan(
        *(control_plane, namespace, "--prometheus-url", measured.url),
        *("--prometheus-matcher", "cluster=other"),
        is_known=False,
    )
    assert decision["reason"] == "MetricsIncomplete"
    assert decision["numbers"]["pods_unknown"] == 6


def test_the_lag_gate_asks_the_real_prometheus(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """At the threshold it holds; below it lets go; no answer holds."""
    del six
    for query, reason in [
        ("vector(1000)", "HeldByLag"),
        ("vector(999)", "Rotate"),
        ("no_such_metric", "HeldByLag"),
    ]:
        decision = _plan(
            *(control_plane, namespace, "--prometheus-url", measured.url),
            *("--set", "kafkaLag.enabled=true", "--set", f"kafkaLag.query={query}"),
        )
        assert decision["reason"] == reason, query
        assert len(decision["held"]) == (4 if reason == "HeldByLag" else 3)


def test_metrics_server_is_the_second_source(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], metrics_server: MetricsServer
) -> None:
    """Without a Prometheus in the cluster, usage comes from metrics.k8s.io, and the command says so."""
    del metrics_server
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"

    def is_settled() -> bool:
        found = {
            item["metadata"]["name"]: item["containers"][0]["usage"]["cpu"]
            for item in control_plane.api.items(path)
        }
        cores = [
            int(found[pod].removesuffix("n") or 0) / 1e9 if found.get(pod, "").endswith("n") else 0.0
            for pod in six.values()
        ]
        return cores == pytest.approx(list(SIX_LOADS), rel=0.03)

    wait_until(is_settled, "metrics-server to see the six loads", 180)

    def decide() -> dict[str, Any]:
        done = equipoise(
            *("rotation", "plan", "web", "-n", namespace, "-o", "json", "--set", "minPodAge=0s"),
            *("--kubeconfig", str(control_plane.kubeconfig)),
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("warning: no Prometheus was found")
        assert "metrics.k8s.io" in done.stderr
        (decision,) = json.loads(done.stdout)["decisions"]
        return dict(decision)

    improved = pytest.approx(34.78, abs=1.5)
    wait_for_decision(
        decide,
        lambda it: _letters(it, six) == ("A", "BFE") and it["numbers"]["improvement_percent"] == improved,
    )


def _checks(control_plane: ControlPlane, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    done = equipoise("doctor", "-o", "json", *arguments)
    del control_plane
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_the_doctor_finds_a_healthy_cluster_healthy(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """Every line is ok, or says its remedy."""
    del namespace, six
    where = ("--kubeconfig", str(control_plane.kubeconfig), "--prometheus-url", measured.url)
    clocks = ("clock", "prometheus-clock")
    _, checks = wait_for_decision(  # an answer that a stall held up is taken for a clock that is behind
        lambda: _checks(control_plane, *where),
        lambda it: all(it[1][name]["status"] == "ok" for name in clocks),
    )
    for name in ("cluster", "rights", "eviction", "prometheus-server", *clocks):
        assert checks[name]["status"] == "ok", checks[name]
    assert "v1.35" in checks["cluster"]["sentence"]
    assert "Prometheus 2." in checks["prometheus-server"]["sentence"]
    assert "ledger" in checks
    assert all(check["remedy"] for check in checks.values() if check["status"] != "ok")


def _age_seconds(control_plane: ControlPlane, namespace: str) -> float:
    """Say for how long the first of the pods has been there."""
    found = control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
    created = min(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in found)
    return (datetime.now(UTC) - created).total_seconds()


def test_a_namespace_that_is_not_there_is_an_error_and_young_pods_are_none(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """A slip of the pen is not `nothing to do`; and the doctor blames nobody for pods that just began."""
    neighbours = ("--kubeconfig", str(control_plane.kubeconfig), "--prometheus-url", measured.url)
    _, checks = _checks(control_plane, "-n", namespace, *neighbours)
    age_seconds = _age_seconds(control_plane, namespace)
    for verb in ("plan", "apply"):
        done = equipoise("rotation", verb, "-n", "shpo", *neighbours)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: namespace shpo: not found at https://")
    young = f"{len(six)} pods run, for less than two minutes: too young to be measured."
    if age_seconds <= SAMPLE_AGE_MAX_SECONDS:
        assert checks["prometheus"]["sentence"] == young
        assert "usage" not in checks
    else:  # a machine that stood still: some may have been old enough when the doctor looked
        measured_ones = r"\d of \d running pods have a fresh CPU sample .+"
        assert re.fullmatch(f"{measured_ones}|{young}", checks["prometheus"]["sentence"])


def test_the_doctor_names_the_right_that_is_missing(control_plane: ControlPlane, namespace: str) -> None:
    """A service account without a role: the exact rule to grant, and exit status 1."""
    control_plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": namespace}}
    )
    config = control_plane.kubeconfig_for("nobody", {"token": control_plane.token(namespace, "nobody")})
    done = equipoise("doctor", "-n", namespace, "--kubeconfig", str(config), environment={"COLUMNS": "200"})
    assert done.returncode == 1
    assert "May not list pods" in done.stdout
    assert 'resources: ["pods"], verbs: ["list"]' in done.stdout
    assert done.stderr.startswith("error: ")
