"""The progress of a rotation: its states, the transitions between them, and its memory. Pure.

A rotation takes many cycles, and each may run in another process: after a crash, with a new leader, hours
later. So no process keeps its state. What cannot be observed again (`RotationMemory`) is in the workload's
ledger, written together with the intent of a wave or when a rotation ends; how many pods have gone, and when,
is counted from the ledger's entries. Each cycle starts from the state that the memory implies and takes the
`TRANSITIONS` whose conditions the observation meets, until none is met.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from equipoise.core.decision import Decision
from equipoise.core.errors import DECODE_ERRORS, WorldFailed, delay_seconds
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.quantity import print_count, print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import (
    Observation,
    RotationPlan,
    count_unknown,
    held_by_health,
    held_by_rollout,
    hottest,
    was_scaled_since,
)

BALANCER = "rotation"
Moment = Annotated[float, msgspec.Meta(ge=0, le=2.5e11)]
"""Unix seconds that a calendar can print; others are invalid in a ledger."""
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

REPLACEMENT_MAX_SECONDS = 1800.0
"""Time limit for the replacement and measurement of a wave; two metrics windows where that is longer."""
IDLE_MAX_SECONDS = 3600.0
"""Time limit between two waves of a rotation; four metrics windows where that is longer."""
FAILURES_MAX = 3
BACKOFF_FIRST_SECONDS = 3600.0
BACKOFF_MAX_SECONDS = 86_400.0


class Ending(StrEnum):
    """How a rotation ended."""

    NOTHING_LEFT = "NothingLeft"
    """No candidate is hot any more, or rotating it would not improve enough."""
    USED_UP = "UsedUp"
    """All planned pods were evicted, and some pods are still hot."""
    INTERRUPTED = "Interrupted"
    """A rollout or the autoscaler changed the workload meanwhile, so before and after cannot be compared."""
    LEFT_OPEN = "LeftOpen"
    """No wave followed for so long that before and after cannot be compared."""
    TIMED_OUT = "TimedOut"
    """The replacements did not become ready, or could not be measured, within the time limit."""


MEASURED_ENDINGS = frozenset({Ending.NOTHING_LEFT, Ending.USED_UP})
"""Endings after which before and after can be compared."""


class RotationRun(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A rotation under way."""

    round: str
    began_at: Moment
    wave_at: Moment
    """When the last pod was evicted, or may have been."""
    waves: Count
    planned: Count
    """Number of pods in the plan when the rotation began; it evicts no more."""
    predicted_percent: float
    hottest_cores: Annotated[float, msgspec.Meta(ge=1e-9)]
    """Usage of the hottest pod when the rotation began."""
    evicted: Count = 0
    unknown: Count = 0
    """The fewest ready pods without usage over the window in any cycle so far."""


class RotationResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How a rotation ended, and what it improved."""

    ending: Ending
    ended_at: Moment
    rotated_at: Moment
    waves: Count
    evicted: Count
    predicted_percent: float
    realised_percent: float | None = None
    """By how much the hottest pod fell; None where before and after cannot be compared."""


class RotationMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The memory of a rotation from one cycle to the next."""

    run: RotationRun | None = msgspec.field(default=None, name="course")
    last: RotationResult | None = None
    failures: Count = 0
    """How many measured rotations in a row did not lower the hottest pod by the minimum improvement."""
    futile_until: Moment | None = None

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "RotationMemory":
        """Return the memory that `to_data` wrote; raises a ValueError that names what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def load_memory(ledger: Ledger, *, with_run: bool = True) -> dict[str, Any]:
    """Return the rotation's memory from the ledger, with the run updated from the ledger's entries.

    A run without evicted pods is dropped: its only eviction was refused. `with_run=False` leaves any run out.
    """
    data = ledger.memory.get(BALANCER, {})
    try:
        memory = RotationMemory.from_data(data)
    except DECODE_ERRORS as error:
        raise WorldFailed(f"the state of the rotation is invalid: {error}") from error
    if memory.run is None:
        return dict(data)
    run, entries = memory.run, ledger.entries
    # A wave whose evictions were all refused does not count, although its intent was written.
    evicted_at = [
        each.at for each in entries if each.round == run.round and each.state is not EntryState.FAILED
    ]
    if evicted_at and with_run:
        evicted, waves = max(run.evicted, len(evicted_at)), len(set(evicted_at))
        run = msgspec.structs.replace(run, evicted=evicted, wave_at=max(evicted_at), waves=waves)
        return msgspec.structs.replace(memory, run=run).to_data()
    return msgspec.structs.replace(memory, run=None).to_data()


class State(StrEnum):
    """The states of a workload's rotation."""

    IDLE = "Idle"
    """No rotation is under way."""
    REPLACING = "Replacing"
    """A wave was evicted, and not all replacements are ready yet."""
    MEASURING = "Measuring"
    """All pods are ready, and the usage since the wave does not cover a whole window yet."""
    MEASURED = "Measured"
    """The usage since the wave is known, and decides how the rotation goes on."""
    DUE = "Due"
    """The next wave may be sent, as far as the guards allow."""
    ENDED = "Ended"
    """The rotation is over, and its result counts for or against the next."""
    FUTILE = "Futile"
    """The last rotations did not help, so none begins for some time."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of the transitions' conditions."""

    policy: RotationPolicy
    observation: Observation
    memory: RotationMemory
    plan: RotationPlan | None
    is_rotation_proposed: bool
    result: RotationResult | None = None
    """How the rotation ended, from the state Ended on."""

    @property
    def state(self) -> State:
        """The state that the memory implies, before anything is observed."""
        if self.memory.run is not None:
            return State.REPLACING
        return State.IDLE if self.memory.futile_until is None else State.FUTILE

    @property
    def run(self) -> RotationRun:
        assert self.memory.run is not None, "only a state with a run asks for it"
        return self.memory.run

    @property
    def seconds_since_wave(self) -> float:
        return self.observation.at - self.run.wave_at


def _is_interrupted(now: Situation) -> bool:
    has_rollout = held_by_rollout(now.observation) is not None
    return has_rollout or was_scaled_since(now.policy, now.observation, now.run.began_at)


def _is_left_open(now: Situation) -> bool:
    return now.seconds_since_wave > max(IDLE_MAX_SECONDS, 4 * now.policy.metrics_window_seconds)


def _is_late(now: Situation) -> bool:
    return now.seconds_since_wave > max(REPLACEMENT_MAX_SECONDS, 2 * now.policy.metrics_window_seconds)


def _is_whole(now: Situation) -> bool:
    return held_by_health(now.observation) is None


def _is_measured(now: Situation) -> bool:
    is_known = now.plan is not None and hottest(now.observation.pods) is not None
    return is_known and _hold_while_measuring(now) is None


def _has_no_proposal(now: Situation) -> bool:
    return not now.is_rotation_proposed


def _is_used_up(now: Situation) -> bool:
    return now.run.evicted >= now.run.planned


def _is_futile(now: Situation) -> bool:
    return now.memory.futile_until is not None and now.observation.at < now.memory.futile_until


WAVE_SENT = "the first pod of a wave is evicted"


@dataclass(frozen=True, slots=True)
class Transition:
    """A step from one state to the next, the condition in words and as code, and the ending it gives."""

    source: State
    event: str
    target: State
    is_met: Callable[[Situation], bool] = lambda _: True
    ending: Ending | None = None


