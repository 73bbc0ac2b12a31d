"""What others do to the autoscalers of a simulated cluster, and one whole sync of its HPA controller."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from equipoise.sim.hpa import (
    HpaController,
    HpaMemory,
    HpaPod,
    HpaProposal,
    SimulatedHpaSpec,
    advise,
    highest,
)
from equipoise.sim.state import HpaState, WorkloadState
from equipoise.sim.world import World


def edit_hpa(world: World, hpa: HpaState, who: str, *, replicas_max: int) -> None:
    """Change an HPA as another field manager, who owns the field from then on."""
    hpa.spec, hpa.view = replace(hpa.spec, replicas_max=replicas_max), None
    hpa.edited_by, hpa.version = who, world.state.next_version()


def pause_autoscaler(world: World, workload: WorkloadState, why: str) -> None:
    """Pause the autoscaling of a workload, as an annotation for KEDA does; the replicas stay."""
    world.state.log("AutoscalerPaused", workload.ref, why)
    world.state.autoscaler_pauses[workload.ref] = why
    world.state.next_version()


def resume_autoscaler(world: World, workload: WorkloadState) -> None:
    """Remove the pause."""
    world.state.log("AutoscalerResumed", workload.ref)
    world.state.autoscaler_pauses.pop(workload.ref, None)
    world.state.next_version()


def recommend(
    spec: SimulatedHpaSpec,
    pods_by_metric: Sequence[Sequence[HpaPod]],
    *,
    current: int,
    memory: HpaMemory,
    at: float,
    controller: HpaController,
) -> HpaProposal:
    """Return how many replicas one sync of the controller sets, given the pods as each metric shows them."""
    proposed = partial(highest, spec, pods_by_metric, current, at, controller)
    return advise(spec, proposed, current=current, memory=memory, at=at, controller=controller)
