"""What holds of every actuator: evictions, budgets, dry runs, events."""

from collections.abc import Sequence

from equipoise.core.cluster import ObjectRef, Pod
from equipoise.engine.disruption import clear
from equipoise.ports import EvictionResult
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import ClusterWorld, is_whole, pods_of, ref_of

ACTUATOR: Contract[ClusterWorld] = Contract("Actuator")

ANOTHER_UID = "00000000-0000-4000-8000-000000000000"


def _evict(world: ClusterWorld, pod: Pod, *, is_dry_run: bool = False) -> EvictionResult:
    return world.actuator.evict(ref_of(pod), is_dry_run=is_dry_run).result


def _uids(world: ClusterWorld, app: str = "web") -> set[str]:
    return {pod.uid for pod in pods_of(world, app)}


def _whole(world: ClusterWorld, replicas: int, app: str = "web") -> None:
    world.until(lambda: is_whole(world, app, replicas), f"{replicas} pods of {app}")


def _budget_in_force(world: ClusterWorld, allowed: int) -> None:
    def is_so() -> bool:
        return all(
            b.is_current and b.disruptions_allowed == allowed for b in world.cluster.pdbs(world.namespace)
        )

    world.until(is_so, f"budgets that allow {allowed}")


@ACTUATOR.fact
def an_evicted_pod_goes_and_another_takes_its_place(world: ClusterWorld) -> None:
    """The controllers do the rest."""
    world.add_workload("web", 3)
    pod, *rest = pods_of(world, "web")
    assert _evict(world, pod) is EvictionResult.ACCEPTED
    _whole(world, 3)
    assert pod.uid not in _uids(world)
    assert {other.uid for other in rest} < _uids(world)


@ACTUATOR.fact
def a_wrong_uid_changes_nothing(world: ClusterWorld) -> None:
    """A name that another incarnation has taken over is not the pod that was meant."""
    world.add_workload("web", 2)
    before = _uids(world)
    pod = pods_of(world, "web")[0]
    answer = world.actuator.evict(ref_of(pod)._replace(uid=ANOTHER_UID))
    assert answer.result is EvictionResult.GONE
    world.settle()
    assert _uids(world) == before


@ACTUATOR.fact
def an_order_for_another_incarnation_still_costs_its_budget(world: ClusterWorld) -> None:
    """The server counts before it compares, so nobody should ask with a UID that may be old."""
    world.add_workload("web", 4)
    world.add_budget("web", "web", 2)
    pod = pods_of(world, "web")[0]
    wrong = ref_of(pod)._replace(uid=ANOTHER_UID)
    assert world.actuator.evict(wrong, is_dry_run=True).result is EvictionResult.GONE
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [2]
    assert world.actuator.evict(wrong).result is EvictionResult.GONE
    world.settle()
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [1]
    assert pod.uid in _uids(world)


@ACTUATOR.fact
def a_pod_that_is_not_there_is_gone(world: ClusterWorld) -> None:
    """No pod, no error."""
    world.add_workload("web", 1)
    pod = pods_of(world, "web")[0]
    answer = world.actuator.evict(ref_of(pod)._replace(name="nobody"))
    assert answer.result is EvictionResult.GONE


@ACTUATOR.fact
def a_pod_that_was_evicted_and_replaced_is_gone(world: ClusterWorld) -> None:
    """The same order, given again after it was carried out, does nothing."""
    world.add_workload("web", 2)
    pod = pods_of(world, "web")[0]
    _evict(world, pod)
    _whole(world, 2)
    after = _uids(world)
    assert _evict(world, pod) is EvictionResult.GONE
    world.settle()
    assert _uids(world) == after


