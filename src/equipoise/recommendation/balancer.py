"""The recommendation's descriptor: its loop, its metrics and how its records are decided again."""

from collections.abc import Iterable

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.engine.balancer import Balancer, GaugeSpec, Labels
from equipoise.engine.recording import replay_holds
from equipoise.ports import CycleReport
from equipoise.ports.wiring import DEADLINE_SECONDS, Loop, LoopSettings, Wiring
from equipoise.recommendation.adopt import proposed
from equipoise.recommendation.advisor import DataSources
from equipoise.recommendation.decide import Batch, Examined, decide, decide_from, examine_all
from equipoise.recommendation.explain import BALANCER as NAME
from equipoise.recommendation.explain import SUBJECT_SEPARATOR, Facts, named_for
from equipoise.recommendation.loop import RecommendationLoop
from equipoise.recommendation.policy import ANALYTICS, RECOMMENDATION
from equipoise.recommendation.settings import AdviceRequest, AdviceType, RecommendationPolicy

HEAVY_WORKLOADS = 16
"""Workloads from which a batch is decided in the worker: in this process it would delay the Lease."""
LABELS = ("namespace", "workload", "analytics")


class IdleLoop:
    """The loop that runs where the setting `compat.crane` is off: it does nothing."""

    name = NAME

    def __init__(self, interval_seconds: float) -> None:
        self.interval_seconds = interval_seconds

    def cycle(self, at: float) -> CycleReport:
        del at
        return CycleReport((), ())


def make_loop(wiring: Wiring, settings: LoopSettings) -> Loop:
    """Return the loop; it watches its kinds where their definitions are installed."""
    interval_seconds = settings.interval_seconds(NAME)
    if settings.compat.crane == "off":
        return IdleLoop(interval_seconds)

    def decide_batch(batch: Batch) -> list[list[Examined]]:
        wiring.heartbeat()
        is_heavy = sum(len(observation.subjects) for _, observation in batch) >= HEAVY_WORKLOADS
        # A batch that ended a worker could end this process: from then on even small ones go to the worker.
        if not is_heavy and not wiring.batches.replaced:
            return examine_all(batch)
        deadline_seconds = DEADLINE_SECONDS if is_heavy else DEADLINE_SECONDS / 5
        return wiring.batches.submit(examine_all, batch, deadline_seconds=deadline_seconds)

    def sources() -> DataSources:
        history, owners = wiring.history()
        return DataSources(
            cluster=wiring.cluster,
            history=history,
            autoscalers=wiring.autoscalers(),
            owners=owners,
            decide=decide_batch,
        )

    return RecommendationLoop(
        objects=wiring.analyses(),
        cluster=wiring.cluster,
        sources=sources,
        applier=wiring.applier(),
        actuator=wiring.actuator,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        journal=wiring.journal,
        new_id=wiring.new_id,
        interval_seconds=interval_seconds,
        mode=settings.compat.mode,
        takes_over=settings.compat.crane == "on",
        heartbeat=wiring.heartbeat,
    )


def redecide(recorded: Record) -> Decision:
    """Decide again from a record; the actions that guards held are taken from it, too."""
    policy = RecommendationPolicy.model_validate(recorded.policy.get("settings", {}))
    about = AdviceType(recorded.policy.get("type", ""))
    facts = msgspec.convert(recorded.observation, Facts)
    has_containers = bool(recorded.policy.get("hasContainers"))
    shows_refused = bool(recorded.policy.get("showsRefused"))
    request = AdviceRequest(policy, about, has_containers=has_containers, shows_refused=shows_refused)
    ((decision, details, _),) = decide_from(request, [facts])
    if recorded.policy.get("isApplied"):
        decision = proposed(decision, details)
    return named_for(replay_holds(recorded, decision), recorded.policy.get("for", ""))


def _series(decision: Decision, value: float | None) -> Iterable[tuple[Labels, float]]:
    if value is None:
        return ()
    subject, _, analytics = decision.subject.partition(SUBJECT_SEPARATOR)
    namespace, _, workload = subject.partition("/")
    return (((namespace, workload, analytics), value),)


def _advised(name: str, key: str, what: str) -> GaugeSpec:
    """Return a gauge of one advised number; a missing number has no series, rather than a 0."""
    return GaugeSpec(
        name,
        what,
        LABELS,
        lambda decision: _series(decision, (decision.extra.get("recommended") or {}).get(key)),
    )


BALANCER = Balancer(
    NAME,
    kinds=(ANALYTICS, RECOMMENDATION),
    decide=decide,
    redecide=redecide,
    make_loop=make_loop,
    gauges=(
        _advised(
            "equipoise_recommended_min_replicas", "minReplicas", "The fewest replicas that are advised."
        ),
        _advised("equipoise_recommended_max_replicas", "maxReplicas", "The most replicas that are advised."),
        _advised(
            "equipoise_recommended_target_utilization",
            "targetUtilization",
            "The advised target, in percent of the CPU request.",
        ),
        GaugeSpec(
            "equipoise_recommendation_coverage",
            "How much of the past week is known, from 0 to 1.",
            LABELS,
            lambda decision: _series(decision, decision.reason.numbers.get("coverage")),
        ),
    ),
)
