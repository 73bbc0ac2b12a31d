"""Deciding again what a record says was decided."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.model.decision import Decision, Record, hash_inputs
from equipoise.model.errors import DECODE_ERRORS

Redecide = Callable[[Record], Decision]


def _rotation() -> Redecide:
    from equipoise.rotation.record import redecide

    return redecide


def _pools() -> Redecide:
    from equipoise.pools.record import redecide

    return redecide


def _recommendation() -> Redecide:
    from equipoise.recommendation.record import redecide

    return redecide


def _proportional() -> Redecide:
    from equipoise.proportional.record import redecide

    return redecide


def _qos() -> Redecide:
    from equipoise.qos.record import redecide

    return redecide


BALANCERS: dict[str, Callable[[], Redecide]] = {
    "proportional": _proportional,
    "rotation": _rotation,
    "recommendation": _recommendation,
    "pools": _pools,
    "qos": _qos,
}
"""How each balancer decides a record again."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that does not decide to what it says: the decision now, or why there is none."""

    record: Record
    now: Decision | None
    trouble: str = ""

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Give each part that differs: its name, what it was and what it is now, as JSON."""
        return [] if self.now is None else changes(self.record.decision, self.now)

    @property
    def sentence(self) -> str:
        """Say in one line what differs."""
        if self.trouble:
            return self.trouble
        parts = [name for name, _, _ in self.changes]
        by = self.record.version
        since = f"; it was decided by {by}, and this is {__version__}" if by not in {"", __version__} else ""
        return f"{', '.join(parts)} would be different{since}."


@dataclass(slots=True)
class Replay:
    """What came of deciding a number of records again."""

    same: int = 0
    without_inputs: int = 0
    different: list[Difference] = field(default_factory=list)

    @property
    def replayed(self) -> int:
        """How many could be decided again."""
        return self.same + len(self.different)

    @property
    def sentence(self) -> str:
        """Say how it went."""
        without = f", {self.without_inputs} without inputs" if self.without_inputs else ""
        return f"{self.replayed} replayed, {self.same} the same{without}."


def replay(records: Iterable[Record]) -> Replay:
    """Decide each record again through its balancer's own function, and compare to the last bit."""
    answer = Replay()
    for record in records:
        if not record.has_inputs:
            answer.without_inputs += 1
        elif (difference := compare(record)) is not None:
            answer.different.append(difference)
        else:
            answer.same += 1
    return answer


def compare(record: Record) -> Difference | None:
    """Decide one record again; None when it comes out the same."""
    find = BALANCERS.get(record.balancer)
    if find is None:
        return Difference(record, None, f"this version has no balancer {record.balancer!r}")
    if record.inputs_hash not in {"", hash_inputs(record.policy, record.observation, record.memory)}:
        return Difference(record, None, "its inputs are not the ones that were recorded: the hash differs")
    try:
        now = find()(record)
    except DECODE_ERRORS as error:
        reason = " ".join(str(error).split())
        return Difference(record, None, f"this version cannot read its inputs: {reason}")
    return Difference(record, now) if changes(record.decision, now) else None


def changes(before: Decision, now: Decision) -> list[tuple[str, str, str]]:
    """Give the parts of two decisions that are not equal, to the last bit of every number."""
    pairs = zip(_parts(before), _parts(now), strict=True)
    return [(name, _text(one), _text(other)) for (name, one), (_, other) in pairs if one != other]


def _parts(decision: Decision) -> list[tuple[str, Any]]:
    reason = decision.reason
    return [
        ("subject", decision.subject),
        ("reason", reason.code),
        ("sentence", reason.sentence),
        ("numbers", reason.numbers),
        ("actions", decision.actions),
        ("held", decision.held),
        ("memory", decision.memory),
    ]


def _text(part: object) -> str:
    return msgspec.json.encode(part, order="sorted").decode()
