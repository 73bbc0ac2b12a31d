"""Budgets: the arithmetic of the disruption controller, and the eviction API that lives by it."""

import pytest

from equipoise.core.cluster import PodRef
from equipoise.ports import EvictionResult
from equipoise.sim import Delay, Template, World
from equipoise.sim.state import PodState, WorkloadState
from equipoise.sim.template import Budget, BudgetStatus, Portion, status

TABLE: list[tuple[Budget, int, int, int, BudgetStatus]] = [
    (Budget(max_unavailable=1), 6, 6, 6, BudgetStatus(6, 5, 6, 1)),
    (Budget(max_unavailable=1), 6, 6, 5, BudgetStatus(6, 5, 5, 0)),
    (Budget(max_unavailable=0), 6, 6, 6, BudgetStatus(6, 6, 6, 0)),
    (Budget(max_unavailable="25%"), 6, 6, 6, BudgetStatus(6, 4, 6, 2)),  # 1.5 is 2
    (Budget(max_unavailable="50%"), 3, 3, 3, BudgetStatus(3, 1, 3, 2)),  # 1.5 is 2
    (Budget(max_unavailable="100%"), 3, 3, 3, BudgetStatus(3, 0, 3, 3)),
    (Budget(max_unavailable=9), 3, 3, 3, BudgetStatus(3, 0, 3, 3)),
    (Budget(min_available=4), 6, 6, 6, BudgetStatus(6, 4, 6, 2)),
    (Budget(min_available=4), 6, 5, 6, BudgetStatus(6, 4, 6, 2)),  # an int counts pods, not the scale
    (Budget(min_available="50%"), 5, 5, 5, BudgetStatus(5, 3, 5, 2)),  # 2.5 is 3
    (Budget(min_available="7%"), 100, 100, 9, BudgetStatus(100, 7, 9, 2)),  # not 8, as in floats
    (Budget(min_available="100%"), 5, 5, 5, BudgetStatus(5, 5, 5, 0)),
    (Budget(min_available=0), 0, 0, 0, BudgetStatus(0, 0, 0, 0)),  # nothing is expected, nothing is allowed
    (Budget(max_unavailable=1), 6, 8, 6, BudgetStatus(8, 7, 6, 0)),  # being scaled up: 8 are expected
    (Budget(max_unavailable=1), 2, 0, 2, BudgetStatus(0, 0, 2, 0)),  # scaled to zero: nothing is expected
]


@pytest.mark.parametrize(("budget", "pods", "scale", "healthy", "expected"), TABLE)
def test_budgets_are_counted_as_kubernetes_counts(
    budget: Budget, pods: int, scale: int, healthy: int, expected: BudgetStatus
) -> None:
    """Percentages are of the scale and rounded up; what is allowed is never negative."""
    assert status(budget, pods=pods, scale=scale, healthy=healthy) == expected


def test_a_budget_says_one_thing() -> None:
    """Both or neither is refused."""
    for values in ((None, None), (1, 1)):
        with pytest.raises(ValueError, match="either"):
            Budget(*values)


def guarded(
    replicas: int = 4, *, max_unavailable: Portion = 1, template: Template | None = None
) -> tuple[World, WorkloadState, list[PodState]]:
    """Give a workload with a budget, up and running."""
    world = World(3)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=replicas, template=template)
    world.add_pdb("shop", "web", Budget(max_unavailable=max_unavailable))
    world.advance(120)
    return world, workload, list(workload.pods.values())


def test_two_evictions_in_one_moment_cannot_both_pass() -> None:
    """The API counts down at once; the controller counts up when the replacement is ready."""
    world, _, pods = guarded()
    assert world.actuator.evict(pods[0].ref).result is EvictionResult.ACCEPTED
    assert world.actuator.evict(pods[1].ref).result is EvictionResult.BLOCKED
    world.advance(1)
    assert world.actuator.evict(pods[1].ref).result is EvictionResult.BLOCKED
    world.advance(60)
    assert world.actuator.evict(pods[1].ref).result is EvictionResult.ACCEPTED
    world.advance(60)
    (budget,) = world.cluster.pdbs("shop")
    assert (budget.disruptions_allowed, budget.pods_healthy, budget.pods_desired) == (1, 4, 3)


