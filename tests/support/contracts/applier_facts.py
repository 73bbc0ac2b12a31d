"""What holds of every applier: what is ours is made and kept, what is not is left alone."""

from typing import Any

from equipoise.core.cluster import WorkloadRef
from equipoise.ports import ApplyResult
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import ApplierWorld

APPLIER: Contract[ApplierWorld] = Contract("Applier")

NOTE = "equipoise.dev/a-note"


def wanted(
    target: WorkloadRef, replicas_max: int = 9, name: str = "", replicas_min: int = 2
) -> dict[str, Any]:
    """Describe an HPA on CPU utilization."""
    use = {"type": "Utilization", "averageUtilization": 60}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name or target.name, "namespace": target.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "minReplicas": replicas_min,
            "maxReplicas": replicas_max,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": use}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
        },
    }


def _most(world: ApplierWorld) -> dict[str, int]:
    return {hpa.name: hpa.replicas_max for hpa in world.cluster.hpas(world.namespace)}


@APPLIER.fact
def an_hpa_is_created_kept_and_changed(world: ApplierWorld) -> None:
    """Each answer says what was done, a dry run says the same and does nothing."""
    web = world.add_workload("web", 1)
    assert world.applier.apply_hpa(wanted(web), is_dry_run=True).result is ApplyResult.CREATED
    assert _most(world) == {}
    assert world.applier.apply_hpa(wanted(web)).result is ApplyResult.CREATED
    (made,) = world.cluster.hpas(world.namespace)
    assert (made.target, made.replicas_min, made.replicas_max) == (web, 2, 9)
    assert [(metric.name, metric.target_value) for metric in made.metrics] == [("cpu", 60)]
    for is_dry_run in (True, False):
        answer = world.applier.apply_hpa(wanted(web), is_dry_run=is_dry_run)
        assert answer.result is ApplyResult.UNCHANGED
    assert world.applier.apply_hpa(wanted(web, 12), is_dry_run=True).result is ApplyResult.CHANGED
    assert _most(world) == {"web": 9}
    assert world.applier.apply_hpa(wanted(web, 12)).result is ApplyResult.CHANGED
    assert _most(world) == {"web": 12}
    (now,) = world.cluster.hpas(world.namespace)
    assert now.uid == made.uid


@APPLIER.fact
def what_somebody_else_made_is_left_alone(world: ApplierWorld) -> None:
    """By its name or by its target, and they are told apart by who made them."""
    web, api = world.add_workload("web", 1), world.add_workload("api", 1)
    world.add_hpa("web", web, 70, 5)
    world.add_hpa("of-api", api, 70, 6)
    for manifest in (wanted(web), wanted(web, name="another"), wanted(api)):
        for is_dry_run in (True, False):
            answer = world.applier.apply_hpa(manifest, is_dry_run=is_dry_run)
            assert answer.result is ApplyResult.NOT_OURS
            assert answer.owner
            assert answer.owner in answer.detail
    assert _most(world) == {"web": 5, "of-api": 6}


@APPLIER.fact
def what_keda_scales_is_left_alone(world: ApplierWorld) -> None:
    """Also while it keeps no HPA, as it does when it is paused."""
    web = world.add_workload("web", 1)
    world.pause_autoscaler(web, "autoscaling.keda.sh/paused")
    answer = world.applier.apply_hpa(wanted(web))
    assert (answer.result, answer.owner) == (ApplyResult.NOT_OURS, "KEDA")
    assert f"ScaledObject {web.subject}" in answer.detail
    assert _most(world) == {}


@APPLIER.fact
def a_field_that_somebody_else_has_set_stays_theirs(world: ApplierWorld) -> None:
    """Whoever edits our HPA means it: their name is told, nothing is forced."""
    web = world.add_workload("web", 1)
    world.applier.apply_hpa(wanted(web))
    world.edit_hpa("web", "an-editor", 20)
    for is_dry_run in (True, False):
        answer = world.applier.apply_hpa(wanted(web, 12), is_dry_run=is_dry_run)
        assert (answer.result, answer.owner) == (ApplyResult.NOT_OURS, "an-editor")
        assert ".spec" in answer.detail
    assert _most(world) == {"web": 20}
    assert world.applier.apply_hpa(wanted(web, 20)).result is ApplyResult.UNCHANGED, "who agrees is welcome"


@APPLIER.fact
def an_hpa_of_ours_is_never_aimed_at_another_workload(world: ApplierWorld) -> None:
    """Two kinds may have one name; and what cannot be is refused, with nothing changed."""
    web, api = world.add_workload("web", 1), world.add_workload("api", 1)
    assert world.applier.apply_hpa(wanted(web, name="shared")).result is ApplyResult.CREATED
    answer = world.applier.apply_hpa(wanted(api, name="shared"))
    assert answer.result is ApplyResult.REFUSED
    assert f"already scales {web}" in answer.detail
    assert world.applier.apply_hpa(wanted(web, 3, "shared", 4)).result is ApplyResult.REFUSED
    (made,) = world.cluster.hpas(world.namespace)
    assert (made.target, made.replicas_max) == (web, 9)


@APPLIER.fact
def an_annotation_is_all_that_changes(world: ApplierWorld) -> None:
    """No new revision, no pod touched; the same again is nothing new; what is not there is gone."""
    web = world.add_workload("web", 1)
    pods = {pod.uid for pod in world.cluster.pods(world.namespace)}
    for is_dry_run in (True, False):
        answer = world.applier.annotate(web, {NOTE: "max: 9\n"}, is_dry_run=is_dry_run)
        assert answer.result is ApplyResult.CHANGED
    assert world.applier.annotate(web, {NOTE: "max: 9\n"}).result is ApplyResult.UNCHANGED
    assert world.applier.annotate(web, {NOTE: "max: 10\n"}).result is ApplyResult.CHANGED
    (listed,) = world.cluster.workloads(world.namespace)
    assert dict(listed.annotations)[NOTE] == "max: 10\n"
    world.settle()

    def is_settled() -> bool:
        (listed,) = world.cluster.workloads(world.namespace)
        return (listed.generation_observed, listed.replicas_updated) == (listed.generation, 1)

    world.until(is_settled, "a status of the same revision")
    assert {pod.uid for pod in world.cluster.pods(world.namespace)} == pods
    nobody = web._replace(name="nobody")
    assert world.applier.annotate(nobody, {NOTE: "x"}).result is ApplyResult.GONE
    nowhere = web._replace(namespace="no-such-namespace")
    assert world.applier.apply_hpa(wanted(nowhere)).result is ApplyResult.GONE
