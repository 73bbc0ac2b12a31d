"""The qos scene: a crowded node, whose agent throttles, evicts, and restores later."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from equipoise.core.cluster import Container, ObjectRef
from equipoise.core.decision import EvictPod, Record, RestorePod, ThrottlePod
from equipoise.core.reason import Code
from equipoise.demo.context import LABEL, MINUTE, DemoContext, Scene, columns, labelled
from equipoise.engine.executor import LeaselessLeadership
from equipoise.engine.recording import record
from equipoise.ports import PolicyObject
from equipoise.qos.execute import BALANCER, LedgerEvictor
from equipoise.qos.loop import QosLoop
from equipoise.qos.policy import policy_json
from equipoise.runtime.agent.node_api import read_objects
from equipoise.sim.load import Constant
from equipoise.sim.machine import SimDisk, SimMachine, SimNodeContext, is_free
from equipoise.sim.state import WorkloadState
from equipoise.sim.template import Delay, Template

NODE, SPARE = "node-crowded", "node-spare"
CORES = 8.0
ROUND_SECONDS = 10.0
THROTTLE_LINE, EVICT_LINE = 5000, 6200
"""Millicores."""
CROWDED = (20, 29)
"""The minutes of the day between which the node is overloaded."""
QUIET, BUSY = (0.9, 0.6), (4.2, 1.8)
"""Cores of etl and of thumbs."""
API_VERSION = "ensurance.crane.io/v1alpha1"
POLICIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "AvoidanceAction",
        "throttle",
        {"coolDownSeconds": 600, "throttle": {"cpuThrottle": {"minCPURatio": 10, "stepCPURatio": 20}}},
    ),
    ("AvoidanceAction", "evict", {"eviction": {"terminationGracePeriodSeconds": 30}}),
    (
        "NodeQOSEnsurancePolicy",
        "busy",
        {
            "selector": {"matchLabels": {LABEL: "mixed"}},
            "objectiveEnsurances": [
                {
                    "name": "throttle",
                    "metricRule": {"name": "cpu_total_usage", "value": THROTTLE_LINE},
                    "actionName": "throttle",
                    "avoidanceThreshold": 2,
                    "restoreThreshold": 3,
                },
                {
                    "name": "evict",
                    "metricRule": {"name": "cpu_total_usage", "value": EVICT_LINE},
                    "actionName": "evict",
                    "avoidanceThreshold": 2,
                },
            ],
        },
    ),
    (
        "PodQOS",
        "batch",
        {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "QOSClass", "operator": "In", "values": ["BestEffort", "Burstable"]}
                ]
            },
            "allowedActions": ["throttle", "evict"],
        },
    ),
)


class QosScene(Scene):
    """`node-crowded`: two protected pods, three that may be throttled, three that may be evicted."""

    name = "qos"
    colour = "magenta"
    subject = NODE
    title = "pods on a node under pressure"

    def __init__(self, stage: DemoContext) -> None:
        super().__init__(stage)
        world = self.world
        labels = ((LABEL, "mixed"),)
        self._node = world.add_node(NODE, cpu_cores=CORES, labels=labels)
        self._cart = self._add("cart", "shop", 2, Container("app", 1.0, 2.0**28, 1.0, 2.0**28))
        self._etl = self._add("etl", "batch", 3, Container("app", 0.25, 2.0**28))
        self._thumbs = self._add("thumbs", "batch", 3, Container("app"))
        self._set_load(QUIET)
        self._spare = world.add_node(SPARE, cpu_cores=CORES, labels=labels)
        policy, problems = read_objects(
            [
                PolicyObject(ObjectRef(API_VERSION, kind, "", name, f"{kind}-{name}"), 1, "1", spec, {})
                for kind, name, spec in POLICIES
            ]
        )
        assert not problems, problems
        self._policy = policy
        self._asked = policy_json(policy)
        self._machine, self._disk = SimMachine(world.state, self._node), SimDisk()
        around = SimNodeContext(world.state, self._node, world.kubelet, lambda: self._policy)
        leadership = LeaselessLeadership(world.clock.now)
        self._loop = QosLoop(
            node_name=NODE,
            node=self._machine,
            node_api=around,
            actuator=world.actuator,
            pauses=world.pauses,
            state_store=self._disk,
            is_enforced=True,
            evictor=LedgerEvictor(world.actuator, world.store, around.whose, stage.ids.next, leadership),
        )
        world.every(ROUND_SECONDS, self._round)

    def _add(self, name: str, namespace: str, replicas: int, container: Container) -> WorkloadState:
        template = Template(containers=(container,), start_up=Delay(3.0), node_labels=((LABEL, "mixed"),))
        shape = Constant(1.6)
        return self.world.add_workload(namespace, name, replicas=replicas, template=template, shape=shape)

    def _set_load(self, cores: tuple[float, float]) -> None:
        for workload, level in zip((self._etl, self._thumbs), cores, strict=True):
            workload.shape = Constant(level)

    def _round(self) -> None:
        done = self._loop.cycle(self.world.now)
        seen, at = done.observation, done.observation.at
        name = self.stage.ids.next(at)
        inputs, has_readings = (self._asked, seen, done.memory), done.details.has_readings
        self.stage.notes.append(
            record(BALANCER, *inputs, done.decision, at, name, done.outcomes, has_readings=has_readings)
        )

    def begin(self, at: float) -> None:
        """Place all pods on one node, and overload it for a while."""
        super().begin(at)
        kubelet, spare = self.world.kubelet, self._spare
        kubelet.cordon(spare, is_cordoned=True)
        for pod in list(spare.pods.values()):
            kubelet.end(pod, why="Drained")
        self.world.at(at + 2 * MINUTE, lambda: kubelet.cordon(spare, is_cordoned=False))
        self.world.at(at + CROWDED[0] * MINUTE, lambda: self._set_load(BUSY))
        self.world.at(at + CROWDED[1] * MINUTE, lambda: self._set_load(QUIET))

    def watch(self) -> str:
        """Return an error if a protected pod was throttled or evicted."""
        for pod in self._cart.pods.values():
            if pod.quotas or pod.deletion_at is not None:
                return f"{pod.ref} is Guaranteed and was throttled or evicted"
        return ""

    def _count(self, kind: type[Any]) -> int:
        return len(self.actions(kind, "Done", "Accepted"))

    def _usage(self, since: float = 0.0, until: float = math.inf) -> list[float]:
        """Return the node's millicores by round; the last value if a round could not measure it."""
        found: list[float] = []
        for one in self.records():
            if since <= one.at <= until:
                text = one.observation["usage"].get("cpu_total_usage")
                found += [float(Fraction(text))] if text is not None else found[-1:]
        return found

    def _crowd(self) -> list[float]:
        first, last = (self.began_at + minute * MINUTE for minute in CROWDED)
        return self._usage(first, last)

    def problem(self) -> str:
        """Check that usage reached the waterline during the overload, and that every quota was restored."""
        crowd = self._crowd()
        if not self._count(ThrottlePod) or not self._count(EvictPod):
            return f"no pod on {NODE} was throttled or evicted"
        if crowd[-1] > THROTTLE_LINE or max(crowd) <= EVICT_LINE:
            begin, end, waterline = (value / 1000 for value in (max(crowd), crowd[-1], THROTTLE_LINE))
            return f"usage of {NODE} fell from {begin:.1f} to {end:.1f} cores, not below {waterline:g} cores"
        held = [pod.name for pod in self._node.pods.values() if not is_free(self._machine, pod)]
        if held or self._disk.content.throttled:
            return f"{(held or ['a pod'])[0]} on {NODE} is still throttled"
        return ""

    def outcome(self) -> str:
        crowd = self._crowd()
        if not crowd:
            return "no pressure yet"
        counts = [self._count(kind) for kind in (ThrottlePod, EvictPod, RestorePod)]
        evicted = "1 pod" if counts[1] == 1 else f"{counts[1]} pods"
        return (
            f"node usage {max(crowd) / 1000:.1f} → {crowd[-1] / 1000:.1f} of {CORES:g} cores, with a "
            f"waterline of {THROTTLE_LINE / 1000:g}. {evicted} evicted, CPU quotas lowered {counts[0]} times "
            f"and raised {counts[2]} times until all limits were restored"
        )

    def pictures(self, width: int) -> Sequence[RenderableType]:
        first, last = CROWDED[0] - 4, CROWDED[1] + 11
        usage = self._usage(self.began_at + first * MINUTE, self.began_at + last * MINUTE)
        room = width - 26
        caption = (
            "Two Guaranteed pods share a node with batch jobs that get busy for nine minutes. The jobs are "
            f"throttled above {THROTTLE_LINE / 1000:g} cores and evicted above {EVICT_LINE / 1000:g} cores."
        )
        picture = columns(usage, room, 6, CORES * 1000, THROTTLE_LINE)
        scale = f"{CORES:g} cores\n\n─ {THROTTLE_LINE / 1000:g} cores\n\n\n0"
        ends = Text(f"{first}:00".ljust(room - 5) + f"{last}:00", style="dim")
        return Text(caption), labelled([("usage", picture, scale), ("", ends, "")])

    def highlights(self) -> Sequence[Record]:
        down = [one for one in self.changes() if one.decision.reason.code is not Code.RESTORE]
        up = [one for one in self.changes() if one.decision.reason.code is Code.RESTORE]
        return [*down[:2], *down[-1:], *up[:1], *up[-1:]]


SCENE = QosScene
