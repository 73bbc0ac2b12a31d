"""The recommendation scene: a week of history, its forecast, advice for an HPA, and the HPA."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from equipoise.core.cluster import Container
from equipoise.core.decision import Record
from equipoise.crd.targets import Mode
from equipoise.demo.context import LABEL, MINUTE, DemoContext, Scene, labelled, line
from equipoise.ports.cluster import CPU
from equipoise.recommendation.advisor import DataSources as Sources
from equipoise.recommendation.loop import RecommendationLoop
from equipoise.recommendation.usage import HistoryReader, PodOwnership
from equipoise.sim.experiment import OnlyLeader
from equipoise.sim.load import Diurnal
from equipoise.sim.metrics import SimHistory
from equipoise.sim.state import HpaState
from equipoise.sim.store import SimAnalyses
from equipoise.sim.template import Template
from equipoise.stats.predict import predict
from equipoise.stats.ranks import Floats

DAY, WEEK = 86400.0, 7 * 86400.0
REPLICAS = 12
CYCLE_SECONDS = 30.0
PERIOD_SECONDS = 40 * 60
SUBJECT = "shop/search for search"


class RecommendationScene(Scene):
    """`shop/search`: twelve pods day and night, and a load that rises and falls with the day."""

    name = "recommendation"
    colour = "blue"
    subject = SUBJECT
    title = "replicas and a target from a week of history and a forecast"

    def __init__(self, stage: DemoContext) -> None:
        super().__init__(stage)
        world = self.world
        # The demo begins in the middle of the rise.
        shape = Diurnal(5.0, 3.2, peak_second=(world.now + 5 * 3600) % DAY)
        self._search = world.add_workload(
            "shop",
            "search",
            replicas=REPLICAS,
            template=Template(
                containers=(Container("app", 1.0, 512 * 2.0**20),), node_labels=((LABEL, "apps"),)
            ),
            shape=shape,
        )
        self._history = SimHistory(world.state)
        self._history.remember(self._search, shape, seconds=WEEK, replicas=REPLICAS, noise=0.08)
        self._analyses = SimAnalyses(world.state)
        self._loop = RecommendationLoop(
            objects=self._analyses,
            cluster=world.cluster,
            sources=lambda: Sources(world.cluster, self._history, world.applier),
            applier=world.applier,
            actuator=world.actuator,
            pauses=world.pauses,
            leadership=OnlyLeader(),
            journal=stage.notes,
            new_id=stage.ids.next,
            interval_seconds=CYCLE_SECONDS,
            mode=Mode.ENFORCE,
        )
        world.every(CYCLE_SECONDS, lambda: self._loop.cycle(world.now))

    def begin(self, at: float) -> None:
        """Create an Analytics object once all pods are ready; later days use the same."""
        if not self._analyses.analytics():
            self.world.at(at + 3 * MINUTE, self._ask)

    def _ask(self) -> None:
        spec: dict[str, Any] = {
            "type": "HPA",
            "completionStrategy": {"completionStrategyType": "Periodical", "periodSeconds": PERIOD_SECONDS},
            "resourceSelectors": [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "search"}],
            "config": {"ehpa.min-cpu-usage-threshold": "1"},
            "adoptionType": "Auto",
        }
        self._analyses.ask("shop", "search", spec)

    def watch(self) -> str:
        """Return an error if the HPA scales the workload beyond its bounds."""
        hpa, replicas = self._hpa(), self._search.replicas
        if hpa is not None and hpa.scaled_at is not None:
            low, high = hpa.spec.replicas_min, hpa.spec.replicas_max
            if not low <= replicas <= high:
                return f"{replicas} replicas of shop/search are not within {low} and {high}"
        return ""

    def _hpa(self) -> HpaState | None:
        return next((hpa for hpa in self.world.state.hpas if hpa.workload is self._search), None)

    def problem(self) -> str:
        """Check that advice was adopted, and that the HPA has scaled by it."""
        if not self.changes():
            return "no HPA was created for the Analytics shop/search"
        hpa = self._hpa()
        if hpa is None or hpa.manager != "equipoise":
            return "the HPA of shop/search does not exist"
        return "" if hpa.scaled_at is not None else "the HPA of shop/search has not scaled the workload"

    def outcome(self) -> str:
        hpa = self._hpa()
        if hpa is None:
            return "no recommendation yet"
        used = sum(pod.rate_cores for pod in self._search.active())
        now = self._search.replicas
        return (
            f"HPA created: {hpa.spec.replicas_min} to {hpa.spec.replicas_max} replicas at "
            f"{hpa.spec.metrics[0].target_value:g}%. {REPLICAS} → {now} replicas, which use "
            f"{used / now * 100:.0f}% of their requests instead of {used / REPLICAS * 100:.0f}%"
        )

    def _week(self) -> Floats:
        """Return the workload's usage of the past week, as the loop reads it."""
        end, ref = self.world.now // 60 * 60, self._search.ref
        (lot,) = self._history.read((CPU,), end - WEEK + 60, end, 60.0, namespaces=[ref.namespace])
        belonging = PodOwnership(self.world.cluster.workloads(), self.world.cluster.pods())
        week: Floats = HistoryReader(lot, belonging, [ref]).usage([ref]).cores[0]
        return week

    def pictures(self, width: int) -> Sequence[RenderableType]:
        week = self._week()
        past = week[~np.isnan(week)]
        future = predict(week[None], 60.0, DAY, has_band=True)
        ahead, upper = future.values[0], future.upper[0]
        high = float(max(past.max(), upper.max()))
        room = width - 30
        long, short = room * 7 // 8, max(6, room // 8)
        days = Text(line(past.tolist(), long, 0.0, high), style="blue")
        coming = Text(line(ahead.tolist(), short, 0.0, high), style="green")
        picture = Text.assemble(days, ("│", "yellow"), coming)
        numbers = f"{float(np.min(past)):.1f} to {float(np.max(past)):.1f} cores"
        expected = f"{float(ahead.min()):.1f} to {float(ahead.max()):.1f}"
        below = Text.assemble(("the past week".ljust(long + 1), "dim"), ("tomorrow", "green"))
        return (
            Text("Twelve pods run all day, while the load rises and falls."),
            labelled([("usage", picture, numbers), ("", below, f"forecast {expected}")]),
        )

    def highlights(self) -> Sequence[Record]:
        return self.changes()[-2:]


SCENE = RecommendationScene
