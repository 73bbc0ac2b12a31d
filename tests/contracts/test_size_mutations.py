"""The contract of sizes has teeth: servers that are wrong on purpose, and the fact that finds each out."""

from collections.abc import Callable
from typing import Any

import pytest

from equipoise.core.cluster import PodRef
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Values
from tests.support.contracts import sizes_facts
from tests.support.contracts.sized import SimulatedSizes


class Wrong:
    """Right but for what a mutation changes."""

    def __init__(self, world: SimulatedSizes) -> None:
        self._world = world
        self._right = world.sim.sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


class IgnoresUids(Wrong):
    """Goes by the name alone."""

    def resize(self, pod: PodRef, values: Values, **options: Any) -> ResizeAnswer:
        found = self._world.sim.state.pods.get((pod.namespace, pod.name))
        return self._right.resize(found.ref if found else pod, values, **options)


class DryRunActs(Wrong):
    """Forgets that it was only asked what if."""

    def resize(self, pod: PodRef, values: Values, **options: Any) -> ResizeAnswer:
        return self._right.resize(pod, values, **(options | {"is_dry_run": False}))


class RestartsPods(Wrong):
    """Brings the values by ending the container."""

    def resize(self, pod: PodRef, values: Values, **options: Any) -> ResizeAnswer:
        answer = self._right.resize(pod, values, **options)
        if answer.result is ResizeResult.ACCEPTED:
            self._world.sim.kubelet.crash(self._world.sim.state.pods[pod.namespace, pod.name])
        return answer


class NamesItself(Wrong):
    """Takes its own write for another's."""

    def setter_of(self, *args: Any) -> str:
        return "equipoise"


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (IgnoresUids, sizes_facts.another_incarnation_and_another_version_are_not_what_was_meant),
        (DryRunActs, sizes_facts.a_dry_run_changes_no_size),
        (RestartsPods, sizes_facts.a_pod_changed_in_place_stays_the_same_pod),
        (NamesItself, sizes_facts.who_else_set_a_value_is_named),
    ],
    ids=lambda part: part.__name__,
)
def test_a_wrong_server_is_found_out(wrong: type[Wrong], fact: Callable[[SimulatedSizes], None]) -> None:
    """A simulator that changes pods as no server would is worse than none."""
    world = SimulatedSizes()
    world.sizes = wrong(world)
    with pytest.raises(AssertionError):
        fact(world)
