"""What a loop needs beside the simulated cluster: policies, pauses, a lease and a diary, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import Any

from equipoise.core.cluster import ObjectRef, Pdb, Pod, WorkloadRef
from equipoise.core.decision import Decision, Record
from equipoise.ports import Cluster, EvictionAnswer, EvictionResult, Metrics, PolicyObject, Stored
from equipoise.rotation.command import plan
from equipoise.rotation.loop import Options, RotationLoop
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import RotationPolicy
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


class RefusingActuator:
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
    chosen = Options(is_debounced=changes.pop("is_debounced", False), **_taken(Options, changes))
    made = ports_in(world, **_taken(Ports, changes))
    return RotationLoop(made, policies, chosen, **changes)


def ports_in(world: World, **changes: Any) -> Ports:
    """The ports of a simulated cluster, with a lease, a journal and nobody who pauses."""
    numbers = count()
    ports: dict[str, Any] = {
        "pauses": Pauses(),
        "leadership": Lease(),
        "journal": Diary(),
        "now": world.clock.now,
        "new_id": lambda _: f"id-{next(numbers)}",
        "cluster": world.cluster,
        "metrics": world.metrics,
        "store": world.store,
        "actuator": world.actuator,
    }
    return Ports(**(ports | changes))


def _taken(kind: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Take out the changes that are about one dataclass."""
    names = {field.name for field in fields(kind)} & changes.keys()
    return {name: changes.pop(name) for name in names}


def reconnect(loop: RotationLoop, **changes: Any) -> None:
    """Give a running loop other ports."""
    loop.ports = replace(loop.ports, **changes)
    loop._rotator.ports = loop.ports


class InertPorts:
    """A store and a journal that are empty, and nobody who pauses."""

    def read(self, key: WorkloadRef) -> Stored:
        del key
        return Stored({})

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        del namespace
        return {}

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        raise AssertionError((key, data, version))

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del records, is_whole

    def pause_of(self, namespace: str) -> None:
        del namespace


class NoActuator:
    """Nothing is evicted, not even tried."""

    def evict(self, *_: object, **__: object) -> EvictionAnswer:
        raise AssertionError("a plan that asks no server")

    def record_event(self, *_: object, **__: object) -> None:
        raise AssertionError("a plan records no event")


def reading_ports(cluster: Cluster, metrics: Metrics, at: float) -> Ports:
    """The ports of a plan that has a cluster and metrics alone."""
    nothing = InertPorts()
    return Ports(
        cluster=cluster,
        metrics=metrics,
        pauses=nothing,
        leadership=Lease(),
        store=nothing,
        actuator=NoActuator(),
        journal=nothing,
        new_id=str,
        now=lambda: at,
    )


def plan_alone(
    policy: RotationPolicy, cluster: Cluster, metrics: Metrics, at: float, *scope: Any, **options: Any
) -> list[Decision]:
    """Plan with a cluster and metrics alone, without the server's dry run."""
    return plan(policy, reading_ports(cluster, metrics, at), at, *scope, uses_dry_run=False, **options)
