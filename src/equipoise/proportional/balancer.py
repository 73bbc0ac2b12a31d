"""The descriptor of proportional scaling."""

from collections.abc import Iterator

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.core.quantity import parse_bytes
from equipoise.engine.balancer import (
    WORKLOAD_LABELS,
    Balancer,
    GaugeSpec,
    Labels,
    workload_gauge,
    workload_labels,
)
from equipoise.engine.recording import replay_holds
from equipoise.ports.wiring import Loop, LoopSettings, Wiring
from equipoise.proportional.decide import Observation, decide
from equipoise.proportional.loop import ProportionalLoop
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.status import SCALING_POLICY


def redecide(recorded: Record) -> Decision:
    """Return the decision made again from a record's inputs, less what the guards held in the record."""
    policy = ScalingPolicySpec.model_validate(recorded.policy)
    observation = msgspec.convert(recorded.observation, Observation)
    return replay_holds(recorded, decide(policy, observation, recorded.memory).decision)


def make_loop(wiring: Wiring, settings: LoopSettings) -> Loop:
    """Return the loop; its policies and the DaemonSets are watched."""
    return ProportionalLoop(
        cluster=wiring.cluster,
        policies=wiring.policies(SCALING_POLICY),
        sizes=wiring.sizes(),
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        store=wiring.store,
        actuator=wiring.actuator,
        journal=wiring.journal,
        new_id=wiring.new_id,
        mode=settings.compat.mode,
        interval_seconds=settings.interval_seconds("proportional"),
        change_seconds=settings.proportional.change_seconds,
        rollout_seconds=settings.proportional.rollout_seconds,
        is_cluster_wide=not settings.namespaces,
        heartbeat=wiring.heartbeat,
        now=wiring.clock.now,
    )


def _quantities(name: str, number: str, what: str) -> GaugeSpec:
    """Return a gauge with a series for each container, section and resource that has a value."""

    def read(decision: Decision) -> Iterator[tuple[Labels, float]]:
        for slot, text in decision.reason.numbers.get(number, {}).items():
            if text is not None:
                yield (*workload_labels(decision.subject), *slot.rsplit(".", 2)), parse_bytes(text)

    return GaugeSpec(name, what, (*WORKLOAD_LABELS, "container", "section", "resource"), read)


BALANCER = Balancer(
    "proportional",
    kinds=(SCALING_POLICY,),
    decide=decide,
    redecide=redecide,
    make_loop=make_loop,
    gauges=(
        _quantities(
            "equipoise_scaling_target", "target", "The value for the cluster's size, in cores or bytes."
        ),
        _quantities("equipoise_scaling_in_force", "current", "The value in force, in cores or bytes."),
        workload_gauge("equipoise_scaling_pods", "pods", "Pods of the workload."),
        workload_gauge(
            "equipoise_scaling_pods_behind", "pods_behind", "Pods that do not have the values in force."
        ),
    ),
)
