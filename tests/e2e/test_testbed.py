"""The instruments are sound: what the other end-to-end tests rely on, seen once for itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import (
    Api,
    ApiError,
    ControlPlane,
    Kwok,
    MetricsServer,
    Prometheus,
    StartControlPlane,
    StartPrometheus,
    binary,
    wait_until,
)
from tests.testbed.scenes import SIX_LOADS, deployment, history, hpa, running_pods, six_pods

REPOSITORY = Path(__file__).parents[2]


def processes_that_mention(folder: Path) -> list[str]:
    """Give the command lines of running processes that name a folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def code_of_watch(api: Api, path: str, version: str) -> int:
    """Give the code that a watch from a version is refused with, whichever way the server says it."""
    try:
        events: Iterator[dict[str, Any]] = api.watch(path, seconds=5, resourceVersion=version)
        first = next(events, None)
    except ApiError as error:
        return error.status
    return int(first["object"]["code"]) if first and first["type"] == "ERROR" else 200


def edited_config(control_plane: ControlPlane) -> tuple[str, str]:
    """Make an object with some history; give the path of its kind and its first version."""
    path = "/api/v1/namespaces/default/configmaps"
    made = control_plane.api.create(path, {"metadata": {"name": "history"}, "data": {"n": "0"}})
    for number in range(1, 4):
        control_plane.api.patch(f"{path}/history", {"data": {"n": str(number)}})
    return path, str(made["metadata"]["resourceVersion"])


def test_the_api_server_is_the_version_we_name(control_plane: ControlPlane) -> None:
    """The server, and the kubectl beside it, are Kubernetes 1.35."""
    assert control_plane.api.get("/version")["gitVersion"].startswith("v1.35.")
    assert "Server Version: v1.35." in control_plane.kubectl("version")


@pytest.mark.parametrize(("version", "is_taken"), [("v1.35.1", True), ("v1.32.4", False)])
def test_a_ready_binary_is_taken_if_its_version_will_do(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_taken: bool
) -> None:
    """A kubectl that happens to be there is used only when it is of the server's minor version."""
    ready = tmp_path / "kubectl"
    ready.write_text(f"#!/bin/sh\necho Client Version: {version}\n")
    ready.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert (binary("kubectl") == ready) is is_taken


