"""All scenes in one world, and the passing of time in it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.ids import CHANCE_BITS
from equipoise.app.demo.notes import Notes
from equipoise.app.demo.pools import PoolsScene
from equipoise.app.demo.proportional import ProportionalScene
from equipoise.app.demo.qos import QosScene
from equipoise.app.demo.recommendation import RecommendationScene
from equipoise.app.demo.rotation import RotationScene
from equipoise.app.demo.scene import DAY_SECONDS, LABEL, Scene, Stage
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.sim.invariants import Broken
from equipoise.sim.world import World

TICK_SECONDS = 10.0
AGE_MAX_SECONDS = 30 * 86400.0
BYTES_MAX = 256 << 20
NODES = {"apps": (4, 16.0), "system": (2, 4.0)}
"""How many of each pool, and how large; the scenes bring the others."""


class Theatre:
    """The world, its scenes, and the one way to let time pass: every tick is looked at."""

    def __init__(self, stage: Stage, scenes: list[Scene], left_out: str = "") -> None:
        self.stage = stage
        self.scenes = scenes
        self.left_out = left_out
        """Why one of the scenes can't be shown, or nothing."""
        self.ticks = 0
        self._day_at = stage.world.now
        self._begin()

    def _begin(self) -> None:
        """Begin a day; what the world remembers for tests alone would only grow."""
        world = self.stage.world
        world.state.history.clear()
        world.actuator.events.clear()
        self._day_at = world.now
        for scene in self.scenes:
            scene.begin(self._day_at)

    def tick(self) -> None:
        """Let a little time pass, and ask every scene whether all is well."""
        world = self.stage.world
        if world.now >= self._day_at + DAY_SECONDS:
            self._begin()
        self.ticks += 1
        try:
            world.advance(TICK_SECONDS)
        except Broken as error:
            raise WorldFailed(f"the simulated cluster broke: {error}") from error
        for scene in self.scenes:
            problem = scene.watch()
            if problem:
                raise WorldFailed(f"{scene.name}: {problem}")

    def play(self, told: Callable[[int, int], object] = range) -> None:
        """Play one whole day; every scene must have come to its end."""
        total = round(DAY_SECONDS / TICK_SECONDS)
        for done in range(total):
            self.tick()
            told(done + 1, total)
        for scene in self.scenes:
            problem = scene.problem()
            if problem:
                raise WorldFailed(f"{scene.name}: {problem}")


@contextmanager
def opened(seed: int, started_at: float, journal: Path, state: Path) -> Iterator[Theatre]:
    """Build the world of all scenes, for as long as the block lasts; `state` is for the embedded Redis."""
    with ExitStack() as stack:
        world = World(seed, started_at=started_at)
        diary = SqliteJournal(
            journal, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=world.clock
        )
        stack.enter_context(diary)
        stage = Stage(world, Notes(diary), RecordIds(seed % (1 << CHANCE_BITS)))
        for pool, (count, cores) in NODES.items():
            for number in range(1, count + 1):
                world.add_node(f"{pool}-{number}", cpu_cores=cores, labels=((LABEL, pool),))
        scenes: list[Scene] = [
            RotationScene(stage),
            RecommendationScene(stage),
            ProportionalScene(stage),
            QosScene(stage),
        ]
        left_out = ""
        try:
            fleet = PoolsScene(stage, stack.enter_context(_redis(state)))
        except BadInput:
            left_out = "pools is left out: it needs the embedded server (pip install 'equipoise[embedded]')"
        else:
            stack.callback(fleet.close)
            scenes.append(fleet)
        yield Theatre(stage, scenes, left_out)


@contextmanager
def _redis(state: Path) -> Iterator[str]:
    from equipoise.adapters.redis.embedded import embedded

    with embedded(state) as url:
        yield url
