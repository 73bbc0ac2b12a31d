"""A rotation from its first wave to its verdict. Pure.

After each wave the workload must become whole, and one metrics window must pass; then it is measured, and
either the next wave may go or the rotation is over. What it brought is how far the hottest pod fell.

What rotation remembers of one workload: the rotation under way, how the last one ended, and futility.

It lives in the workload's ledger, and is written together with the intent of a wave or when a rotation ends.
How many pods have gone, and when the last one went, is counted from the ledger's entries, which tell what
came of each.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from equipoise.core.decision import Decision
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code, Reason
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import (
    Observation,
    held_by_health,
    held_by_rollout,
    hottest,
    was_scaled_since,
)

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


class RotationRun(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
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


class RotationResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
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

    course: RotationRun | None = None
    last: RotationResult | None = None
    failures: Count = 0
    """How many verified rotations in a row did not lower the hottest pod by the minimum improvement."""
    futile_until: Moment | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "RotationMemory":
        """Read what `to_data` gave; a ValueError says what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def recall(ledger: Ledger) -> dict[str, Any]:
    """Return what the ledger remembers of rotation, with the course as far as the entries say it has come.

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


WHOLE_MAX_SECONDS = 1800.0
"""How long a wave may take to be replaced and measured; two metrics windows where those are longer."""
IDLE_MAX_SECONDS = 3600.0
"""How long a rotation may wait for its next wave: what was measured before it is no comparison any more.

