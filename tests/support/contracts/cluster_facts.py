"""What holds of every cluster that is read."""

from equipoise.core.cluster import WorkloadRef
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import ClusterWorld, pods_of, ref_of

CLUSTER: Contract[ClusterWorld] = Contract("Cluster")


@CLUSTER.fact
def a_ready_pod_is_told_with_what_the_balancers_need(world: ClusterWorld) -> None:
    """Its node, phase, readiness, labels, owner and requests."""
    ref = world.add_workload("web", 2)
    nodes = {node.name for node in world.cluster.nodes()}
    for pod in pods_of(world, "web"):
        assert (pod.namespace, pod.phase, pod.is_ready) == (ref.namespace, "Running", True)
        assert pod.node in nodes
        assert pod.uid
        assert pod.resource_version
        assert pod.owner is not None
        assert pod.owner.kind == "ReplicaSet"
        assert [(c.name, c.cpu_request_cores) for c in pod.containers] == [("app", 0.5)]
        assert pod.ready_since is not None
        assert pod.created_at <= pod.ready_since
        assert (pod.deletion_at, pod.restarts, pod.is_mirror) == (None, 0, False)
        assert not pod.is_disruption_target


@CLUSTER.fact
def pods_have_names_and_uids_of_their_own(world: ClusterWorld) -> None:
    """Nobody is mistaken for somebody else."""
    world.add_workload("web", 4)
    pods = pods_of(world, "web")
    assert len({pod.uid for pod in pods}) == len({pod.name for pod in pods}) == len(pods) == 4


@CLUSTER.fact
def a_namespace_narrows_every_list(world: ClusterWorld) -> None:
    """And a namespace that is not there has nothing."""
    ref = world.add_workload("web", 2)
    world.add_budget("web", "web", 1)
    world.add_hpa("web", ref, 70, 4)
    cluster, place, elsewhere = world.cluster, world.namespace, "no-such-namespace"
    for mine, theirs in (
        (cluster.pods(place), cluster.pods(elsewhere)),
        (cluster.workloads(place), cluster.workloads(elsewhere)),
        (cluster.hpas(place), cluster.hpas(elsewhere)),
        (cluster.pdbs(place), cluster.pdbs(elsewhere)),
    ):
        assert mine
        assert not theirs
    everywhere = {pod.uid for pod in cluster.pods()}
    assert {pod.uid for pod in cluster.pods(place)} <= everywhere


@CLUSTER.fact
def nodes_are_told_with_their_size(world: ClusterWorld) -> None:
    """What fits on them, and whether they take pods."""
    for node in world.cluster.nodes():
        assert node.name
        assert node.uid
        assert node.cpu_cores > 0
        assert node.memory_bytes > 0
        assert node.pods_max > 0
    assert any(node.is_ready and not node.is_cordoned for node in world.cluster.nodes())


@CLUSTER.fact
def a_workload_is_told_with_its_replicas(world: ClusterWorld) -> None:
    """Wanted, seen, ready and updated; and its ReplicaSets are its own affair."""
    ref = world.add_workload("web", 3)

    def is_settled() -> bool:
        (found,) = world.cluster.workloads(world.namespace)
        return found.replicas_ready == 3

    world.until(is_settled, "three ready replicas in the status")
    (found,) = world.cluster.workloads(world.namespace)
    assert found.ref == ref
    assert (found.replicas_wanted, found.replicas_seen, found.replicas_updated) == (3, 3, 3)
    assert found.generation_observed >= found.generation > 0
    assert found.uid


@CLUSTER.fact
def a_workloads_selector_finds_exactly_its_pods(world: ClusterWorld) -> None:
    """As its HPA and its budgets do."""
    ref = world.add_workload("web", 2)
    world.add_workload("api", 3)
    workload = world.cluster.workload(ref)
    assert workload is not None
    selected = [p for p in world.cluster.pods(world.namespace) if workload.selector.matches(dict(p.labels))]
    assert {p.uid for p in selected} == {p.uid for p in pods_of(world, "web")}


@CLUSTER.fact
def one_workload_reads_as_the_list_does(world: ClusterWorld) -> None:
    """By its name, through its `scale` or its own object."""
    ref = world.add_workload("web", 2)
    one = world.cluster.workload(ref)
    listed = {w.ref: w for w in world.cluster.workloads(world.namespace)}[ref]
    assert one is not None
    assert (one.ref, one.uid, one.replicas_wanted) == (ref, listed.uid, listed.replicas_wanted)
    assert one.selector == listed.selector


@CLUSTER.fact
def a_workload_that_is_not_there_is_none(world: ClusterWorld) -> None:
    """No such name, no such namespace, no such kind."""
    world.add_workload("web", 1)
    for ref in (
        WorkloadRef("apps/v1", "Deployment", world.namespace, "nobody"),
        WorkloadRef("apps/v1", "Deployment", "no-such-namespace", "web"),
        WorkloadRef("apps/v1", "StatefulSet", world.namespace, "web"),
        WorkloadRef("example.org/v1", "Imaginary", world.namespace, "web"),
    ):
        assert world.cluster.workload(ref) is None


