"""The loop of Analytics in a simulated cluster, with a past that is made up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from equipoise.core.cluster import Container, HpaSpec, WorkloadRef
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.crd.targets import Mode
from equipoise.engine.policies import condition_of
from equipoise.ports import CycleReport, PolicyObject
from equipoise.ports.cluster import UsageHistory
from equipoise.recommendation.advisor import DataSources
from equipoise.recommendation.loop import RecommendationLoop
from equipoise.sim.store import SimAnalyses
from equipoise.sim.template import Template
from equipoise.sim.world import World as Simulated
from tests.support.recommendation.clusters import DAY, END, Histories

PERIOD = 600.0
WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")
ANNOTATION = "analysis.crane.io/hpa-recommendation"
ALL = [{"kind": "Deployment", "labelSelector": {}}]
"""Every Deployment of the namespace."""
TEMPLATE = Template(containers=(Container("app", 2.0),))
SPEC: dict[str, Any] = {
    "type": "HPA",
    "completionStrategy": {"completionStrategyType": "Periodical", "periodSeconds": int(PERIOD)},
    "resourceSelectors": [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "web"}],
    "config": {"ehpa.min-cpu-usage-threshold": "0", "ehpa.pod-min-ready-seconds": "0"},
}
"""Like the seed's manifest."""


@dataclass
class FixedLeadership:
    """Leads while `is_leading` is set."""

    is_leading: bool = True

    def epoch(self) -> int | None:
        return 1 if self.is_leading else None


@dataclass
class JournalOfRecords:
    """Holds every record in a list."""

    records: list[Record] = field(default_factory=list)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del is_whole
        self.records += records


@dataclass
class FixedHistory:
    """A week of every pod that runs, or an error."""

    simulation: "AnalyticsCluster"
    cores: float = 6.0
    error: WorldFailed | None = None
    reads: int = 0

    def read(self, *asked: Any, **more: Any) -> Iterator[UsageHistory]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        pods = self.simulation.sim.cluster.pods()
        series = {(pod.namespace, pod.name, "app"): self.cores * DAY for pod in pods}
        memory = dict.fromkeys(series, 1e8)
        return Histories(series, memory).read(*asked, **more)


class AnalyticsCluster:
    """A simulated cluster with the Deployment `shop/web`, and the loop that answers Analytics in it."""

    def __init__(self, *workloads: str, **options: Any) -> None:
        self.sim = Simulated(7, started_at=END, is_checked=False)
        self.sim.add_node("n1", cpu_cores=512.0)
        for name in workloads or ("web",):
            self.sim.add_workload("shop", name, replicas=2, template=TEMPLATE)
        self.sim.advance(60)
        self.objects = SimAnalyses(self.sim.state)
        self.history = FixedHistory(self)
        self.leadership, self.journal = FixedLeadership(), JournalOfRecords()
        self.hpas: list[HpaSpec] = []
        self.ids = 0
        self.loop = RecommendationLoop(
            objects=self.objects,
            cluster=self.sim.cluster,
            sources=lambda: DataSources(self.sim.cluster, self.history, self),
            applier=self.sim.applier,
            actuator=self.sim.actuator,
            pauses=self.sim.pauses,
            leadership=self.leadership,
            journal=self.journal,
            new_id=self._next_id,
            **{"mode": Mode.PREVIEW} | options,
        )

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """Return the HPAs as a server does."""
        del namespace
        return self.hpas

    def _next_id(self, at: float) -> str:
        del at
        self.ids += 1
        return f"{self.ids:04}"

    def cycle(self, after: float = 0.0) -> CycleReport:
        """Advance the time, then run one cycle."""
        if after:
            self.sim.advance(after)
        return self.loop.cycle(self.sim.now)

    def ask(self, name: str = "web-hpa", **changes: Any) -> PolicyObject:
        """Create an Analytics like the seed's, except for these fields."""
        return self.objects.ask("shop", name, SPEC | changes)

    def analytics(self, name: str = "web-hpa") -> PolicyObject:
        (found,) = [one for one in self.objects.analytics() if one.ref.name == name]
        return found

    def recommendation(self) -> PolicyObject:
        """Return the only Recommendation."""
        (found,) = self.objects.recommendations()
        return found

    def ready(self, name: str = "web-hpa") -> tuple[str, str]:
        found = condition_of(self.analytics(name).status, "Ready")
        return found["status"], found["reason"]

    def adopted(self) -> tuple[str, str]:
        found = condition_of(self.recommendation().status, "Adopted")
        return (found["status"], found["reason"]) if found else ("", "")

    def annotations(self, name: str = "web") -> dict[str, str]:
        found = self.sim.cluster.workload(WorkloadRef("apps/v1", "Deployment", "shop", name))
        assert found is not None
        return dict(found.annotations)
