"""A series of cluster sizes through the smoothing: what would have been in force after each step. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from equipoise.model.decision import Decision
from equipoise.model.quantity import Quantity
from equipoise.proportional.decide import Asked, decision_of, step, texts
from equipoise.proportional.memory import ProportionalMemory
from equipoise.proportional.observation import Observation, read_current
from equipoise.proportional.observations_file import Row


def replay(asked: Asked, subject: str, rows: Iterable[Row], current: Mapping[str, str]) -> Decision:
    """Decide for one line after the other, and give the last decision with all steps."""
    in_force = read_current(asked.slots, current)
    memory, steps, last = ProportionalMemory(), [], None
    for row in rows:
        taken = step(asked, row.at, row.inputs, in_force, memory)
        steps.append(
            {
                "timestamp": row.written,
                "reason": taken.code.value,
                "target": texts(asked, taken.targets),
                "applied": texts(asked, taken.applied),
            }
        )
        last = row, taken, in_force
        in_force, memory = taken.applied, taken.memory
    assert last is not None, "a file has at least one line"
    row, taken, before = last
    sizes = {name: str(Quantity(nanos)) for name, nanos in row.inputs.items()}
    seen = Observation(subject, row.at / 1000, sizes)
    decision = decision_of(asked, seen, row.inputs, before, taken)
    return msgspec.structs.replace(decision, extra=decision.extra | {"steps": steps})
