"""An agent on this machine's real cgroups; as a process of its own it is there to be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from equipoise.adapters.cgroups import HostNode, connect_host, find_layout
from equipoise.core.decision import RestorePod, ThrottlePod
from equipoise.ports.node import ContainerRef, NodeContainer, NodePod
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import AgentState
from equipoise.runtime.agent.state import StateFile
from tests.support.agent.machines import Around, policies
from tests.support.agent.trees import V1, Tree
from tests.support.qos.worlds import action, policy, rule

ROOT = Path(__file__).parents[3]
STEP_PERCENT, WATERLINE = 90, 300
"""A tenth of two burners is below the waterline; one of them alone and a tenth of the other is not."""
STEP = action("step", coolDownSeconds=0, throttle={"cpuThrottle": {"stepCPURatio": STEP_PERCENT}})
ASKED = policies(STEP, policy(rule("cpu_total_usage", WATERLINE, "step")))
INTERVAL_SECONDS = 0.3
FREE, LIMITED = "aa" * 32, "bb" * 32
LIMIT_MILLI = 900
BASE = (-1, 90000)
"""What the two containers have when nobody throttles them."""
ROUNDS_MAX = 200
"""A process that nobody kills ends by itself."""
ROUNDS_TO_BREACH = 40
"""A round in which the machine stood still measures next to nothing; one of so many does measure a load."""


def pod(name: str, container: str, limit_milli: int = 0, **fields: object) -> NodePod:
    parts = (NodeContainer("c", container, 0, limit_milli * 10**6),)
    return NodePod("d", name, name, containers=parts, started_at=1.0, **fields)  # type: ignore[arg-type]


def both(free: str = FREE, limited: str = LIMITED) -> list[NodePod]:
    """Give a pod without a limit and one with, by the ids of their containers."""
    return [pod("free", free), pod("limited", limited, LIMIT_MILLI)]


class Agent:
    """The loop of one process; another one begins with what is on the disk."""

    def __init__(
        self, made: Tree, file: Path, asked: QosPolicy = ASKED, interval: float = INTERVAL_SECONDS
    ) -> None:
        self.tree, self.file, self.interval = made, file, interval
        self.node_api = Around(asked=asked, all_pods=both())
        self.node = connect_host(parent=made.parent, is_of_pods=True)
        self.begin()

    def begin(self) -> None:
        self.loop = new_loop(self.node, self.file, self.node_api)

    def round(self, told_seconds: float | None = None) -> NodeCycleReport:
        """Do a round after an interval of real time: it is what is measured."""
        time.sleep(self.interval)
        self.node_api.clock_at += self.interval if told_seconds is None else told_seconds
        return self.loop.cycle(self.node_api.now())

    def quota_file(self, name: str) -> Path:
        """Give the file of the container that a pod has now."""
        (told,) = [one for one in self.node_api.all_pods if one.name == name]
        return self.tree.folder("cpu", told.uid, told.containers[0].id) / "cpu.cfs_quota_us"

    def quota(self, name: str) -> int:
        return int(self.quota_file(name).read_text())

    @property
    def quotas(self) -> tuple[int, int]:
        return self.quota("free"), self.quota("limited")

    @property
    def kept(self) -> AgentState:
        """What is on the disk."""
        return StateFile(self.file, self.node.boot_id()).load()

    @property
    def kept_pods(self) -> set[str]:
        return {part.pod for part in self.kept.throttled.values()}

    @property
    def lowered_pods(self) -> set[str]:
        now = zip(("free", "limited"), self.quotas, BASE, strict=True)
        return {name for name, quota, base in now if quota != base}

    def start(self) -> None:
        """Make the containers that the pods have now, quotas as the kubelet's, and have each burn CPU."""
        for told in self.node_api.all_pods:
            (part,) = told.containers
            self.tree.add(told.uid, part.id)
            self.quota_file(told.name).write_text(str(part.cpu_limit_nanos // 10**4 or -1))
            self.tree.add(told.uid, part.id, burners=1)
        wait_until(lambda: all(map(self._is_burning, self.node_api.all_pods)))

    def _is_burning(self, told: NodePod) -> bool:
        folder = self.tree.folder("cpuacct", told.uid, told.containers[0].id)
        return int((folder / "cpuacct.usage").read_text()) > 10**8

    def throttle(self) -> None:
        """Do rounds until both are throttled."""
        self.loop.cycle(self.node_api.now())
        self.until(lambda: len(self.lowered_pods) == 2)

    def until(self, holds: Callable[[], bool], rounds: int = ROUNDS_TO_BREACH) -> list[NodeCycleReport]:
        """Do rounds until it holds; too many fail."""
        done: list[NodeCycleReport] = []
        for _ in range(rounds):
            if holds():
                return done
            done.append(self.round())
        assert holds(), (self.quotas, [one.decision.reason.sentence for one in done])
        return done


def new_loop(node: HostNode, file: Path, around: Around) -> QosLoop:
    keep = StateFile(file, node.boot_id())
    return QosLoop("n1", node, around, around, around, keep, is_enforced=True)


def first_quotas(rounds: Iterable[NodeCycleReport]) -> dict[str, int]:
    """Give the quota that was first written to each pod, by its name."""
    found: dict[str, int] = {}
    for one in rounds:
        for outcome in one.outcomes:
            assert isinstance(outcome.action, ThrottlePod | RestorePod)
            (quota,) = (outcome.action.quota or {}).values()
            found.setdefault(outcome.action.pod.removeprefix("d/"), quota)
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.02)


class Mortal(HostNode):
    """A machine that kills its agent where one more would be throttled than these; -1 never."""

    throttled_max = -1
    throttled: frozenset[str] = frozenset()

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        is_given_back = quota_us == dict(zip((FREE, LIMITED), BASE, strict=True))[container.id]
        if is_given_back:
            self.throttled -= {container.id}
        elif container.id not in self.throttled:
            if len(self.throttled) == self.throttled_max:
                os.kill(os.getpid(), signal.SIGKILL)
            self.throttled |= {container.id}
        return super().set_quota(container, quota_us)


@contextmanager
def process(agent: Agent, throttled_max: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start an agent of the same machine, pods and file as a process of its own; it waits for a line."""
    words = [agent.tree.parent, str(agent.file), str(throttled_max)]
    command = [sys.executable, "-m", "tests.support.agent.real", *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child
        finally:
            child.kill()


def main(parent: str, file: str, throttled_max: str) -> None:
    node = Mortal(find_layout(V1, parent), Path("/proc"), is_of_pods=True)
    node.throttled_max = int(throttled_max)
    around = Around(asked=ASKED, all_pods=both())
    loop = new_loop(node, Path(file), around)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(ROUNDS_MAX):
        loop.cycle(around.now())
        time.sleep(INTERVAL_SECONDS)
        around.clock_at += INTERVAL_SECONDS


if __name__ == "__main__":
    main(*sys.argv[1:])
