"""The rotation's descriptor: its loop, its metrics, and how its records are decided again."""

from collections.abc import Iterable, Iterator

import msgspec

from equipoise.core.decision import Decided, Decision, Record
from equipoise.core.reason import Code
from equipoise.engine.balancer import (
    WORKLOAD_LABELS,
    Balancer,
    CounterSpec,
    GaugeSpec,
    Labels,
    workload_gauge,
    workload_labels,
)
from equipoise.engine.disruption import SYSTEM_NAMESPACES
from equipoise.engine.guards import held_by_lag
from equipoise.engine.recording import replay_holds
from equipoise.ports import CycleReport
from equipoise.ports.wiring import DEADLINE_SECONDS, Loop, LoopSettings, Wiring
from equipoise.rotation.decide import decide, decide_all
from equipoise.rotation.loop import Batch, Decide, Options, RotationLoop
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import ROTATION_POLICY, RotationPolicy
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import RotationDetails

HEAVY_PODS = 10_000
"""Pods from which a cycle is decided in the worker: in this process it would delay the Lease."""
BATCH_PODS = 5_000
"""Pods per batch sent to the worker; pickling more would block this process for tens of ms."""
DEADLINE_LEAST_SECONDS = 60.0


def _parts(batch: Batch) -> Iterator[Batch]:
    part, pods = [], 0
    for item in batch:
        part.append(item)
        pods += len(item[1].pods)
        if pods >= BATCH_PODS:
            yield part
            part, pods = [], 0
    if part:
        yield part


def make_loop(wiring: Wiring, settings: LoopSettings) -> Loop:

    def in_worker(part: Batch) -> list[Decided[RotationDetails]]:
        # A batch of one workload gets a shorter deadline than a whole part.
        share = sum(len(observation.pods) for _, observation, _ in part) / BATCH_PODS
        deadline_seconds = min(DEADLINE_SECONDS, max(DEADLINE_LEAST_SECONDS, share * DEADLINE_SECONDS))
        return wiring.batches.submit(decide_all, part, deadline_seconds=deadline_seconds)

    def batches(batch: Batch) -> Iterable[tuple[Batch, Decide]]:
        is_heavy = sum(len(observation.pods) for _, observation, _ in batch) >= HEAVY_PODS
        # A batch that ended a worker could end this process: from then on even small ones go to the worker.
        if not is_heavy and not wiring.batches.replaced:
            return [(batch, decide_all)]
        return ((part, in_worker) for part in _parts(batch))

    ports = Ports(
        cluster=wiring.cluster,
        metrics=wiring.metrics,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        store=wiring.store,
        actuator=wiring.actuator,
        journal=wiring.journal,
        new_id=wiring.new_id,
        now=wiring.clock.now,
        heartbeat=wiring.heartbeat,
    )
    options = Options(
        disturbed_in_cluster_max=settings.disruption.cluster_max,
        namespaces_protected=SYSTEM_NAMESPACES | {wiring.operator_namespace},
        batches=batches,
    )
    interval_seconds = settings.interval_seconds("rotation")
    return RotationLoop(ports, wiring.policies(ROTATION_POLICY), options, interval_seconds)


def inputs(recorded: Record) -> tuple[RotationPolicy, Observation]:
    """Return the policy and the observation of a record; raises a ValueError that names what does not fit."""
    policy = RotationPolicy.model_validate(recorded.policy)
    return policy, msgspec.convert(recorded.observation, Observation)


def redecide(recorded: Record) -> Decision:
    """Decide again from a record; the guard of the Kafka lag is evaluated again, too."""
    policy, observation = inputs(recorded)
    lag = policy.kafka_lag
    guards = {
        Code.HELD_BY_LAG: lambda numbers: held_by_lag(numbers.get("kafka_lag"), lag.threshold, lag.query)
    }
    return replay_holds(recorded, decide(policy, observation, recorded.memory).decision, guards)


def _futile(decision: Decision) -> Iterable[tuple[Labels, float]]:
    return ((workload_labels(decision.subject), float("futile_until" in decision.reason.numbers)),)


def _decisions(report: CycleReport) -> Iterable[tuple[str, Labels]]:
    for decision in report.decisions:
        yield decision.subject, (decision.reason.code.value, *workload_labels(decision.subject))


def _evictions(report: CycleReport) -> Iterable[tuple[str, Labels]]:
    owners = {action.uid: each.subject for each in report.decisions for action in each.actions}
    for outcome in report.outcomes:
        subject = owners.get(outcome.action.uid)
        if subject is not None:
            yield subject, (outcome.result, *workload_labels(subject))


def _waves(report: CycleReport) -> Iterable[tuple[str, Labels]]:
    subjects = {subject for subject, labels in _evictions(report) if labels[0] == "Accepted"}
    return ((subject, workload_labels(subject)) for subject in subjects)


BALANCER = Balancer(
    "rotation",
    kinds=(ROTATION_POLICY,),
    decide=decide,
    redecide=redecide,
    make_loop=make_loop,
    gauges=(
        workload_gauge(
            "rebalancer_current_cpu_average", "average_hot_cores", "Average of the hot pods, in cores."
        ),
        workload_gauge(
            "rebalancer_predicted_cpu_average",
            "average_rotated_cores",
            "Predicted average after a rotation: of the hot and the coldest pods, in cores.",
        ),
        workload_gauge(
            "rebalancer_improvement_calculated", "improvement_percent", "Predicted improvement, in percent."
        ),
        workload_gauge(
            "rebalancer_improvement_realised",
            "realised_improvement_percent",
            "By how much the usage of the hottest pod fell in the last measured rotation, in percent.",
        ),
        workload_gauge(
            "rebalancer_safety_threshold_current",
            "threshold_cores",
            "The usage above which a pod is hot, in cores: target times tolerance.",
        ),
        GaugeSpec(
            "rebalancer_futile",
            "1 while no rotation is tried because the last ones did not help.",
            WORKLOAD_LABELS,
            _futile,
        ),
    ),
    counters=(
        CounterSpec(
            "rebalancer_rotation_decisions",
            "Decisions by reason and workload.",
            ("reason", *WORKLOAD_LABELS),
            _decisions,
        ),
        CounterSpec(
            "rebalancer_evictions",
            "Evictions by result.",
            ("result", *WORKLOAD_LABELS),
            _evictions,
        ),
        CounterSpec(
            "rebalancer_waves", "Waves in which at least one pod was evicted.", WORKLOAD_LABELS, _waves
        ),
    ),
)
