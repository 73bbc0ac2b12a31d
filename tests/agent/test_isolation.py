"""An error about one pod leaves it out of the round; an error of one action fails that action only."""

from collections.abc import Callable
from typing import Any

import pytest

from equipoise.qos import loop as node_loop
from equipoise.qos import observe
from equipoise.qos.decide import decide
from equipoise.qos.loop import NodeCycleReport
from tests.support.agent.machines import Scene, policies, told
from tests.support.guard.faults import ERRORS, failing
from tests.support.qos.worlds import action, policy, rule

QUICK = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50, "minCPURatio": 10}})
THROTTLE = policies(QUICK, policy(rule("cpu_total_usage", 6000, "quick")))
EVICT = policies(policy(rule("cpu_total_usage", 6000, "evict")))
ODD = "d/odd"


def _scene(asked: Any, *, has_odd: bool = True) -> Scene:
    """10 cores of usage where 6 may be; the odd pod is one that is left alone in any case."""
    scene = Scene()
    scene.around.asked = asked
    for name, cores in (("a", 4), ("b", 3), ("c", 2)):
        scene.add(told(name, limit=5), cores)
    if has_odd:
        scene.add(told("odd", priority=2_000_000_000), 1)
    return scene


def _done(rounds: list[NodeCycleReport]) -> list[list[tuple[str, str]]]:
    return [[(one.action.pod, one.result) for one in each.outcomes] for each in rounds]


def _is_odd(pod: Any, *_: Any) -> bool:
    return bool(pod.name == "odd")


FAULTS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "its observation": (observe, "_pod", _is_odd),
    "its protection": (observe, "protection_of", lambda _, priority, *__, **___: priority == 2_000_000_000),
}


@pytest.mark.parametrize("asked", [THROTTLE, EVICT], ids=["throttle", "evict"])
@pytest.mark.parametrize("fault", FAULTS)
def test_all_other_pods_are_acted_on_as_without_it(
    fault: str, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every round; nothing is done to the odd one, and it is told."""
    expected = _done(_scene(asked).rounds(8))
    assert any(expected)
    place, name, is_about = FAULTS[fault]
    error = ERRORS[list(FAULTS).index(fault)]
    monkeypatch.setattr(place, name, failing(getattr(place, name), is_about, error))
    scene = _scene(asked)
    rounds = scene.rounds(8)
    assert _done(rounds) == expected
    assert all({failed.subject for failed in each.failed_turns} == {ODD} for each in rounds)
    assert all(failed.is_bug for each in rounds for failed in each.failed_turns)


def test_an_error_that_is_about_no_pod_fails_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for all pods' own."""
    scene = _scene(THROTTLE)
    scene.rounds(1)
    monkeypatch.setattr(node_loop, "decide", failing(decide, lambda *_: True, ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        scene.loop.cycle(scene.around.now())


def test_an_error_of_one_throttle_fails_it_alone() -> None:
    """The others' quotas are written, and the next round tries it again."""
    scene = _scene(THROTTLE)
    broken = {"a00000000"}
    scene.machine.set_quota = failing(  # type: ignore[method-assign]
        scene.machine.set_quota, lambda ref, _: ref.id in broken, KeyError("x")
    )
    scene.rounds(1)
    (done,) = scene.rounds(1)
    results = {one.action.pod: one.result for one in done.outcomes}
    assert results["d/a"] == "Failed"
    assert "Done" in results.values()
    assert [failed.subject for failed in done.failed_turns] == ["d/a"]
    broken.clear()
    assert "d/a" in {
        one.action.pod for each in scene.rounds(6) for one in each.outcomes if one.result == "Done"
    }


def test_an_eviction_whose_answer_fails_counts_as_going() -> None:
    """Nobody knows whether it goes, so nobody else goes for it."""
    scene = _scene(EVICT)
    scene.around.evict = failing(  # type: ignore[method-assign]
        scene.around.evict, lambda pod, **_: pod.name == "a", KeyError("x"), is_done=True
    )
    scene.rounds(1)
    (done,) = scene.rounds(1)
    assert _done([done])[0][0] == ("d/a", "Unknown")
    assert [name for name, _ in scene.around.evictions].count("a") == 1
    (after,) = scene.rounds(1)
    assert "d/a" not in {one.action.pod for one in after.outcomes}
