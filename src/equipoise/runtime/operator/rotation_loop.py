"""The rotation's loop, wired to a cluster."""

from collections.abc import Iterable, Iterator

from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.core.decision import Decided
from equipoise.engine.disruption import SYSTEM_NAMESPACES
from equipoise.rotation.decide import decide_all
from equipoise.rotation.loop import Batch, Decide, RotationLoop
from equipoise.rotation.policy import ROTATION_POLICY
from equipoise.rotation.progress import RotationDetails
from equipoise.runtime.operator.loops import Wiring
from equipoise.runtime.operator.worker import DEADLINE_SECONDS
from equipoise.runtime.settings import Settings

HEAVY_PODS = 10_000
"""From here on deciding takes long enough to be in the way of the Lease and of `/healthz`."""
PART_PODS = 5_000
"""So many go to the worker at once: to pack them holds up everything else for hundredths of a second."""

DEADLINE_LEAST_SECONDS = 60.0


def _parts(batch: Batch) -> Iterator[Batch]:
    part, pods = [], 0
    for asked in batch:
        part.append(asked)
        pods += len(asked[1].pods)
        if pods >= PART_PODS:
            yield part
            part, pods = [], 0
    if part:
        yield part


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

    def in_worker(part: Batch) -> list[Decided[RotationDetails]]:
        # What is narrowed down to one workload need not take as long as the whole part may.
        share = sum(len(seen.pods) for _, seen, _ in part) / PART_PODS
        deadline_seconds = min(DEADLINE_SECONDS, max(DEADLINE_LEAST_SECONDS, share * DEADLINE_SECONDS))
        return wiring.batches.submit(decide_all, part, deadline_seconds=deadline_seconds)

    def batches(batch: Batch) -> Iterable[tuple[Batch, Decide]]:
        is_heavy = sum(len(seen.pods) for _, seen, _ in batch) >= HEAVY_PODS
        # What ended a worker would end us: from then on nothing is decided here, however small.
        if not is_heavy and not wiring.batches.replaced:
            return [(batch, decide_all)]
        return ((part, in_worker) for part in _parts(batch))

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
        batches=batches,
        beat=wiring.beat,
        now=wiring.clock.now,
    )
