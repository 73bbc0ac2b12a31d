"""The simulator's HPA beside the real HPA controller: the same demand, the same replicas.

How the two are aligned, so that nobody has to guess:

- The demand is a list of levels. Here a driver looks twice a second which pods are ready and gives each of
  them its even part; in the simulator an even sharing does the same.
- metrics-server scrapes at a beat of its own (every 10 s). The test watches when new measurements appear,
  starts the levels right after one, and tells the simulator that phase. All levels begin on that beat.
- kwok counts usage when it is looked at, at the usage of that moment. The driver looks as often as it drives,
  so that the counters integrate as a kubelet's do.
- The controller syncs every 5 s from the HPA's creation; the simulator does the same, and its pods start and
  stop in about the time that kwok's take. Nothing else is measured from the real run.

The series of replicas must then have the same values in the same order, each within one sync period (and the
second that the driver needs to see it). A run on a machine that stood still, or whose scrapes were late, had
another demand than the simulator's: where its series is another, it is begun anew, three times at most.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from equipoise.core.cluster import Container
from equipoise.sim import Delay, SimSettings, Template, World
from equipoise.sim.hpa import DOWN_BY_DEFAULT, Behavior, HpaScalingRules
from equipoise.sim.world import UTILIZATION_70
from tests.e2e.conftest import new_namespace
from tests.support.sim.scenes import Trace
from tests.testbed import ApiError, ControlPlane, Kwok, MetricsServer, wait_until
from tests.testbed.scenes import deployment, hpa, running_pods

SCRAPE_SECONDS = 10.0
SYNC_SECONDS = 5.0
LOOK_SECONDS = 0.5
STABILIZATION_SECONDS = 20
TARGET_PERCENT = 50
REPLICAS = (2, 12)
LEVELS = {0: 1.0, 10: 2.75, 50: 4.25, 90: 1.25, 130: 3.25}
"""Cores of demand by second; far enough from every rounding that five percent of noise change nothing."""
LENGTH_SECONDS = 150
RUNS_MAX = 4
WARM_SECONDS = 60
NAMES = ("quick", "plain")
"""One HPA with a behavior of its own, one with none, which follows the controller's older rule."""

Series = list[tuple[float, int]]


@dataclass
class Drive:
    """Brings the demand to the ready pods, and writes down what it sees."""

    control_plane: ControlPlane
    kwok: Kwok
    namespace: str
    started_at: float
    loads: dict[str, str] = field(default_factory=dict)
    longest_seconds: float = 0.0
    """From one look to the next."""
    series: dict[str, Series] = field(default_factory=lambda: {name: [] for name in NAMES})

    def look(self) -> None:
        """Do one round."""
        for node in self.kwok.nodes:
            self.kwok.usage(node)
        second = time.time() - self.started_at
        for name in NAMES:
            replicas = self._replicas(name)
            if not self.series[name] or self.series[name][-1][1] != replicas:
                self.series[name].append((second, replicas))
            self._share(name, _level(second))

    def _replicas(self, name: str) -> int:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"
        return int(self.control_plane.api.get(path)["spec"]["replicas"])

    def _share(self, name: str, cores: float) -> None:
        pods = self.control_plane.api.items(
            f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"app={name}"
        )
        ready = sorted(pod["metadata"]["name"] for pod in pods if _is_serving(pod))
        for pod in ready:
            load = f"{round(cores / len(ready) * 1000)}m"
            if self.loads.get(pod) != load:
                try:
                    self.kwok.set_load(self.namespace, pod, cpu=load)
                except ApiError:  # it went between the look and the patch
                    continue
                self.loads[pod] = load


def _level(second: float) -> float:
    return LEVELS[max([start for start in LEVELS if start <= second], default=0)]


def _is_serving(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


Pair = Callable[[], AbstractContextManager[Drive]]


@pytest.fixture
def new_pair(control_plane: ControlPlane, kwok: Kwok, metrics_server: MetricsServer) -> Pair:
    """Makes two Deployments of two pods each, measured at the first level, in a namespace of their own."""

    @contextmanager
    def made() -> Iterator[Drive]:
        with new_namespace(control_plane) as namespace:
            drive = Drive(control_plane, kwok, namespace, time.time())
            for name in NAMES:
                control_plane.apply(deployment(namespace, name, replicas=REPLICAS[0], request="1"))
                running_pods(control_plane, namespace, name, REPLICAS[0])
            drive.look()
            metrics_server.wait_for_pods(namespace, 2 * REPLICAS[0])
            yield drive
            for name in NAMES:
                path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/keda-hpa-{name}"
                control_plane.api.delete(path)

    return made


def _wait_for_scrape(drive: Drive) -> float:
    """Wait until metrics-server shows a new measurement; give the time."""
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{drive.namespace}/pods"

    def stamps() -> set[str]:
        return {item["timestamp"] for item in drive.control_plane.api.items(path)}

    before = stamps()

    def is_new() -> bool:
        for node in drive.kwok.nodes:
            drive.kwok.usage(node)
        return stamps() != before

    wait_until(is_new, "the next measurement", 60)
    return time.time()


def _hpa(namespace: str, name: str) -> dict[str, Any]:
    made = hpa(namespace, name, TARGET_PERCENT, *REPLICAS)
    if name == "quick":
        made["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": STABILIZATION_SECONDS}}
    return made


