"""`equipoise demo` that goes on: it ends cleanly at a signal, and refuses what makes no sense."""

import importlib.util
import os
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import pytest
from rich.console import RenderableType

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.cli import demo
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.demo.context import DemoContext, Notes, Scene
from equipoise.demo.run import MISSING, Demo, Pace, dashboard, opened
from equipoise.sim.world import World
from tests.support.cli.running import clean, command, equipoise
from tests.support.demo.processes import left_behind

BOUND_SECONDS = 120.0


def _until(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """Read lines until one has the word."""
    assert process.stdout is not None
    lines = []
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        line = process.stdout.readline()
        lines.append(line)
        if word in line or not line:
            return lines
    raise AssertionError(f"no line with {word}: {lines}")


ADDRESS = "dashboard http://127.0.0.1:" if find_spec("nicegui") is not None else "dashboard"


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, ADDRESS), (signal.SIGTERM, "Set")])
def test_a_signal_ends_the_demo_its_dashboard_and_its_redis(tmp_path: Path, number: int, word: str) -> None:
    """Within seconds, however often it comes, with exit status 0; and nothing is left."""
    process = subprocess.Popen(
        command("demo", "--no-open", "--speed", "600"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean({"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}),
    )
    try:
        assert word in _until(process, word)[-1]
        assert left_behind(str(tmp_path)) != []
        process.send_signal(number)
        process.send_signal(number)
        began = time.monotonic()
        out, err = process.communicate(timeout=BOUND_SECONDS)
        assert time.monotonic() - began < BOUND_SECONDS / 2
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert (process.returncode, err) == (0, "")
    assert "The demo has stopped." in out
    assert left_behind(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_is_killed_leaves_nothing_either(tmp_path: Path) -> None:
    """Its dashboard, its Redis and its folder go by themselves."""
    process = subprocess.Popen(
        command("demo", "--no-open", "--speed", "600"),
        stdout=subprocess.PIPE,
        text=True,
        env=clean({"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}),
    )
    try:
        assert ADDRESS in _until(process, ADDRESS)[-1]
    finally:
        process.kill()
        process.communicate()
    end = time.monotonic() + BOUND_SECONDS
    while (left_behind(str(tmp_path)) or any(tmp_path.iterdir())) and time.monotonic() < end:
        time.sleep(0.05)
    assert (left_behind(str(tmp_path)), list(tmp_path.iterdir())) == ([], [])


def test_a_day_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    """Also by the signal that ends a process without a word."""
    process = subprocess.Popen(
        command("demo", "--once"), stdout=subprocess.PIPE, text=True, env=clean({"TMPDIR": str(tmp_path)})
    )
    try:
        end = time.monotonic() + BOUND_SECONDS
        while not list(tmp_path.glob("*/redis/server.log")) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=BOUND_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert (process.returncode, out) == (130, "")
    assert left_behind(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--once", "--journal", os.devnull], "expected a new file"),
        (["--once", "--journal", "/no/such/journal.db"], "expected a folder that exists"),
        (["--speed", "0"], "--speed"),
    ],
    ids=["a file that is there", "a folder that is not", "a speed"],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: list[str], message: str) -> None:
    """With exit status 2, before anything begins."""
    done = equipoise("demo", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_the_machine_refuses_is_said_before_anything_begins() -> None:
    """A journal that can't be written, a port that somebody has: one line, exit status 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = [equipoise("demo", "--port", port, "--no-open")]
    refused.append(equipoise("demo", "--once", "--journal", "/proc/journal.db"))
    assert [(done.returncode, done.stdout) for done in refused] == [(1, "")] * 2
    assert refused[0].stderr == f"error: --port {port}: Address already in use\n"
    assert refused[1].stderr.startswith("error: --journal /proc/journal.db: ")


def test_what_is_not_installed_is_said_in_one_line_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the dashboard in the terminal, without the embedded server with four balancers."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said: list[str] = []
    over = Event()
    over.set()
    with dashboard(tmp_path / "journal.db", Pace(60, 0, is_opened=False, stopping=over), said.append):
        assert said == [MISSING]
    demo._live(7, tmp_path / "other.db", tmp_path, Pace(60, 0, is_opened=False, stopping=over))
    shown = " ".join(capsys.readouterr().out.split())
    assert "(pip install 'equipoise[embedded]')" in shown
    assert "(pip install 'equipoise[dashboard]')" in shown
    with opened(7, 1_800_000_000.0, tmp_path / "journal.db", tmp_path / "redis") as opened_demo:
        opened_demo.tick()
        assert [scene.name for scene in opened_demo.scenes] == [
            "rotation",
            "recommendation",
            "proportional",
            "qos",
        ]
        assert "pip install 'equipoise[embedded]'" in opened_demo.unavailable


class Broken(Scene):
    """A scene that goes wrong."""

    name, title, colour = "rotation", "", "red"

    def __init__(self, *, never: str = "", end: str = "") -> None:
        self._never, self._end = never, end
        self.began = 0

    def begin(self, at: float) -> None:
        self.began += 1

    def watch(self) -> str:
        return self._never

    def problem(self) -> str:
        return self._end

    def outcome(self) -> str:
        return ""

    def pictures(self, width: int) -> list[RenderableType]:
        return []

    def highlights(self) -> list[Record]:
        return []


def _demo(scene: Broken, folder: Path) -> Demo:
    world = World(1)
    journal = SqliteJournal(folder / "j.db", age_max_seconds=1e9, bytes_max=1 << 20, clock=world.clock)
    return Demo(DemoContext(world, Notes(journal), RecordIds(1), redis=str, on_close=id), [scene])


def test_a_scene_that_does_not_come_to_its_end_fails_the_demo(tmp_path: Path) -> None:
    """In words, whether something must never be or an end was not reached; the next day begins again."""
    with pytest.raises(WorldFailed, match=r"^rotation: two pods are away$"):
        _demo(Broken(never="two pods are away"), tmp_path).play()
    scene = Broken(end="nobody was rotated")
    opened_demo = _demo(scene, tmp_path)
    with pytest.raises(WorldFailed, match=r"^rotation: nobody was rotated$"):
        opened_demo.play()
    opened_demo.tick()
    assert scene.began == 2
