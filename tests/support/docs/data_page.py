"""Runs the commands that docs/how-to/data.md shows, as they stand there."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "data.md"
ADDRESS = "PROMETHEUS=http://localhost:9090"
BOUND_SECONDS = 120


def shell_blocks() -> list[str]:
    """Return the page's blocks of commands."""
    return [block.text for block in blocks(PAGE) if block.language == "bash"]


def run_block(text: str, folder: Path, address: str = "") -> subprocess.CompletedProcess[str]:
    """Run one block in a folder, with this Prometheus; `kubectl` is the folder's, where it has one."""
    start = "from equipoise.cli.main import main; main()"
    (folder / "equipoise").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{start}' \"$@\"\n")
    (folder / "equipoise").chmod(0o755)
    script = text.replace(ADDRESS, f"PROMETHEUS={address}")
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
