"""The pools scene: a fleet in tiers on a real Redis, with calls and changing targets."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import address_of
from equipoise.core.cluster import Container
from equipoise.core.decision import MovePod, Record, RegisterPod, ResumePod, SuspendPod
from equipoise.core.pools import PoolCode
from equipoise.demo.context import LABEL, MINUTE, DemoContext, Scene
from equipoise.pools.invariants import violations
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.observe import count_tiers
from equipoise.pools.policy import read_policy, tiers_for_scripts
from equipoise.runtime.console import table
from equipoise.sim import template
from equipoise.sim.experiment import OnlyLeader
from equipoise.sim.template import Delay, Template

PREFIX = "demo"
LOOK_SECONDS, CYCLE_SECONDS = 10.0, 60.0
FLEET_FIRST, FLEET = 9, 12
FILLED, RETARGETED, CRASHED, RETARGETED_BACK = 8, 20, 30, 50
"""Minutes of the day: three more pods, other targets, a pod that crashes, the first targets again."""
SOME = {"gold": 4, "silver": 4, "basic": 4}
OTHER = {"gold": 6, "silver": 2, "basic": 4}
TYPES = {"gold": "exclusive", "silver": "shared", "basic": "shared"}
CALLS = {"gold": (3, 44), "silver": (3, 70), "basic": (3, 70)}
"""The minutes of the day between which there are calls."""
CALL_EVERY = {"gold": 50.0, "silver": 70.0, "basic": 25.0}
DONE = {"Moved", "Registered", "Drained", "Undrained", "Replaced"}


class PoolsScene(Scene):
    """`voice/agent`: twelve pods in three tiers; gold ones serve one call each, the others several."""

    name = "pools"
    colour = "cyan"
    title = "pods in service tiers, on a real Redis"

    def __init__(self, stage: DemoContext) -> None:
        url = stage.redis()
        super().__init__(stage)
        world = self.world
        self._pools = RedisPools(connect(url, PREFIX), PREFIX, address_of(url), read_tiers=tiers_for_scripts)
        stage.on_close(self._pools.close)
        self._set_targets(SOME)
        self._agents = world.add_workload(
            "voice",
            "agent",
            kind="StatefulSet",
            replicas=FLEET_FIRST,
            template=Template(
                containers=(Container("app", 0.5, 2.0**28),),
                start_up=Delay(20.0, 0.2),
                node_labels=((LABEL, "apps"),),
            ),
        )
        self._loop = PoolsLoop(
            pools=self._pools,
            pods=lambda: world.cluster.pods("voice"),
            is_gone=self._is_gone,
            pauses=world.pauses,
            leadership=OnlyLeader(),
            journal=stage.notes,
            new_id=stage.ids.next,
            namespace="voice",
            interval_seconds=CYCLE_SECONDS,
            has_changed=self._has_changed,
        )
        self._seen_version = -1
        self._cycled_at = float("-inf")
        self._chance = template.seeded(world.state.seed, "calls")
        self._calls: dict[str, str] = {}
        """The calls in progress, with their pods."""
        self._given_twice = ""
        self.allocated = self.released = self.refused = 0
        world.every(LOOK_SECONDS, self._look)

    def _is_gone(self, name: str, uid: str) -> bool:
        pod = self.world.state.pods.get(("voice", name))
        return pod is None or pod.uid != uid

    def _has_changed(self) -> bool:
        before, self._seen_version = self._seen_version, self._agents.version
        return before != self._agents.version

    def _look(self) -> None:
        """Run a cycle when it is due or when the loop is woken, as the operator does."""
        at = self.world.now
        if self._loop.is_woken() or at - self._cycled_at >= CYCLE_SECONDS:
            self._cycled_at = at
            self._loop.cycle(at)

    def begin(self, at: float) -> None:
        """Schedule the fleet, the targets, one crash and the calls of the day."""
        super().begin(at)
        world = self.world
        if not self._calls:
            self.allocated = self.released = self.refused = 0
        world.at(at + FILLED * MINUTE, lambda: world.scale(self._agents, FLEET))
        world.at(at + RETARGETED * MINUTE, lambda: self._set_targets(OTHER))
        world.at(at + CRASHED * MINUTE, self._crash)
        world.at(at + RETARGETED_BACK * MINUTE, lambda: self._set_targets(SOME))
        for tier, (first, last) in CALLS.items():
            moment = at + first * MINUTE
            while moment < at + last * MINUTE:
                world.at(moment, self._caller(tier))
                moment += self._chance.expovariate(1 / CALL_EVERY[tier])

    def _set_targets(self, targets: dict[str, int]) -> None:
        tiers = {name: {"type": TYPES[name], "target": target} for name, target in targets.items()}
        version = self._pools.snapshot(is_thorough=True).version
        self._pools.set_config(json.dumps({"tiers": tiers, "default_chain": list(targets)}), version)

    def _crash(self) -> None:
        pod = next(pod for pod in self._agents.pods.values() if pod.name == f"agent-{FLEET - 1}")
        self.world.kubelet.crash(pod)

    def _caller(self, tier: str) -> Any:
        """Return the event of a call: it allocates a pod, and schedules its release."""
        call, seconds = f"call-{self._chance.getrandbits(48):012x}", self._chance.uniform(40.0, 160.0)

        def begin() -> None:
            answer = self._pools.allocate(call, tier)
            if answer.code is not PoolCode.ALLOCATED:
                self.refused += 1
                return
            self.allocated += 1
            if answer.tier == "gold" and answer.pod in self._calls.values():
                self._given_twice = f"{answer.pod} of an exclusive tier serves two calls"
            self._calls[call] = answer.pod
            self.world.at(self.world.now + seconds, end)

        def end() -> None:
            answer = self._pools.release(call)
            self.released += answer.code is PoolCode.RELEASED
            del self._calls[call]

        return begin

    def watch(self) -> str:
        """Return an error if a pod of an exclusive tier serves two calls."""
        return self._given_twice

    def problem(self) -> str:
        """Check for full tiers, consistent keys, and no lost call."""
        snapshot = self._pools.snapshot(is_thorough=True)
        policy = read_policy(snapshot.config, PREFIX)
        broken = violations(policy, snapshot)
        if broken:
            return f"{broken[0].key}: {broken[0].detail}"
        for name, row in count_tiers(policy, snapshot).items():
            have = row["idle"] + row["busy"] + row["draining"]
            if have != row["target"]:
                return f"the tier {name} has {have} pods, but its target is {row['target']}"
        if self.allocated != self.released + len(self._calls):
            return f"only {self.released} of {self.allocated} calls were released"
        return "" if self.actions(MovePod, *DONE) else "no pod was moved"

    def outcome(self) -> str:
        moved, taken = len(self.actions(MovePod, *DONE)), len(self.actions(RegisterPod, *DONE))
        return (
            f"{taken} pods registered, {moved} idle pods moved between tiers, every tier at its target. "
            f"{self.allocated} calls got a pod, {self.released} of them have ended, {self.refused} found no "
            "free pod"
        )

    def pictures(self, width: int) -> Sequence[RenderableType]:
        del width
        snapshot = self._pools.snapshot(is_thorough=True)
        counts = count_tiers(read_policy(snapshot.config, PREFIX), snapshot)
        counted = ("TARGET", "PODS", "MOVED IN", "MOVED OUT")
        laid_out = table("TIER", "TYPE", *counted, "", right=counted, folded=())
        moves = self.actions(MovePod, "Moved")
        for tier, row in counts.items():
            have = row["idle"] + row["busy"] + row["draining"]
            moved_in = sum(move.destination == tier for move in moves)
            moved_out = sum(move.source == tier for move in moves)
            dots = Text("●" * row["busy"], style="yellow") + Text("○" * row["idle"], style="green")
            targets = f"{SOME[tier]} → {OTHER[tier]} → {row['target']}" if SOME != OTHER else ""
            cells = (tier, TYPES[tier], targets, str(have), str(moved_in), str(moved_out))
            laid_out.add_row(*cells, dots)
        caption = (
            "Nine pods become twelve and fill the tiers. When gold needs two more, idle pods of silver move "
            "there, and later back. Busy pods are not moved (● busy, ○ idle)."
        )
        return Text(caption), laid_out

    def highlights(self) -> Sequence[Record]:
        found: list[Record] = []
        for kind, most in ((RegisterPod, 3), (MovePod, 2), (SuspendPod, 1), (ResumePod, 1)):
            found += [one for one in self.changes() if isinstance(one.outcomes[0].action, kind)][-most:]
        return found


SCENE = PoolsScene
