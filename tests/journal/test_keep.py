"""What is kept of a decision, and how records are named."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.journal import RecordIds, record_id
from equipoise.adapters.journal.records import gist, is_stored_whole, pack, unpack
from equipoise.adapters.journal.schema import DamagedRow
from equipoise.core.decision import Decision, EvictPod, Outcome, Record
from equipoise.core.reason import Code, Reason

A, B = EvictPod("a", "shop", "1"), EvictPod("b", "shop", "2")


def _plan(code: Code, *actions: EvictPod, **numbers: float) -> Decision:
    return Decision("shop/web", Reason(code, f"Because of {numbers}.", numbers), actions)


WAIT = Reason(Code.HELD_BY_LAG, "Wait.", {"kafka_lag": 5.0})
LATER = Reason(Code.HELD_BY_LAG, "Wait for 6 more.", {"kafka_lag": 6.0})
QUIET = _plan(Code.NO_HOT_PODS, busiest=0.5)
ROTATE = _plan(Code.ROTATE, A)


@pytest.mark.parametrize(
    ("last", "now", "expected"),
    [
        (None, QUIET, True),
        (QUIET, QUIET, False),
        (QUIET, _plan(Code.NO_HOT_PODS, busiest=0.6), False),
        (QUIET, _plan(Code.METRICS_INCOMPLETE), True),
        (QUIET, ROTATE, True),
        (ROTATE, QUIET, True),
        (ROTATE, ROTATE, False),
        (ROTATE, _plan(Code.ROTATE, A, B), True),
        (ROTATE, _plan(Code.ROTATE, B), True),
        (ROTATE, ROTATE.hold(WAIT), True),
        (ROTATE.hold(WAIT), ROTATE.hold(LATER), False),
        (ROTATE.hold(WAIT), _plan(Code.ROTATE, B).hold(WAIT), True),
        (ROTATE.hold(WAIT), ROTATE, True),
    ],
)
def test_a_record_is_whole_when_reason_actions_or_holds_changed(
    last: Decision | None, now: Decision, expected: bool
) -> None:
    """The rule, as a table; numbers alone are no news."""
    record = Record("1", "rotation", 0.0, {}, {}, {}, now)
    assert is_stored_whole(None if last is None else gist(last), record) is expected


def test_what_was_acted_on_is_always_whole() -> None:
    """The same plan twice, and the second time it was carried out."""
    acted = Record("1", "rotation", 0.0, {}, {}, {}, ROTATE, (Outcome(A, "Evicted"),))
    assert is_stored_whole(gist(ROTATE), acted)


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=2), st.integers(0, 2**15 - 1))
def test_ids_sort_by_time(times: list[float], chance: int) -> None:
    """To the millisecond, whoever wrote them."""
    first, second = (int(at * 1000) for at in times)
    names = [record_id(at, chance, 1) for at in times]
    assert (names[0] < names[1]) is (first < second)
    assert len(set(map(len, names))) == 1


def test_ids_of_one_moment_are_unique_and_in_order() -> None:
    """A batch has one time for all."""
    ids = RecordIds(7)
    names = [ids.next(1.5) for _ in range(5000)]
    assert names == sorted(set(names))


@settings(max_examples=25)
@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3000).map(lambda count: "é1" * count), max_size=3)
)
def test_packing_loses_nothing(document: dict[str, str]) -> None:
    """Large or small."""
    assert unpack(pack(msgspec.json.encode(document)), dict[str, str]) == document


@pytest.mark.parametrize("data", [b"", b"x", b"x\x9cnonsense", b"{", b"[]", b"\xff"])
def test_damaged_bytes_are_noticed(data: bytes) -> None:
    """Whatever they are."""
    with pytest.raises(DamagedRow):
        unpack(data, dict[str, str])