@ACTUATOR.fact
def a_budget_of_one_blocks_the_second_until_the_first_is_replaced(world: ClusterWorld) -> None:
    """Blocked means wait, and the wait ends."""
    world.add_workload("web", 3)
    world.add_budget("web", "web", 1)
    first, second, _ = pods_of(world, "web")
    world.hold_terminating([first])
    assert _evict(world, first) is EvictionResult.ACCEPTED
    assert _evict(world, second) is EvictionResult.BLOCKED
    assert second.uid in _uids(world)
    world.let_go([first])
    _whole(world, 3)
    _budget_in_force(world, 1)
    assert _evict(world, second) is EvictionResult.ACCEPTED


@ACTUATOR.fact
def a_blocked_eviction_names_the_budget(world: ClusterWorld) -> None:
    """A person can look it up."""
    world.add_workload("web", 2)
    world.add_budget("thrift", "web", 0)
    answer = world.actuator.evict(ref_of(pods_of(world, "web")[0]))
    assert answer.result is EvictionResult.BLOCKED
    assert "thrift" in answer.detail


@ACTUATOR.fact
def a_budget_that_allows_nothing_blocks_for_ever(world: ClusterWorld) -> None:
    """Asking again changes nothing: it is never deleted instead."""
    world.add_workload("web", 2)
    world.add_budget("web", "web", 0)
    before = _uids(world)
    pod = pods_of(world, "web")[0]
    for _ in range(3):
        assert _evict(world, pod) is EvictionResult.BLOCKED
        world.settle()
    assert _uids(world) == before


@ACTUATOR.fact
def an_accepted_eviction_counts_down_at_once(world: ClusterWorld) -> None:
    """The budget says so before any controller has looked."""
    world.add_workload("web", 4)
    world.add_budget("web", "web", 2)
    first, second, third, _ = pods_of(world, "web")
    world.hold_terminating([first, second])
    assert _evict(world, first) is EvictionResult.ACCEPTED
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [1]
    assert _evict(world, second) is EvictionResult.ACCEPTED
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [0]
    assert _evict(world, third) is EvictionResult.BLOCKED
    world.let_go([first, second])


@ACTUATOR.fact
def a_budget_of_another_workload_does_not_matter(world: ClusterWorld) -> None:
    """Selectors select."""
    world.add_workload("web", 2)
    world.add_workload("api", 2)
    world.add_budget("api", "api", 0)
    assert _evict(world, pods_of(world, "web")[0]) is EvictionResult.ACCEPTED
    assert _evict(world, pods_of(world, "api")[0]) is EvictionResult.BLOCKED


@ACTUATOR.fact
def without_a_budget_all_may_go_at_once(world: ClusterWorld) -> None:
    """Which is why the guards count too."""
    world.add_workload("web", 3)
    pods = pods_of(world, "web")
    assert {_evict(world, pod) for pod in pods} == {EvictionResult.ACCEPTED}
    _whole(world, 3)
    assert not {pod.uid for pod in pods} & _uids(world)


@ACTUATOR.fact
def a_pod_under_several_budgets_is_refused(world: ClusterWorld) -> None:
    """However much each of them allows, and in a dry run too."""
    world.add_workload("web", 3)
    world.add_budget("one", "web", 3)
    world.add_budget("two", "web", 3)
    before = _uids(world)
    pod = pods_of(world, "web")[0]
    assert _evict(world, pod, is_dry_run=True) is EvictionResult.REFUSED
    assert _evict(world, pod) is EvictionResult.REFUSED
    world.settle()
    assert _uids(world) == before


@ACTUATOR.fact
def a_dry_run_changes_nothing(world: ClusterWorld) -> None:
    """Look before you act."""
    world.add_workload("web", 2)
    before = _uids(world)
    for pod in pods_of(world, "web"):
        assert _evict(world, pod, is_dry_run=True) is EvictionResult.ACCEPTED
    world.settle()
    assert _uids(world) == before
    assert not any(pod.is_disruption_target for pod in pods_of(world, "web"))


