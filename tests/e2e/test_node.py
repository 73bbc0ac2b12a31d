"""A real kubelet with containerd: limits, resizes, usage and evictions, as they are on a node."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.conftest import new_namespace
from tests.support.cli.running import equipoise_anew as equipoise
from tests.testbed import (
    ApiError,
    Process,
    Prometheus,
    RealNode,
    StartPrometheus,
    Unavailable,
    cell,
    wait_until,
)
from tests.testbed.real_pods import BURN, ready_pods, real_deployment, real_pod, resize
from tests.testbed.scenes import hpa, pdb

REPOSITORY = Path(__file__).parents[2]
PYTHON = "equipoise.test/python:1"
ASKS_THE_API = """
import json, os, ssl, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
token = open(f"{account}/token").read()
request = urllib.request.Request(f"{server}/version", headers={"Authorization": f"Bearer {token}"})
trust = ssl.create_default_context(cafile=f"{account}/ca.crt")
with urllib.request.urlopen(request, context=trust) as answer:
    print(json.load(answer)["gitVersion"])
"""
DAYS = 4


@pytest.fixture(scope="module")
def scene(real_node: RealNode) -> Iterator[str]:
    """A pod that may use a fifth of a core and wants more, and three that may use a tenth.

    Of the three, one is hot from 0.165 cores on: a machine that stalls gives less than 0.3 for a while.
    """
    with new_namespace(real_node.control_plane) as name:
        requests = {"cpu": "100m", "memory": "16Mi"}
        real_node.control_plane.apply(
            [
                real_pod(
                    *(name, "limited"),
                    command=BURN,
                    requests=requests,
                    limits={"cpu": "200m", "memory": "64Mi"},
                ),
                real_deployment(
                    *(name, "web"),
                    replicas=3,
                    command=BURN,
                    requests=requests,
                    limits={"cpu": "100m", "memory": "64Mi"},
                ),
                hpa(name, "web", 110, 3, 6),
                pdb(name, "web", 0),
            ]
        )
        ready_pods(real_node, name, 4)
        yield name


def _status(node: RealNode, namespace: str, pod: str) -> dict[str, Any]:
    found = node.control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    status: dict[str, Any] = found["status"]
    return status


def test_a_limit_is_the_quota_of_the_containers_cgroup(real_node: RealNode, scene: str) -> None:
    """200m and 64Mi are 20,000 µs in 100,000, and so many bytes, seen from outside and from inside."""
    container = real_node.container(scene, "limited")
    assert real_node.quota(container) == (20_000, 100_000)
    group = real_node.cgroup(container, "memory")
    (limit,) = (path for name in ("memory.max", "memory.limit_in_bytes") if (path := group / name).exists())
    assert int(limit.read_text()) == 64 * 2**20
    inside = "/" + str(limit.relative_to(real_node.root))
    assert real_node.run("cat", inside) == limit.read_text()


def test_a_pod_finds_its_api_server_as_in_any_cluster(real_node: RealNode, real_namespace: str) -> None:
    """Address, certificate and token are those that Kubernetes gives to every pod."""
    real_node.add_python_image(PYTHON)
    pod = real_pod(real_namespace, "asks", command=["python3", "-c", ASKS_THE_API], restartPolicy="Never")
    pod["spec"]["containers"][0]["image"] = PYTHON
    real_node.control_plane.apply(pod)
    ends = ("Succeeded", "Failed")
    wait_until(lambda: _status(real_node, real_namespace, "asks")["phase"] in ends, "the pod to end", 120)
    said = real_node.control_plane.kubectl("logs", "-n", real_namespace, "asks")
    assert said.startswith("v1.35."), said


def test_a_resize_changes_the_quota_and_restarts_nothing(real_node: RealNode, scene: str) -> None:
    """As a user types it: the same container has a new limit in its cgroup."""
    before = real_node.container(scene, "limited")
    change = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "300m"}}}]}}
    real_node.control_plane.kubectl(
        *("patch", "pod", "limited", "-n", scene, "--subresource", "resize", "-p", json.dumps(change))
    )
    wait_until(lambda: real_node.quota(before) == (30_000, 100_000), "the new quota in the cgroup", 60)
    assert real_node.container(scene, "limited") == before

    def is_told() -> bool:
        (told,) = _status(real_node, scene, "limited")["containerStatuses"]
        return bool(told["resources"]["limits"]["cpu"] == "300m" and told["restartCount"] == 0)

    wait_until(is_told, "the kubelet to tell the new limit", 60)


def test_the_kubelet_tells_what_a_pod_really_uses(real_node: RealNode, scene: str) -> None:
    """A pod that wants a core and may use 0.1 of it uses that, by the kubelet's two ways of telling."""
    pod = ready_pods(real_node, scene, 3, app="web")[0]
    line = re.compile(rf'^container_cpu_usage_seconds_total{{.*pod="{pod}"}} (\S+) (\d+)$', re.MULTILINE)

    def sample() -> tuple[float, float] | None:
        found = line.search(real_node.kubelet("/metrics/resource"))
        return (float(found[1]), int(found[2]) / 1000) if found else None

    def used() -> float:
        """Measure it for two seconds and more."""
        first = wait_until(sample, f"the counter of {pod}", 60)

        def later() -> tuple[float, float] | None:
            found = sample()
            return found if found and found[1] > first[1] + 2 else None

        last = wait_until(later, "two more seconds of it", 60)
        return (last[0] - first[0]) / (last[1] - first[1])

    # A machine that stalls gives it less for a while.
    wait_until(lambda: used() == pytest.approx(0.1, abs=0.06), f"a tenth of a core for {pod}", 180)

    def told() -> int:
        pods = json.loads(real_node.kubelet("/stats/summary"))["pods"]
        mine = [one for one in pods if one["podRef"]["name"] == pod]
        return int(mine[0]["containers"][0]["cpu"].get("usageNanoCores", 0)) if mine else 0

    wait_until(lambda: told() / 1e9 == pytest.approx(0.1, abs=0.06), f"the same of {pod} in the summary", 180)