TRANSITIONS = (
    Transition(State.IDLE, WAVE_SENT, State.REPLACING, lambda _: False),
    Transition(State.REPLACING, "a rollout or scaling", State.ENDED, _is_interrupted, Ending.INTERRUPTED),
    Transition(State.REPLACING, "no wave for too long", State.ENDED, _is_left_open, Ending.LEFT_OPEN),
    Transition(State.REPLACING, "all pods are ready", State.MEASURING, _is_whole),
    Transition(State.REPLACING, "not all ready in time", State.ENDED, _is_late, Ending.TIMED_OUT),
    Transition(State.MEASURING, "usage is known over a window", State.MEASURED, _is_measured),
    Transition(State.MEASURING, "not measured in time", State.ENDED, _is_late, Ending.TIMED_OUT),
    Transition(State.MEASURED, "nothing to rotate", State.ENDED, _has_no_proposal, Ending.NOTHING_LEFT),
    Transition(State.MEASURED, "all planned pods have gone", State.ENDED, _is_used_up, Ending.USED_UP),
    Transition(State.MEASURED, "some pods are still hot", State.DUE),
    Transition(State.DUE, WAVE_SENT, State.REPLACING, lambda _: False),
    Transition(State.ENDED, "several in a row did not help", State.FUTILE, _is_futile),
    Transition(State.ENDED, "otherwise", State.IDLE),
    Transition(State.FUTILE, "the backoff is over", State.IDLE, lambda now: not _is_futile(now)),
)
"""Of those from one state, the first whose condition is met is taken. Only `begin_wave` sends a wave."""
WAVE_SOURCES = frozenset(step.source for step in TRANSITIONS if step.event == WAVE_SENT)
_STEPS = {state: tuple(step for step in TRANSITIONS if step.source is state) for state in State}


class RotationDetails(msgspec.Struct, frozen=True):
    """The typed details of a rotation's decision."""

    plan: RotationPlan | None = None
    """The proposal; None where the algorithm could not be applied, such as without metrics."""
    state: State = State.IDLE
    memory: RotationMemory = RotationMemory()
    hold: Reason | None = None
    """Why the next wave of the rotation under way has to wait."""
    result: RotationResult | None = None
    """How a rotation ended in this cycle."""

    @property
    def room(self) -> int | None:
        """How many more pods the rotation under way may take; None unless its next wave is due."""
        run = self.memory.run
        return run.planned - run.evicted if self.state is State.DUE and run is not None else None


def walk(now: Situation) -> Iterator[tuple[Transition, Situation]]:
    """Yield the transitions of this cycle, beginning with the remembered state, each with its situation."""
    state = now.state
    taken: list[Transition] = []
    while (step := next((each for each in _STEPS[state] if each.is_met(now)), None)) is not None:
        assert step not in taken, "no transition is taken twice in one cycle"
        taken.append(step)
        state, now = step.target, _entered(step, now)
        yield step, now


def advance(now: Situation) -> RotationDetails:
    """Return the situation after all transitions of this cycle."""
    state = now.state
    for step, after in walk(now):
        state, now = step.target, after
    hold = held_by_health(now.observation) if state is State.REPLACING else None
    if state is State.MEASURING:
        hold = _hold_while_measuring(now)
    has_run = state in {State.REPLACING, State.MEASURING, State.DUE}
    assert has_run == (now.memory.run is not None), f"what is remembered does not fit the state {state}"
    return RotationDetails(now.plan, state, now.memory, hold, now.result)


def _entered(step: Transition, now: Situation) -> Situation:
    """Return the situation after a step: the memory changes when unknown pods get samples, or at the end."""
    if step.target is State.MEASURING:
        # The fewest so far: a pod that has samples now does not make up for another without.
        unknown = min(now.run.unknown, count_unknown(now.observation.pods))
        run = msgspec.structs.replace(now.run, unknown=unknown)
        return replace(now, memory=msgspec.structs.replace(now.memory, run=run))
    if step.ending is not None:
        result = _result(step.ending, now.run, now.observation)
        return replace(now, memory=_count_result(now.policy, now.memory, result), result=result)
    return now


