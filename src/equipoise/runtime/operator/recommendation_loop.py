"""The recommendation's loop, wired to a cluster and to whatever remembers weeks of usage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from equipoise.adapters.kubernetes.advice import KubernetesAnalyses
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.cluster import HpaSpecs
from equipoise.adapters.prometheus.errors import NotFound
from equipoise.adapters.prometheus.history import PrometheusHistory, PrometheusOwners
from equipoise.core.cluster import HpaSpec
from equipoise.ports import Autoscalers, CycleReport, NoHistory
from equipoise.recommendation.advisor import DataSources
from equipoise.recommendation.loop import RecommendationLoop
from equipoise.recommendation.record import BALANCER, Batch, Decided, examine_all
from equipoise.runtime.operator.loops import Loop, Wiring
from equipoise.runtime.operator.worker import DEADLINE_SECONDS
from equipoise.runtime.settings import Settings

Decide = Callable[[Batch], list[list[Decided]]]

HEAVY_WORKLOADS = 16
"""From here on deciding takes long enough to be in the way of the Lease and of `/healthz`."""


@dataclass(slots=True)
class Nothing:
    """The loop where nobody is to be served."""

    interval_seconds: float
    name: str = BALANCER

    def cycle(self, at: float) -> CycleReport:
        """Do nothing."""
        del at
        return CycleReport((), ())


@dataclass(frozen=True, slots=True)
class SpecsOfNamespaces:
    """HPAs word for word, of the namespaces that may be read."""

    inner: Autoscalers
    namespaces: Sequence[str]

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        """List what every HorizontalPodAutoscaler asks for."""
        places = self.namespaces if namespace is None and self.namespaces else (namespace,)
        return [spec for place in dict.fromkeys(places) for spec in self.inner.specs(place)]


def recommendation_loop(wiring: Wiring, settings: Settings) -> Loop:
    """Make the loop, and have its kinds watched where they are."""
    interval = settings.intervals.recommendation_seconds
    if settings.compat.crane == "off":
        return Nothing(interval)

    def decide(batch: Batch) -> list[list[Decided]]:
        wiring.beat()
        is_heavy = sum(len(seen.subjects) for _, seen, _ in batch) >= HEAVY_WORKLOADS
        # What ended a worker would end us: from then on nothing is decided here, however small.
        if not is_heavy and not wiring.batches.replaced:
            return examine_all(batch)
        deadline_seconds = DEADLINE_SECONDS if is_heavy else DEADLINE_SECONDS / 5
        return wiring.batches.submit(examine_all, batch, deadline_seconds=deadline_seconds)

    def world() -> DataSources:
        return _world(wiring, settings, decide)

    return RecommendationLoop(
        objects=KubernetesAnalyses(wiring.client, wiring.watch, namespaces=settings.namespaces),
        cluster=wiring.cluster,
        world=world,
        applier=KubernetesApplier(wiring.client),
        actuator=wiring.actuator,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        journal=wiring.journal,
        new_id=wiring.record_ids.next,
        interval_seconds=interval,
        mode=settings.compat.mode,
        takes_over=settings.compat.crane == "on",
        beat=wiring.beat,
    )


def _world(wiring: Wiring, settings: Settings, decide: Decide) -> DataSources:
    """Return where the past is read: in the Prometheus that all loops ask."""
    if settings.metrics_from == "metrics-server":
        raise NoHistory(
            "advice is made from a week of history, which metrics.k8s.io does not have: "
            "the setting metricsFrom is metrics-server, and prometheus is needed"
        )
    try:
        metrics = wiring.prometheus()
    except NotFound as error:
        raise NoHistory(f"advice is made from a week of history in Prometheus: {error}") from error
    return DataSources(
        cluster=wiring.cluster,
        history=PrometheusHistory(metrics.client, metrics.names, metrics.extra_matchers),
        autoscalers=SpecsOfNamespaces(HpaSpecs(wiring.client), settings.namespaces),
        owners=PrometheusOwners(metrics.client, metrics.extra_matchers),
        decide=decide,
    )