def _real(drive: Drive) -> dict[str, Series]:
    """Run the levels through the real controller."""
    drive.started_at = _wait_for_scrape(drive)
    for name in NAMES:
        drive.control_plane.apply(_hpa(drive.namespace, name))
    for series in drive.series.values():
        series.clear()
    before = time.time()
    while (second := time.time() - drive.started_at) < LENGTH_SECONDS:
        drive.look()
        drive.longest_seconds, before = max(drive.longest_seconds, time.time() - before), time.time()
        rest = LOOK_SECONDS - (time.time() - drive.started_at - second)
        time.sleep(max(rest, 0.05))
    return drive.series


def _simulated(started_at: float) -> dict[str, Series]:
    """Run the levels through the simulator, from a minute before with two pods at the first level."""
    settings = SimSettings(
        load_step_seconds=LOOK_SECONDS,
        resource_interval_seconds=SCRAPE_SECONDS,
        resource_phase_seconds=0.0,
        resource_delay_seconds=0.0,
        hpa_sync_seconds=SYNC_SECONDS,
        hpa_phase_seconds=SYNC_SECONDS,
    )
    world = World(1, started_at=started_at - WARM_SECONDS, settings=settings)
    world.add_node("node", cpu_cores=64)
    times = tuple(started_at + second for second in LEVELS)
    template = Template(containers=(Container("app", 1.0),), start_up=Delay(1.5), stop=Delay(1.0))
    shape = Trace(times, tuple(LEVELS.values()))
    workloads = {
        name: world.add_workload("default", name, replicas=REPLICAS[0], template=template, shape=shape)
        for name in NAMES
    }
    world.run_until(started_at)
    quick = Behavior(
        down=HpaScalingRules(DOWN_BY_DEFAULT.policies, stabilization_seconds=STABILIZATION_SECONDS)
    )
    metric = type(UTILIZATION_70)("Resource", "cpu", "Utilization", TARGET_PERCENT)
    found: dict[str, Series] = {}
    for name, workload in workloads.items():
        behavior = quick if name == "quick" else None
        world.add_hpa(
            workload, replicas_min=REPLICAS[0], replicas_max=REPLICAS[1], metrics=(metric,), behavior=behavior
        )
        found[name] = [(0.0, REPLICAS[0])]
    world.advance(LENGTH_SECONDS)
    for entry in world.state.history:
        if entry.kind == "Scaled":
            series = found[entry.subject.rpartition("/")[2]]
            series.append((entry.at - started_at, int(entry.detail.rpartition(">")[2])))
    return found


def _difference(real: Mapping[str, Series], simulated: Mapping[str, Series]) -> str:
    """Say where the two are not the same, within one sync period and a second; nothing if they are."""
    for name in NAMES:
        is_same = [replicas for _, replicas in real[name]] == [replicas for _, replicas in simulated[name]]
        pairs = zip(real[name], simulated[name], strict=is_same)
        late = [abs(seen - expected) for (seen, _), (expected, _) in pairs]
        if not is_same or max(late) > SYNC_SECONDS + 1:
            return f"{name}: real {real[name]}, simulated {simulated[name]}"
    return ""


def test_the_simulated_hpa_scales_as_the_real_one_does(new_pair: Pair) -> None:
    """Up, up, down after the stabilization, and up again: the same replicas within one sync period."""
    for _ in range(RUNS_MAX):
        with new_pair() as pair:
            real = _real(pair)
        simulated = _simulated(pair.started_at)
        print("real", real, "\nsimulated", simulated, f"\nlongest look {pair.longest_seconds:.2f} s")
        difference = _difference(real, simulated)
        if not difference:
            break
    assert difference == ""
    assert [replicas for _, replicas in real["quick"]] == [2, 6, 9, 3, 7]
