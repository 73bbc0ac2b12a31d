"""The proportional scene: a cluster that grows, shrinks and fluctuates, and requests that do not flap."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from equipoise.core.cluster import Container
from equipoise.core.decision import Record
from equipoise.core.quantity import parse_cores
from equipoise.crd.targets import Mode
from equipoise.demo.context import LABEL, MINUTE, DemoContext, Scene, labelled, line
from equipoise.proportional.loop import ProportionalLoop
from equipoise.proportional.status import SCALING_POLICY
from equipoise.sim import template
from equipoise.sim.experiment import OnlyLeader
from equipoise.sim.state import NodeState
from equipoise.sim.store import SimPolicies
from equipoise.sim.template import Template

CYCLE_SECONDS = 10.0
SUBJECT, SLOT = "kube-system/dns", "dns.requests.cpu"
EPSILON = 1e-6
FIRST, MOST = 6, 30
"""The number of workers at first, and at most."""
GROWS, SHRINKS = (8, 32), (48, 60)
"""The minutes of the day between which it grows by a node a minute, and shrinks by two."""
WOBBLES = (6, 66)
SPEC: dict[str, Any] = {
    "scaleTargetRef": {"kind": "Deployment", "name": "dns"},
    "containers": [
        {
            "name": "dns",
            "resources": {
                "requests": [
                    {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": "2m"}}
                ]
            },
        }
    ],
    "smoothing": {"percentile": {}},
}


class ProportionalScene(Scene):
    """`kube-system/dns`: 100m, and 2m for each core of the cluster, as most of five minutes ask for it."""

    name = "proportional"
    colour = "green"
    subject = SUBJECT
    title = "container resources that follow the cluster's size"

    def __init__(self, stage: DemoContext) -> None:
        super().__init__(stage)
        world = self.world
        self._workers: list[NodeState] = []
        self._made = 0
        for _ in range(FIRST):
            self._grow()
        self._dns = world.add_workload(
            "kube-system",
            "dns",
            replicas=3,
            template=Template(
                containers=(Container("dns", 0.1, 70 * 2.0**20),), node_labels=((LABEL, "system"),)
            ),
        )
        policies = SimPolicies(world.state, SCALING_POLICY.api_version, SCALING_POLICY.name)
        policies.add("kube-system", "dns", SPEC)
        self._loop = ProportionalLoop(
            cluster=world.cluster,
            sizes=world.sizes,
            policies=policies,
            pauses=world.pauses,
            leadership=OnlyLeader(),
            store=world.store,
            actuator=world.actuator,
            journal=stage.notes,
            new_id=stage.ids.next,
            mode=Mode.ENFORCE,
            interval_seconds=CYCLE_SECONDS,
            now=world.clock.now,
        )
        world.every(CYCLE_SECONDS, lambda: self._loop.cycle(world.now))
        self._chance = template.seeded(world.state.seed, "wobbling")

    def begin(self, at: float) -> None:
        """Schedule workers that join, leave and become unreachable."""
        super().begin(at)
        for minute in range(*GROWS):
            self.world.at(at + minute * MINUTE, self._grow)
        for half in range(2 * SHRINKS[0], 2 * SHRINKS[1]):
            self.world.at(at + half * MINUTE / 2, self._shrink)
        for minute in range(*WOBBLES, 3):
            self.world.at(at + (minute + self._chance.random()) * MINUTE, self._wobble)

    def _grow(self) -> None:
        if len(self._workers) < MOST:
            self._made += 1
            labels = ((LABEL, "workers"),)
            self._workers.append(self.world.add_node(f"worker-{self._made:03}", cpu_cores=4, labels=labels))

    def _shrink(self) -> None:
        if len(self._workers) > FIRST:
            self.world.remove_node(self._workers.pop(0))

    def _wobble(self) -> None:
        """Make a worker unreachable for two minutes: it becomes NotReady after forty seconds."""
        node = self._chance.choice(self._workers)
        self.world.kubelet.kill_node(node)
        back = self.world.now + self._chance.uniform(80.0, 150.0)
        self.world.at(back, lambda: self.world.kubelet.revive_node(node))

    def watch(self) -> str:
        """Return an error if a container restarted: all changes are in place."""
        restarts = sum(pod.restarts for pod in self._dns.pods.values())
        return f"{restarts} containers of {SUBJECT} restarted" if restarts else ""

    def _course(self, name: str) -> list[float]:
        """Return one number of every record: millicores of the slot, or the cores of the cluster."""
        numbers = [record.decision.reason.numbers for record in self.records()]
        texts = [each["inputs"]["cores"] if name == "cores" else each[name][SLOT] for each in numbers]
        return [parse_cores(text or "0") for text in texts]

    def problem(self) -> str:
        """Check that the values rose and fell only once, and that the pods have them."""
        target, applied = self._course("target"), self._course("current")
        if not self.changes() or max(applied) < max(target) or applied[-1] != target[-1]:
            return f"{SUBJECT} did not follow the cluster"
        if reversals(applied) > 1 or reversals(target) < 3:  # noqa: PLR2004 - the target must have flapped
            return (
                f"the request of {SUBJECT} changed direction {reversals(applied)} times, the target "
                f"{reversals(target)} times"
            )
        behind = [
            pod.name for pod in self._dns.pods.values() if abs(_cores(pod.containers) - applied[-1]) > EPSILON
        ]
        return f"{behind[0]} does not have the applied request" if behind else ""

    def outcome(self) -> str:
        target, applied = self._course("target"), self._course("current")
        grown = f"{applied[0]:.3g} → {max(applied):.3g} → {applied[-1]:.3g} cores"
        back = "once" if reversals(applied) == 1 else f"{reversals(applied)} times"
        return (
            f"CPU request {grown} as the cluster grew and shrank, in {len(self.changes())} changes in place "
            f"without a restart. The target changed direction {reversals(target)} times, the request {back}"
        )

    def pictures(self, width: int) -> Sequence[RenderableType]:
        cores, target, applied = (self._course(name) for name in ("cores", "target", "current"))
        low, high = min(target), max(target)
        room = width - 36
        rows = [
            ("cores", cores, min(cores), max(cores), "bright_black", f"{min(cores):.0f} to {max(cores):.0f}"),
            ("target", target, low, high, "yellow", f"{low:.3g} to {high:.3g}"),
            ("applied", applied, low, high, "green", f"{len(self.changes())} changes"),
        ]
        drawn = [
            (name, Text(line(values, room, least, most), style=style), numbers)
            for name, values, least, most, style, numbers in rows
        ]
        caption = (
            f"The cluster grows from {FIRST} to {MOST} workers and back, and every few minutes one is not "
            "ready. The policy: 0.1 cores, and 0.002 cores more for each core of the cluster."
        )
        return Text(caption), labelled(drawn)

    def highlights(self) -> Sequence[Record]:
        changes = self.changes()
        held = [one for one in self.records() if one.decision.reason.code.value == "HeldByPercentile"]
        return [*changes[:1], *held[len(held) // 2 : len(held) // 2 + 1], *changes[-1:]]


def reversals(values: Sequence[float]) -> int:
    """Return how often a series of values changed direction."""
    steps = [other - one for one, other in pairwise(values) if other != one]
    return sum((one > 0) is not (other > 0) for one, other in pairwise(steps))


def _cores(containers: Sequence[Container]) -> float:
    return next(each.cpu_request_cores or 0.0 for each in containers if each.name == "dns")


SCENE = ProportionalScene
