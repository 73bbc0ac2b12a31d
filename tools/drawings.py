"""Draws in docs/architecture.md what the code says of itself: `python -m tools.drawings`.

The page has a place for each drawing, between `<!-- generated: NAME -->` and `<!-- generated: end -->`.
A test compares it with the code.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path, PurePath

from equipoise.rotation.progress import TRANSITIONS, State

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- generated: end -->)", re.DOTALL)
STEP = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
PAGE = ROOT / "docs" / "architecture.md"


def page() -> str:
    """Return what the page should say."""
    text = PAGE.read_text()
    drawn = {"layers": layers(), "cycle": cycle(walk(text)), "rotation-states": rotation_states()}
    return place(text, drawn)


def walk(text: str) -> list[tuple[str, str]]:
    """Return the file and function of each step that the page names; a test compares them with a cycle."""
    return STEP.findall(text)


def cycle(steps: Iterable[tuple[str, str]]) -> str:
    """Return the way through a cycle as a diagram: files of one folder that follow each other are one box."""
    boxes = [
        (folder, [PurePath(file).stem for file, _ in files])
        for folder, files in groupby(steps, key=lambda step: str(PurePath(step[0]).parent))
    ]
    lines = ["```mermaid", "flowchart LR"]
    lines += [f'    step{n}["{folder}<br/>{", ".join(names)}"]' for n, (folder, names) in enumerate(boxes)]
    lines.append("    " + " --> ".join(f"step{n}" for n in range(len(boxes))))
    return "\n".join([*lines, "```", ""])


def place(text: str, made: Mapping[str, str]) -> str:
    """Put what is generated in its places in a page."""
    return PLACE.sub(lambda match: f"{match[1]}{made[match[2]]}{match[3]}", text)


def layers() -> str:
    """Return the import contract of the layers as a diagram: a layer imports only what is below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(each["layers"] for each in contracts if each["id"] == "layers")
    lines = ["```mermaid", "flowchart TB"]
    for number, row in enumerate(rows):
        names = row.split(" | ")
        lines.append(
            f'    subgraph layer{number}[" "]\n        direction LR\n        {"; ".join(names)}\n    end'
        )
    lines += [f"    layer{number} --> layer{number + 1}" for number in range(len(rows) - 1)]
    return "\n".join([*lines, "```", ""])


def rotation_states() -> str:
    """Return the states of a rotation as a diagram of the table that the code walks, in its order."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.IDLE}"]
    for step in TRANSITIONS:
        ending = "" if step.ending is None else f" ({step.ending})"
        lines.append(f"    {step.source} --> {step.target}: {step.event}{ending}")
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    PAGE.write_text(page())
