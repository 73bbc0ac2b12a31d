"""The demo that goes on: time runs fast, decisions scroll by, and the dashboard shows the same journal."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from equipoise.app.console import Console
from equipoise.app.demo.scene import Stage
from equipoise.app.demo.theatre import TICK_SECONDS, Theatre
from equipoise.model.decision import Record

END_SECONDS = 5.0
BEHIND_MAX_SECONDS = 600.0
"""After a longer stop of this machine the lost time is let go."""
COMMAND = (
    sys.executable,
    "-c",
    "from equipoise.app.demo.tether import hold_on; hold_on(); from equipoise.app.main import main; main()",
)
"""It ends with us, also where we are killed."""
MISSING = (
    "The dashboard is not installed (pip install 'equipoise[dashboard]'); the demo goes on in the terminal."
)
COLOURS = {
    "rotation": "red",
    "recommendation": "blue",
    "proportional": "green",
    "qos": "magenta",
    "pools": "cyan",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast time runs, where the dashboard answers, and what ends it all."""

    speed: float
    port: int
    is_opened: bool
    stopping: threading.Event


def run(theatre: Theatre, console: Console, journal: Path, pace: Pace) -> None:
    """Go on until somebody says stop."""
    console.print(
        f"Simulated time runs {pace.speed:g} times as fast; all decisions go to {journal}. Ctrl-C ends it.",
        style="dim",
        soft_wrap=True,
    )
    theatre.stage.notes.on_news = lambda record: console.print(
        news(theatre.stage, record), no_wrap=True, overflow="ellipsis", crop=True
    )
    with dashboard(journal, pace, lambda said: console.print(said, style="bold")):
        _pass_time(theatre, pace.stopping, pace.speed)
    console.print("The demo is over.", style="dim")


def _pass_time(theatre: Theatre, stopping: threading.Event, speed: float) -> None:
    world = theatre.stage.world
    began, start = time.monotonic(), world.now
    while not stopping.wait(TICK_SECONDS / speed):
        due = start + (time.monotonic() - began) * speed
        if due - world.now > BEHIND_MAX_SECONDS:
            began, start = time.monotonic(), world.now
        while world.now + TICK_SECONDS <= due and not stopping.is_set():
            theatre.tick()


def news(stage: Stage, record: Record) -> Text:
    """Write one decision in one line, which is cut where the terminal is narrow: the journal has it all."""
    decision = record.decision
    did = f" ({len(record.outcomes)} done)" if record.outcomes else ""
    return Text.assemble(
        (f"{stage.clock_time(record.at)} ", "dim"),
        (f"{record.balancer:14} ", COLOURS.get(record.balancer, "")),
        (f"{decision.subject} ", "bold"),
        (decision.reason.code.value + did, "yellow" if record.outcomes else "dim"),
        f" {decision.reason.sentence}",
    )


@contextmanager
def dashboard(journal: Path, pace: Pace, say: Callable[[str], object]) -> Iterator[None]:
    """Run the dashboard in a process of its own; `say` is told where it is, or why there is none."""
    from importlib.util import find_spec

    if find_spec("nicegui") is None:
        say(MISSING)
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
    listener = threading.Thread(target=_listen, args=(process, say, is_over), daemon=True)
    listener.start()
    try:
        yield
    finally:
        is_over.set()
        _end(process)
        listener.join(END_SECONDS)


def _listen(process: "subprocess.Popen[str]", say: Callable[[str], object], is_over: threading.Event) -> None:
    """Tell the line that says where it is; what it says later is read, and told only if it ends by itself."""
    assert process.stdout is not None, "it was asked for"
    last = ""
    for line in process.stdout:
        last = line.strip() or last
        if last.startswith("dashboard http"):
            say(last)
    if not is_over.is_set():
        say(f"The dashboard ended ({last or 'it did not say why'}); the demo goes on in the terminal.")


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
