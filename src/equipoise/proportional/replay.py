"""Replays a recorded series of cluster sizes through the smoothing: the values in force after each size.

The series is CSV with a column `timestamp` and one for each input. Pure.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from fractions import Fraction
from typing import NamedTuple

import msgspec

from equipoise.core.decision import Decision
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import Quantity, parse_moment
from equipoise.proportional.decide import (
    Observation,
    assess,
    decision_of,
    moment_of,
    read_current,
    read_inputs,
    texts,
)
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.smoothing import INPUTS, ProportionalMemory

SECONDS = re.compile(r"[0-9]{1,11}(\.[0-9]{1,9})?")
TIMESTAMP = "timestamp"
LINES_MAX = 2_000_000


class SizeRow(NamedTuple):
    """One line: its time, as it was written and in milliseconds, and the cluster's size."""

    written: int | float | str
    at: int
    inputs: dict[str, int]


def read_observations(
    text: str, source: str, needed: Iterable[str], constant: Mapping[str, str] | None = None
) -> list[SizeRow]:
    """Return all rows of the file; an input without a column must be one of the constants."""
    lines = csv.reader(text.splitlines(), strict=True)
    try:
        names = _header(next(lines, []), source)
        constants = _constants(constant or {}, names, source)
        if missing := sorted(set(needed) - set(names) - set(constants)):
            raise BadInput(
                f"{source}: line 1: expected a column {missing[0]}, which the policy's functions use "
                f"(or --input {missing[0]}=SIZE)"
            )
        rows = list(_rows(lines, names, constants, source))
    except csv.Error as error:
        raise BadInput(f"{source}: line {lines.line_num}: expected CSV: {error}") from error
    if not rows:
        raise BadInput(f"{source}: expected at least one line below the header")
    return rows


def _header(cells: list[str], source: str) -> list[str]:
    names = [TIMESTAMP if cell.strip().lower() == "ts" else cell.strip().lower() for cell in cells]
    allowed = (TIMESTAMP, *INPUTS)
    if unknown := next((name for name in names if name not in allowed), None):
        raise BadInput(f"{source}: line 1: expected columns of {', '.join(allowed)}, got {unknown!r}")
    if TIMESTAMP not in names or len(set(names)) < len(names):
        raise BadInput(f"{source}: line 1: expected {TIMESTAMP} and each column once")
    return names


def _constants(constant: Mapping[str, str], names: list[str], source: str) -> dict[str, int]:
    try:
        constants = read_inputs(constant)
    except ValueError as error:
        raise BadInput(f"--input {error}") from error
    if duplicate := next((name for name in constants if name in names), None):
        raise BadInput(f"--input {duplicate}: expected it once, since {source} has a column of that name")
    return constants


def _rows(
    lines: Iterator[list[str]], names: list[str], constants: Mapping[str, int], source: str
) -> Iterator[SizeRow]:
    last = None
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        where = f"{source}: line {number}"
        if number > LINES_MAX:
            raise BadInput(f"{where}: expected at most {LINES_MAX} lines")
        if len(cells) != len(names):
            raise BadInput(f"{where}: expected {len(names)} cells, got {len(cells)}")
        line = dict(zip(names, (cell.strip() for cell in cells), strict=True))
        written = line.pop(TIMESTAMP)
        try:
            at = _moment(written)
            inputs = read_inputs(line)
        except ValueError as error:
            raise BadInput(f"{where}: {error}") from error
        if last is not None and at <= last:
            raise BadInput(f"{where}: {TIMESTAMP}: expected times that grow from line to line, got {written}")
        last = at
        yield SizeRow(_number(written), at, {**inputs, **constants})


def _moment(text: str) -> int:
    if SECONDS.fullmatch(text):
        return moment_of(Fraction(text))
    try:
        return round(parse_moment(text, UTC) * 1000)
    except DECODE_ERRORS:
        message = f"{TIMESTAMP}: expected seconds or a time such as 2026-01-31T08:00:00Z, got {text!r:.60}"
        raise ValueError(message) from None


def _number(text: str) -> int | float | str:
    if not SECONDS.fullmatch(text):
        return text
    return int(text) if "." not in text else float(text)


def replay(
    compiled: CompiledPolicy, subject: str, rows: Iterable[SizeRow], current: Mapping[str, str]
) -> Decision:
    """Return the decision for the last row, with the steps of all rows."""
    in_force = read_current(compiled.slots, current)
    memory, steps, last = ProportionalMemory(), [], None
    for row in rows:
        assessment = assess(compiled, row.at, row.inputs, in_force, memory)
        steps.append(
            {
                "timestamp": row.written,
                "reason": assessment.code.value,
                "target": texts(compiled, assessment.targets),
                "applied": texts(compiled, assessment.applied),
            }
        )
        last = row, assessment
        in_force, memory = assessment.applied, assessment.memory
    assert last is not None, "a file has at least one line"
    row, assessment = last
    sizes = {name: str(Quantity(nanos)) for name, nanos in row.inputs.items()}
    observation = Observation(subject, row.at / 1000, sizes)
    decision = decision_of(compiled, observation, row.inputs, assessment)
    return msgspec.structs.replace(decision, extra=decision.extra | {"steps": steps})