def _loads(server: Prometheus, namespace: str, selector: str) -> dict[str, float]:
    usage = f'container_cpu_usage_seconds_total{{namespace="{namespace}",pod=~"web-.*",{selector}}}'
    return server.values(f"rate({usage}[10s])", "pod")


def test_the_balancers_read_the_real_cadvisor(
    real_node: RealNode, scene: str, start_prometheus: StartPrometheus
) -> None:
    """Each container counts once: neither its pod's own series nor that of the sandbox is added to it."""
    hot, *cool = ready_pods(real_node, scene, 3, app="web")
    resize(real_node, scene, hot, limits={"cpu": "300m"})
    server = start_prometheus(scrape_configs=[real_node.scrape_config()])

    def is_hot() -> bool:
        found = _loads(server, scene, 'container="app"')
        return len(found) == 3 and found[hot] > 1.8 * max(found[pod] for pod in cool)

    # Beside each other: a machine that stalls gives all of them less, for minutes.
    wait_until(is_hot, "three loads, one of them hot", 120)
    # A busy machine scrapes late, and then there is none for a moment.
    series = server.wait_for(f'container_cpu_usage_seconds_total{{namespace="{scene}",pod="{hot}"}}', 3)
    told = {(one["metric"].get("container", ""), one["metric"].get("image", "")) for one in series}
    assert told == {("app", "equipoise.test/busybox:1"), ("", "equipoise.test/pause:1"), ("", "")}
    own = real_node.container(scene, hot)
    (app,) = (one["metric"] for one in series if one["metric"].get("container") == "app")
    assert app["name"] == own.id
    assert app["id"] == f"/kubepods/burstable/pod{own.pod_uid}/{own.id}"
    _compare_rotation(real_node, scene, server, hot)
    _compare_recommendation(real_node, scene, start_prometheus, server)


def _compare_rotation(node: RealNode, namespace: str, server: Prometheus, hot: str) -> None:
    where = ("--kubeconfig", str(node.control_plane.kubeconfig), "--prometheus-url", server.url)
    settings = ("--set", "minPodAge=0s", "--set", "metricsWindow=10s")

    def decided() -> bool:
        done = equipoise("rotation", "plan", "web", "-n", namespace, "-o", "json", *where, *settings)
        assert done.returncode == 0, done.stderr
        (decision,) = json.loads(done.stdout)["decisions"]
        print(decision)
        # A busy machine scrapes late, and one that stalls gives the hot pod less for a while.
        numbers = decision["numbers"]
        if numbers.get("hot") != [hot] or numbers["pods_unknown"]:
            return False
        told = _loads(server, namespace, 'container="app"').get(hot)
        return told is not None and numbers["average_hot_cores"] == pytest.approx(told, rel=0.4)

    # Twice that, always, if the pod's own series counted too.
    wait_until(decided, f"a decision from usage that is whole, with {hot} alone, counted once", 120)


def _compare_recommendation(
    node: RealNode, namespace: str, start_prometheus: StartPrometheus, seen: Prometheus
) -> None:
    """Give the series as they are today a past of days, and ask for advice on that."""
    series = seen.wait_for(f'container_cpu_usage_seconds_total{{namespace="{namespace}",pod=~"web-.*"}}', 9)
    until = math.ceil(time.time() / 60) * 60.0
    past = start_prometheus(backfill=_past([one["metric"] for one in series], until))
    where = ("--kubeconfig", str(node.control_plane.kubeconfig), "--prometheus-url", past.url)
    settings = [
        *("--set", "ehpa.deployment-min-replicas=2", "--set", "ehpa.pod-min-ready-seconds=0"),
        *("--set", "ehpa.min-cpu-usage-threshold=1"),
    ]
    done = equipoise("recommendation", "plan", "web", "-n", namespace, "-o", "json", *where, *settings)
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    assert decision["numbers"]["peak_cores"] == pytest.approx(3 * 0.16, rel=0.05), "three pods, once each"


