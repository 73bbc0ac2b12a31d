"""`equipoise demo --once`: one day of all balancers, checked by itself, told, kept and decided again."""

import re
import sqlite3
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from equipoise.cli.demo import show_all
from equipoise.demo.context import DAY_SECONDS
from equipoise.demo.run import TICK_SECONDS, Demo, opened
from equipoise.runtime.console import Console
from tests.support.cli.running import equipoise
from tests.support.demo.processes import left_behind

BALANCERS = ("rotation", "recommendation", "proportional", "qos", "pools")
SHAPE = {
    "rotation": [
        r"a pod above │ is hot",
        r"web-\w{5} +█+.* \d+% evicted in wave 1",
        r"after \d waves",
        r"\d\d:\d\d +Rotate +",
        r"The rotation of \d pods in \d waves ended because",
        r"→ hottest pod \d+% → \d+% of the target, \d+% predicted. \d pods evicted in \d waves",
    ],
    "recommendation": [
        r"usage +[▁▂▃▄▅▆▇█]+│[▁▂▃▄▅▆▇█]+ ",
        r"\d\d:\d\d +Recommend +",
        r"→ HPA created: \d+ to \d+ replicas at \d+%. 12 → \d+ replicas",
    ],
    "proportional": [
        r"cores +[▁▂▃▄▅▆▇█]+ \d+ to \d+",
        r"target +[▁▂▃▄▅▆▇█]+ [\d.]+ to [\d.]+",
        r"applied +[▁▂▃▄▅▆▇█]+ \d+ changes",
        r"\d\d:\d\d +Set +The cluster has ",
        r"→ CPU request [\d.]+ → [\d.]+ → [\d.]+ cores",
    ],
    "qos": [
        r"─ 5 cores",
        r"\d\d:\d\d +Throttle",
        r"\d\d:\d\d +Restore",
        r"→ node usage [\d.]+ → [\d.]+ of 8 cores, with a waterline of 5",
    ],
    "pools": [
        r"gold +exclusive +4 → 6 → 4 +4 ",
        r"\d\d:\d\d +Reconcile",
        r"\d\d:\d\d +Rebalance +silver has 2 pods more than its target; gold has 2 pods fewer",
        r"every tier at its target",
    ],
}
"""What each part shows, line by line in this order; not every number."""


class Played(NamedTuple):
    """One run of the command, its journal, and the folder of its temporary files."""

    printed: str
    journal: Path
    folder: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Play the day once for all tests."""
    folder = tmp_path_factory.mktemp("demo")
    journal = tmp_path_factory.mktemp("kept") / "journal.db"
    done = equipoise(
        "demo", "--once", "--journal", str(journal), environment={"TMPDIR": str(folder)}, seconds=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Played(done.stdout, journal, folder)


def test_every_balancer_is_shown_with_its_picture_its_words_and_what_came_of_it(played: Played) -> None:
    """In the same order, and in one table at the end; nothing is left running or lying about."""
    parts = re.split(rf"\n({'|'.join(BALANCERS)}): [^\n]*─\n", played.printed)
    assert tuple(parts[1::2]) == BALANCERS
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        at = 0
        flat = re.sub(r"\n +", " ", part)
        for pattern in SHAPE[name]:
            found = re.search(pattern, flat[at:])
            assert found, f"{name}: {pattern} is not in\n{part}"
            at += found.start()
    told, _, kept = played.printed.partition("\nThe journal is in ")
    assert str(played.journal) in kept
    table = told.rpartition("BALANCER")[2]
    assert re.findall(r"^(\w+) +\d+ +\d+ +\d+ ", table, re.MULTILINE) == list(BALANCERS)
    assert max(map(len, told.splitlines())) <= 100
    assert left_behind(str(played.folder)) == []
    assert list(played.folder.iterdir()) == []


def test_the_journal_has_every_balancer_and_decides_the_same_again(played: Played) -> None:
    """Through the production adapter: whole, unhurt, and replayed to the last bit."""
    replayed = equipoise("journal", "replay", "--all", "--file", str(played.journal), seconds=120)
    assert (replayed.returncode, replayed.stderr) == (0, "")
    assert re.search(r"(\d+) replayed, \1 the same", replayed.stdout)
    with sqlite3.connect(played.journal) as connection:
        rows = connection.execute("SELECT balancer, count(*) FROM records GROUP BY balancer").fetchall()
    counts = dict(rows)
    assert set(counts) == set(BALANCERS)
    assert min(counts.values()) > 0
    listed = equipoise("journal", "list", "--file", str(played.journal), "--reason", "Rotate")
    assert "shop/web" in listed.stdout


def test_the_same_seed_is_the_same_day_whenever_it_begins(played: Played, tmp_path: Path) -> None:
    """To the letter, also at another hour of another day; on any screen; in as many ticks as a day has."""
    with opened(7, 1_800_000_000.0, tmp_path / "journal.db", tmp_path / "redis") as opened_demo:
        opened_demo.play()
        shown = {width: _shown(opened_demo, width) for width in (40, 80, 100, 120)}
        assert opened_demo.ticks == DAY_SECONDS / TICK_SECONDS == 480
        cycles = sum(counts.decisions for counts in opened_demo.stage.notes.counts.values())
    assert cycles < 2000
    told = played.printed.partition("\nThe journal is in ")[0].strip()
    assert shown[100].strip() == told
    for width, text in shown.items():
        assert max(map(len, text.splitlines())) <= width


def _shown(opened_demo: Demo, width: int) -> str:
    screen = StringIO()
    show_all(Console(file=screen, width=width), opened_demo)
    return screen.getvalue()
