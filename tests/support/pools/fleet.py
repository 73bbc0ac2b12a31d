"""Pods as Kubernetes would list them, and a loop of ours that stands in a world of a test's making."""

from dataclasses import dataclass, field
from typing import Any

from equipoise.core.cluster import Pod
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.registration import RegistrationRule

UIDS = {f"agent-{number}": f"uid-{number}" for number in range(9)}


def pod(
    name: str,
    uid: str = "",
    *,
    is_ready: bool = True,
    deletion_at: float | None = None,
    phase: str = "Running",
) -> Pod:
    """Give a pod of the fleet."""
    return Pod(
        namespace="calls",
        name=name,
        uid=uid or UIDS.get(name, f"uid-{name}"),
        resource_version="1",
        node="n1",
        phase=phase,
        is_ready=is_ready,
        ready_since=0.0,
        created_at=0.0,
        deletion_at=deletion_at,
        owner=None,
        labels=(),
        annotations=(),
        containers=(),
        restarts=0,
        restarted_at=None,
        priority=0,
        priority_class="",
        qos_class="Burstable",
        has_local_storage=False,
        is_mirror=False,
        is_disruption_target=False,
    )


@dataclass
class World:
    """What the loop stands in: lists, a lease, pauses and a diary, all in a test's hands."""

    listed: list[Pod] = field(default_factory=list)
    lead: int | None = 5
    paused: str | None = None
    records: list[Record] = field(default_factory=list)
    unknown: bool = False
    gone: set[str] = field(default_factory=set)
    """Pods that the API server does not know by name."""

    def is_gone(self, name: str, uid: str) -> bool:
        del uid
        return name in self.gone

    def pods(self) -> list[Pod]:
        if self.unknown:
            raise WorldFailed("the pods of the pools have not been listed yet")
        return self.listed

    def epoch(self) -> int | None:
        return self.lead

    def pause_of(self, namespace: str) -> str | None:
        assert namespace == "calls"
        return self.paused

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del is_whole
        self.records += records


def make_loop(world: World, pools: Any, **changes: Any) -> PoolsLoop:
    """Make a loop on these pools."""
    fields: dict[str, Any] = {
        "pools": pools,
        "pods": world.pods,
        "is_gone": world.is_gone,
        "pauses": world,
        "leadership": world,
        "journal": world,
        "new_id": lambda at: f"{at}-{len(world.records)}",
        "namespace": "calls",
        "rule": RegistrationRule(missing_seconds=30.0),
    }
    return PoolsLoop(**fields | changes)
