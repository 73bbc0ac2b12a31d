"""What holds of whoever changes requests and limits: pods in place, templates, and who else did."""

from collections.abc import Mapping
from typing import Protocol

from equipoise.core.cluster import Container, ObjectRef, Pod, WorkloadRef
from equipoise.ports.actions import ResizeResult, Sizes, Values
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import ClusterWorld, is_whole, pods_of, ref_of

ANOTHER_UID = "00000000-0000-4000-8000-000000000000"


class SizesWorld(ClusterWorld, Protocol):
    """A cluster whose pods can be changed in place."""

    @property
    def sizes(self) -> Sizes: ...

    def resize_as(self, who: str, pod: Pod, values: Values) -> None:
        """Let another field manager change a pod in place."""
        ...


SIZES: Contract[SizesWorld] = Contract("Sizes")


def _cpu(request: str, **more: Mapping[str, str]) -> Values:
    return {"app": {"requests": {"cpu": request}, **more}}


def _seen(world: SizesWorld, uid: str) -> Container:
    return next(pod.containers[0] for pod in world.cluster.pods(world.namespace) if pod.uid == uid)


def _about(world: SizesWorld, ref: WorkloadRef) -> ObjectRef:
    workload = world.sizes.workload(ref)
    assert workload is not None
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, workload.uid)


@SIZES.fact
def a_workload_is_told_with_its_templates_containers(world: SizesWorld) -> None:
    """What its pods are made from; and one that is not there is None."""
    ref = world.add_workload("web", 1)
    workload = world.sizes.workload(ref)
    assert workload is not None
    assert [(c.name, c.cpu_request_cores) for c in workload.containers] == [("app", 0.5)]
    assert workload.replaces_pods
    assert world.sizes.workload(ref._replace(name="nobody")) is None
    assert world.sizes.offers_resize()


@SIZES.fact
def a_pod_changed_in_place_stays_the_same_pod(world: SizesWorld) -> None:
    """No restart, no other pod, and the template is as it was; a limit may be added, too."""
    ref = world.add_workload("web", 2)
    first, second = pods_of(world, "web")
    answer = world.sizes.resize(ref_of(first), _cpu("600m", limits={"cpu": "800m"}))
    assert answer.result is ResizeResult.ACCEPTED
    has = _seen(world, first.uid)
    assert (has.cpu_request_cores, has.cpu_limit_cores) == (0.6, 0.8)
    assert has.memory_request_bytes == 256 * 2.0**20
    world.settle()
    world.until(lambda: all(pod.resize is None for pod in pods_of(world, "web")), "the node to have done it")
    now = {pod.uid: pod for pod in pods_of(world, "web")}
    assert set(now) == {first.uid, second.uid}
    assert (now[first.uid].restarts, now[first.uid].is_ready, now[first.uid].resize) == (0, True, None)
    assert _seen(world, second.uid).cpu_request_cores == 0.5
    workload = world.sizes.workload(ref)
    assert workload is not None
    assert workload.containers[0].cpu_request_cores == 0.5


@SIZES.fact
def another_incarnation_and_another_version_are_not_what_was_meant(world: SizesWorld) -> None:
    """Nothing is changed for a wrong UID, an old version, or a pod that has gone."""
    ref = world.add_workload("web", 1)
    (pod,) = pods_of(world, "web")
    wrong = ref_of(pod)._replace(uid=ANOTHER_UID)
    assert world.sizes.resize(wrong, _cpu("600m")).result is ResizeResult.GONE
    gone = ref_of(pod)._replace(name="nobody")
    assert world.sizes.resize(gone, _cpu("600m")).result is ResizeResult.GONE
    old = world.sizes.resize(ref_of(pod), _cpu("600m"), version="1")
    assert old.result is ResizeResult.OUTDATED
    other = _about(world, ref)._replace(uid=ANOTHER_UID)
    assert world.sizes.set_template(other, _cpu("600m")).result is ResizeResult.GONE
    assert _seen(world, pod.uid).cpu_request_cores == 0.5


@SIZES.fact
def what_no_pod_may_become_is_refused(world: SizesWorld) -> None:
    """Another QoS class, a request above its limit; the words say which, and nothing is changed."""
    ref = world.add_workload("web", 1)
    (pod,) = pods_of(world, "web")
    alike = {"cpu": "500m", "memory": "256Mi"}
    guaranteed = world.sizes.resize(ref_of(pod), {"app": {"requests": alike, "limits": alike}})
    assert guaranteed.result is ResizeResult.REFUSED
    assert "QOS" in guaranteed.detail.upper()
    too_much = _cpu("600m", limits={"cpu": "550m"})
    assert world.sizes.resize(ref_of(pod), too_much).result is ResizeResult.REFUSED
    assert world.sizes.set_template(_about(world, ref), too_much).result is ResizeResult.REFUSED
    assert _seen(world, pod.uid).cpu_request_cores == 0.5
    assert _seen(world, pod.uid).cpu_limit_cores is None


@SIZES.fact
def a_dry_run_changes_no_size(world: SizesWorld) -> None:
    """Neither of a pod nor of a template; and the answer is the real one."""
    ref = world.add_workload("web", 1)
    (pod,) = pods_of(world, "web")
    answers = [
        world.sizes.resize(ref_of(pod), _cpu("600m"), is_dry_run=True),
        world.sizes.set_template(_about(world, ref), _cpu("600m"), is_dry_run=True),
    ]
    assert [answer.result for answer in answers] == [ResizeResult.ACCEPTED] * 2
    world.settle()
    assert [(p.uid, p.containers[0].cpu_request_cores) for p in pods_of(world, "web")] == [(pod.uid, 0.5)]


@SIZES.fact
def a_new_template_replaces_the_pods(world: SizesWorld) -> None:
    """By the controllers' own doing; values that were not named stay."""
    ref = world.add_workload("web", 2)
    before = {pod.uid for pod in pods_of(world, "web")}
    answer = world.sizes.set_template(_about(world, ref), _cpu("600m"))
    assert answer.result is ResizeResult.ACCEPTED

    def is_replaced() -> bool:
        pods = pods_of(world, "web")
        return is_whole(world, "web", 2) and before.isdisjoint(pod.uid for pod in pods)

    world.until(is_replaced, "two new pods")
    for pod in pods_of(world, "web"):
        (container,) = pod.containers
        assert (container.cpu_request_cores, container.memory_request_bytes) == (0.6, 256 * 2.0**20)


@SIZES.fact
def who_else_set_a_value_is_named(world: SizesWorld) -> None:
    """The one who was last, and never ourselves."""
    world.add_workload("web", 1)
    (pod,) = pods_of(world, "web")
    about = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
    world.sizes.resize(ref_of(pod), _cpu("600m"))
    assert world.sizes.setter_of(about, "app", "requests", "cpu") != "equipoise"
    world.resize_as("argocd", pod, _cpu("700m"))
    assert world.sizes.setter_of(about, "app", "requests", "cpu") == "argocd"


@SIZES.fact
def nobodys_requests_are_set_by_a_vpa_at_first(world: SizesWorld) -> None:
    """Also where there is no such kind."""
    ref = world.add_workload("web", 1)
    assert ref not in world.sizes.advised()
