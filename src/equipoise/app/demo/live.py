"""The demo that goes on: time runs fast, decisions scroll by, and the dashboard shows the same journal."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from equipoise.app.demo.scene import Stage
from equipoise.app.demo.theatre import TICK_SECONDS, Theatre
from equipoise.app.signals import on_signals
from equipoise.model.decision import Record

START_SECONDS = 30.0
"""How long the dashboard may take to say where it is."""
END_SECONDS = 5.0
BEHIND_MAX_SECONDS = 600.0
"""After a longer stop of this machine the lost time is let go."""
COMMAND = (sys.executable, "-c", "from equipoise.app.main import main; main()")
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


def run(
    theatre: Theatre, console: Console, journal: Path, speed: float, port: int, *, is_opened: bool
) -> None:
    """Go on until Ctrl-C."""
    stopping = threading.Event()
    on_signals(stopping)
    with dashboard(journal, port, is_opened=is_opened) as said:
        console.print(Text(said, style="bold" if said.startswith("dashboard") else "yellow"))
        console.print(
            f"Simulated time runs {speed:g} times as fast; all decisions go to {journal}. Ctrl-C ends it.\n",
            style="dim",
            soft_wrap=True,
        )
        theatre.stage.notes.on_news = lambda record: console.print(news(theatre.stage, record))
        _pass_time(theatre, stopping, speed)
    console.print("\nThe demo is over.", style="dim")


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
    """Write one decision in one line, or a few where the terminal is narrow."""
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
def dashboard(journal: Path, port: int, *, is_opened: bool) -> Iterator[str]:
    """Run the dashboard in a process of its own; give its address, or why there is none."""
    from importlib.util import find_spec

    if find_spec("nicegui") is None:
        yield MISSING
        return
    words = ["dashboard", "--journal", str(journal), "--port", str(port)]
    process = subprocess.Popen(
        [*COMMAND, *words, *([] if is_opened else ["--no-open"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None, "it was asked for"
        yield _first_words(process.stdout)
    finally:
        _end(process)


def _first_words(stream: IO[str]) -> str:
    """Wait for the line that says where it is; whatever it says later is read, and not shown."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line.strip())
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    said = ""
    until = time.monotonic() + START_SECONDS
    with suppress(queue.Empty):
        while not said.startswith("dashboard"):
            line = lines.get(timeout=max(0.0, until - time.monotonic()))
            if not line:
                break
            said = line
    if said.startswith("dashboard"):
        return said
    why = f": {said}" if said else ""
    return f"The dashboard did not start{why}; the demo goes on in the terminal."


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
