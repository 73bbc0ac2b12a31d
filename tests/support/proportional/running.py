"""The production loop in a simulated cluster whose nodes come and go, cycle after cycle."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from equipoise.cli.replay import compare
from equipoise.core.cluster import Container, ObjectRef, PodRef
from equipoise.core.decision import Decision, Record
from equipoise.crd.targets import Mode
from equipoise.proportional.loop import ProportionalLoop
from equipoise.sim import Template, World
from equipoise.sim.state import NodeState, WorkloadState

CYCLE_SECONDS = 10.0
NAMESPACE, NAME, POLICY = "kube-system", "dns", "dns"
MEMORY = 128 * 2.0**20
POD = (Container("dns", 0.1, MEMORY), Container("log", 0.05, MEMORY))
CPU_PER_CORE = {
    "resource": "cpu",
    "function": {"input": "cores", "base": "100m", "slope": "10m"},
}


@dataclass
class Lease:
    """Who leads, as a test says."""

    now: int | None = 7

    def epoch(self) -> int | None:
        return self.now


@dataclass
class Diary:
    """Keeps all records."""

    records: list[Record] = field(default_factory=list)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del is_whole
        self.records += records


def spec(**changes: Any) -> dict[str, Any]:
    """Give a policy on `dns`: 100m and 10m per core."""
    return {
        "scaleTargetRef": {"kind": "Deployment", "name": NAME},
        "containers": [{"name": "dns", "resources": {"requests": [CPU_PER_CORE]}}],
    } | changes


class Run:
    """A Deployment `dns` and one policy in a cluster of nodes with 4 cores."""

    def __init__(
        self,
        nodes: int = 5,
        *,
        replicas: int = 3,
        containers: tuple[Container, ...] = POD,
        policy: dict[str, Any] | None = None,
        annotations: tuple[tuple[str, str], ...] = (),
        **options: Any,
    ) -> None:
        self.world = World(11)
        self.nodes: list[NodeState] = []
        self.add_nodes(nodes)
        self.workload: WorkloadState = self.world.add_workload(
            NAMESPACE,
            NAME,
            replicas=replicas,
            template=Template(containers=containers),
            annotations=annotations,
        )
        self.world.advance(60)
        if policy is not None or options.pop("is_asked", True):
            self.world.policies.add(NAMESPACE, POLICY, spec() if policy is None else policy)
        self.lease, self.diary, self._ids = Lease(), Diary(), count()
        self._options = {"mode": Mode.ENFORCE} | options
        self.loop = self.start()

    def start(self, **options: Any) -> ProportionalLoop:
        """Put a new process in charge."""
        world = self.world
        self.loop = ProportionalLoop(
            *(world.cluster, world.sizes, world.policies, world.pauses, self.lease),
            *(world.store, world.actuator, self.diary, lambda _: f"id-{next(self._ids)}"),
            **(self._options | options),
        )
        return self.loop

    def add_nodes(self, number: int) -> None:
        self.nodes += [
            self.world.add_node(f"node-{len(self.nodes) + each}", cpu_cores=4) for each in range(number)
        ]

    def drop(self, node: NodeState) -> None:
        """Let a node be NotReady, as during its update."""
        node.is_ready, node.view = False, None

    def revive(self, node: NodeState) -> None:
        node.is_ready, node.view = True, None

    def cycle(self, seconds: float = CYCLE_SECONDS) -> Decision:
        """Let time pass, and take one turn."""
        self.world.advance(seconds)
        report = self.loop.cycle(self.world.now)
        self.outcomes = [outcome.result for outcome in report.outcomes]
        (decision,) = report.decisions
        return decision

    def reason(self, seconds: float = CYCLE_SECONDS) -> str:
        return self.cycle(seconds).reason.code.value

    @property
    def status(self) -> dict[str, Any]:
        """What the policy's status says."""
        (policy,) = self.world.policies.policies()
        return dict(policy.status)

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions' reasons."""
        return {each["type"]: each["reason"] for each in self.status["conditions"]}

    def requests(self, container: str = "dns") -> list[float | None]:
        """What the pods ask for, in cores."""
        return [
            each.cpu_request_cores
            for pod in self.workload.pods.values()
            for each in pod.containers
            if each.name == container
        ]

    def template(self, container: str = "dns") -> float | None:
        return next(c.cpu_request_cores for c in self.workload.template.containers if c.name == container)

    @property
    def restarts(self) -> int:
        return sum(pod.restarts for pod in self.workload.pods.values())

    def our_writes(self) -> int:
        return sum(manager == "equipoise" for manager, _ in self.world.sizes.writes)

    def put_back(self, cpu: str, *, is_template: bool = False) -> None:
        """Let somebody else set the old value again."""
        values, who = {"dns": {"requests": {"cpu": cpu}}}, "argocd"
        if is_template:
            about = ObjectRef("apps/v1", "Deployment", NAMESPACE, NAME, self.workload.uid)
            self.world.sizes.set_template(about, values, manager=who)
            return
        for pod in self.workload.pods.values():
            self.world.sizes.resize(PodRef(NAMESPACE, pod.name, pod.uid), values, manager=who)

    def check_replay(self) -> None:
        """Decide everything again that was recorded."""
        assert self.diary.records
        assert [compare(one) for one in self.diary.records] == [None] * len(self.diary.records)
