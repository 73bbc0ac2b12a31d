"""I1 to I12, asked of what the server holds and of what the pods themselves see.

Written apart from the product's own `fsck`, so that neither excuses the other.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from equipoise.adapters.redis.scripts import Scripts
from tests.support.explorer.actors import KEY, known
from tests.support.explorer.machine import DEAD, PREFIX, Database, Local, World


class Held:
    """The server's keys, by what they mean."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tiers: dict[str, Any] = json.loads(database[KEY])["tiers"]
        self.assigned = {
            tier: database.get(f"{PREFIX}:pool:{tier}:assigned", frozenset()) for tier in self.tiers
        }
        self.available = {tier: self._available(tier) for tier in self.tiers}
        self.pods: set[str] = {pod for pods in self.assigned.values() for pod in pods}

    def _available(self, tier: str) -> dict[str, float]:
        value = self.database.get(f"{PREFIX}:pool:{tier}:available", frozenset())
        return dict.fromkeys(value, 0.0) if isinstance(value, frozenset) else dict(value[1])

    def of(self, kind: str, pod: str) -> Any:
        return self.database.get(f"{PREFIX}:{kind}:{pod}")

    def calls(self, pod: str) -> frozenset[str]:
        found: frozenset[str] = self.database.get(f"{PREFIX}:pod:{pod}:calls", frozenset())
        return found

    def alive(self, pod: str) -> frozenset[str]:
        """The calls whose own records name the pod."""
        return frozenset(call for call in self.calls(pod) if self.pod_of(call) == pod)

    def pod_of(self, call: str) -> Any:
        """The pod that the record of a call names."""
        record = self.database.get(f"{PREFIX}:call:{call}")
        return dict(record[1])["pod_name"] if record else None

    def is_shared(self, tier: str) -> bool:
        return bool(self.tiers[tier]["type"] == "shared")


def always(world: World, database: Database, locals_: tuple[Local, ...]) -> Iterator[str]:
    """What must hold after every command."""
    held = Held(database)
    named = {key.rpartition(":")[2] for key in database if key.startswith(f"{PREFIX}:pod:tier:")}
    for pod in sorted(held.pods | named | {pod for pods in held.available.values() for pod in pods}):
        yield from _of_pod(held, pod, is_foreign=world.is_foreign)
    if not world.is_foreign:
        yield from _of_calls(held)
        if not world.records_expire and any(held.alive(pod) != held.calls(pod) for pod in held.pods):
            yield "I5 a pod has a call of another one"
    served = [
        found
        for actor, local in zip(world.actors, locals_, strict=True)
        if local not in {(), DEAD} and (found := actor.serving(local)) is not None
    ]
    if any(call in held.calls(pod) and held.pod_of(call) != pod for pod, call in served):
        yield "I12 a call that is served is unknown"
    serving = Counter(pod for pod, call in set(served) if not world.replaces or call in held.calls(pod))
    exclusive = {pod for tier, pods in held.assigned.items() if not held.is_shared(tier) for pod in pods}
    if any(count > 1 for pod, count in serving.items() if pod in exclusive):
        yield "I11 two calls on an exclusive pod"


def _of_pod(held: Held, pod: str, *, is_foreign: bool) -> Iterator[str]:
    homes = [tier for tier, pods in held.assigned.items() if pod in pods]
    free = [tier for tier, pods in held.available.items() if pod in pods]
    if len(homes) != 1:
        yield "I1 not in exactly one assigned"
    elif held.of("pod:tier", pod) != homes[0]:
        yield "I1 the tier key disagrees"
    if len(free) > 1 or not set(free) <= set(homes):
        yield "I2 available elsewhere"
    if free and held.of("pod:draining", pod) is not None:
        yield "I6 draining yet available"
    for tier in free:
        score = held.available[tier][pod]
        if held.is_shared(tier):
            most = held.tiers[tier].get("max_concurrent", 5)
            if not 0 <= score <= most:
                yield "I3 more calls than fit"
            if not is_foreign and score != len(held.calls(pod)):
                yield "I4 the count is wrong"
        elif not is_foreign and (held.of("lease", pod) is not None or held.alive(pod)):
            yield "I3 available and held"


def _of_calls(held: Held) -> Iterator[str]:
    for key, value in held.database.items():
        if key.startswith(f"{PREFIX}:call:"):
            pod = dict(value[1])["pod_name"]
            if pod not in held.pods or key.removeprefix(f"{PREFIX}:call:") not in held.calls(pod):
                yield "I5 a call without its pod"


def between(world: World, before: Database, after: Database) -> Iterator[str]:
    """What no command may do."""
    del world
    old, new = Held(before), Held(after)
    if old.pods - new.pods:
        yield "I9 a pod is lost"
    if int(after.get(f"{PREFIX}:epoch", 0)) < int(before.get(f"{PREFIX}:epoch", 0)):
        yield "I10 the epoch fell"
    moved = [
        (source, tier)
        for tier in new.tiers
        for pod in new.assigned[tier] - old.assigned.get(tier, frozenset())
        for source in old.tiers
        if pod in old.assigned[source]
    ]
    for source, tier in moved:
        if len(new.assigned[tier]) > new.tiers[tier]["target"]:
            yield "I8 a move filled a tier beyond its target"
        if len(new.assigned[source]) < new.tiers[source]["target"]:
            yield "I8 a move took from a tier below its target"


def between_seed(world: World, before: Database, after: Database) -> Iterator[str]:
    """The same where a move is many commands: only its last one can be judged by its counts."""
    del world
    old, new = Held(before), Held(after)
    for tier in new.tiers:
        grown = len(new.assigned[tier]) > len(old.assigned[tier])
        if grown and len(new.assigned[tier]) > new.tiers[tier]["target"]:
            yield "I8 a move filled a tier beyond its target"


class AtRest:
    """I7: when everybody is done or dead, two sweeps put every idle pod back. Needs the server."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, world: World, database: Database, locals_: tuple[Local, ...]) -> Iterator[str]:
        del locals_
        held = Held(database)
        if any(not [t for t, pods in held.assigned.items() if pod in pods] for pod in self._named(database)):
            yield "I9 a pod is lost"
        if not world.heals:
            return
        # Whoever is left has died: in time, leases and records run out.
        left = [key for key in database if key.startswith((f"{PREFIX}:lease:", f"{PREFIX}:call:"))]
        if left:
            self._client.delete(*left)
        view = known(self._client)
        for _ in range(2):
            for pod in sorted(held.pods):
                Scripts(self._client, KEY, "test").run("recover", [*view, pod, "", "0"])
        for tier, pods in held.assigned.items():
            for pod in pods:
                if held.of("pod:draining", pod) is None and not self._is_idle(tier, pod, held):
                    yield "I7 an idle pod is not available"

    def _named(self, database: Database) -> set[str]:
        return {key.rpartition(":")[2] for key in database if key.startswith(f"{PREFIX}:pod:tier:")}

    def _is_idle(self, tier: str, pod: str, held: Held) -> bool:
        key = f"{PREFIX}:pool:{tier}:available"
        if held.is_shared(tier):
            return bool(self._client.zscore(key, pod) == 0)
        return bool(self._client.sismember(key, pod))
