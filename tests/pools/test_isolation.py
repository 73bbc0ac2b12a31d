"""An error about one pod leaves that pod where it is; an error in one part of a cycle ends that part only."""

from collections.abc import Callable
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools
from equipoise.core.errors import WorldFailed
from equipoise.pools import loop
from equipoise.pools import observe as observation
from equipoise.pools import registration as roster
from equipoise.ports import CycleReport
from tests.support.guard.faults import ERRORS, Around, failing
from tests.support.pools.fleet import UIDS, World, make_loop, pod
from tests.support.pools.worlds import WALK_THROUGH, config, dump, write

ODD = "agent-4"
"""One of those that would stay in any case: the others' moves are the same without it."""
TARGETS = {"gold": 4, "standard": 2, "basic": 3}
MINUTES = 6


def _run(client: Any, pools: Any, world: World, **changes: Any) -> list[CycleReport]:
    """From the seed's tiers with other targets, over some minutes in which a pod goes."""
    write(client, WALK_THROUGH, TARGETS)
    world.listed = [pod(name) for name in UIDS]
    loop = make_loop(world, pools, **changes)
    reports = []
    for minute in range(MINUTES):
        if minute == 2:
            world.listed = [one for one in world.listed if one.name != "agent-8"]
        reports.append(loop.cycle(60.0 * minute))
    return reports


def _done(reports: list[CycleReport]) -> list[tuple[int, str, str]]:
    """What came of each pod but one, cycle by cycle."""
    return [
        (number, outcome.action.pod, outcome.result)
        for number, report in enumerate(reports)
        for outcome in report.outcomes
        if outcome.action.pod != ODD
    ]


@pytest.fixture
def undisturbed(client: Any, pools: RedisPools) -> tuple[list[tuple[int, str, str]], dict[str, Any]]:
    """What is done while nothing fails: registered, moved, forgotten."""
    reports = _run(client, pools, World())
    done, state = _done(reports), dump(client)
    assert {result for _, _, result in done} == {"Known", "Moved", "Unregistered"}
    assert not any(report.failed_turns for report in reports)
    client.flushall()
    return done, state


def _is_odd(one: Any, *_: Any) -> bool:
    return bool(getattr(one, "name", one) == ODD)


FAULTS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "as Kubernetes lists it": (loop, "listed_pod", _is_odd),
    "as the tiers have it": (observation, "_pod", _is_odd),
    "whether it is ready": (roster, "_is", lambda _, pod, __: _is_odd(pod)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_all_other_pods_come_and_go_and_move_as_without_it(
    fault: str,
    client: Any,
    pools: RedisPools,
    undisturbed: tuple[list[tuple[int, str, str]], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The odd one is neither forgotten as missing nor moved; it counts where it is."""
    place, name, is_about = FAULTS[fault]
    error = ERRORS[list(FAULTS).index(fault)]
    monkeypatch.setattr(place, name, failing(getattr(place, name), is_about, error))
    reports = _run(client, pools, World())
    done, _ = undisturbed
    assert _done(reports) == done
    assert client.smembers("voice:pool:standard:assigned") >= {ODD}
    failed = [each for report in reports for each in report.failed_turns]
    assert {each.subject for each in failed} == {ODD}
    assert [report.failure for report in reports] == [""] * MINUTES


@pytest.mark.parametrize(
    ("part", "left"),
    [("reconcile", {"Moved"}), ("decide", {"Known", "Unregistered"})],
)
def test_an_error_in_one_part_ends_that_part_only(
    part: str, left: set[str], client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is about, it is told as a decision; the other half of the work goes on."""
    monkeypatch.setattr(loop, part, failing(getattr(loop, part), lambda *_: True, KeyError("x")))
    world = World()
    reports = _run(client, pools, world)
    assert {result for _, _, result in _done(reports)} == left
    told = [one.reason.code.value for report in reports for one in report.decisions]
    assert told.count("InternalError") == MINUTES
    assert [one.decision.reason.code.value for one in world.records].count("InternalError") == MINUTES


@pytest.mark.parametrize("verb", ["reconcile", "move", "recover"])
def test_a_server_that_fails_after_some_were_asked_for_takes_back_no_answer(
    verb: str, client: Any, pools: RedisPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done is reported and written down; of the rest it is said that it was not asked for."""
    monkeypatch.setattr(loop, "CHUNK", 1)
    asked: list[int] = []

    def second(*args: Any, **_: Any) -> bool:
        asked.append(len(args[0]))
        return len(asked) == 2

    world = World()
    write(client, WALK_THROUGH, {"gold": 5, "standard": 1, "basic": 3})
    world.listed = [pod(name) for name in UIDS]
    sent = failing(getattr(pools, verb), second, WorldFailed("the server is gone"))
    report = make_loop(world, Around(pools, **{verb: sent})).cycle(0.0)
    failed = [outcome for outcome in report.outcomes if outcome.detail == "the server is gone"]
    assert ([outcome.result for outcome in failed], report.failure) == (["Failed"], "the server is gone")
    assert asked == [1, 1], "nothing more is asked for"
    if verb != "recover":  # which reports no pod that is well
        done = {"reconcile": "Known", "move": "Moved"}[verb]
        written = [outcome.result for record in world.records for outcome in record.outcomes]
        assert {done, "Failed"} <= set(written)


@pytest.mark.parametrize("verb", ["reconcile", "move", "recover"])
def test_an_answer_that_can_not_be_read_is_no_answer(verb: str, client: Any, pools: RedisPools) -> None:
    """What was sent may have happened: it is unknown, and the next look tells."""
    broken = {verb}
    inner = getattr(pools, verb)
    sent = failing(inner, lambda *_, **__: verb in broken, KeyError("x"), is_done=True)
    world = World()
    write(client, WALK_THROUGH, TARGETS)
    world.listed = [pod(name) for name in UIDS]
    loop = make_loop(world, Around(pools, **{verb: sent}))
    report = loop.cycle(0.0)
    assert "Unanswered" in {outcome.result for outcome in report.outcomes}
    assert report.failed_turns
    assert report.failure
    broken.clear()
    report = loop.cycle(60.0)
    assert (report.failure, list(report.failed_turns)) == ("", [])
    counts = {tier: client.scard(f"voice:pool:{tier}:assigned") for tier in TARGETS}
    assert counts == {tier: part["target"] for tier, part in config(**TARGETS)["tiers"].items()}
