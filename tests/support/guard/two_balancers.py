"""One workload in a simulated cluster, and all who may take its pods: two balancers, and agents."""

from collections.abc import Callable
from itertools import count
from typing import Any

from equipoise.core.cluster import Container
from equipoise.core.decision import EvictPod
from equipoise.core.ledger import Entry, EntryState, Ledger
from equipoise.crd.targets import Mode
from equipoise.engine.executor import LeaselessLeadership
from equipoise.ports.node import NodePod
from equipoise.proportional.loop import ProportionalLoop
from equipoise.qos.execute import LedgerEvictor, PodOwner
from equipoise.rotation.loop import RotationLoop
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.template import Template
from equipoise.sim.world import World
from tests.support.rotation.tenants import ENFORCE, Diary, Lease, Pauses, Policies, loop_in
from tests.support.sim.scenes import SIX_LOADS

OLD, NEW = 5, 9
"""Epochs of the Lease that all balancers had, and of those that each has now; the other's is above both."""
SCALING_EPOCH = 70
CPU_PER_CORE = {"resource": "cpu", "function": {"input": "cores", "base": "1", "slope": "1m"}}
SCALING: dict[str, Any] = {
    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
    "containers": [{"name": "app", "resources": {"requests": [CPU_PER_CORE]}}],
}
AGENT_SECONDS = 600.0
"""How seldom one agent wants something: its own evictions are bounded by its budget, not by the ledger."""
Actor = Callable[[], object]


class Together:
    """Six unequal pods whose container restarts when its CPU changes, and nobody's PodDisruptionBudget."""

    def __init__(self, seed: int = 7, age_seconds: float = 1200.0) -> None:
        self.world = World(seed)
        for number in range(4):
            self.world.add_node(f"node-{number}")
        self.workload = self.world.add_workload(
            "shop",
            "web",
            replicas=len(SIX_LOADS),
            template=Template(containers=(Container("app", 1.0, 2.0**28, restarts_for=("cpu",)),)),
            shape=Constant(sum(SIX_LOADS)),
            sharing=Partitions(SIX_LOADS),
        )
        self.world.add_hpa(self.workload, replicas_min=6, replicas_max=12, name="web")
        self.world.policies.add("shop", "web", SCALING)
        self.world.advance(age_seconds)
        self._ids = count()
        self._asked: dict[str, float] = {}
        self.on_step: Callable[[str, str], object] = lambda who, step: None
        """Told who has taken which step."""
        self.most_away = 0
        self.agents = {f"agent-{n}": self._agent(f"agent-{n}") for n in range(2)}
        self.actors: dict[str, Actor] = {
            "rotation": self._rotation("rotation", NEW),
            "old rotation": self._rotation("old rotation", OLD),
            "proportional": self._proportional(),
            **{name: self._evicting(name) for name in self.agents},
        }

    def act(self, who: str) -> None:
        """Let one of them take a turn, and look at the pods."""
        self.actors[who]()
        self.look()

    def rest(self, seconds: float) -> None:
        """Let time pass, with an eye on the pods."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.advance(min(5.0, end - self.world.now))
            self.look()

    def look(self) -> None:
        """Count the pods that serve nobody, or are about to."""
        serving = sum(
            pod.is_ready and pod.deletion_at is None and not pod.is_disruption_target
            for pod in self.workload.pods.values()
        )
        self.most_away = max(self.most_away, self.workload.replicas - serving)

    def grow(self) -> None:
        """Add a node: the workload's CPU is to follow."""
        self.world.add_node(f"more-{next(self._ids)}", cpu_cores=4)

    @property
    def entries(self) -> list[Entry]:
        """What was done, or may have been."""
        stored = self.world.store.read(self.workload.ref)
        return [
            entry for entry in Ledger.from_data(stored.data).entries if entry.state is not EntryState.FAILED
        ]

    def _rotation(self, name: str, epoch: int) -> Actor:
        policies = Policies(ENFORCE | {"cooldown": "2m", "rotationsPerHour": 20})
        loop: RotationLoop = loop_in(
            self.world,
            policies,
            leadership=Lease(epoch),
            new_id=lambda _: f"id-{next(self._ids)}",
            on_step=lambda step: self.on_step(name, step),
        )
        return lambda: loop.cycle(self.world.now)

    def _proportional(self) -> Actor:
        world = self.world
        loop = ProportionalLoop(
            *(world.cluster, world.sizes, world.policies, Pauses(), Lease(SCALING_EPOCH)),
            *(world.store, world.actuator, Diary(), lambda _: f"id-{next(self._ids)}"),
            mode=Mode.ENFORCE,
            change_seconds=0.0,
            rollout_seconds=0.0,
            on_step=lambda step: self.on_step("proportional", step),
        )
        return lambda: loop.cycle(self.world.now)

    def _agent(self, name: str) -> LedgerEvictor:
        def whose(pod: NodePod) -> PodOwner:
            del pod
            seen = self.world.cluster.workload(self.workload.ref)
            assert seen is not None
            return PodOwner(seen.ref, is_whole=seen.replicas_ready >= seen.replicas_wanted)

        return LedgerEvictor(
            self.world.actuator,
            self.world.store,
            whose,
            lambda _: f"id-{next(self._ids)}",
            LeaselessLeadership(lambda: self.world.now),
            lambda step: self.on_step(name, step),
        )

    def _evicting(self, name: str) -> Actor:
        def evict() -> None:
            now = self.world.now
            if now - self._asked.get(name, 0.0) < AGENT_SECONDS:
                return
            ready = [pod for pod in self.workload.pods.values() if pod.is_ready and pod.deletion_at is None]
            pod = ready[0 if name.endswith("0") else -1]
            told = NodePod(pod.ref.namespace, pod.name, pod.uid)
            came = self.agents[name].evict(EvictPod(f"shop/{pod.name}", uid=pod.uid), told, now)
            if came.result == "Accepted":
                self._asked[name] = now

        return evict
