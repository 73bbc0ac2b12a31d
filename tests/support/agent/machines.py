"""A machine on simulated time behind the port `Node`, and what the API server would tell of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.core.cluster import ObjectRef, PodRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionAnswer, EvictionResult
from equipoise.ports.node import ContainerRef, Counters, NodeContainer, NodeCounters, NodePod
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.plan_file import _object
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import AgentState, StateStore
from equipoise.qos.waterlines import assemble
from tests.support.qos.worlds import ACTIONS, Document

START = 1_800_000_000.0


def told(name: str, **fields: object) -> NodePod:
    """Give a running pod of one container `c`, whose id is made from its name."""
    limit, request = fields.pop("limit", 0), fields.pop("request", 0)
    assert isinstance(limit, int | float)
    assert isinstance(request, int | float)
    container = NodeContainer("c", f"{name}00000000", round(request * 10**9), round(limit * 10**9))
    given: dict[str, object] = {
        "namespace": "d",
        "name": name,
        "uid": f"uid-{name}",
        "containers": (container,),
    }
    return NodePod(**(given | fields))  # type: ignore[arg-type]


def policies(*objects: Document) -> QosPolicy:
    return assemble([_object(part, f"policies[{place}]") for place, part in enumerate((*ACTIONS, *objects))])


@dataclass
class Machine:
    """Containers want so many cores, and get what their quota allows."""

    wanted: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    reclaimable: dict[str, int] = field(default_factory=dict)
    yields: float = 1.0
    """How much of what is to be reclaimed the kernel gets."""
    boot: str = "boot-1"
    at: float = 0.0
    is_readable: bool = True
    past_nanos: int = 0
    """What containers used that have ended: the machine's own counter keeps it."""
    crashes_in: int = -1
    """After so many quotas the agent dies; -1 never."""

    def start(self, pod: NodePod, cores: float, memory: int = 0) -> None:
        for part in pod.containers:
            limit = part.cpu_limit_nanos
            self.wanted[part.id], self.memory[part.id], self.counted[part.id] = cores, memory, 0
            self.quotas[part.id] = limit // 10**4 if limit else -1

    def end(self, id_: str) -> None:
        self.past_nanos += self.counted.get(id_, 0)
        for kept in (self.wanted, self.memory, self.counted, self.quotas):
            kept.pop(id_, None)

    def used(self, id_: str) -> float:
        quota = self.quotas[id_]
        return self.wanted[id_] if quota < 0 else min(self.wanted[id_], quota / 10**5)

    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        for id_ in self.counted:
            self.counted[id_] += round(self.used(id_) * seconds * 10**9)

    def boot_id(self) -> str:
        return self.boot

    def read_node(self) -> NodeCounters:
        if not self.is_readable:
            raise WorldFailed("/proc/stat: gone")
        total, used = 64 * 2**30, sum(self.memory.values())
        busy = self.past_nanos + sum(self.counted.values())
        return NodeCounters(busy, self.at, 16, total, used, {"cpu_load_1_min": "1"})

    def read(self, containers: Sequence[ContainerRef], *, is_deep: bool) -> Mapping[str, Counters]:
        return {
            one.id: self._counters(one.id) if is_deep else Counters(self.counted[one.id], self.at)
            for one in containers
            if one.id in self.counted
        }

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        if self.crashes_in == 0:
            raise KeyboardInterrupt
        self.crashes_in -= 1
        if container.id not in self.quotas:
            return False
        self.quotas[container.id] = quota_us
        return True

    def reclaim(self, container: ContainerRef, amount_bytes: int) -> int | None:
        released = round(amount_bytes * self.yields)
        self.memory[container.id] -= released
        return released

    def _counters(self, id_: str) -> Counters:
        reclaimable = self.reclaimable.get(id_, 0)
        return Counters(self.counted[id_], self.at, self.memory[id_], reclaimable, self.quotas[id_])


@dataclass
class Disk(StateStore):
    """A file that outlives the agent."""

    content: AgentState = field(default_factory=AgentState)
    writes: int = 0

    def load(self) -> AgentState:
        return self.content

    def save(self, state: AgentState) -> None:
        self.content, self.writes = state, self.writes + 1


@dataclass
class Around:
    """What the API server tells, and what is asked of it."""

    all_pods: list[NodePod] = field(default_factory=list)
    asked: QosPolicy = field(default_factory=QosPolicy)
    is_disabled: bool = False
    evictions: list[tuple[str, int | None]] = field(default_factory=list)
    answers: dict[str, EvictionResult | None] = field(default_factory=dict)
    """What an eviction is answered with, by pod; None is silence."""
    paused: str | None = None
    clock_at: float = START

    def pods(self) -> Sequence[NodePod]:
        return self.all_pods

    def policy(self) -> QosPolicy:
        return self.asked

    def labels(self) -> Mapping[str, str]:
        return {}

    def is_scheduling_disabled(self) -> bool:
        return self.is_disabled

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        self.is_disabled = is_disabled

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        self.evictions.append((pod.name, grace_seconds))
        result = self.answers.get(pod.name, EvictionResult.ACCEPTED)
        if result is None:
            raise WorldFailed("no answer")
        return EvictionAnswer(result, "said so")

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        raise AssertionError("the loop tells its caller, who tells the cluster")

    def pause_of(self, namespace: str) -> str | None:
        return self.paused

    def now(self) -> float:
        return self.clock_at


@dataclass
class Scene:
    """A machine, its surroundings, its disk, and the agent that runs there."""

    machine: Machine = field(default_factory=Machine)
    around: Around = field(default_factory=Around)
    disk: Disk = field(default_factory=Disk)
    is_enforced: bool = True

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process: it knows only what is on the disk."""
        around = self.around
        self.loop = QosLoop(
            "n1", self.machine, around, around, around, self.disk, is_enforced=self.is_enforced
        )

    def add(self, pod: NodePod, cores: float, memory: int = 0) -> NodePod:
        self.around.all_pods.append(pod)
        self.machine.start(pod, cores, memory)
        return pod

    def pass_time(self, seconds: float = 10.0) -> None:
        self.machine.pass_time(seconds)
        self.around.clock_at += seconds

    def rounds(self, count: int, seconds: float = 10.0) -> list[NodeCycleReport]:
        found = []
        for _ in range(count):
            found.append(self.loop.cycle(self.around.now()))
            self.pass_time(seconds)
        return found
