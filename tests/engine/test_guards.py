"""Guards: each one question, and they only reduce."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision, EvictPod
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Entry, EntryState, Ledger
from equipoise.core.reason import Code, Reason
from equipoise.crd.windows import Window, held_by_window
from equipoise.engine.disruption import held_by_hourly_budget, room_for_disruption
from equipoise.engine.guards import held_by_cooldown, held_by_leader, held_by_pause

NOW = 1_800_000_000.0


def _ledger(*ages_seconds: float, state: EntryState = EntryState.DONE) -> Ledger:
    entries = [
        Entry(f"e{n}", f"r{n}", "rotation", "EvictPod", "p", "u", NOW - age, 1, state)
        for n, age in enumerate(ages_seconds)
    ]
    return Ledger(1, tuple(entries))


@pytest.mark.parametrize(("age_seconds", "is_held"), [(0, True), (899, True), (900, False), (5000, False)])
def test_the_cooldown_holds_until_it_is_over(age_seconds: float, is_held: bool) -> None:
    """15 minutes after the last action, to the second."""
    reason = held_by_cooldown(_ledger(age_seconds), "rotation", 900, NOW)
    assert (reason is not None) is is_held
    if reason:
        assert reason.code is Code.HELD_BY_COOLDOWN


def test_an_intent_starts_the_cooldown_and_a_failure_does_not() -> None:
    """What may have happened counts; what surely did not, does not; other balancers have their own."""
    assert held_by_cooldown(_ledger(5, state=EntryState.INTENT), "rotation", 900, NOW)
    assert held_by_cooldown(_ledger(5, state=EntryState.FAILED), "rotation", 900, NOW) is None
    assert held_by_cooldown(_ledger(5), "qos", 900, NOW) is None
    assert held_by_cooldown(Ledger(), "rotation", 900, NOW) is None


@pytest.mark.parametrize(
    ("ages", "is_held"), [((), False), ((1, 2, 3), False), ((1, 2, 3, 4), True), ((1, 2, 3, 3601), False)]
)
def test_the_hourly_budget_counts_rounds_of_the_last_hour(ages: tuple[float, ...], is_held: bool) -> None:
    """Four an hour; older ones are forgiven."""
    reason = held_by_hourly_budget(_ledger(*ages), "rotation", 4, NOW)
    assert (reason is not None) is is_held


def test_two_actions_of_one_round_are_one_round() -> None:
    """A wave of two pods uses the budget once."""
    entries = tuple(Entry(f"e{n}", "same", "rotation", "EvictPod", "p", "u", NOW - 1, 1) for n in range(2))
    assert Ledger(1, entries).rounds_since(NOW - 3600, "rotation") == 1


@pytest.mark.parametrize(
    ("disturbed", "cluster", "room", "whose"),
    [
        (0, 0, 1, "workload"),
        (1, 1, 0, "workload"),
        (0, 10, 0, "cluster"),
        (0, 12, 0, "cluster"),
        (5, 5, 0, "workload"),
    ],
)
def test_room_is_what_both_budgets_leave(disturbed: int, cluster: int, room: int, whose: str) -> None:
    """One pod of a workload at once, ten of the cluster; never less than none."""
    left, reason = room_for_disruption(disturbed, 1, cluster, 10)
    assert left == room
    assert whose in reason.sentence


class _Leads:
    def __init__(self, epoch: int | None) -> None:
        self._epoch = epoch

    def epoch(self) -> int | None:
        return self._epoch


class _Paused:
    def __init__(self, answer: str | WorldFailed | None) -> None:
        self._answer = answer

    def pause_of(self, namespace: str) -> str | None:
        del namespace
        if isinstance(self._answer, WorldFailed):
            raise self._answer
        return self._answer


def test_only_the_leader_acts() -> None:
    """No epoch, no action; epoch 0 is one."""
    assert held_by_leader(_Leads(0)) is None
    reason = held_by_leader(_Leads(None))
    assert reason
    assert reason.code is Code.HELD_BY_LEADER


def test_a_pause_holds_and_so_does_not_knowing() -> None:
    """The reason says who said stop."""
    assert held_by_pause(_Paused(None), "shop") is None
    reason = held_by_pause(_Paused("namespace shop is paused (alice: incident 12)"), "shop")
    assert reason
    assert reason.sentence == "Namespace shop is paused (alice: incident 12)."
    unknown = held_by_pause(_Paused(WorldFailed("no answer")), "shop")
    assert unknown
    assert unknown.code is Code.HELD_BY_PAUSE


def _at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def _window(schedule: str, duration: str, zone: str = "UTC") -> Window:
    return Window.model_validate({"schedule": schedule, "duration": duration, "timeZone": zone})


BERLIN_NIGHTS = _window("0 2 * * 1-5", "2h", "Europe/Berlin")


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-11-16T01:59:59", False),
        ("2026-11-16T02:00:00", True),
        ("2026-11-16T03:59:59", True),
        ("2026-11-16T04:00:00", False),
        ("2026-11-14T02:30:00", False),
    ],
)
def test_a_window_is_open_from_its_start_for_its_duration(moment: str, is_open: bool) -> None:
    """Local time, to the second; Saturday is no working day."""
    assert (held_by_window([BERLIN_NIGHTS], _at(moment, "Europe/Berlin")) is None) is is_open


def test_no_window_is_always_open_and_several_are_joined() -> None:
    """When any window is set, everything outside all of them is closed."""
    assert held_by_window([], NOW) is None
    noon = _window("0 12 * * *", "1m")
    at = _at("2026-11-16T12:00:30")
    assert held_by_window([BERLIN_NIGHTS, noon], at) is None
    reason = held_by_window([BERLIN_NIGHTS], at)
    assert reason
    assert reason.numbers["opens_at"] == _at("2026-11-17T02:00:00", "Europe/Berlin")


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_window_is_right_across_a_change_of_the_clocks(day: str) -> None:
    """A daily window of an hour is open for an hour of real time, also on the days of 23 and 25 hours."""
    window = _window("30 3 * * *", "1h", "Europe/Berlin")
    start = int(_at(f"{day}T00:00:00", "Europe/Berlin"))
    open_seconds = sum(
        60 for at in range(start, start + 26 * 3600, 60) if held_by_window([window], at) is None
    )
    first = next(at for at in range(start, start + 26 * 3600, 60) if held_by_window([window], at) is None)
    assert open_seconds == 3600
    assert datetime.fromtimestamp(first, UTC).astimezone(ZoneInfo("Europe/Berlin")).hour == 3


@pytest.mark.parametrize("day", ["2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25"])
@pytest.mark.parametrize("minutes", [10, 60, 180])
def test_an_hour_that_comes_twice_or_never_opens_a_window_once(day: str, minutes: int) -> None:
    """Half past two is skipped in March and comes again in October: one span, as long as on other days."""
    window = _window("30 2 * * *", f"{minutes}m", "Europe/Berlin")
    start = int(_at(f"{day}T00:00:00", "Europe/Berlin"))
    moments = range(start, start + 8 * 3600, 300)
    reasons = {at: held_by_window([window], at) for at in moments}
    is_open = [at for at, reason in reasons.items() if reason is None]
    assert is_open == list(range(is_open[0], is_open[0] + minutes * 60, 300))
    assert all(reason.numbers["opens_at"] > at for at, reason in reasons.items() if reason is not None)


def test_one_is_not_many() -> None:
    """What a person reads most often is about one round and one pod."""
    reason = held_by_hourly_budget(_ledger(1), "rotation", 1, NOW)
    assert reason
    assert reason.sentence == "The workload had 1 round in the last hour; the limit is 1."
    assert room_for_disruption(1, 1, 1, 10)[1].sentence == (
        "1 pod of this workload is unavailable; the limit is 1. The other pods wait."
    )
    assert room_for_disruption(0, 1, 12, 10)[1].sentence == (
        "12 pods of the cluster are unavailable; the limit is 10. The other pods wait."
    )


@given(st.integers(0, 5), st.integers(0, 6))
def test_a_partial_hold_keeps_the_first_and_loses_none(count: int, after: int) -> None:
    """Guards only reduce: what is kept is a prefix, what is held is the rest, in order."""
    actions = tuple(EvictPod(f"p{n}") for n in range(count))
    decision = Decision("s", Reason(Code.ROTATE, "Do."), actions)
    guarded = decision.hold(Reason(Code.HELD_BY_BUDGET, "Wait."), after)
    assert guarded.actions == actions[:after]
    assert tuple(held.action for held in guarded.held) == actions[after:]
    assert guarded.reason.code is (Code.HELD_BY_BUDGET if actions and not after else Code.ROTATE)
