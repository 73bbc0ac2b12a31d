"""Runs all scenes in one simulated cluster: a whole day at once, or continuously beside the dashboard.

Simulated time runs fast. Decisions are printed as they are made, and the dashboard shows the same journal.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from rich.text import Text

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.records import WRITER_BITS
from equipoise.core.decision import Record
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.demo.context import DAY_SECONDS, LABEL, DemoContext, Notes, Scene
from equipoise.engine.balancer import BALANCERS
from equipoise.engine.isolation import ignore
from equipoise.runtime.console import Console
from equipoise.sim.invariants import InvariantBroken
from equipoise.sim.world import World

SCENES = "equipoise.demo.scenes"
TICK_SECONDS = 10.0
AGE_MAX_SECONDS = 30 * 86400.0
BYTES_MAX = 256 << 20
NODES = {"apps": (4, 16.0), "system": (2, 4.0)}
"""The number and size of the nodes of each node pool; scenes add others."""


class Demo:
    """The simulated cluster and its scenes, whose invariants are checked after each tick."""

    def __init__(self, stage: DemoContext, scenes: list[Scene], unavailable: str = "") -> None:
        self.stage = stage
        self.scenes = scenes
        self.unavailable = unavailable
        """Why a scene is not available, or ""."""
        self.colours = {scene.name: scene.colour for scene in scenes}
        self.ticks = 0
        self._day_at = stage.world.now
        self._begin()

    def _begin(self) -> None:
        """Begin a day; clear the history that only tests need, which would grow without bound."""
        world = self.stage.world
        world.state.history.clear()
        world.actuator.events.clear()
        self._day_at = world.now
        for scene in self.scenes:
            scene.begin(self._day_at)

    def tick(self) -> None:
        """Advance the simulated time by one tick, and check every scene."""
        world = self.stage.world
        if world.now >= self._day_at + DAY_SECONDS:
            self._begin()
        self.ticks += 1
        try:
            world.advance(TICK_SECONDS)
        except InvariantBroken as error:
            raise WorldFailed(f"an invariant of the simulated cluster is broken: {error}") from error
        for scene in self.scenes:
            if problem := scene.watch():
                raise WorldFailed(f"{scene.name}: {problem}")

    def play(self, on_step: Callable[[int, int], object] = ignore) -> None:
        """Run one whole day; raise if a scene did not reach its expected result."""
        total = round(DAY_SECONDS / TICK_SECONDS)
        for done in range(1, total + 1):
            self.tick()
            on_step(done, total)
        for scene in self.scenes:
            if problem := scene.problem():
                raise WorldFailed(f"{scene.name}: {problem}")


@contextmanager
def opened(seed: int, started_at: float, journal: Path, state: Path) -> Iterator[Demo]:
    """Yield the demo with all scenes; `state` is the folder of the embedded Redis."""
    with ExitStack() as stack:

        def start_redis() -> str:
            from equipoise.adapters.redis.connect import embedded

            return stack.enter_context(embedded(state))

        world = World(seed, started_at=started_at)
        sqlite_journal = SqliteJournal(
            journal, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=world.clock
        )
        notes = Notes(stack.enter_context(sqlite_journal))
        stage = DemoContext(world, notes, RecordIds(seed % (1 << WRITER_BITS)), start_redis, stack.callback)
        for pool, (count, cores) in NODES.items():
            for number in range(1, count + 1):
                world.add_node(f"{pool}-{number}", cpu_cores=cores, labels=((LABEL, pool),))
        scenes: list[Scene] = []
        unavailable = ""
        for name in BALANCERS:
            try:
                scenes.append(resolve_name(f"{SCENES}.{name}:SCENE")(stage))
            except ModuleNotFoundError as error:
                if error.name != f"{SCENES}.{name}":
                    raise
            except BadInput:
                unavailable = (
                    f"{name} is skipped: it needs an embedded Redis (pip install 'equipoise[embedded]')"
                )
        yield Demo(stage, scenes, unavailable)


END_SECONDS = 5.0
BEHIND_MAX_SECONDS = 600.0
"""If the simulation is further behind, as after a suspend, the time is skipped."""
COMMAND = (
    sys.executable,
    "-c",
    "import equipoise.demo.subprocess as own; own.end_at_eof(); from equipoise.cli.main import main; main()",
)
"""The dashboard's process, which ends with this one, even if this one is killed."""
MISSING = (
    "The dashboard is not installed (pip install 'equipoise[dashboard]'). The demo continues in the terminal."
)


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of simulated time, the dashboard's port, and the event that ends the demo."""

    speed: float
    port: int
    is_opened: bool
    stopping: threading.Event


def run(demo: Demo, console: Console, journal: Path, pace: Pace) -> None:
    """Run until `stopping` is set."""
    world = demo.stage.world
    console.print(
        f"Time is simulated at {pace.speed:g} times real time. Decisions are written to {journal}. "
        "Stop with Ctrl-C.",
        style="dim",
        soft_wrap=True,
    )
    demo.stage.notes.on_change = lambda record: console.print(
        decision_line(demo, record), no_wrap=True, overflow="ellipsis", crop=True
    )
    with dashboard(journal, pace, lambda message: console.print(message, style="bold")):
        began, start = time.monotonic(), world.now
        while not pace.stopping.wait(TICK_SECONDS / pace.speed):
            due = start + (time.monotonic() - began) * pace.speed
            if due - world.now > BEHIND_MAX_SECONDS:
                began, start = time.monotonic(), world.now
            while world.now + TICK_SECONDS <= due and not pace.stopping.is_set():
                demo.tick()
    console.print("The demo has stopped.", style="dim")


def decision_line(demo: Demo, record: Record) -> Text:
    """Return one decision as one line; a narrow terminal truncates it, the journal has it in full."""
    decision = record.decision
    did = f" ({len(record.outcomes)} done)" if record.outcomes else ""
    return Text.assemble(
        (f"{demo.stage.clock_time(record.at)} ", "dim"),
        (f"{record.balancer:14} ", demo.colours.get(record.balancer, "")),
        (f"{decision.subject} ", "bold"),
        (decision.reason.code.value + did, "yellow" if record.outcomes else "dim"),
        f" {decision.reason.sentence}",
    )


@contextmanager
def dashboard(journal: Path, pace: Pace, report: Callable[[str], object]) -> Iterator[None]:
    """Run the dashboard in a process of its own; `report` gets its address, or why there is none."""
    from importlib.util import find_spec

    if find_spec("nicegui") is None:
        report(MISSING)
        yield
        return
    words = ["dashboard", "--journal", str(journal), "--port", str(pace.port)]
    process = subprocess.Popen(
        [*COMMAND, *words, *([] if pace.is_opened else ["--no-open"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    is_over = threading.Event()
    listener = threading.Thread(target=_listen, args=(process, report, is_over), daemon=True)
    listener.start()
    try:
        yield
    finally:
        is_over.set()
        _end(process)
        listener.join(END_SECONDS)


def _listen(
    process: "subprocess.Popen[str]", report: Callable[[str], object], is_over: threading.Event
) -> None:
    """Report the dashboard's address; its last line too if it ends by itself."""
    assert process.stdout is not None, "it was asked for"
    last = ""
    for line in process.stdout:
        last = line.strip() or last
        if last.startswith("dashboard http"):
            report(last)
    if not is_over.is_set():
        report(
            f"The dashboard has stopped ({last or 'no reason given'}). The demo continues in the terminal."
        )


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