Four metrics windows where those are longer.
"""
FAILURES_MAX = 3
BACKOFF_FIRST_SECONDS = 3600.0
BACKOFF_MAX_SECONDS = 86_400.0
DOUBLINGS_MAX = 5
"""After these the wait is at its longest, however many more failures there are."""


MEASURED = frozenset({Ending.NOTHING_LEFT, Ending.USED_UP})
"""Endings that say what the rotation brought."""


class Progress(NamedTuple):
    """Where a rotation stands."""

    memory: RotationMemory
    hold: Reason | None = None
    """Why the next wave has to wait."""
    note: str = ""
    """What came of a rotation that ended just now."""
    room: int | None = None
    """How many more pods the rotation under way may take."""


def proceed(
    policy: RotationPolicy, seen: Observation, memory: RotationMemory, proposed: Decision
) -> Progress:
    """Return how far the rotation under way has come, and end it when it is over."""
    course = memory.course
    if course is None:
        return Progress(memory)
    if held_by_rollout(seen) is not None or was_scaled_since(policy, seen, course.began_at):
        return _ended(policy, seen, memory, course, Ending.INTERRUPTED)
    waited = seen.at - course.wave_at
    window = policy.metrics_window_seconds
    if waited > max(IDLE_MAX_SECONDS, 4 * window):
        return _ended(policy, seen, memory, course, Ending.LEFT_OPEN)
    unhealthy = held_by_health(seen)
    if unhealthy is None:
        memory, course = _update_unknown_pods(memory, course, seen)
    waiting = unhealthy or _measuring(policy, seen, course) or _hold_for_missing_usage(seen, course)
    now = None if waiting is not None or not _is_measured(proposed) else hottest(seen.pods)
    if now is None:
        if waited > max(WHOLE_MAX_SECONDS, 2 * window):
            return _ended(policy, seen, memory, course, Ending.TIMED_OUT)
        return Progress(memory, waiting)
    if not proposed.actions:
        return _ended(policy, seen, memory, course, Ending.NOTHING_LEFT)
    if course.evicted >= course.planned:
        return _ended(policy, seen, memory, course, Ending.USED_UP)
    return Progress(memory, room=course.planned - course.evicted)


def _measuring(policy: RotationPolicy, seen: Observation, course: RotationRun) -> Reason | None:
    """Wait until the usage is of the new pods only: one window after the last of them became ready."""
    window = policy.metrics_window_seconds
    since = [pod.ready_seconds for pod in seen.pods if pod.ready_seconds is not None]
    left = window - min([seen.at - course.wave_at, *since])
    if left <= 0:
        return None
    return Reason(
        Code.HELD_BY_COOLDOWN,
        f"Wave {course.waves} is whole again, and its usage is measured {left:.0f} s more before the next.",
        {"seconds_left": left},
    )


def _update_unknown_pods(
    memory: RotationMemory, course: RotationRun, seen: Observation
) -> tuple[RotationMemory, RotationRun]:
    """Remember when fewer pods are unknown than before: who became known since is no excuse for another."""
    unknown = _unknown(seen)
    if unknown >= course.unknown:
        return memory, course
    course = msgspec.structs.replace(course, unknown=unknown)
    return msgspec.structs.replace(memory, course=course), course


def _hold_for_missing_usage(seen: Observation, course: RotationRun) -> Reason | None:
    """Wait while more pods are unknown than when fewest were: the hottest may be among them."""
    unknown = _unknown(seen)
    if unknown <= course.unknown:
        return None
    was = f", {course.unknown} before" if course.unknown else ""
    return Reason(
        Code.HELD_BY_COOLDOWN,
        f"Wave {course.waves} is whole again, but the usage of {_count(unknown, 'pod')} over the window is "
        f"unknown{was}; what it brought is measured when that is known.",
        {"pods_unknown": unknown},
    )


def _unknown(seen: Observation) -> int:
    """Count the pods whose usage over the window nobody knows; a restart may hide a part of it."""
    return sum(
        pod.is_ready and not pod.protection and (pod.cpu_cores is None or pod.has_restarted)
        for pod in seen.pods
    )


def _is_measured(proposed: Decision) -> bool:
    return "threshold_cores" in proposed.reason.numbers


def _ended(
    policy: RotationPolicy, seen: Observation, memory: RotationMemory, course: RotationRun, ending: Ending
) -> Progress:
    realised = None
    if ending in MEASURED:
        now = hottest(seen.pods)
        assert now is not None, "only a rotation that was measured ends so"
        realised = round((course.hottest_cores - now) / course.hottest_cores * 100, 9)
    verdict = RotationResult(
        ending, seen.at, course.wave_at, course.waves, course.evicted, course.predicted_percent, realised
    )
    return Progress(_judged(policy, memory, verdict), note=told(verdict))


def _judged(policy: RotationPolicy, memory: RotationMemory, verdict: RotationResult) -> RotationMemory:
    """Count rotations that did not help; what could not be measured neither helps nor fails."""
    failures, until = memory.failures, memory.futile_until
    if verdict.realised_percent is not None:
        has_helped = verdict.realised_percent >= policy.improvement_percent_min
        failures, until = (0, None) if has_helped else (failures + 1, None)
    if verdict.realised_percent is not None and failures >= FAILURES_MAX:
        doublings = min(failures - FAILURES_MAX, DOUBLINGS_MAX)
        wait = min(BACKOFF_FIRST_SECONDS * 2.0**doublings, BACKOFF_MAX_SECONDS)
        until = verdict.ended_at + wait
    return RotationMemory(None, verdict, failures, until)


_ENDINGS = {
    Ending.NOTHING_LEFT: "nothing is left to rotate",
    Ending.USED_UP: "all that were planned have gone",
    Ending.INTERRUPTED: "a rollout or the autoscaler came between, so nothing can be compared",
    Ending.LEFT_OPEN: "nobody went on with it for too long",
    Ending.TIMED_OUT: "the workload did not become whole and measured in time",
}


def told(verdict: RotationResult) -> str:
    """Return how a rotation ended, predicted and realised side by side."""
    pods, waves = _count(verdict.evicted, "pod"), _count(verdict.waves, "wave")
    head = f"The rotation of {pods} in {waves} is over, since {_ENDINGS[verdict.ending]}"
    if verdict.realised_percent is None:
        return f"{head}; {verdict.predicted_percent:.1f} % was predicted."
    fell = round(verdict.realised_percent, 1) + 0.0  # a zero has no sign
    went = f"fell by {fell:.1f} %" if fell >= 0 else f"rose by {-fell:.1f} %"
    return f"{head}: the hottest pod {went}, {verdict.predicted_percent:.1f} % was predicted."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def begun(memory: RotationMemory, seen: Observation, decision: Decision, round_id: str) -> RotationMemory:
    """Remember a wave that is about to go: the first of a rotation, or the next."""
    course = memory.course
    if course is None:
        busiest = hottest(seen.pods)
        assert busiest is not None, "whoever rotates has seen a hot pod"
        planned = len(decision.actions) + len(decision.held)
        predicted = decision.reason.numbers["improvement_percent"]
        course = RotationRun(
            round_id, seen.at, seen.at, 0, planned, predicted, busiest, unknown=_unknown(seen)
        )
    course = msgspec.structs.replace(course, waves=course.waves + 1, wave_at=seen.at)
    return msgspec.structs.replace(memory, course=course)