def _past(series: list[dict[str, str]], until: float) -> str:
    """Tell days of minutes: 0.1 cores a pod, up and down with the day, and nothing for a sandbox."""
    minutes = until - 60.0 * np.arange(DAYS * 1440)[::-1]
    used = np.cumsum(60.0 * 0.1 * (1.0 + 0.6 * np.sin(2 * math.pi * minutes / 86400)))
    lines = ["# TYPE container_cpu_usage_seconds counter\n"]
    for labels in series:
        is_idle = labels.get("image") == "equipoise.test/pause:1"
        inner = ",".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
        head = f"container_cpu_usage_seconds_total{{{inner}}} "
        values = (0.02 + 0 * used) if is_idle else used
        lines += [f"{head}{value:.6f} {at:.3f}\n" for value, at in zip(values, minutes, strict=True)]
    return "".join([*lines, "# EOF\n"])


def test_an_eviction_respects_the_budget_and_then_ends_the_container(real_node: RealNode, scene: str) -> None:
    """With no pod to spare the server says 429; with one, the container's cgroup is gone with the pod."""
    pod = ready_pods(real_node, scene, 3, app="web")[-1]
    group = real_node.cgroup(real_node.container(scene, pod))
    path = f"/api/v1/namespaces/{scene}/pods/{pod}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": scene}}
    with pytest.raises(ApiError, match="429"):
        real_node.control_plane.api.create(path, eviction)
    assert group.is_dir()
    real_node.control_plane.apply(pdb(scene, "web", 1))

    def is_let_go() -> bool:
        try:
            return bool(real_node.control_plane.api.create(path, eviction))
        except ApiError:
            return False

    wait_until(is_let_go, "the disruption controller to see the new budget", 60)
    wait_until(lambda: not group.exists(), "the end of the container's cgroup", 60)
    assert pod not in ready_pods(real_node, scene, 3, app="web")


STARTS_AND_HANGS = """
import signal, sys
from pathlib import Path
from tests.testbed import RealNode
from tests.testbed.real_pods import BURN, ready_pods, real_pod
node = RealNode(Path(sys.argv[1]), name="orphan")
node.start()
node.control_plane.apply(real_pod("default", "busy", command=BURN, limits={"cpu": "100m"}))
ready_pods(node, "default", 1)
print("ready", flush=True)
signal.pause()
"""


def _traces(name: str, folder: Path) -> list[str]:
    """Give what is there of a cell: processes, links, mounts, cgroups."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "cgroup").read_bytes()
        except OSError:  # it ended while we looked
            continue
        if name.encode() in words or str(folder).encode() in words:
            found.append(str(process))
    links = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    mounts = Path("/proc/self/mounts").read_text()
    found += [line for line in (links + mounts).splitlines() if name in line or str(folder) in line]
    return found + [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")]


def test_nothing_of_a_node_is_left_when_the_tests_are_killed(real_node: RealNode, tmp_path: Path) -> None:
    """No process, no link, no mount and no cgroup, though nobody had a chance to clean up."""
    folder = tmp_path / "orphaned"
    command = [sys.executable, "-c", STARTS_AND_HANGS, str(folder)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        name = json.loads((folder / "cell.json").read_text())["name"]
        traces = _traces(name, folder)
        assert any(trace.startswith("/sys/fs/cgroup/") for trace in traces)
        assert any(f"master {name}" in trace for trace in traces), "a pod's own link"
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not _traces(name, folder), "the orphans to end", 60)
    assert real_node.kubelet("/healthz") == "ok", "the other node lives on"


def test_what_a_killed_keeper_left_is_swept_by_the_next(real_node: RealNode, tmp_path: Path) -> None:
    """Bridge and cgroups are there when a cell's keeper is killed itself, and gone when another began."""
    names = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [
            sys.executable,
            "-I",
            "-S",
            cell.__file__,
            str(os.getpid()),
            str(folder),
            str(tmp_path / "lock"),
        ]
        keeper = Process("cell", words, folder / "log")
        keeper.start()
        keeper.wait_until((folder / "cell.json").exists, "a cell", 60)
        names.append(json.loads((folder / "cell.json").read_text())["name"])
        if number == 1:
            keeper.kill()
            assert _traces(names[0], folder)
        else:
            # What ended is to be seen until its parent, the machine's first process, has cleared it away.
            wait_until(lambda: not _traces(names[0], tmp_path / "1"), "the first one's traces to go", 60)
            keeper.stop(grace_seconds=60)
            wait_until(lambda: not _traces(names[1], tmp_path / "2"), "its own to go", 60)
    assert real_node.kubelet("/healthz") == "ok", "the living are left alone"


def test_a_machine_that_cannot_have_a_node_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not root is told so, before anything is started."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="a real node needs root"):
        RealNode(tmp_path / "node").start()
    assert not (tmp_path / "node").exists()
