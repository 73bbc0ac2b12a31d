"""The table of `recommendation plan` on the real API server and a real Prometheus, with prices."""

import csv
import io
import json
import math
import time
from collections.abc import Iterator

import pytest

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.unscaled import unscaled_workloads
from tests.testbed import ControlPlane, Kwok, StartPrometheus
from tests.testbed.scenes import deployment, running_pods

HOURS = 30
PRICES = {"node_cpu_hourly_cost": 0.03, "node_ram_hourly_cost": 0.004}
USED = {"web": (0.5, 400 * 1024**2), "api": (1.9, 100 * 1024**2)}
"""Cores and bytes of each pod, all the time."""


def _samples(namespace: str, pods: dict[str, str], until: float) -> Iterator[str]:
    """Yield OpenMetrics: usage of hours, and of the last ten minutes what OpenCost writes of two nodes."""
    times = [until - 60.0 * minute for minute in range(HOURS * 60)][::-1]
    for name, kind in (
        ("container_cpu_usage_seconds", "counter"),
        ("container_memory_working_set_bytes", "gauge"),
    ):
        yield f"# TYPE {name} {kind}\n"
        for pod, workload in pods.items():
            labels = f'{{namespace="{namespace}",pod="{pod}",container="app"}}'
            cores, size = USED[workload]
            for at in times:
                value, suffix = ((at - times[0]) * cores, "_total") if kind == "counter" else (size, "")
                yield f"{name}{suffix}{labels} {value:.3f} {at:.3f}\n"
    for name, price in PRICES.items():
        yield f"# TYPE {name} gauge\n"
        for node, factor in (("a", 0.5), ("b", 1.5)):
            for at in times[-10:]:
                yield f'{name}{{node="{node}"}} {price * factor} {at:.3f}\n'
    yield "# EOF\n"


@pytest.fixture
def options(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, start_prometheus: StartPrometheus
) -> tuple[str, ...]:
    """Return the options of a namespace with two workloads, whose past its Prometheus knows."""
    del kwok
    control_plane.apply([deployment(namespace, name, replicas=2, request="2") for name in USED])
    pods = {pod: name for name in USED for pod in running_pods(control_plane, namespace, name, 2)}
    until = math.ceil(time.time() / 60) * 60.0
    server = start_prometheus(backfill="".join(_samples(namespace, pods, until)))
    ready = ("--set", "ehpa.pod-min-ready-seconds=0", "--set", "ehpa.min-cpu-usage-threshold=0")
    steady = ("--set", "ehpa.fluctuation-threshold=1", "--no-forecast")
    where = ("--kubeconfig", str(control_plane.kubeconfig), "--prometheus-url", server.url)
    return ("-n", namespace, *where, *ready, *steady)


def test_requests_of_a_cluster_have_a_price_and_an_order(options: tuple[str, ...]) -> None:
    """As a user types it: by OpenCost's prices or their own, by labels, in each form."""
    namespace = options[1]
    asked = ("recommendation", "plan", *options, "--type", "Resource")
    done = equipoise(*asked, "-o", "json", "--sort-by", "worth")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert [one["subject"] for one in document["decisions"]] == [f"{namespace}/web", f"{namespace}/api"]
    assert document["price"]["cpu_core_hour"] == pytest.approx(0.03), "the average of two nodes"
    assert document["total"]["cpu_cores"]["current"] == 8, "four pods of two cores"
    assert document["total"]["monthly_cost"]["current"] == pytest.approx(
        730 * (8 * 0.03 + 1 * 0.004), abs=1e-4
    )
    table = equipoise(*asked)
    rows = [line for line in table.stdout.splitlines() if line.startswith(f"{namespace}/")]
    assert [row.split()[0].rpartition("/")[2] for row in rows] == ["web", "api"]
    assert "2 → 5" in rows[0]
    assert "critical" in rows[0]
    assert f"Next: `kubectl set resources deployment/web -n {namespace}" in table.stdout
    own = equipoise(*asked, "-l", "app in (web)", "--price", "cpu=1,memory=0,currency=EUR", "-o", "csv")
    *containers, total = csv.DictReader(io.StringIO(own.stdout))
    assert [row["workload"] for row in containers] == [f"{namespace}/web"]
    assert (containers[0]["monthlyCost"], total["workload"], total["monthlyCost"]) == (
        "2920.0",
        "TOTAL",
        "2920.0",
    )
    page = equipoise(*asked, "-o", "html").stdout
    assert page.startswith("<!doctype html>")
    assert f"{namespace}/web" in page


def test_a_plan_without_a_type_has_every_kind_once(
    options: tuple[str, ...], control_plane: ControlPlane
) -> None:
    """Replicas and requests of a Deployment in one row, and the workloads that no HPA scales beside it."""
    namespace = options[1]
    control_plane.apply(unscaled_workloads(namespace))
    done = equipoise("recommendation", "plan", *options, "-o", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row["workload"].rpartition("/")[2]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert len(rows) == len(done.stdout.splitlines()) - 1
    kinds = {name: row["kind"] for name, row in rows.items()}
    assert kinds == {"web": "Deployment", "api": "Deployment", "agent": "DaemonSet", "nightly": "CronJob"} | {
        "TOTAL": ""
    }
    assert (rows["web"]["currentCpu"], rows["web"]["cpu"]) == ("2", "575m")
    assert rows["web"]["maxReplicas"]
    assert rows["agent"]["maxReplicas"] == rows["agent"]["wouldMaxReplicas"] == ""


def test_labels_that_nobody_has_are_said(options: tuple[str, ...]) -> None:
    """An empty plan, and where else to look."""
    none = equipoise("recommendation", "plan", *options, "-l", "app=nobody", "-o", "json")
    assert (none.returncode, json.loads(none.stdout)["decisions"]) == (0, [])
    assert none.stderr.startswith("warning: no workload was found")
