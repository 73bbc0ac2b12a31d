"""Records what the outside can see of Equipoise, and compares two recordings: nothing changes unseen.

    python -m tools.freeze record DIR      # record this checkout, or another with --tree
    python -m tools.freeze compare DIR     # record it anew, reading the old bytes, and show what differs
    python -m tools.freeze against REF     # record a commit, then compare with it; `make freeze BASE=REF`

A recording is a folder of texts, without times, ports and places. `kept/` in it holds bytes as they were
written: a journal, a ledger and an agent's state. Where two recordings are compared, the second has read
those of the first. Figures are not compared, and shown as ratios.
"""

import argparse
import difflib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.freeze.live import record_figures, record_live
from tools.freeze.record import FIGURES, HERE, KEPT, ROOT, SKIPPED, Tree, record

BUILD = ROOT / "build" / "freeze"
DIFFERENCES_MAX = 200
"""Lines that are shown of one file; the rest is counted."""


def main() -> None:
    """Do what is asked for; a difference is exit status 1."""
    parser = argparse.ArgumentParser("python -m tools.freeze", description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True, dest="verb")
    for verb, what, meaning in (
        ("record", "DIR", "a new folder"),
        ("compare", "DIR", "a recording"),
        ("against", "REF", "a commit"),
    ):
        words = verbs.add_parser(verb)
        words.add_argument("what", metavar=what, help=meaning)
        words.add_argument(
            "--tree", type=Path, default=ROOT, help="a checkout with its .venv; by default this"
        )
    asked = parser.parse_args()
    match asked.verb:
        case "record":
            make(asked.tree, Path(asked.what), None)
        case "compare":
            sys.exit(compare(asked.tree, Path(asked.what)))
        case _:
            sys.exit(compare(asked.tree, base(asked.what)))


def make(checkout: Path, target: Path, old: Path | None) -> None:
    """Record a checkout into a new folder."""
    if target.exists():
        sys.exit(f"{target}: expected a new folder")
    if not (checkout / ".venv" / "bin" / "equipoise").exists():
        sys.exit(f"{checkout}: expected a checkout with its .venv; run make setup there")
    began = time.monotonic()
    (target / KEPT).mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="freeze-") as work, ThreadPoolExecutor() as pool:
        tree = Tree(checkout, Path(work))
        figures = pool.submit(record_live, tree, target, old)  # it mostly waits
        record(tree, target, old)
        found = figures.result() | record_figures(tree)
    (target / FIGURES).write_text(json.dumps(found, indent=1))
    count = sum(path.is_file() for path in target.rglob("*"))
    print(f"{target}: {count} files in {time.monotonic() - began:.0f} s", file=sys.stderr)


def compare(checkout: Path, old: Path) -> int:
    """Record a checkout and show what differs from an older recording."""
    if not (old / FIGURES).exists():
        sys.exit(f"{old}: expected a recording")
    with tempfile.TemporaryDirectory(prefix="freeze-") as folder:
        new = Path(folder) / "new"
        make(checkout, new, old)
        lines = list(differences(old, new))
        for line in lines:
            print(line)
        for line in ratios(old, new):
            print(line)
    print("no difference" if not lines else f"{sum(one.startswith('=== ') for one in lines)} files differ")
    return int(bool(lines))


def differences(old: Path, new: Path) -> Iterator[str]:
    """Return what differs, file by file, as a unified diff."""
    found = {path.relative_to(top) for top in (old, new) for path in top.rglob("*") if path.is_file()}
    skipped = {str(path.parent.relative_to(top)) for top in (old, new) for path in top.rglob(SKIPPED)}
    for folder in sorted(skipped):
        print(f"not compared: {folder}, since one recording has it not")
    for name in sorted(map(str, found)):
        parts = Path(name).parts
        if parts[0] == KEPT or name == FIGURES or parts[0] in skipped:
            continue
        before, after = (_lines(top / name) for top in (old, new))
        if before != after:
            changes = list(difflib.unified_diff(before, after, "old", "new", n=1, lineterm=""))
            yield f"=== {name}"
            yield from changes[2:DIFFERENCES_MAX]
            if len(changes) > DIFFERENCES_MAX:
                yield f"… and {len(changes) - DIFFERENCES_MAX} lines more"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else ["(there is no such file)"]


def ratios(old: Path, new: Path) -> Iterator[str]:
    """Return each figure beside what it was."""
    before, after = (json.loads((top / FIGURES).read_text()) for top in (old, new))
    for name in before | after:
        was, now = before.get(name), after.get(name)
        ratio = f"{now / was:.2f}x" if was and now is not None else "-"
        told = " -> ".join("none" if one is None else f"{one:.3g}" for one in (was, now))
        yield f"figure: {name}: {told} ({ratio})"


def base(ref: str) -> Path:
    """Record a commit with this script, and return the recording; one that is there is taken again."""
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}").decode().strip()
    inputs = [*HERE.iterdir(), *(ROOT / "examples").iterdir(), *ROOT.glob("tests/**/records/*")]
    digest = hashlib.sha256()
    for path in sorted(one for one in inputs if one.is_file()):
        digest.update(path.read_bytes())
    folder = BUILD / f"{commit[:12]}-{digest.hexdigest()[:8]}"
    recording = folder / "recording"
    if not (recording / FIGURES).exists():
        shutil.rmtree(folder, ignore_errors=True)
        tree = folder / "tree"
        tree.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=_git("archive", commit), check=True)
        subprocess.run(["make", "-C", str(tree), "setup"], check=True, stdout=subprocess.DEVNULL)
        # What is compiled at its first import is held in memory meanwhile, and would be a figure.
        compiling = [str(tree / ".venv" / "bin" / "python"), "-m", "compileall", "-q", str(tree / "src")]
        subprocess.run(compiling, check=True)
        make(tree, recording, None)
        shutil.rmtree(tree)
    return recording


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    main()
