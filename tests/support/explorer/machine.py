"""Runs every interleaving of a small world against real scripts on a real server.

A state is what the server holds, where every actor stands, and what may still go wrong. Each step puts a
state back into the server, lets one actor send exactly one command, and reads the server again. States that
were met before are not run again, but the ways through them are counted: every interleaving is covered, and
the number of them is exact.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

PREFIX = "voice"
PICKS = 40
"""How often chance is asked at most: of two pods, one would be missed once in 500,000,000,000 times."""
DEAD = ("dead",)
Local = tuple[Any, ...]
Database = dict[str, Any]

DUMP = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'string' then value = {redis.call('GET', key)}
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else value = redis.call('HGETALL', key) end
  found[#found + 1] = {key, kind, value}
end
return found
"""


class Actor(Protocol):
    """One program that talks to the server, one command at a time."""

    name: str
    start: Local
    can_lose_answers: bool

    def step(self, local: Local, client: Any) -> Local:
        """Send one command, and give where the actor stands then; done is an empty tuple."""
        ...

    def unheard(self, local: Local) -> Local:
        """Give where the actor stands when its command was done and no answer came: it asks again."""
        ...

    def needs_rest(self, local: Local) -> bool:
        """Tell whether so much time passes before this command that nobody is still between two of his."""
        ...

    def is_hurrying(self, local: Local) -> bool:
        """Tell whether the actor is between two commands that follow each other at once."""
        ...

    def serving(self, local: Local) -> tuple[str, str] | None:
        """Name the pod that serves a call of this actor now, and the call."""
        ...


@dataclass(frozen=True)
class World:
    """Pods in tiers, and who works on them."""

    name: str
    setup: Callable[[Any], None]
    actors: tuple[Actor, ...]
    leases_expire: int = 0
    """How many leases may run out before their time."""
    records_expire: int = 0
    """How many records of calls may run out, once their callers are gone and their leases too."""
    losses: int = 2
    """How many answers may be lost after the server has done what was asked."""
    crashes: int = 1
    """How many actors may die, each after any of its commands."""
    is_foreign: bool = False
    """Whether allocators that keep no records take part."""
    replaces: bool = False
    """Whether pods are replaced under their names: the calls of the old ones end with them."""
    heals: bool = True
    """Whether two sweeps at the end must put everything right."""


class State(NamedTuple):
    """One node of the graph."""

    database: tuple[tuple[str, Any], ...]
    locals: tuple[Local, ...]
    losses: int
    crashes: int
    expiries: int
    records: int


@dataclass
class Explored:
    """What was found."""

    world: str
    interleavings: int = 0
    states: int = 0
    steps: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    example: dict[str, list[str]] = field(default_factory=dict)
    """The first way to each violation."""

    def __str__(self) -> str:
        broken = ", ".join(f"{name} x{count}" for name, count in sorted(self.violations.items())) or "none"
        return (
            f"{self.world}: {self.interleavings} interleavings, {self.states} states, {self.steps} commands, "
            f"violations: {broken}"
        )


Check = Callable[[World, Database, tuple[Local, ...]], Iterator[str]]
Between = Callable[[World, Database, Database], Iterator[str]]


