"""Draws the states of a rotation from the table that the code walks: `python -m tools.rotation_states`."""

import sys

from equipoise.rotation.progress import TRANSITIONS, State


def rotation_states() -> str:
    """Return the table of transitions as a Mermaid diagram, in its order."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.IDLE}"]
    for step in TRANSITIONS:
        ending = "" if step.ending is None else f" ({step.ending})"
        lines.append(f"    {step.source} --> {step.target}: {step.event}{ending}")
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    sys.stdout.write(rotation_states())
