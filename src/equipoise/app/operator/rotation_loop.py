"""The rotation's loop, wired to a cluster."""

from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.app.operator.loops import Wiring
from equipoise.app.operator.settings import Settings
from equipoise.guard.protection import SYSTEM_NAMESPACES
from equipoise.model.decision import Decision
from equipoise.rotation.decide import decide_all
from equipoise.rotation.loop import Batch, RotationLoop
from equipoise.rotation.policy import ROTATION_POLICY

HEAVY_PODS = 10_000
"""From here on deciding takes long enough to be in the way of the Lease and of `/healthz`."""


def rotation_loop(wiring: Wiring, settings: Settings) -> RotationLoop:
    """Make the loop, and have its policies watched."""
    kind = ROTATION_POLICY
    policies = KubernetesPolicies(
        wiring.client,
        group=kind.group,
        version=kind.version,
        name=kind.name,
        plural=kind.plural,
        namespaces=settings.namespaces,
    )
    wiring.watch(policies.reflector)

    def decide_batch(batch: Batch) -> list[Decision]:
        is_heavy = sum(len(seen.pods) for _, seen, _ in batch) >= HEAVY_PODS
        return wiring.batches.submit(decide_all, batch) if is_heavy else decide_all(batch)

    return RotationLoop(
        cluster=wiring.cluster,
        metrics=wiring.metrics,
        policies=policies,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        store=wiring.store,
        actuator=wiring.actuator,
        journal=wiring.journal,
        new_id=wiring.record_ids.next,
        interval_seconds=settings.intervals.rotation_seconds,
        disturbed_in_cluster_max=settings.disruption.cluster_max,
        namespaces_protected=SYSTEM_NAMESPACES | {wiring.operator_namespace},
        decide_batch=decide_batch,
        beat=wiring.beat,
        now=wiring.clock.now,
    )
