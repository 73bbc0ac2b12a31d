"""What the loop remembers, and what becomes of it when a process ends, a write is lost, nothing happens."""

from typing import Any
from unittest.mock import patch

import pytest

from equipoise.ports import StoreConflict
from equipoise.sim.faults import FaultKind
from tests.support.proportional.running import NAMESPACE, POLICY, Run, spec

PERCENTILE = {"percentile": {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95}}


def test_the_window_survives_a_restart_and_an_edit_empties_it() -> None:
    """A new process goes on where the last checkpoint was."""
    run = Run(policy=spec(smoothing=PERCENTILE))
    for _ in range(31):
        run.cycle()
    assert run.status["window"]["observations"] >= 15
    run.start()
    run.lease.now = 9
    decision = run.cycle()
    assert decision.reason.code.value == "Unchanged"
    assert decision.reason.numbers["window"] >= 15
    run.world.policies.add(NAMESPACE, POLICY, spec(smoothing={"percentile": {"windowSeconds": 200}}))
    assert run.cycle().reason.numbers["window"] == 1


def test_it_is_quiet_at_rest() -> None:
    """An hour of the same: no write without a window, and with one at most one checkpoint a minute."""
    for smoothing, most in (({}, 0), (PERCENTILE, 25)):
        run = Run(policy=spec(smoothing=smoothing))
        for _ in range(6):
            run.cycle()
        writes, events = run.world.policies.writes, len(run.world.actuator.events)
        for _ in range(360):
            run.cycle()
        assert run.world.policies.writes - writes <= most
        assert len(run.world.actuator.events) == events


def test_a_change_that_could_not_be_remembered_is_not_made() -> None:
    """The status comes first: when somebody else wrote it meanwhile, nothing is done this time."""
    run = Run()

    def lose(*args: Any) -> None:
        raise StoreConflict(str(args))

    with patch.object(run.world.policies, "write_status", lose):
        assert run.reason() == "Set"
    assert run.outcomes == ["Fenced"]
    assert run.world.sizes.writes == []
    assert run.reason() == "Set"
    assert run.requests() == [0.3] * 3


def test_a_process_that_dies_after_the_intent_leaves_the_rest_to_the_next() -> None:
    """It knows what was to be in force, and brings it to the pods that lack it."""
    run = Run()

    class Died(BaseException):
        """The process ends here."""

    real = run.world.sizes.resize
    taken = 0

    def die(*args: Any, **options: Any) -> Any:
        nonlocal taken
        if taken == 1:
            raise Died
        taken += 1
        return real(*args, **options)

    with patch.object(run.world.sizes, "resize", die), pytest.raises(Died):
        run.cycle()
    run.lease.now = 9
    run.start()
    assert run.reason() == "Set"
    assert run.requests() == [0.3] * 3
    assert run.reason() == "Unchanged"


def test_an_api_that_does_not_answer_changes_nothing() -> None:
    """The cycle fails, and the next one goes on."""
    run = Run()
    run.world.faults.add(FaultKind.API_UNAVAILABLE, seconds=15)
    with pytest.raises(Exception, match="does not answer"):
        run.cycle()
    run.world.advance(20)
    assert run.reason() == "Set"
