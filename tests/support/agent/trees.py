"""Folders as the kubelet keeps them: real ones of cgroup v1, and ones of v2 made from its documentation."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

V1 = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "memory")
BURN = "while True: pass"


def is_v1_writable() -> bool:
    return os.geteuid() == 0 and all(os.access(V1 / name / "cgroup.procs", os.W_OK) for name in CONTROLLERS)


class Tree:
    """A tree of real v1 cgroups of the test's own, with real processes in it."""

    def __init__(self) -> None:
        self.parent = f"equipoise-test-{uuid.uuid4().hex[:12]}"
        self.burners: list[subprocess.Popen[bytes]] = []
        for controller in CONTROLLERS:
            (V1 / controller / self.parent / "kubepods" / "besteffort").mkdir(parents=True)
            (V1 / controller / self.parent / "kubepods" / "burstable").mkdir()
        # Others keep this machine busy; its own share must not depend on them.
        (V1 / "cpu" / self.parent / "cpu.shares").write_text("262144")

    def folder(self, controller: str, uid: str, container: str, word: str = "besteffort") -> Path:
        return V1 / controller / self.parent / "kubepods" / word / f"pod{uid}" / container

    def add(self, uid: str, container: str, burners: int = 0, word: str = "besteffort") -> Path:
        """Make a container, and start processes in it that burn CPU."""
        for controller in CONTROLLERS:
            self.folder(controller, uid, container, word).mkdir(parents=True, exist_ok=True)
        for _ in range(burners):
            self.burners.append(subprocess.Popen([*self._within(uid, container, word), BURN]))
        return self.folder("cpu", uid, container, word)

    def _within(self, uid: str, container: str, word: str) -> list[str]:
        """Give a command that joins before it begins, so that the kernel counts its memory there too."""
        lists = [str(self.folder(each, uid, container, word) / "cgroup.procs") for each in CONTROLLERS]
        joining = "".join(f"echo $$ > '{path}'; " for path in lists)
        return ["sh", "-c", f'{joining} exec "$0" -S -c "$1"', sys.executable]

    def end_burners(self) -> None:
        for burner in self.burners:
            burner.kill()
            burner.wait()
        self.burners.clear()

    def forget(self, uid: str, container: str, word: str = "besteffort") -> None:
        """Remove the cgroups of a container that has ended."""
        for controller in CONTROLLERS:
            _remove(self.folder(controller, uid, container, word))

    def remove(self) -> None:
        self.end_burners()
        for controller in CONTROLLERS:
            for folder, _, _ in os.walk(V1 / controller / self.parent, topdown=False):
                _remove(Path(folder))


def _remove(folder: Path, seconds: float = 60.0) -> None:
    """A cgroup can be removed once the kernel has let go of its last process."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def tree() -> Iterator[Tree]:
    made = Tree()
    try:
        yield made
    finally:
        made.remove()


def write(folder: Path, **content: str) -> None:
    """Make a folder with files; `_` in a name stands for a dot where it comes first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
