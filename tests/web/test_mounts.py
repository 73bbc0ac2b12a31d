"""A journal on a disk that is mounted read-only, while somebody writes it elsewhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.journal.worlds import hot, journal

READ = """
import sys
from pathlib import Path
from equipoise.adapters.journal import Query
from equipoise.dashboard.views import Journals
source = Journals((Path(sys.argv[1]),))
for line in sys.stdin:
    found = source.listed(Query())
    print(len(found.records), *found.errors, flush=True)
"""
MOUNT = "mount --bind -o ro {0} {0} && ! touch {0}/probe 2>/dev/null && exec {1} -c '{2}' {0}/journal.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount of our own needs root and unshare")
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def test_it_is_followed_through_a_read_only_mount(folder: Path) -> None:
    """Each write is seen at once, after the log was emptied too, and when the writer has ended or died."""
    kept = journal(folder / "journal.db")
    script = MOUNT.format(folder, sys.executable, READ)
    reader = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None

    def seen() -> str:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write("look\n")
        return reader.stdout.readline().strip()

    try:
        assert seen() == "0"
        for count in range(1, 4):
            kept.append(hot(count, subject=f"shop/{count}"))
            assert seen() == str(count)
        assert kept._connection is not None
        kept._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert seen() == "3"
        kept.append(hot(4, subject="shop/4"))
        assert seen() == "4"
        left = {
            name: (folder / name).read_bytes() for name in ("journal.db", "journal.db-wal", "journal.db-shm")
        }
        kept.close()
        assert seen() == "4"
        # As a killed writer leaves it: the log is there, and nobody holds it.
        for name, content in left.items():
            (folder / name).write_bytes(content)
        assert seen() == "4"
    finally:
        reader.stdin.close()
        reader.wait(60)
        reader.stdout.close()