def _hold_while_measuring(now: Situation) -> Reason | None:
    """Hold for a window after the last pod became ready, and while an unknown pod may be the hottest."""
    run, observation = now.run, now.observation
    since = [pod.ready_seconds for pod in observation.pods if pod.ready_seconds is not None]
    left = now.policy.metrics_window_seconds - min([now.seconds_since_wave, *since])
    ready = f"All pods are ready after wave {run.waves}"
    if left > 0:
        left_text = print_seconds(math.ceil(left))
        sentence = f"{ready}. Their usage is measured for another {left_text} before the next wave."
        return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": left})
    unknown = count_unknown(observation.pods)
    if unknown <= run.unknown:
        return None
    was = f" ({run.unknown} before)" if run.unknown else ""
    usage = f"the usage of {print_count(unknown, 'pod')} over the metrics window is unknown{was}"
    sentence = f"{ready}, but {usage}. The next wave waits until it is known."
    return Reason(Code.HELD_BY_COOLDOWN, sentence, {"pods_unknown": unknown})


def _result(ending: Ending, run: RotationRun, observation: Observation) -> RotationResult:
    predicted, realised = run.predicted_percent, None
    if ending in MEASURED_ENDINGS:
        cores = hottest(observation.pods)
        assert cores is not None, "only a rotation that was measured ends so"
        realised = round((run.hottest_cores - cores) / run.hottest_cores * 100, 9)
    at = observation.at
    return RotationResult(ending, at, run.wave_at, run.waves, run.evicted, predicted, realised)


def _count_result(policy: RotationPolicy, memory: RotationMemory, result: RotationResult) -> RotationMemory:
    """Count consecutive rotations without improvement, and back off; unmeasured ones do not count."""
    failures, until = memory.failures, memory.futile_until
    if result.realised_percent is not None:
        has_helped = result.realised_percent >= policy.improvement_percent_min
        failures, until = (0, None) if has_helped else (failures + 1, None)
    if result.realised_percent is not None and failures >= FAILURES_MAX:
        failures_counted = failures - FAILURES_MAX + 1
        wait = delay_seconds(failures_counted, BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS)
        until = result.ended_at + wait
    return RotationMemory(None, result, failures, until)


_ENDINGS = {
    Ending.NOTHING_LEFT: "no pod needs to be rotated any more",
    Ending.USED_UP: "all planned pods were evicted",
    Ending.INTERRUPTED: "a rollout or the autoscaler changed the workload",
    Ending.LEFT_OPEN: "no process continued it in time",
    Ending.TIMED_OUT: "its new pods were not ready and measured in time",
}


def describe(result: RotationResult) -> str:
    """Return one sentence about a rotation's end, with predicted and realised improvement."""
    pods, waves = print_count(result.evicted, "pod"), print_count(result.waves, "wave")
    head = f"The rotation of {pods} in {waves} ended because {_ENDINGS[result.ending]}"
    predicted = f"{result.predicted_percent:.1f}%"
    if result.realised_percent is None:
        return f"{head}. Its effect is unknown; a decrease by {predicted} was predicted."
    fell = round(result.realised_percent, 1) + 0.0  # a zero has no sign
    went = f"decreased by {fell:.1f}%" if fell >= 0 else f"increased by {-fell:.1f}%"
    return f"{head}. The usage of the hottest pod {went}; a decrease by {predicted} was predicted."


def begin_wave(
    decision: Decision, details: RotationDetails, observation: Observation, round_id: str
) -> RotationMemory:
    """Return the memory to write with the intent of a wave: the first of a rotation, or the next."""
    assert details.state in WAVE_SOURCES, f"no wave is sent in the state {details.state}"
    run = details.memory.run
    if run is None:
        busiest, plan, at = hottest(observation.pods), details.plan, observation.at
        assert busiest is not None, "a rotation is planned from a hot pod"
        assert plan is not None, "a rotation begins from a plan"
        assert plan.improvement_percent is not None, "a rotation is planned for its improvement"
        unknown, predicted = count_unknown(observation.pods), plan.improvement_percent
        planned = len(decision.actions) + len(decision.held)
        run = RotationRun(round_id, at, at, 0, planned, predicted, busiest, unknown=unknown)
    run = msgspec.structs.replace(run, waves=run.waves + 1, wave_at=observation.at)
    return msgspec.structs.replace(details.memory, run=run)
