"""What a loop needs beside the simulated cluster: policies, pauses, a lease and a diary, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from equipoise.core.cluster import ObjectRef, Pdb, Pod
from equipoise.core.decision import Record
from equipoise.ports import EvictionAnswer, EvictionResult, PolicyObject
from equipoise.rotation.loop import RotationLoop
from equipoise.sim.world import World


class Policies:
    """Policies, and how often their status was written."""

    def __init__(self, *specs: Mapping[str, Any], namespace: str = "shop") -> None:
        self.objects = {
            f"policy-{n}": PolicyObject(
                ObjectRef("equipoise.dev/v1alpha1", "RotationPolicy", namespace, f"policy-{n}", f"uid-{n}"),
                1,
                "1",
                spec,
                {},
            )
            for n, spec in enumerate(specs)
        }
        self.writes = 0

    def policies(self) -> Sequence[PolicyObject]:
        return list(self.objects.values())

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        self.writes += 1
        self.objects[policy.ref.name] = replace(policy, status=status)

    def status(self, number: int = 0) -> Mapping[str, Any]:
        return self.objects[f"policy-{number}"].status


class Lease:
    """A lease that a test gives and takes."""

    def __init__(self, epoch: int | None = 1) -> None:
        self.held: int | None = epoch

    def epoch(self) -> int | None:
        return self.held


class Pauses:
    """Who said stop."""

    def __init__(self) -> None:
        self.who: str | None = None

    def pause_of(self, namespace: str) -> str | None:
        del namespace
        return self.who


class Diary:
    """Keeps every record."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del is_whole
        self.records += records


class FrozenPods:
    """A cluster whose pods are the ones of long ago."""

    def __init__(self, world: World) -> None:
        self._inner = world.cluster
        self._pods = world.cluster.pods()

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        del namespace
        return self._pods

    def forget(self, pod: Pod) -> None:
        self._pods = [other for other in self._pods if other != pod]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class NoBudgets:
    """A cluster whose budgets we do not see."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        return ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Refusing:
    """An API server that answers every eviction alike."""

    def __init__(self, world: World, result: EvictionResult) -> None:
        self._inner, self._result = world.actuator, result
        self.asked = 0

    def evict(self, *_: object, **__: object) -> EvictionAnswer:
        self.asked += 1
        return EvictionAnswer(self._result, "no")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


ENFORCE: dict[str, Any] = {"targetRef": {"kind": "Deployment", "name": "web"}, "mode": "Enforce"}


def loop_in(world: World, policies: Policies, **changes: Any) -> RotationLoop:
    """The production loop on simulated ports."""
    numbers = count()
    options: dict[str, Any] = {
        "pauses": Pauses(),
        "leadership": Lease(),
        "journal": Diary(),
        "is_debounced": False,
        "now": world.clock.now,
        "new_id": lambda _: f"id-{next(numbers)}",
        "cluster": world.cluster,
        "metrics": world.metrics,
        "store": world.store,
        "actuator": world.actuator,
    }
    return RotationLoop(policies=policies, **(options | changes))