def test_a_service_account_may_do_only_what_it_is_allowed(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A token is a real identity, and RBAC refuses it what nobody granted."""
    control_plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": namespace}}
    )
    api = Api(control_plane.server, control_plane.ca, token=control_plane.token(namespace, "reader"))
    try:
        with pytest.raises(ApiError, match="403"):
            api.get(f"/api/v1/namespaces/{namespace}/pods")
    finally:
        api.close()


def test_six_pods_are_made_by_the_real_controllers(
    control_plane: ControlPlane, kwok: Kwok, namespace: str
) -> None:
    """The scene's pods belong to a ReplicaSet of a Deployment, and carry the loads in the order of names."""
    pods = six_pods(control_plane, kwok, namespace=namespace)
    assert list(pods) == list("ABCDEF")
    found = {
        pod["metadata"]["name"]: pod
        for pod in control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods")
    }
    assert {found[name]["metadata"]["ownerReferences"][0]["kind"] for name in pods.values()} == {"ReplicaSet"}
    assert found[pods["A"]]["metadata"]["annotations"]["kwok.x-k8s.io/usage-cpu"] == "1200m"
    assert found[pods["F"]]["metadata"]["annotations"]["kwok.x-k8s.io/usage-cpu"] == "300m"


def test_a_pods_load_appears_in_prometheus_as_a_rate(
    control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus, namespace: str
) -> None:
    """What a test sets is what Prometheus measures, and a change is seen within seconds."""
    pods = six_pods(control_plane, kwok, namespace=namespace, hpa_target_percent=None)
    rate = f'rate(container_cpu_usage_seconds_total{{namespace="{namespace}",container="app"}}[5s])'

    def are_seen(expected: dict[str, float]) -> bool:
        return prometheus.values(rate, "pod") == pytest.approx(expected, rel=0.05)

    loads = dict(zip(pods.values(), SIX_LOADS, strict=True))
    wait_until(lambda: are_seen(loads), "the six loads as rates", 90)
    kwok.set_load(namespace, pods["A"], cpu="250m")
    wait_until(lambda: are_seen({**loads, pods["A"]: 0.25}), "the changed load as a rate", 90)


def test_a_written_past_and_the_scraped_present_are_one_series(
    control_plane: ControlPlane, kwok: Kwok, start_prometheus: StartPrometheus, namespace: str
) -> None:
    """With a history of an hour, a rate over five minutes is right seconds after the start."""
    pods = six_pods(control_plane, kwok, namespace=namespace, hpa_target_percent=None)
    loads = dict(zip(pods.values(), SIX_LOADS, strict=True))
    past = history(control_plane, kwok, namespace, loads, until=time.time())
    prometheus = start_prometheus(backfill=past, kwok=kwok)
    usage = f'container_cpu_usage_seconds_total{{namespace="{namespace}"}}'
    prometheus.wait_for(f"rate({usage}[5s])", count=6)  # none of these samples are of the past
    assert prometheus.values(f"rate({usage}[5m])", "pod") == pytest.approx(loads, rel=0.05)


def test_the_real_hpa_controller_scales_on_the_load(
    control_plane: ControlPlane, kwok: Kwok, metrics_server: MetricsServer, namespace: str
) -> None:
    """Three pods at 90 % of their request with a target of 70 % become four."""
    control_plane.apply(deployment(namespace, "web", replicas=3, request="1"))
    for pod in running_pods(control_plane, namespace, "web", 3):
        kwok.set_load(namespace, pod, cpu="900m")
    metrics_server.wait_for_pods(namespace, 3)
    control_plane.apply(hpa(namespace, "web", 70, 3, 6))
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    wait_until(lambda: control_plane.api.get(path)["spec"]["replicas"] >= 4, "a fourth replica", 180)


def test_a_killed_api_server_comes_back_with_its_data(start_control_plane: StartControlPlane) -> None:
    """After a crash the same address answers with what was written before it."""
    control_plane = start_control_plane(controllers=False, scheduler=False)
    path, _ = edited_config(control_plane)
    control_plane.kill_apiserver()
    assert not control_plane.api.answers("/readyz")
    control_plane.restart_apiserver()
    assert control_plane.api.get(f"{path}/history")["data"] == {"n": "3"}


def test_compaction_makes_a_watch_of_the_past_answer_410(start_control_plane: StartControlPlane) -> None:
    """Without the API server's own memory, a watch from a forgotten version is refused at once."""
    control_plane = start_control_plane(
        controllers=False, scheduler=False, extra_apiserver_args=["--watch-cache=false"]
    )
    path, version = edited_config(control_plane)
    assert code_of_watch(control_plane.api, path, version) == 200
    control_plane.compact_etcd()
    assert code_of_watch(control_plane.api, path, version) == 410


def test_a_restarted_api_server_answers_410_to_a_watch_of_the_past(
    start_control_plane: StartControlPlane,
) -> None:
    """The API server's memory begins anew: clients must list again, with no compaction at all."""
    control_plane = start_control_plane(controllers=False, scheduler=False)
    path, version = edited_config(control_plane)
    assert code_of_watch(control_plane.api, path, version) == 200
    control_plane.kill_apiserver()
    control_plane.restart_apiserver()
    assert code_of_watch(control_plane.api, path, version) == 410


def test_compaction_ends_a_list_between_two_pages(start_control_plane: StartControlPlane) -> None:
    """Without the API server's own memory, a `continue` token of a forgotten version answers 410."""
    control_plane = start_control_plane(
        controllers=False, scheduler=False, extra_apiserver_args=["--watch-cache=false"]
    )
    path, _ = edited_config(control_plane)
    control_plane.api.create(path, {"metadata": {"name": "second"}})
    page = control_plane.api.get(path, limit="1")
    control_plane.api.patch(f"{path}/history", {"data": {"n": "4"}})
    control_plane.compact_etcd()
    with pytest.raises(ApiError) as refusal:
        control_plane.api.get(path, limit="1", **{"continue": page["metadata"]["continue"]})
    assert refusal.value.status == 410


def test_a_killed_prometheus_comes_back_with_its_data(start_prometheus: StartPrometheus) -> None:
    """A written history is served, and survives a crash of the server."""
    samples = "".join(f"cores {n} {1_700_000_000 + 60 * n}\n" for n in range(5))
    prometheus = start_prometheus(backfill=f"# TYPE cores gauge\n{samples}# EOF\n")
    url = prometheus.url
    question = "max_over_time(cores[10m] @ 1700000300)"
    assert [series["value"][1] for series in prometheus.query(question)] == ["4"]
    prometheus.kill()
    prometheus.restart()
    assert prometheus.url == url
    assert [series["value"][1] for series in prometheus.query(question)] == ["4"]


def test_nothing_is_left_after_a_stop(start_control_plane: StartControlPlane) -> None:
    """Every process of a control plane is gone when `stop` returns."""
    control_plane = start_control_plane()
    names = {process.name for process in control_plane.processes}
    assert names == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert len(processes_that_mention(control_plane.folder)) == 4
    control_plane.stop()
    assert processes_that_mention(control_plane.folder) == []


STARTS_AND_HANGS = """
import signal, sys
from pathlib import Path
from tests.testbed import ControlPlane
ControlPlane(Path(sys.argv[1]), controllers=False, scheduler=False).start()
print("ready", flush=True)
signal.pause()
"""


def test_nothing_is_left_when_the_tests_are_killed(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The kernel ends the neighbours of a process that dies without a chance to clean up."""
    folder = tmp_path / "orphaned"
    command = [sys.executable, "-c", STARTS_AND_HANGS, str(folder)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not processes_that_mention(folder), "the orphans to end", 60)
