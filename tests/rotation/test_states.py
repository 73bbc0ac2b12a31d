"""The table of a rotation's states: every transition happens."""

from collections.abc import Iterator
from itertools import product

import msgspec

from equipoise.rotation.decide import decide, propose
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import (
    TRANSITIONS,
    WAVE_SENT,
    Ending,
    RotationMemory,
    Situation,
    State,
    Transition,
    begin_wave,
    walk,
)
from tests.support.rotation.runs import COURSE
from tests.support.rotation.worlds import NOW, live, pod, seed_pods

POLICY = RotationPolicy()

OBSERVATIONS = (
    live(*seed_pods()),
    live(*(pod(name, 0.7) for name in "abcdef")),
    live(*(pod(name, None) for name in "abcdef")),
    live(*seed_pods(), workload={"replicas_wanted": 7}),
    live(*seed_pods(), workload={"replicas_updated": 3}),
)
MEMORIES = (
    RotationMemory(),
    RotationMemory(futile_until=NOW + 60),
    RotationMemory(futile_until=NOW - 60),
    *(
        RotationMemory(
            msgspec.structs.replace(COURSE, wave_at=NOW - waited, evicted=evicted), failures=failures
        )
        for waited, evicted, failures in product((10, 400, 2000, 4000), (2, 4), (0, 2))
    ),
)


def _walked(observation: Observation, memory: RotationMemory) -> list[Transition]:
    """The transitions of one cycle, and the wave after it where one may go."""
    proposed, plan = propose(POLICY, observation)
    before = Situation(POLICY, observation, memory, plan, is_rotation_proposed=bool(proposed.actions))
    steps = [step for step, _ in walk(before)]
    decision, details = decide(POLICY, observation, memory.to_data())
    if decision.actions:
        after = begin_wave(decision, details, observation, "r1")
        sent = Situation(POLICY, observation, after, plan, is_rotation_proposed=True)
        steps += [
            step
            for step in TRANSITIONS
            if (step.source, step.event, step.target) == (details.state, WAVE_SENT, sent.state)
        ]
    return steps


def _cycles() -> Iterator[tuple[RotationMemory, list[Transition]]]:
    for observation, memory in product(OBSERVATIONS, MEMORIES):
        yield memory, _walked(observation, memory)


def test_every_transition_of_the_table_happens() -> None:
    """None is there for the drawing only."""
    assert {step for _, steps in _cycles() for step in steps} == set(TRANSITIONS)


def test_a_cycle_takes_transitions_that_follow_each_other() -> None:
    """From the state that is remembered to the one that is left for the next cycle."""
    for memory, steps in _cycles():
        sources = [step.source for step in steps]
        assert sources[1:] == [step.target for step in steps][:-1]
        if memory.run is not None and steps:
            assert sources[0] is State.REPLACING


def test_the_table_has_every_state_and_every_ending() -> None:
    """A state that nothing leads to, or an ending that nothing gives, would be dead."""
    assert {step.target for step in TRANSITIONS} == set(State)
    assert {step.source for step in TRANSITIONS} == set(State)
    assert {step.ending for step in TRANSITIONS} - {None} == set(Ending)
