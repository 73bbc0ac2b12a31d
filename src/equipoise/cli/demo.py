"""`equipoise demo`: all balancers in a simulated cluster, once or continuously with the dashboard."""

import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import stepping

if TYPE_CHECKING:
    from equipoise.demo.run import Demo, Pace
    from equipoise.runtime.console import Console

SEED = 7
HOUR_SECONDS = 3600.0


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Run one simulated day, print the result, and exit.")
    ] = False,
    seed: Annotated[int, option("N", "Seed; the same seed gives the same day.", min=0)] = SEED,
    journal: Annotated[
        str | None, option("FILE", "Keep the journal in this new file; by default it is deleted.")
    ] = None,
    speed: Annotated[float, option("N", "Speed of the simulated time.", min=1, max=600)] = 60,
    port: Annotated[
        int, option("PORT", "Port of the dashboard; 0 chooses a free one.", min=0, max=65535)
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Run the balancers in a simulated cluster, with the dashboard, until Ctrl-C. Needs no cluster."""
    kept_journal = _kept_journal(journal)
    if not once:
        _expect_free(port)
    from equipoise.demo.subprocess import cleanup_on_exit
    from equipoise.runtime.runner import SIGNALS

    stopping = threading.Event()
    for number in SIGNALS:  # also repeated ones: Redis and the dashboard must be stopped first
        signal.signal(number, lambda *_: stopping.set())
    with tempfile.TemporaryDirectory(prefix="equipoise-demo-") as folder, cleanup_on_exit(Path(folder)):
        place = kept_journal or Path(folder) / "journal.db"
        if once:
            _once(seed, place, Path(folder), stopping, is_kept=kept_journal is not None)
        else:
            from equipoise.demo.run import Pace

            _live(seed, place, Path(folder), Pace(speed, port, not no_open, stopping))


def _kept_journal(journal: str | None) -> Path | None:
    """Return the path of the journal, which is never that of a real cluster's decisions."""
    if journal is None:
        return None
    path = Path(journal)
    if path.exists():
        raise BadInput(f"--journal {journal}: expected a new file, since what happens here is made up")
    if not path.absolute().parent.is_dir():
        raise BadInput(f"--journal {journal}: expected a folder that exists")
    try:
        path.open("xb").close()
        path.unlink()
    except OSError as error:
        raise WorldFailed(f"--journal {journal}: {error.strerror}") from error
    return path


def _expect_free(port: int) -> None:
    """Raise BadInput for a port in use, before anything starts; 0 means any free port."""
    import asyncio

    async def bind() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", port, start_serving=False)
        server.close()

    try:
        asyncio.run(bind())
    except OSError as error:
        # asyncio's own text repeats the address.
        raise WorldFailed(f"--port {port}: {os.strerror(error.errno or 0)}") from error


def _started_at() -> float:
    """Return the last full hour: the dashboard shows times of today, and the demo is the same all hour."""
    return time.time() // HOUR_SECONDS * HOUR_SECONDS


def _once(seed: int, journal: Path, folder: Path, stopping: threading.Event, *, is_kept: bool) -> None:
    from equipoise.demo.run import opened
    from equipoise.demo.subprocess import REDIS
    from equipoise.runtime.console import Console

    console = Console(width=shutil.get_terminal_size().columns)
    with opened(seed, _started_at(), journal, folder / REDIS) as opened_demo:
        with stepping("a day of the cluster") as show:

            def on_step(done: int, total: int) -> None:
                if stopping.is_set():
                    raise typer.Abort
                show(done, total)

            opened_demo.play(on_step)
        show_all(console, opened_demo)
    if is_kept:
        commands = f"`equipoise journal list --file {journal}`,\n`equipoise dashboard --journal {journal}`"
        console.print(f"\nThe journal is in {journal}: {commands}.", style="dim", soft_wrap=True)


def show_all(console: "Console", opened_demo: "Demo") -> None:
    """Print every scene of a finished day, and a table of all."""
    from equipoise.demo.context import DAY_SECONDS, show, summary

    stage = opened_demo.stage
    minutes = round(DAY_SECONDS / 60)
    console.print(
        f"One simulated cluster, {minutes} minutes, seed {stage.world.state.seed}. The loops are those of "
        "production, on simulated ports; the Redis is a real one. Times are minutes and seconds since the "
        "start."
    )
    for scene in opened_demo.scenes:
        show(console, scene, stage)
    console.print()
    console.print(summary(stage, opened_demo.scenes))
    if opened_demo.unavailable:
        console.print(opened_demo.unavailable, style="yellow")


def _live(seed: int, journal: Path, folder: Path, pace: "Pace") -> None:
    from equipoise.demo.context import utc
    from equipoise.demo.run import opened, run
    from equipoise.demo.subprocess import REDIS
    from equipoise.runtime.console import Console

    console = Console(width=shutil.get_terminal_size().columns)
    started_at = _started_at()
    with opened(seed, started_at, journal, folder / REDIS) as opened_demo:
        console.print(f"One simulated cluster, seed {seed}; its time begins at {utc(started_at)}.")
        if opened_demo.unavailable:
            console.print(opened_demo.unavailable, style="yellow")
        run(opened_demo, console, journal, pace)