class Machine:
    """Explores one world."""

    def __init__(self, client: Any, world: World, always: Check, between: Between, at_rest: Check) -> None:
        self._client = client
        self._world = world
        self._always = always
        self._between = between
        self._at_rest = at_rest
        self._dump = client.register_script(DUMP)
        self._ways: dict[State, int] = {}
        self._trail: list[str] = []
        self._stops_early = False
        self.found = Explored(world.name)

    def explore(self, *, stops_early: bool = False) -> Explored:
        """Go every way, or only until something breaks."""
        self._stops_early = stops_early
        self._client.flushall()
        self._world.setup(self._client)
        actors = self._world.actors
        start = State(
            _frozen(self.read()),
            tuple(actor.start for actor in actors),
            self._world.losses,
            self._world.crashes,
            self._world.leases_expire,
            self._world.records_expire,
        )
        self.found.interleavings = self._visit(start)
        self.found.states = len(self._ways)
        return self.found

    def _visit(self, state: State) -> int:
        if state in self._ways:
            return self._ways[state]
        if self._stops_early and self.found.violations:
            return 0
        database = thawed(state.database)
        self._note(self._always(self._world, database, state.locals))
        ways = 0
        for label, following in self._successors(state, database):
            self._trail.append(label)
            if following.database != state.database:
                self._note(self._between(self._world, database, thawed(following.database)))
            ways += self._visit(following)
            self._trail.pop()
        if not ways:
            self.restore(database)
            self._note(self._at_rest(self._world, database, state.locals))
            ways = 1
        self._ways[state] = ways
        return ways

    def _successors(self, state: State, database: Database) -> Iterator[tuple[str, State]]:
        for number, actor in enumerate(self._world.actors):
            local = state.locals[number]
            if local in {(), DEAD} or (actor.needs_rest(local) and self._is_anybody_hurrying(state)):
                continue
            yield from self._steps_of(actor, number, local, state, database)
        if state.expiries:
            for key in database:
                if key.startswith(f"{PREFIX}:lease:"):
                    rest = {other: value for other, value in database.items() if other != key}
                    yield (
                        f"{key} expires",
                        state._replace(database=_frozen(rest), expiries=state.expiries - 1),
                    )

        if state.records:
            for key in self._forgotten(state, database):
                rest = {other: value for other, value in database.items() if other != key}
                yield f"{key} runs out", state._replace(database=_frozen(rest), records=state.records - 1)

    def _forgotten(self, state: State, database: Database) -> Iterator[str]:
        """Name the records that nobody renews: a heartbeat renews record and lease together."""
        everybody = zip(self._world.actors, state.locals, strict=True)
        served = {
            found[1]
            for actor, local in everybody
            if local not in {(), DEAD} and (found := actor.serving(local)) is not None
        }
        for key, value in database.items():
            call = key.removeprefix(f"{PREFIX}:call:")
            if call != key and call not in served:
                pod = dict(value[1])["pod_name"]
                if database.get(f"{PREFIX}:lease:{pod}") != call:
                    yield key

    def _is_anybody_hurrying(self, state: State) -> bool:
        everybody = zip(self._world.actors, state.locals, strict=True)
        return any(local not in {(), DEAD} and actor.is_hurrying(local) for actor, local in everybody)

    def _steps_of(
        self, actor: Actor, number: int, local: Local, state: State, database: Database
    ) -> Iterator[tuple[str, State]]:
        label = f"{actor.name}: {local[0]}"
        for after, reached in self._outcomes(actor, local, database):
            yield label, state._replace(database=reached, locals=_with(state.locals, number, after))
            if state.losses and actor.can_lose_answers and reached != state.database:
                # The server has done it, and nobody heard: the same is asked for again.
                unheard = _with(state.locals, number, actor.unheard(local))
                lost = state._replace(database=reached, locals=unheard, losses=state.losses - 1)
                yield f"{label} (answer lost)", lost
        if state.crashes:
            died = state._replace(locals=_with(state.locals, number, DEAD), crashes=state.crashes - 1)
            yield f"{actor.name} dies before {local[0]}", died

    def _outcomes(
        self, actor: Actor, local: Local, database: Database
    ) -> Iterator[tuple[Local, tuple[tuple[str, Any], ...]]]:
        """Send the command; where the server picks a pod by chance, so often that each is picked."""
        free = [value for key, value in database.items() if key.endswith(":available")]
        picked_by_chance = max((len(pods) for pods in free if isinstance(pods, frozenset)), default=1)
        choices = picked_by_chance if local[0] in {"allocate", "SPOP"} else 1
        seen: set[Any] = set()
        for _ in range(PICKS if choices > 1 else 1):
            if len(seen) == choices:
                return
            self.restore(database)
            outcome = (actor.step(local, self._client), _frozen(self.read()))
            self.found.steps += 1
            if outcome not in seen:
                seen.add(outcome)
                yield outcome

    def _note(self, broken: Iterator[str]) -> None:
        for name in broken:
            self.found.violations[name] += 1
            self.found.example.setdefault(name, list(self._trail))

    def restore(self, database: Database) -> None:
        """Make the server hold exactly this."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.flushall()
        for key, value in database.items():
            match value:
                case str():
                    pipeline.set(key, value)
                case frozenset():
                    pipeline.sadd(key, *value)
                case ("zset", scores):
                    pipeline.zadd(key, dict(scores))
                case ("hash", fields):
                    pipeline.hset(key, mapping=_marked_now(key, dict(fields)))
        pipeline.execute()

    def read(self) -> Database:
        """Read everything that the server holds; times are forgotten, so that equal states are equal."""
        return {key: _value(key, kind, value) for key, kind, value in self._dump()}


def _marked_now(key: str, fields: dict[str, str]) -> dict[str, str]:
    """Date the sweeps' marks: how long a sweep wants to have waited is what its command says."""
    if key != f"{PREFIX}:suspects":
        return fields
    now = int(time.time() * 1000)
    return {pod: mark.replace("0 ", f"{now} ", 1) for pod, mark in fields.items()}


def _value(key: str, kind: str, value: list[str]) -> Any:
    if kind == "string":
        return value[0]
    if kind == "set":
        return frozenset(value)
    pairs = list(zip(value[::2], value[1::2], strict=True))
    if kind == "zset":
        return ("zset", tuple(sorted((pod, float(score)) for pod, score in pairs)))
    if key == f"{PREFIX}:suspects":
        pairs = [(pod, f"0 {mark.split()[1]}") for pod, mark in pairs]
    return ("hash", tuple(sorted(pairs)))


def _frozen(database: Database) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(database.items(), key=lambda item: item[0]))


def thawed(database: tuple[tuple[str, Any], ...]) -> Database:
    """Give a state's keys by name."""
    return dict(database)


def _with(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])
