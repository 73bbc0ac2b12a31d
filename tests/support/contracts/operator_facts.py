"""What holds of the policies that people write, and of the stops that they say."""

import pytest

from equipoise.core.errors import WorldFailed
from equipoise.ports import PolicyObject, StoreConflict
from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import OperatorWorld

POLICIES: Contract[OperatorWorld] = Contract("Policies")
PAUSES: Contract[OperatorWorld] = Contract("Pauses")

SPEC = {"targetRef": {"kind": "Deployment", "name": "web"}, "topK": 3}


def _listed(world: OperatorWorld, name: str) -> PolicyObject | None:
    place = (world.namespace, name)
    found = (each for each in world.policies.policies() if (each.ref.namespace, each.ref.name) == place)
    return next(found, None)


def _added(world: OperatorWorld, name: str = "web") -> PolicyObject:
    world.add_policy(name, SPEC)
    return world.until(lambda: _listed(world, name), f"policy {name}")


@POLICIES.fact
def a_policy_is_listed_with_what_was_asked(world: OperatorWorld) -> None:
    """Spec, first generation, no answer yet, and an identity."""
    policy = _added(world)
    assert policy.spec["topK"] == 3
    assert policy.spec["targetRef"]["name"] == "web"
    assert (policy.generation, dict(policy.status)) == (1, {})
    assert policy.ref.uid
    assert policy.ref.kind == "RotationPolicy"


@POLICIES.fact
def a_status_is_seen_and_is_no_new_generation(world: OperatorWorld) -> None:
    """An answer does not change the question."""
    policy = _added(world)
    world.policies.write_status(policy, {"workloads": 2})

    def answered() -> PolicyObject | None:
        found = _listed(world, "web")
        return found if found and found.status else None

    seen = world.until(answered, "the status")
    assert (seen.status, seen.generation) == ({"workloads": 2}, 1)
    assert seen.version != policy.version


@POLICIES.fact
def a_status_replaces_the_one_before(world: OperatorWorld) -> None:
    """Nothing of an old answer stays behind."""
    world.policies.write_status(_added(world), {"workloads": 2, "observedGeneration": 1})
    second = world.until(lambda: (p := _listed(world, "web")) and p.status and p, "the first status")
    assert isinstance(second, PolicyObject)
    world.policies.write_status(second, {"workloads": 3})
    third = world.until(
        lambda: (p := _listed(world, "web")) and p.status.get("workloads") == 3 and p, "the second status"
    )
    assert isinstance(third, PolicyObject)
    assert third.status == {"workloads": 3}


@POLICIES.fact
def a_status_against_an_old_version_is_a_conflict_and_changes_nothing(world: OperatorWorld) -> None:
    """The question changed in between: answer it anew."""
    old = _added(world)
    world.add_policy("web", SPEC | {"topK": 4})
    with pytest.raises(StoreConflict):
        world.policies.write_status(old, {"workloads": 1})
    seen = world.until(
        lambda: (p := _listed(world, "web")) and p.generation == 2 and p, "the second generation"
    )
    assert isinstance(seen, PolicyObject)
    assert (seen.spec["topK"], dict(seen.status)) == (4, {})


@POLICIES.fact
def a_status_of_a_policy_that_has_gone_is_a_conflict(world: OperatorWorld) -> None:
    """And the policy stays away."""
    old = _added(world)
    world.remove_policy("web")
    with pytest.raises(StoreConflict):
        world.policies.write_status(old, {"workloads": 1})
    world.until(lambda: _listed(world, "web") is None, "the policy to vanish")


@PAUSES.fact
def nobody_has_said_stop_at_first(world: OperatorWorld) -> None:
    """None is a certain answer."""
    assert world.until(lambda: [world.pauses.pause_of(world.namespace)], "an answer") == [None]


@PAUSES.fact
def a_pause_says_who_and_holds_until_it_is_taken_back(world: OperatorWorld) -> None:
    """For this namespace alone."""
    world.pause(world.namespace, "alice")
    said = world.until(lambda: world.pauses.pause_of(world.namespace), "the pause")
    assert "alice" in said
    elsewhere = world.until(lambda: [world.pauses.pause_of(world.other_namespace)], "an answer elsewhere")
    assert elsewhere == [None]
    world.resume(world.namespace)
    world.until(lambda: world.pauses.pause_of(world.namespace) is None, "the resumption")


@PAUSES.fact
def a_pause_of_everything_holds_everywhere(world: OperatorWorld) -> None:
    """Two namespaces at once."""
    world.pause(None, "bob")
    for namespace in (world.namespace, world.other_namespace):
        assert "bob" in world.until(lambda n=namespace: world.pauses.pause_of(n), f"the pause of {namespace}")  # type: ignore[misc]
    world.resume(None)
    world.until(lambda: world.pauses.pause_of(world.namespace) is None, "the resumption")


@PAUSES.fact
def a_namespace_that_nobody_knows_is_unknown(world: OperatorWorld) -> None:
    """Not knowing raises, and nothing is done."""
    world.until(lambda: [world.pauses.pause_of(world.namespace)], "an answer")
    with pytest.raises(WorldFailed):
        world.pauses.pause_of("no-such-namespace")
