"""Starts of an agent's loop on a node of real files, whose state file or journal somebody has damaged."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise.adapters.cgroups import connect_host
from equipoise.core.decision import Outcome
from equipoise.qos.loop import NodeCycleReport, QosLoop
from equipoise.qos.state import AgentState, EvictionRefusal, ThrottledContainer
from equipoise.runtime.agent.reporting import AgentMetrics
from equipoise.runtime.agent.run import AgentJournal
from equipoise.runtime.agent.state import Recovery, StateFile
from tests.support.agent.machines import START, Around, Scene, policies, told
from tests.support.agent.trees import write
from tests.support.qos.worlds import action, policy, rule

ASKED_US = {"free": -1, "limited": 40000, "whole": 40000}
THROTTLED_US = {"free": 8000, "limited": 9000, "whole": 40000}
"""Two are throttled; the quota of the third is its limit."""


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Make a folder in memory where there is room: a disk is waited for at every writing."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="equipoise-") as folder:
        yield Path(folder)


class Silence:
    """Takes what a start has to say, and counts it."""

    def __init__(self) -> None:
        self.said: Counter[str] = Counter()

    def report_state(self, lost: str, unlocked: str, *, is_damaged: bool) -> None:
        self.said["damaged" if is_damaged else "lost" if lost else "sound"] += 1

    def report_damage(self, sentence: str) -> None:
        assert sentence

    def report_found(self, found: Any) -> None:
        self.said["found"] += len(found.ours)
        self.said["unclear"] += len(found.unclear)


class Node:
    """A node in a folder, with three containers, and the state file of an agent that was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "state" / "state.json"
        self.teller = Silence()
        limits = {name: max(0.0, us / 100_000) for name, us in ASKED_US.items()}
        pods = [told(name, limit=limit) for name, limit in limits.items()]
        self.around = Around(all_pods=pods)
        self.cgroups = folder / "cgroup"
        write(self.cgroups, cgroup_controllers="cpu memory")
        self._fill(self.cgroups / "kubepods", "max")
        self.host = connect_host(str(self.cgroups), is_of_pods=True)
        self.throttle()
        self.sound = self._sound()

    def _fill(self, folder: Path, quota: str) -> None:
        write(folder, cpu_stat="usage_usec 1000\n", cpu_max=f"{quota} 100000\n")
        write(folder, memory_current="4096\n", memory_stat="inactive_file 0\nactive_file 0\n")

    def quota_file(self, name: str) -> Path:
        """Return the file of a container's quota."""
        return self.cgroups / "kubepods" / "besteffort" / f"poduid-{name}" / f"{name}00000000" / "cpu.max"

    def kept(self) -> AgentState:
        """Return what is on the disk."""
        return self._keep().load()

    def throttle(self) -> None:
        """Give every container the quota that it had when the agent was killed."""
        for name, us in THROTTLED_US.items():
            self._fill(self.quota_file(name).parent, "max" if us < 0 else str(us))

    @property
    def quotas(self) -> dict[str, int]:
        found = {name: self.quota_file(name).read_text().split()[0] for name in ASKED_US}
        return {name: -1 if text == "max" else int(text) for name, text in found.items()}

    def _sound(self) -> bytes:
        parts = {
            f"{name}00000000": ThrottledContainer(f"uid-{name}", "d", name, "c", us, us * 2)
            for name, us in THROTTLED_US.items()
            if us != ASKED_US[name]
        }
        state = AgentState(
            self.host.boot_id(),
            parts,
            {"lastTrigger": {"step": START - 100}},
            changed_at=1.0,
            refused={"uid-whole": EvictionRefusal(2, START + 50, "blocked by a PodDisruptionBudget")},
        )
        self._keep().save(state)
        return self.file.read_bytes()

    def _keep(self) -> StateFile:
        return StateFile(self.file, self.host.boot_id())

    def put(self, content: bytes | None) -> None:
        """Put a state file there; None takes it away."""
        shutil.rmtree(self.file.parent)
        self.file.parent.mkdir()
        if content is not None:
            self.file.write_bytes(content)

    def start(self) -> list[Outcome]:
        """Start an agent as its process does, and do one round."""
        from prometheus_client import CollectorRegistry

        keep, around = self._keep(), self.around
        keep.hold()
        assert keep._lock is not None
        os.close(keep._lock)  # what a process holds until it ends
        loop = QosLoop("n1", self.host, around, around, around, keep, is_enforced=True)
        recovery = Recovery(keep, loop, self.teller, AgentMetrics(CollectorRegistry()))  # type: ignore[arg-type]
        recovery.load()
        recovery.search(around.pods(), "", is_preview=False)
        return list(loop.cycle(around.now()).outcomes)


def start_with_each(node: Node, contents: Iterable[bytes]) -> int:
    """Start once with each state file; every start gives both containers their CPU back."""
    count = 0
    for content in contents:
        node.put(content)
        node.throttle()
        node.start()
        assert node.quotas == ASKED_US, content
        assert node.kept().throttled == {}, content
        count += 1
    return count


def rounds() -> list[NodeCycleReport]:
    """Return rounds to keep: some that did something, and some that did not."""
    quick = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50}})
    scene = Scene()
    scene.around.asked = policies(quick, policy(rule("cpu_total_usage", 6000, "quick")))
    for name in ("a", "b"):
        scene.add(told(name, limit=5), 4)
    return scene.rounds(4)


def journal(folder: Path, done: list[NodeCycleReport]) -> bytes:
    """Return a sound journal of those rounds."""
    file = folder / "sound.db"
    diary = AgentJournal(str(file))
    for one in done:
        diary.append(one)
    diary.close()
    return file.read_bytes()


def keep_in_each(folder: Path, contents: Iterable[bytes], done: list[NodeCycleReport]) -> Counter[str]:
    """Begin a diary in each damaged journal, and keep rounds there; count how that went."""
    found: Counter[str] = Counter()
    for content in contents:
        for old in folder.glob("journal.db*"):
            old.unlink()
        file = folder / "journal.db"
        file.write_bytes(content)
        diary = AgentJournal(str(file))
        for one in done:
            diary.append(one)
        found["not kept" if diary.error else "kept"] += 1
        diary.close()
    return found