@CLUSTER.fact
def a_terminating_pod_is_shown_as_such_until_it_is_gone(world: ClusterWorld) -> None:
    """It counts as leaving, not as there and not as gone."""
    world.add_workload("web", 2)
    pod = pods_of(world, "web")[0]
    world.hold_terminating([pod])
    world.actuator.evict(ref_of(pod))

    def shown() -> bool:
        found = [p for p in world.cluster.pods(world.namespace) if p.uid == pod.uid]
        return [p.deletion_at is not None for p in found] == [True]

    world.until(shown, "a pod with a deletion time")
    (seen,) = [p for p in world.cluster.pods(world.namespace) if p.uid == pod.uid]
    assert seen.is_disruption_target
    world.let_go([pod])

    def is_gone() -> bool:
        return all(p.uid != pod.uid for p in world.cluster.pods(world.namespace))

    world.until(is_gone, "the pod gone")


@CLUSTER.fact
def a_change_gives_an_object_another_version(world: ClusterWorld) -> None:
    """So that a cache can tell."""
    world.add_workload("web", 2)
    pod = pods_of(world, "web")[0]
    world.hold_terminating([pod])
    before = {p.uid: p.resource_version for p in world.cluster.pods(world.namespace)}[pod.uid]
    world.actuator.evict(ref_of(pod))

    def has_changed() -> bool:
        versions = {p.uid: p.resource_version for p in world.cluster.pods(world.namespace)}
        return versions.get(pod.uid, before) != before

    world.until(has_changed, "another version")
    world.let_go([pod])


@CLUSTER.fact
def a_budget_is_told_with_what_it_allows(world: ClusterWorld) -> None:
    """Its selector, its numbers, and that they are current."""
    world.add_workload("web", 4)
    world.add_budget("web", "web", 1)
    (budget,) = world.cluster.pdbs(world.namespace)
    assert budget.selector is not None
    assert budget.selector.matches({"app": "web"})
    assert not budget.selector.matches({"app": "api"})
    assert (budget.disruptions_allowed, budget.pods_healthy, budget.pods_desired) == (1, 4, 3)
    assert (budget.pods_expected, budget.is_current) == (4, True)


@CLUSTER.fact
def an_hpa_is_told_with_its_target_and_metric(world: ClusterWorld) -> None:
    """Whom it scales, by what, between which bounds."""
    ref = world.add_workload("web", 2)
    world.add_hpa("web", ref, 70, 9)
    (hpa,) = world.cluster.hpas(world.namespace)
    assert hpa.target == ref
    assert (hpa.replicas_min, hpa.replicas_max) == (1, 9)
    assert (hpa.tolerance_up, hpa.tolerance_down) == (0.1, 0.1)
    (metric,) = hpa.metrics
    assert (metric.type, metric.name, metric.target_type, metric.target_value) == (
        "Resource",
        "cpu",
        "Utilization",
        70,
    )


@CLUSTER.fact
def a_last_look_shows_the_pods_of_one_workload_as_they_are(world: ClusterWorld) -> None:
    """Past every cache: nobody else's pods, and a pod that was just told to go is on its way."""
    ref = world.add_workload("web", 2)
    world.add_workload("other", 1)
    workload = world.cluster.workload(ref)
    assert workload is not None
    pods = pods_of(world, "web")
    assert {pod.uid for pod in world.cluster.pods_now(workload)} == {pod.uid for pod in pods}
    world.hold_terminating(pods)
    world.actuator.evict(ref_of(pods[0]))
    going = {pod.uid for pod in world.cluster.pods_now(workload) if pod.deletion_at is not None}
    assert going == {pods[0].uid}
    world.let_go(pods)


@CLUSTER.fact
def nobodys_autoscaling_is_paused_at_first(world: ClusterWorld) -> None:
    """Also where nothing that could pause it was ever installed."""
    world.add_hpa("web", world.add_workload("web", 1), 70, 4)
    assert dict(world.cluster.autoscaler_pauses(world.namespace)) == {}


@CLUSTER.fact
def a_paused_autoscaler_is_told_with_what_paused_it_until_it_goes_on(world: ClusterWorld) -> None:
    """By the same name that lists and HPAs give the workload; and nobody else's is."""
    ref = world.add_workload("web", 1)
    world.add_workload("other", 1)
    by = "autoscaling.keda.sh/paused"
    world.pause_autoscaler(ref, by)
    pauses = world.until(lambda: world.cluster.autoscaler_pauses(world.namespace), "the pause")
    assert list(pauses) == [ref]
    assert pauses[ref].startswith("ScaledObject ")
    assert pauses[ref].endswith(f" is paused by {by}")
    world.resume_autoscaler(ref)
    world.until(lambda: not world.cluster.autoscaler_pauses(world.namespace), "the end of the pause")


@CLUSTER.fact
def a_namespace_narrows_the_pauses(world: ClusterWorld) -> None:
    """Everywhere includes here, and elsewhere does not."""
    ref = world.add_workload("web", 1)
    world.pause_autoscaler(ref, "autoscaling.keda.sh/paused-replicas")
    world.until(lambda: ref in world.cluster.autoscaler_pauses(world.namespace), "the pause")
    assert ref in world.cluster.autoscaler_pauses()
    assert not world.cluster.autoscaler_pauses("no-such-namespace")
