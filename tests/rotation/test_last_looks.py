"""What is asked again before a deed, however sure the look was; and how long a look is believed."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from equipoise.core.cluster import Pod, Workload
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.world import World
from tests.support.rotation.tenants import ENFORCE, Lease, Pauses, Policies, loop_in
from tests.support.sim.scenes import SIX_LOADS, SixPods, six_pods

ALL: dict[str, Any] = {"selector": {}, "mode": "Enforce"}


class Fresh:
    """A cluster whose server tells of the pods otherwise than its cache does."""

    def __init__(self, inner: Any, change: Any) -> None:
        self._inner = inner
        self._change = change

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        return [*self._change(list(self._inner.pods_now(workload)))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _opted_out(pods: list[Pod]) -> list[Pod]:
    mark = (("karpenter.sh/do-not-disrupt", "true"),)
    return [msgspec.structs.replace(pod, annotations=mark) for pod in pods]


def _one_missing(pods: list[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: pod.name)[:-1] if len(pods) > 5 else pods


@pytest.mark.parametrize(("change", "why"), [(_opted_out, "is protected now"), (_one_missing, "")])
def test_the_last_look_hears_what_the_server_says_now(change: Any, why: str) -> None:
    """Opted out, or one pod short, since the cache was filled: nobody goes."""
    scene = six_pods(1)
    report = loop_in(scene.world, Policies(ENFORCE), cluster=Fresh(scene.world.cluster, change)).cycle(
        scene.world.now
    )
    (outcome,) = report.outcomes
    assert outcome.result == "Outdated"
    assert why in outcome.detail


def test_a_stop_between_the_intent_and_the_deed_is_heard() -> None:
    """The first pod of a wave asks again too."""
    scene, pauses = six_pods(1), Pauses()

    def say_stop(step: str) -> None:
        if step == "intent":
            pauses.who = "alice"

    report = loop_in(scene.world, Policies(ENFORCE), pauses=pauses, on_step=say_stop).cycle(scene.world.now)
    (outcome,) = report.outcomes
    assert (outcome.result, outcome.detail) == ("Outdated", "Alice.")


def test_what_was_decided_in_one_epoch_is_not_done_in_another() -> None:
    """The lease was lost and won again while the metrics were asked."""
    scene, lease = six_pods(1), Lease(1)

    class Slow:
        def __getattr__(self, name: str) -> Any:
            lease.held = 7
            return getattr(scene.world.metrics, name)

    report = loop_in(scene.world, Policies(ENFORCE), leadership=lease, metrics=Slow()).cycle(scene.world.now)
    assert report.outcomes == []


def test_a_look_of_long_ago_is_not_believed() -> None:
    """A cycle that was stopped for an hour after it had looked does nothing."""
    scene = six_pods(1)
    loop = loop_in(scene.world, Policies(ENFORCE), now=lambda: scene.world.now + 3600)
    report = loop.cycle(scene.world.now)
    assert report.decisions[0].reason.code is Code.HELD_BY_LEADER
    assert "1h old" in report.decisions[0].reason.sentence
    assert report.outcomes == []


def _ledger(scene: SixPods) -> Ledger:
    return Ledger.from_data(scene.world.store.read(scene.workload.ref).data)


def test_an_intent_bears_the_time_of_the_deed_not_of_the_look() -> None:
    """A slow cycle does not make its intent look old to others."""
    scene = six_pods(1)
    loop = loop_in(scene.world, Policies(ENFORCE), now=lambda: scene.world.now + 90)
    loop.cycle(scene.world.now)
    assert _ledger(scene).entries[0].at == scene.world.now + 90


class Killed(BaseException):
    """The process ends here."""


def test_a_frozen_cache_does_not_give_an_eviction_back() -> None:
    """The deed was done and its leader died; only the server's word can make it undone."""
    scene = six_pods(1)

    def die(step: str) -> None:
        if step == "deed":
            raise Killed

    frozen = scene.world.cluster.pods()
    with pytest.raises(Killed):
        loop_in(scene.world, Policies(ENFORCE), on_step=die).cycle(scene.world.now)

    class Frozen:
        def pods(self, namespace: str | None = None) -> Sequence[Pod]:
            del namespace
            return frozen

        def __getattr__(self, name: str) -> Any:
            return getattr(scene.world.cluster, name)

    scene.world.advance(150)
    successor = loop_in(scene.world, Policies(ENFORCE), leadership=Lease(2), cluster=Frozen())
    successor.cycle(scene.world.now)
    assert {entry.state for entry in _ledger(scene).entries} == {EntryState.DONE}


def _three(world: World, *names: str) -> None:
    for name in names:
        workload = world.add_workload(
            "shop", name, replicas=6, shape=Constant(sum(SIX_LOADS)), sharing=Partitions(SIX_LOADS)
        )
        world.add_hpa(workload, replicas_min=6, replicas_max=12, name=f"hpa-{name}")


def test_the_clusters_budget_counts_workloads_that_are_not_due() -> None:
    """Half of them are looked at every ten minutes: what they have away counts for the others."""
    world = World(1)
    for number in range(3):
        world.add_node(f"node-{number}")
    _three(world, "a", "b")
    world.advance(1200)
    slow = {"targetRef": {"kind": "Deployment", "name": "a"}, "mode": "Preview", "syncPeriod": "10m"}
    quick = {"targetRef": {"kind": "Deployment", "name": "b"}, "mode": "Preview", "syncPeriod": "30s"}
    loop = loop_in(world, Policies(slow, quick), disturbed_in_cluster_max=1)
    loop.cycle(world.now)
    victim = next(pod for pod in world.cluster.pods("shop") if pod.name.startswith("a-"))
    world.kubelet.crash(world.state.pods["shop", victim.name])
    report = loop.cycle(world.now + 10)
    assert [decision.subject for decision in report.carried] == ["shop/a"]
    assert report.decisions[0].reason.code is Code.HELD_BY_BUDGET


def test_a_rotation_under_way_is_looked_at_whatever_its_period() -> None:
    """A period of hours does not leave a rotation without its verdict."""
    scene = six_pods(1)
    loop = loop_in(scene.world, Policies(ENFORCE | {"syncPeriod": "3h"}))
    assert len(loop.cycle(scene.world.now).outcomes) == 1
    scene.world.advance(400)
    assert len(loop.cycle(scene.world.now).decisions) == 1
