"""`equipoise demo`: every balancer at work before your eyes, without a cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.core.errors import BadInput, WorldFailed

if TYPE_CHECKING:
    import threading

    from equipoise.demo.run import Demo, Pace
    from equipoise.runtime.console import Console

SEED = 7
HOUR_SECONDS = 3600.0


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Play one day to its end, print what came of it, and exit.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed, the same day.")] = SEED,
    journal: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Keep the journal in this new file; by default it is removed."),
    ] = None,
    speed: Annotated[
        float, typer.Option(metavar="N", min=1, max=600, help="How much faster simulated time runs.")
    ] = 60,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The dashboard's; 0 takes any free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")] = False,
) -> None:
    """Watch all five balancers at work in a simulated cluster, with the dashboard. Needs no cluster.

    It goes on until Ctrl-C.
    """
    kept = _kept(journal)
    if not once:
        _expect_free(port)
    import tempfile
    import threading

    from equipoise.demo.subprocess import cleanup_on_exit

    stopping = threading.Event()
    _end_on_signals(stopping)
    with tempfile.TemporaryDirectory(prefix="equipoise-demo-") as folder, cleanup_on_exit(Path(folder)):
        place = kept or Path(folder) / "journal.db"
        if once:
            _once(seed, place, Path(folder), stopping, is_kept=kept is not None)
        else:
            from equipoise.demo.run import Pace

            _live(seed, place, Path(folder), Pace(speed, port, not no_open, stopping))


def _kept(journal: str | None) -> Path | None:
    """Return where the journal is kept; never among decisions about a real cluster."""
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
    """Refuse a port that somebody has, before anything begins; 0 is any that nobody has."""
    import asyncio
    import os

    async def bind() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", port, start_serving=False)
        server.close()

    try:
        asyncio.run(bind())
    except OSError as error:
        # asyncio's own text names the address once more.
        raise WorldFailed(f"--port {port}: {os.strerror(error.errno or 0)}") from error


def _end_on_signals(stopping: "threading.Event") -> None:
    """Have signals ask for an end, however often they come: the Redis and the dashboard must not be left."""
    import signal

    from equipoise.runtime.runner import SIGNALS

    for number in SIGNALS:
        signal.signal(number, lambda *_: stopping.set())


def _started_at() -> float:
    """Begin at the last full hour: the dashboard shows times of today, and every hour has the same demo."""
    import time

    return time.time() // HOUR_SECONDS * HOUR_SECONDS


def _once(seed: int, journal: Path, folder: Path, stopping: "threading.Event", *, is_kept: bool) -> None:
    from equipoise.demo.run import opened
    from equipoise.demo.subprocess import REDIS
    from equipoise.runtime.console import Console

    console = Console()
    with opened(seed, _started_at(), journal, folder / REDIS) as theatre:
        with _progress(stopping) as told:
            theatre.play(told)
        show_all(console, theatre)
    if is_kept:
        console.print(
            f"\nThe journal is in {journal}: `equipoise journal list --file {journal}`,\n"
            f"`equipoise dashboard --journal {journal}`.",
            style="dim",
            soft_wrap=True,
        )


def show_all(console: "Console", theatre: "Demo") -> None:
    """Print every scene of a day that was played, and all of them in one table."""
    from equipoise.demo.context import DAY_SECONDS, show, summary

    stage = theatre.stage
    minutes = round(DAY_SECONDS / 60)
    console.print(
        f"One simulated cluster, {minutes} minutes, seed {stage.world.state.seed}. The loops are those of "
        "production, on simulated ports; the Redis is a real one. Times are minutes and seconds since the "
        "start.",
    )
    for scene in theatre.scenes:
        show(console, scene, stage)
    console.print()
    console.print(summary(stage, theatre.scenes))
    if theatre.left_out:
        console.print(theatre.left_out, style="yellow")


def _live(seed: int, journal: Path, folder: Path, pace: "Pace") -> None:
    from equipoise.demo.context import utc
    from equipoise.demo.run import opened, run
    from equipoise.demo.subprocess import REDIS
    from equipoise.runtime.console import Console

    console = Console()
    started_at = _started_at()
    with opened(seed, started_at, journal, folder / REDIS) as theatre:
        console.print(f"One simulated cluster, seed {seed}; its time begins at {utc(started_at)}.")
        if theatre.left_out:
            console.print(theatre.left_out, style="yellow")
        run(theatre, console, journal, pace)


@contextmanager
def _progress(stopping: "threading.Event") -> Iterator[Callable[[int, int], object]]:
    """Show on standard error how far the day is, where somebody watches; end it when somebody says stop."""
    from equipoise.runtime.output import stepping

    with stepping("a day of the cluster") as show:

        def told(done: int, total: int) -> None:
            if stopping.is_set():
                raise typer.Abort
            show(done, total)

        yield told
