"""StatefulSets in the simulator: ordinals, the last goes first, and a name is used again once it is free."""

from equipoise.sim import Delay, Template, World
from equipoise.sim.load import Leases


def _names(world: World) -> list[str]:
    return sorted(pod.name for pod in world.cluster.pods("d"))


def test_pods_are_counted_and_the_last_goes_first() -> None:
    """Whoever is evicted comes back under the same name as another pod, once the old one is gone."""
    world = World(5)
    world.add_node("n1")
    fleet = world.add_workload(
        "d", "agent", kind="StatefulSet", replicas=3, template=Template(stop=Delay(10.0))
    )
    world.advance(60)
    assert _names(world) == ["agent-0", "agent-1", "agent-2"]
    (view,) = {pod.owner for pod in world.cluster.pods("d")}
    assert view is not None
    assert (view.kind, view.name) == ("StatefulSet", "agent")
    before = next(pod for pod in fleet.pods.values() if pod.name == "agent-1")
    world.actuator.evict(before.ref)
    world.advance(5)
    assert _names(world) == ["agent-0", "agent-1", "agent-2"]  # the old one still ends
    world.advance(60)
    after = next(pod for pod in fleet.pods.values() if pod.name == "agent-1")
    assert after.uid != before.uid
    world.scale(fleet, 1)
    world.advance(60)
    assert _names(world) == ["agent-0"]


def test_leases_are_even_until_they_are_upset_and_newcomers_take_only_a_few() -> None:
    """All of them are always held, and who held most when somebody ends gets nothing more."""
    from random import Random

    leases = Leases(taken_max=5, taken_every_seconds=30.0)
    leases.begin(Random(1))
    pods = [f"p{number}" for number in range(8)]
    for count in range(1, 9):
        leases.settle(pods[:count], 8)
    assert set(leases.shares().values()) == {12 / 96}
    leases.upset()
    held = {pod: round(share * 96) for pod, share in leases.shares().items()}
    assert sorted(held.values(), reverse=True) == list(Leases.UNEVEN)
    hottest, second = sorted(held, key=lambda pod: -held[pod])[:2]
    members = [pod for pod in pods if pod != hottest]
    leases.settle(members, 8)
    assert sum(leases.shares().values()) == 1.0
    assert round(leases.shares()[second] * 96) == 24
    leases.settle([*members, "new"], 8)
    for _ in range(40):
        leases.drift(15.0)
    assert round(leases.shares()["new"] * 96) == 5
    assert round(leases.shares()[second] * 96) == 19
    assert not leases.drift(15.0)
