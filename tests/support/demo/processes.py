"""Looks for processes that somebody has left behind."""

from pathlib import Path


def left_behind(words: str) -> list[str]:
    """Give the command lines that have these words in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if words in line:
            found.append(line)
    return found
