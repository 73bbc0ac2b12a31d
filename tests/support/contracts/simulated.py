"""The simulator, as the facts need it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from equipoise.core.cluster import Container, HpaMetric, Pod, WorkloadRef
from equipoise.ports import Actuator, Applier, Cluster, Leadership, Metrics, Pauses, Policies, Store, Stored
from equipoise.sim import Template, World
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.template import Budget
from tests.support.sim import autoscalers
from tests.support.sim.election import SimCandidate, SimLease

T = TypeVar("T")

LOADS = (1.2, 0.8, 0.4)
_HALF_A_CORE = Template(containers=(Container("app", 0.5, 256 * 2.0**20),))
_TURN_SECONDS = 0.5
_TURNS_MAX = 600
_SETTLE_SECONDS = 60.0


class OneAtATime:
    """The simulator has one thread; this lets the others wait their turn, as a server does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()

    def read(self, key: WorkloadRef) -> Stored:
        with self._lock:
            return self._store.read(key)

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        with self._lock:
            return self._store.read_all(namespace)

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        with self._lock:
            return self._store.write(key, data, version)


class SimulatedWorld:
    """One seeded cluster of three nodes. Pods that end take seconds, and no second passes by itself."""

    namespace = "shop"

    def __init__(self) -> None:
        self.sim = World(7)
        for number in (1, 2, 3):
            self.sim.add_node(f"node-{number}")
        self.cluster: Cluster = self.sim.cluster
        self.actuator: Actuator = self.sim.actuator
        self.applier: Applier = self.sim.applier
        self.store: Store = OneAtATime(self.sim.store)

    def add_workload(self, name: str, replicas: int) -> WorkloadRef:
        workload = self.sim.add_workload(self.namespace, name, replicas=replicas, template=_HALF_A_CORE)
        self.until(
            lambda: len(workload.pods) == replicas and all(p.is_ready for p in workload.pods.values()), name
        )
        return workload.ref

    def add_budget(self, name: str, app: str, max_unavailable: int) -> None:
        pdb = self.sim.add_pdb(
            self.namespace, name, Budget(max_unavailable=max_unavailable), labels=(("app", app),)
        )
        self.until(lambda: pdb.is_current, f"budget {name}")

    def add_hpa(self, name: str, target: WorkloadRef, percent: int, replicas_max: int) -> None:
        metric = HpaMetric("Resource", "cpu", "Utilization", percent)
        self.sim.add_hpa(
            self.sim.state.workloads[target],
            replicas_min=1,
            replicas_max=replicas_max,
            metrics=(metric,),
            name=name,
        )

    def edit_hpa(self, name: str, who: str, replicas_max: int) -> None:
        (found,) = (hpa for hpa in self.sim.state.hpas if hpa.name == name)
        autoscalers.edit_hpa(self.sim, found, who, replicas_max=replicas_max)

    def pause_autoscaler(self, target: WorkloadRef, by: str) -> None:
        autoscalers.pause_autoscaler(
            self.sim, self.sim.state.workloads[target], f"ScaledObject is paused by {by}"
        )

    def resume_autoscaler(self, target: WorkloadRef) -> None:
        autoscalers.resume_autoscaler(self.sim, self.sim.state.workloads[target])

    def hold_terminating(self, pods: Sequence[Pod]) -> None:
        """Nothing to do: a pod stays until time passes."""

    def let_go(self, pods: Sequence[Pod]) -> None:
        """Nothing to do: see above."""

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        for _ in range(_TURNS_MAX):
            answer = condition()
            if answer:
                return answer
            self.sim.advance(_TURN_SECONDS)
        raise AssertionError(f"{what}: not within {_TURNS_MAX * _TURN_SECONDS:g} simulated seconds")

    def settle(self) -> None:
        self.sim.advance(_SETTLE_SECONDS)

    def sentences_about(self, workload: WorkloadRef) -> Sequence[tuple[str, str]]:
        return [
            (event.reason, event.sentence)
            for event in self.sim.actuator.events
            if (event.about.kind, event.about.namespace, event.about.name)
            == (workload.kind, workload.namespace, workload.name)
        ]


class SimulatedOperator:
    """Policies and pauses of a cluster with something in two namespaces."""

    namespace, other_namespace = "shop", "bank"

    def __init__(self) -> None:
        self.sim = World(7)
        for namespace in (self.namespace, self.other_namespace):
            self.sim.add_workload(namespace, "web", replicas=1)
        self.policies: Policies = self.sim.policies
        self.pauses: Pauses = self.sim.pauses

    def add_policy(self, name: str, spec: Mapping[str, Any]) -> None:
        self.sim.policies.add(self.namespace, name, spec)

    def remove_policy(self, name: str) -> None:
        self.sim.policies.remove(self.namespace, name)

    def pause(self, namespace: str | None, who: str) -> None:
        self.sim.pauses.pause(namespace, who)

    def resume(self, namespace: str | None) -> None:
        self.sim.pauses.resume(namespace)

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        answer = condition()
        assert answer, f"{what}: the simulator has no delay here"
        return answer


class SimulatedElections:
    """The simulator's lease, on a clock that the fact moves."""

    lease_seconds, renew_seconds, retry_seconds = 15.0, 10.0, 2.0

    def __init__(self, kind: type[SimCandidate] = SimCandidate) -> None:
        self._kind = kind
        self._lease = SimLease()
        self._now = 1000.0
        self._members: dict[str, SimCandidate] = {}
        self._turns: dict[str, float] = {}
        self._stopped: set[str] = set()

    def join(self, name: str) -> Leadership:
        self._turns[name] = self._now + 0.3 * len(self._members)
        self._members[name] = self._kind(name, self._lease, lambda: self._now)
        return self._members[name]

    def pass_seconds(self, seconds: float) -> None:
        end = self._now + seconds
        while due := [n for n, at in self._turns.items() if at <= end and n not in self._stopped]:
            name = min(due, key=self._turns.__getitem__)
            self._now = max(self._now, self._turns[name])
            self._members[name].step()
            self._turns[name] = self._now + self.retry_seconds
        self._now = end

    def stop(self, name: str) -> None:
        self._stopped.add(name)

    def go_on(self, name: str) -> None:
        self._stopped.discard(name)

    def cut_off(self, name: str) -> None:
        self._members[name].is_connected = False

    def reconnect(self, name: str) -> None:
        self._members[name].is_connected = True

    def release(self, name: str) -> None:
        self._members[name].release()
        self.stop(name)


class SimulatedMetrics:
    """Three pods with steady loads, measured for a quarter of an hour."""

    namespace = "shop"
    window_seconds = 300.0

    def __init__(self) -> None:
        self.sim = World(7)
        self.sim.add_node("node-1")
        workload = self.sim.add_workload(
            self.namespace, "web", replicas=3, shape=Constant(sum(LOADS)), sharing=Partitions(LOADS)
        )
        self.sim.add_workload(self.namespace, "other", replicas=2, shape=Constant(1.0))
        self.sim.advance(900)
        self.loads = {pod.name: pod.work_cores for pod in workload.pods.values()}
        self.metrics: Metrics = self.sim.metrics
        self.sim.metrics.scalars["forty_two"] = lambda at: 42.0
        self.known_query = ("forty_two", 42.0)

    def now(self) -> float:
        return self.sim.now
