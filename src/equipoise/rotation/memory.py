"""What rotation remembers of one workload: the rotation under way, how the last one ended, and futility.

It lives in the workload's ledger, and is written together with the intent of a wave or when a rotation ends.
How many pods have gone, and when the last one went, is counted from the ledger's entries, which tell what
came of each.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from equipoise.model.errors import DECODE_ERRORS, WorldFailed
from equipoise.model.ledger import EntryState, Ledger

BALANCER = "rotation"
Moment = Annotated[float, msgspec.Meta(ge=0, le=2.5e11)]
"""Unix seconds that a calendar can print: whatever else a ledger says, we have not written it."""
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class Ending(StrEnum):
    """How a rotation ended."""

    NOTHING_LEFT = "NothingLeft"
    """No pod that may go is hot any more, or none that is worth it."""
    USED_UP = "UsedUp"
    """As many pods went as were planned, and some are hot still."""
    INTERRUPTED = "Interrupted"
    """A rollout or the autoscaler changed the workload meanwhile, so before and after cannot be compared."""
    LEFT_OPEN = "LeftOpen"
    """Nobody went on with it for so long that before and after cannot be compared."""
    TIMED_OUT = "TimedOut"
    """The workload did not become whole, or could not be measured."""


class Course(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A rotation under way."""

    round: str
    began_at: Moment
    wave_at: Moment
    """When the last pod was sent away, or may have been."""
    waves: Count
    planned: Count
    """How many pods the plan had when it began: it never takes more."""
    predicted_percent: float
    hottest_cores: Annotated[float, msgspec.Meta(ge=1e-9)]
    """The hottest pod when it began."""
    evicted: Count = 0
    unknown: Count = 0
    """How many ready pods had no usage over the window when it began, or whenever fewest had none since."""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What came of a rotation."""

    ending: Ending
    ended_at: Moment
    rotated_at: Moment
    waves: Count
    evicted: Count
    predicted_percent: float
    realised_percent: float | None = None
    """By how much the hottest pod fell; None where that cannot be said."""


class RotationMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All that one cycle leaves for the next."""

    course: Course | None = None
    last: Verdict | None = None
    failures: Count = 0
    """How many verified rotations in a row did not lower the hottest pod by the minimum improvement."""
    futile_until: Moment | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "RotationMemory":
        """Read what `to_data` gave; a ValueError says what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        """Give it as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def recall(ledger: Ledger) -> dict[str, Any]:
    """Give what the ledger remembers of rotation, with the course as far as the entries say it has come.

    A course of which nothing went is none: its only pod was refused.
    """
    data = ledger.memory.get(BALANCER, {})
    try:
        memory = RotationMemory.from_data(data)
    except DECODE_ERRORS as error:
        raise WorldFailed(f"a memory that cannot be read: {error}") from error
    course = memory.course
    if course is None:
        return dict(data)
    gone = [
        entry
        for entry in ledger.entries
        if entry.round == course.round and entry.state is not EntryState.FAILED
    ]
    if gone:
        # A wave that was refused as a whole is none, though its intent said so.
        moments = {entry.at for entry in gone}
        course = msgspec.structs.replace(
            course, evicted=max(course.evicted, len(gone)), wave_at=max(moments), waves=len(moments)
        )
    else:
        course = None
    return msgspec.structs.replace(memory, course=course).to_data()
