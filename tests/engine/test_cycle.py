"""The ends of a cycle: what failed is recorded, and a status that cannot be written costs nobody else."""

from equipoise.core.cluster import ObjectRef
from equipoise.core.decision import EvictPod, Outcome, Record
from equipoise.core.reason import Code
from equipoise.engine.isolation import Isolation, ignore
from equipoise.engine.policies import status_error
from equipoise.engine.recording import record_failure
from equipoise.ports import FailedTurn, PolicyObject

POLICY = PolicyObject(ObjectRef("v1", "RotationPolicy", "shop", "web"), 1, "7", {}, {})
FAILED = FailedTurn("shop/web", "ZeroDivisionError: division by zero", "the traceback", "observe.py:7")


class _Journal:
    def __init__(self, *, is_broken: bool = False) -> None:
        self.records: list[Record] = []
        self.is_broken = is_broken

    def append(self, *records: Record, is_whole: bool = False) -> None:
        assert not is_whole
        if self.is_broken:
            raise OSError("no space left on device")
        self.records += records


def test_a_turn_that_failed_is_recorded_with_what_was_sent_before() -> None:
    """Without inputs, which may be what cannot be written down."""
    journal, outcome = _Journal(), Outcome(EvictPod("a", "shop"), "Accepted")
    decision = record_failure(
        FAILED, "rotation", journal, Isolation(), at=60.0, record_id="1", outcomes=[outcome]
    )
    assert decision.reason.code is Code.INTERNAL_ERROR
    assert decision.actions == (outcome.action,)
    (written,) = journal.records
    assert (written.balancer, written.at, written.decision) == ("rotation", 60.0, decision)
    assert written.outcomes == (outcome,)
    assert not written.has_inputs


def test_a_journal_that_fails_is_an_error_of_its_own() -> None:
    """The decision is reported all the same."""
    isolation = Isolation()
    decision = record_failure(FAILED, "rotation", _Journal(is_broken=True), isolation, at=60.0, record_id="1")
    assert decision.subject == "shop/web"
    assert [each.error for each in isolation.failed] == ["OSError: no space left on device"]


def test_a_status_that_fails_for_an_unforeseen_reason_is_the_policys_own_error() -> None:
    """What could not be written for a known reason is returned."""
    isolation = Isolation()
    assert status_error(isolation, POLICY, lambda: "not written: no answer") == "not written: no answer"
    assert isolation.failed == []

    def broken() -> str:
        raise KeyError("conditions")

    assert status_error(isolation, POLICY, broken) == ""
    assert [each.subject for each in isolation.failed] == ["RotationPolicy shop/web"]


def test_a_callback_that_nobody_wants_takes_anything() -> None:
    """And does nothing."""
    ignore()
    ignore("a step", 7)
