"""The rotation scene: two pods of a Deployment have half of the work, until rotation balances it."""

from collections.abc import Sequence

from rich.columns import Columns
from rich.console import RenderableType
from rich.text import Text

from equipoise.core.cluster import Container
from equipoise.core.decision import Record
from equipoise.demo.context import LABEL, MINUTE, DemoContext, PercentBar, Scene, bars
from equipoise.rotation.balancer import inputs
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.policy import ROTATION_POLICY
from equipoise.rotation.progress import MEASURED_ENDINGS, RotationMemory, RotationResult
from equipoise.sim.experiment import ports
from equipoise.sim.load import Constant, Leases
from equipoise.sim.store import SimPolicies
from equipoise.sim.template import Budget, Delay, Template

REPLICAS = 8
TARGET_CORES = 0.7
"""The HPA's target for a pod that requests one core."""
CYCLE_SECONDS = 30.0
SUBJECT = "shop/web"
WIDE = 110
"""The minimum width for before and after side by side."""


class RotationScene(Scene):
    """`shop/web`: eight pods behind an HPA at 70 %, with partitions that are unevenly assigned."""

    name = "rotation"
    colour = "red"
    subject = SUBJECT
    title = "hot and cold pods of an autoscaled workload"

    def __init__(self, stage: DemoContext) -> None:
        super().__init__(stage)
        world = self.world
        self._leases = Leases()
        self._web = world.add_workload(
            "shop",
            "web",
            replicas=REPLICAS,
            template=Template(
                containers=(Container("app", 1.0, 512 * 2.0**20),),
                start_up=Delay(12.0, 0.2),
                node_labels=((LABEL, "apps"),),
            ),
            # A little below the target: one pod fewer is no reason to scale.
            shape=Constant(0.95 * TARGET_CORES * REPLICAS),
            sharing=self._leases,
        )
        world.add_pdb("shop", "web", Budget(max_unavailable=1))
        world.add_hpa(self._web, replicas_min=REPLICAS, replicas_max=2 * REPLICAS)
        policies = SimPolicies(world.state, ROTATION_POLICY.api_version, ROTATION_POLICY.name)
        policies.add("shop", "web", {"targetRef": {"kind": "Deployment", "name": "web"}, "mode": "Enforce"})
        loop_ports = ports(world, stage.notes, stage.ids.next)
        self._loop = RotationLoop(loop_ports, policies, interval_seconds=CYCLE_SECONDS)
        world.every(CYCLE_SECONDS, lambda: self._loop.cycle(world.now))
        self._fewest = REPLICAS

    def begin(self, at: float) -> None:
        """Schedule the uneven assignment of partitions."""
        super().begin(at)
        self.world.at(at + 2 * MINUTE, self._upset)

    def _upset(self) -> None:
        self._fewest = REPLICAS
        self._leases.upset()
        self.world.state.workload_changed(self._web)

    def watch(self) -> str:
        """Return an error if more than one pod is unavailable."""
        if self.world.now < self.began_at + 2 * MINUTE:
            return ""  # all pods are starting
        serving = len(self._web.serving_pods())
        self._fewest = min(self._fewest, serving)
        return f"only {serving} of {REPLICAS} pods of {SUBJECT} are ready" if serving < REPLICAS - 1 else ""

    def _verdict(self) -> tuple[Record, RotationResult] | None:
        """Return the record in which a rotation of this day ended, and its result."""
        for record in reversed(self.records()):
            memory = RotationMemory.from_data(record.decision.memory)
            if memory.last is not None and memory.last.ended_at == record.at:
                return record, memory.last
        return None

    def problem(self) -> str:
        """Check that the rotation was measured, and that the hottest pod fell by at least 10 %."""
        found = self._verdict()
        if not self.changes() or found is None:
            return f"no rotation of {SUBJECT} was completed"
        verdict = found[1]
        if verdict.ending not in MEASURED_ENDINGS or (verdict.realised_percent or 0.0) < 10:  # noqa: PLR2004
            return f"the rotation of {SUBJECT} ended as {verdict.ending} with {verdict.realised_percent}%"
        return ""

    def outcome(self) -> str:
        waves, found = self.changes(), self._verdict()
        if not waves or found is None:
            return "no rotation yet"
        before = max(row.percent for row in _rows(waves[0], {}))
        after = max(row.percent for row in _rows(found[0], {}))
        predicted = before * (1 - found[1].predicted_percent / 100)
        evicted, count = found[1].evicted, found[1].waves
        return (
            f"hottest pod {before:.0f}% → {after:.0f}% of the target, {predicted:.0f}% predicted. "
            f"{evicted} pods evicted in {count} waves; at least {self._fewest} of {REPLICAS} pods were ready"
        )

    def pictures(self, width: int) -> Sequence[RenderableType]:
        waves, found = self.changes(), self._verdict()
        if not waves or found is None:
            return ()
        caption = (
            "Two of eight pods hold half of the partitions. The mean, which the HPA sees, is at its target."
        )
        wave_of = {
            outcome.action.pod: number for number, wave in enumerate(waves, 1) for outcome in wave.outcomes
        }
        before, after = _rows(waves[0], wave_of), _rows(found[0], {})
        threshold = 100 * inputs(waves[0])[0].tolerance_multiplier
        largest = max(row.percent for row in before)
        is_wide = width >= WIDE
        long = max(8, min(44, (width // 2 if is_wide else width) - 34))
        drawn = [
            bars(title, rows, threshold, largest, long)
            for title, rows in (
                ("before, in percent of the target; a pod above │ is hot", before),
                (f"after {len(waves)} waves", after),
            )
        ]
        return (Text(caption), Columns(drawn, padding=(0, 4))) if is_wide else (Text(caption), *drawn)

    def highlights(self) -> Sequence[Record]:
        found = self._verdict()
        return [*self.changes(), *([found[0]] if found else [])]


def _rows(record: Record, wave_of: dict[str, int]) -> list[PercentBar]:
    """Return a bar for each pod of a record, busiest first."""
    target = record.decision.reason.numbers["target_cores"]
    hot = set(record.decision.reason.numbers.get("hot", ()))
    rows = []
    for pod in sorted(inputs(record)[1].pods, key=lambda pod: (-(pod.cpu_cores or 0.0), pod.name)):
        colour = "red" if pod.name in hot else "blue" if pod.name in wave_of else "bright_black"
        note = f"evicted in wave {wave_of[pod.name]}" if pod.name in wave_of else ""
        rows.append(PercentBar(f"web-{pod.name[-5:]}", (pod.cpu_cores or 0.0) / target * 100, note, colour))
    return rows


SCENE = RotationScene