def test_a_dry_run_asks_the_budget_and_takes_nothing() -> None:
    """However often; and nothing is evicted."""
    world, workload, pods = guarded()
    for _ in range(3):
        assert world.actuator.evict(pods[0].ref, is_dry_run=True).result is EvictionResult.ACCEPTED
    world.actuator.evict(pods[0].ref)
    assert world.actuator.evict(pods[1].ref, is_dry_run=True).result is EvictionResult.BLOCKED
    world.advance(0.01)
    assert sum(pod.deletion_at is not None for pod in workload.pods.values()) == 1


def test_only_the_incarnation_that_was_meant_is_evicted() -> None:
    """Another UID, or no such pod: gone. The budget pays for the first, as it does in a cluster."""
    world, _, pods = guarded()
    other = pods[0].ref._replace(uid="another")
    assert world.actuator.evict(other).result is EvictionResult.GONE
    assert world.actuator.evict(PodRef("shop", "nobody", "x")).result is EvictionResult.GONE
    assert world.cluster.pdbs()[0].disruptions_allowed == 0
    assert world.actuator.evict(other).result is EvictionResult.BLOCKED
    world.advance(60)
    assert {pod.uid for pod in pods} == {pod.uid for pod in world.cluster.pods()}
    world.advance(180)
    assert world.cluster.pdbs()[0].disruptions_allowed == 1


def test_a_pod_with_two_budgets_is_refused() -> None:
    """For good, so asking again is no use."""
    world, _, pods = guarded()
    world.add_pdb("shop", "second", Budget(max_unavailable=1), labels=(("app", "web"),))
    world.advance(1)
    assert world.actuator.evict(pods[0].ref).result is EvictionResult.REFUSED


def test_unready_pods_go_while_the_healthy_ones_suffice() -> None:
    """With 3 of 3 wanted healthy it may go although nothing is allowed; with 2 it may not."""
    slow = Template(start_up=Delay(40))
    world, _, pods = guarded(template=slow)
    world.kubelet.crash(pods[0])
    world.advance(1)
    assert world.cluster.pdbs()[0].disruptions_allowed == 0
    assert world.actuator.evict(pods[0].ref).result is EvictionResult.ACCEPTED
    world.kubelet.crash(pods[1])
    world.kubelet.crash(pods[2])
    world.advance(1)
    assert world.actuator.evict(pods[1].ref).result is EvictionResult.BLOCKED


def test_always_allow_lets_every_unready_pod_go() -> None:
    """Healthy ones are still guarded."""
    world = World(3)
    world.add_node("node")
    workload = world.add_workload("shop", "web", replicas=3)
    world.add_pdb("shop", "web", Budget(min_available=3, unhealthy_policy="AlwaysAllow"))
    world.advance(120)
    sick, well, _ = workload.pods.values()
    world.kubelet.crash(sick)
    world.advance(1)
    assert world.actuator.evict(sick.ref).result is EvictionResult.ACCEPTED
    assert world.actuator.evict(well.ref).result is EvictionResult.BLOCKED


def test_an_evicted_pod_keeps_its_grace_and_is_replaced_under_another_name() -> None:
    """Terminating and unready at once, gone when it has stopped, and its successor is somebody else."""
    world, workload, pods = guarded(template=Template(stop=Delay(20), grace_seconds=30))
    world.actuator.evict(pods[0].ref)
    (seen,) = [pod for pod in world.cluster.pods() if pod.uid == pods[0].uid]
    assert not seen.is_ready
    assert seen.is_disruption_target
    assert seen.deletion_at == world.now + 30
    world.advance(19)
    assert pods[0].uid in workload.pods
    assert len(workload.pods) == 5
    world.advance(2)
    assert pods[0].uid not in workload.pods
    assert {pod.name for pod in workload.pods.values()}.isdisjoint({pods[0].name})


def test_a_shorter_grace_is_kept_to() -> None:
    """Three seconds instead of thirty."""
    world, workload, pods = guarded(template=Template(stop=Delay(20)))
    world.actuator.evict(pods[0].ref, grace_seconds=3)
    world.advance(3.01)
    assert pods[0].uid not in workload.pods