@ACTUATOR.fact
def a_dry_run_does_not_count_down(world: ClusterWorld) -> None:
    """So it is true for the first pod only, and plans count by themselves."""
    world.add_workload("web", 3)
    world.add_budget("web", "web", 1)
    answers = {_evict(world, pod, is_dry_run=True) for pod in pods_of(world, "web")}
    assert answers == {EvictionResult.ACCEPTED}
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [1]
    assert _evict(world, pods_of(world, "web")[0]) is EvictionResult.ACCEPTED


@ACTUATOR.fact
def a_dry_run_knows_the_budget(world: ClusterWorld) -> None:
    """What would be blocked is said to be."""
    world.add_workload("web", 2)
    world.add_budget("web", "web", 0)
    pod = pods_of(world, "web")[0]
    assert _evict(world, pod, is_dry_run=True) is EvictionResult.BLOCKED
    gone = ref_of(pod)._replace(uid=ANOTHER_UID)
    assert world.actuator.evict(gone, is_dry_run=True).result is not EvictionResult.ACCEPTED


@ACTUATOR.fact
def a_pod_on_its_way_out_costs_nothing_more(world: ClusterWorld) -> None:
    """To evict it again takes nothing from the budget and no other pod."""
    world.add_workload("web", 4)
    world.add_budget("web", "web", 2)
    first, second, *_ = pods_of(world, "web")
    world.hold_terminating([first])
    assert _evict(world, first) is EvictionResult.ACCEPTED
    assert _evict(world, first) is EvictionResult.ACCEPTED
    assert [b.disruptions_allowed for b in world.cluster.pdbs(world.namespace)] == [1]
    assert _evict(world, second) is EvictionResult.ACCEPTED
    world.let_go([first])


@ACTUATOR.fact
def our_arithmetic_says_what_the_server_will_say(world: ClusterWorld) -> None:
    """Counted down over all pods of three workloads in one order, then asked for one by one."""
    for name, replicas in (("web", 4), ("api", 3), ("job", 2), ("odd", 2)):
        world.add_workload(name, replicas)
    world.add_budget("web", "web", 2)
    world.add_budget("api", "api", 0)
    world.add_budget("odd-1", "odd", 1)
    world.add_budget("odd-2", "odd", 1)
    wanted = [pod for app in ("web", "odd", "api", "job") for pod in pods_of(world, app)]
    cleared = clear(wanted, world.cluster.pdbs(world.namespace))
    world.hold_terminating(wanted)
    accepted = [pod.uid for pod in wanted if _evict(world, pod) is EvictionResult.ACCEPTED]
    assert accepted == [pod.uid for pod in cleared.may_go]
    assert len(accepted) == 4
    world.let_go(wanted)


@ACTUATOR.fact
def an_event_is_found_with_its_object(world: ClusterWorld) -> None:
    """One reason, one sentence, where people look."""
    ref = world.add_workload("web", 1)
    workload = world.cluster.workload(ref)
    assert workload is not None
    about = ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)
    world.actuator.record_event(about, "Rotated", "2 of 6 pods were rotated: ü.")
    world.actuator.record_event(about, "PdbBlocked", "The budget allows none.", is_warning=True)

    def told() -> Sequence[tuple[str, str]]:
        ours = {"Rotated", "PdbBlocked"}
        found = [event for event in world.sentences_about(ref) if event[0] in ours]
        return found if len(found) == 2 else []

    found = world.until(told, "two events")
    assert sorted(found) == [
        ("PdbBlocked", "The budget allows none."),
        ("Rotated", "2 of 6 pods were rotated: ü."),
    ]


@ACTUATOR.fact
def an_event_about_nothing_hurts_nobody(world: ClusterWorld) -> None:
    """The object may be gone, or its namespace; a sentence may be long."""
    world.actuator.record_event(
        ObjectRef("apps/v1", "Deployment", world.namespace, "gone"), "Gone", "x" * 5000
    )
    world.actuator.record_event(
        ObjectRef("apps/v1", "Deployment", "no-such-namespace", "gone"), "Gone", "It is."
    )
