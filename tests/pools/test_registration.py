"""Who is registered, forgotten, suspended and resumed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision, RegisterPod, UnregisterPod
from equipoise.pools.registration import (
    ListedPod,
    ListedState,
    PodLists,
    RegisteredPod,
    RegistrationRule,
    reconcile,
)

RULE = RegistrationRule(loss_max=0.3, missing_seconds=30.0)
TEN = [RegisteredPod(f"a-{number}", f"u{number}") for number in range(10)]


def _all(state: ListedState = ListedState.READY, *names: str) -> list[ListedPod]:
    """Ten pods as Kubernetes lists them; those named are in this state."""
    return [ListedPod(pod.name, pod.uid, state if pod.name in names else ListedState.READY) for pod in TEN]


def _decide(
    listed: list[ListedPod],
    registered: list[RegisteredPod],
    memory: dict[str, Any] | None = None,
    at: float = 0.0,
) -> Decision:
    return reconcile(
        RULE, PodLists("voice/pods", tuple(listed), tuple(registered)), memory or {}, at
    ).decision


def _told(decision: Decision) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.pod) for action in decision.actions]


def test_a_ready_pod_is_registered_and_one_that_starts_is_not_yet() -> None:
    """Only who can take calls gets a tier."""
    listed = [ListedPod("a-0", "u", ListedState.READY), ListedPod("a-1", "v", ListedState.UNREADY)]
    decision = _decide(listed, [])
    assert decision.actions == (RegisterPod("a-0", "u"),)
    assert (decision.reason.code, decision.reason.sentence) == ("Reconcile", "Register a-0.")


def test_nothing_is_done_while_both_lists_agree() -> None:
    """And it is said."""
    decision = _decide(_all(), TEN)
    assert (decision.actions, decision.held, decision.reason.code) == ((), (), "InStep")


def test_another_uid_under_the_same_name_is_registered_anew() -> None:
    """The script then ends the calls of the old one."""
    listed = _all()
    listed[3] = ListedPod("a-3", "new", ListedState.READY)
    assert _decide(listed, TEN).actions == (RegisterPod("a-3", "new"),)


def test_a_pod_that_somebody_else_registered_gets_its_uid() -> None:
    """From then on its name is guarded."""
    known = [RegisteredPod("a-0"), *TEN[1:]]
    assert _decide(_all(), known).actions == (RegisterPod("a-0", "u0"),)


def test_a_missing_pod_is_forgotten_only_after_a_while() -> None:
    """One list without it proves nothing."""
    first = _decide(_all()[1:], TEN, at=100.0)
    assert (first.actions, first.reason.code) == ((), "InStep")
    assert _decide(_all()[1:], TEN, first.memory, 129.0).actions == ()
    assert _decide(_all()[1:], TEN, first.memory, 130.0).actions == (UnregisterPod("a-0", "u0"),)


def test_a_clock_that_was_set_back_does_not_keep_a_missing_pod() -> None:
    """Callers would be given a pod that is gone, until the clock is where it was."""
    ahead = _decide(_all()[1:], TEN, at=86400.0)
    first = _decide(_all()[1:], TEN, ahead.memory, 100.0)
    assert _decide(_all()[1:], TEN, first.memory, 130.0).actions == (UnregisterPod("a-0", "u0"),)


def test_a_pod_that_comes_back_is_counted_anew() -> None:
    """Missing twice for a moment is not missing for long."""
    first = _decide(_all()[1:], TEN, at=0.0)
    back = _decide(_all(), TEN, first.memory, 20.0)
    again = _decide(_all()[1:], TEN, back.memory, 40.0)
    assert again.actions == ()
    assert again.memory["missing"] == {"a-0": 40.0}


def test_a_pod_that_was_seen_to_end_is_forgotten_at_once() -> None:
    """It gets no more calls while it ends; then it is gone for sure."""
    leaving = _decide(_all(ListedState.LEAVING, "a-9"), TEN)
    assert _told(leaving) == [("SuspendPod", "a-9")]
    assert _told(_decide(_all()[:9], TEN, leaving.memory, 1.0)) == [("UnregisterPod", "a-9")]


def test_a_whole_fleet_that_was_seen_to_end_is_forgotten() -> None:
    """A scale-down to nothing is no empty list: every end was seen."""
    leaving = _decide(_all(ListedState.LEAVING, *(pod.name for pod in TEN)), TEN)
    gone = _decide([], TEN, leaving.memory, 1.0)
    assert len(gone.actions) == 10
    assert gone.held == ()


def test_a_pod_that_has_ended_is_forgotten() -> None:
    """Failed and evicted pods stay in the list."""
    assert _told(_decide(_all(ListedState.ENDED, "a-4"), TEN)) == [("UnregisterPod", "a-4")]


@pytest.mark.parametrize(("left", "is_held"), [(0, True), (1, True), (6, True), (7, False), (9, False)])
def test_an_empty_or_much_smaller_list_never_empties_the_tiers(left: int, is_held: bool) -> None:
    """However long it stays so: beyond the share that may be lost, a person has to look."""
    memory: dict[str, Any] = {}
    for at in (0.0, 60.0, 3600.0, 86400.0):
        decision = _decide(_all()[:left], TEN, memory, at)
        memory = decision.memory
    assert bool(decision.held) is is_held
    assert len(decision.actions) == (0 if is_held else 10 - left)
    if is_held:
        assert decision.reason.code == "HeldByHealth"
        assert "none of them is removed" in decision.reason.sentence


def test_pods_that_the_server_does_not_know_by_name_are_gone() -> None:
    """A scale-down while nobody looked; but not when none of ours is listed, whatever the server says."""
    lists = PodLists("voice/pods", tuple(_all()[:4]), tuple(TEN), confirmed=("a-5", "a-6", "a-7", "a-9"))
    decision = reconcile(RULE, lists, {}, 0.0).decision
    assert [pod for _, pod in _told(decision)] == ["a-5", "a-6", "a-7", "a-9"]
    others = (ListedPod("b-0", "x", ListedState.UNREADY),)
    for listed in ((), others):
        strange = PodLists("voice/pods", listed, tuple(TEN), confirmed=tuple(pod.name for pod in TEN))
        assert reconcile(RULE, strange, {}, 86400.0).decision.actions == ()


def test_one_pod_of_a_small_fleet_may_always_go() -> None:
    """A third of three is less than one."""
    known = TEN[:2]
    first = _decide(_all()[:1], known)
    assert _told(_decide(_all()[:1], known, first.memory, 60.0)) == [("UnregisterPod", "a-1")]


def test_an_unready_pod_is_suspended_and_resumed() -> None:
    """Its calls go on; a drain by a person is left alone."""
    assert _told(_decide(_all(ListedState.UNREADY, "a-1"), TEN)) == [("SuspendPod", "a-1")]
    suspended = [RegisteredPod("a-0", "u0", True, True), RegisteredPod("a-1", "u1", True), *TEN[2:]]
    assert _told(_decide(_all(), suspended)) == [("ResumePod", "a-0")]
    assert _decide(_all(ListedState.UNREADY, "a-0"), suspended).actions == ()


def test_a_fleet_that_is_unready_all_at_once_goes_on() -> None:
    """Rather the probe is wrong than everybody; nobody is worse off than before."""
    decision = _decide(_all(ListedState.UNREADY, "a-1", "a-2", "a-3", "a-4"), TEN)
    assert decision.actions == ()
    assert decision.reason.code == "HeldByHealth"
    assert len(decision.held) == 4


STATES = st.sampled_from(list(ListedState))
FLEETS = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 2), STATES), max_size=10)
KNOWN = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(-1, 2), st.booleans(), st.booleans()), max_size=10
)


@given(fleets=st.lists(FLEETS, min_size=1, max_size=5), known=KNOWN)
def test_whatever_the_lists_say_the_pools_are_not_emptied_by_doubt(
    fleets: list[dict[int, tuple[int, ListedState]]], known: dict[int, tuple[int, bool, bool]]
) -> None:
    """At most the share goes without proof; nobody is registered who is not ready; nobody acts twice."""
    registered = [
        RegisteredPod(f"a-{number}", f"u{uid}" if uid >= 0 else "", drains, drains and suspends)
        for number, (uid, drains, suspends) in sorted(known.items())
    ]
    memory: dict[str, Any] = {}
    for step, fleet in enumerate(fleets):
        listed = [
            ListedPod(f"a-{number}", f"u{uid}", state) for number, (uid, state) in sorted(fleet.items())
        ]
        decision = _decide(listed, registered, memory, step * 40.0)
        present = {pod.name: pod for pod in listed}
        proven = decision.memory["leaving"]
        forgotten = [a.pod for a in decision.actions if isinstance(a, UnregisterPod)]
        doubtful = [pod for pod in forgotten if pod not in present and pod not in proven]
        assert len(doubtful) <= max(1, int(0.3 * len(registered)))
        assert not (doubtful and not {pod.name for pod in registered} & present.keys())
        assert all(pod not in present or present[pod].state is ListedState.ENDED for pod in forgotten)
        taken = [a for a in decision.actions if isinstance(a, RegisterPod)]
        assert all(present[a.pod].state is ListedState.READY and present[a.pod].uid == a.uid for a in taken)
        memory = decision.memory
