"""Writes the table and the figure of proportional.md: `.venv/bin/python docs/proportional_simulation.py`.

It takes some minutes: every strategy in 100 histories of each kind.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE, FIGURE = HERE / "proportional.md", HERE / "images" / "proportional.png"
BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
SEEDS = 100
HEAD = (
    "| strategy | changes | per hour | over-provision | below the model | deepest |\n"
    "|---|--:|--:|--:|--:|--:|\n"
)


def main() -> None:
    """Run the command as a user does, and write down what it says."""
    program = Path(sys.executable).with_name("equipoise")
    command = [
        program,
        "proportional",
        "simulate",
        "--seeds",
        str(SEEDS),
        "--plot",
        str(FIGURE),
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{_tables(json.loads(done.stdout))}{END}{rest.partition(END)[2]}")


def _tables(document: dict[str, Any]) -> str:
    settings = document["histories"][0]["strategies"]
    parts = ["\nSettings: " + "; ".join(f"{one['name']}: {one['settings']}" for one in settings) + ".\n"]
    for history in document["histories"]:
        parts.append(f"\n**{history['name']}**, {history['seeds']} seeds of {history['hours']:g} h\n\n{HEAD}")
        parts += [_row(one) for one in history["strategies"]]
    return "".join([*parts, "\n"])


def _row(one: dict[str, Any]) -> str:
    over, below, worst = (
        f"{one[key] * 100:.{digits}f} %"
        for key, digits in (("over_provision_mean", 2), ("below_model_share", 1), ("below_model_worst", 1))
    )
    counts = f"{one['changes']:.1f} | {one['changes_per_hour']:.1f}"
    return f"| {one['name']} | {counts} | {over} | {below} | {worst} |\n"


if __name__ == "__main__":
    main()
