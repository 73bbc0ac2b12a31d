"""A rotation whose pods are not all measured: no verdict, since the hottest may be the unknown one."""

from typing import Any

import msgspec
import pytest

from equipoise.core.reason import Code
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import Ending, RotationMemory, begin_wave
from tests.support.rotation.runs import COURSE
from tests.support.rotation.worlds import NOW, decision_of, live, pod, seed_pods

POLICY = RotationPolicy()


def _memory(**changes: Any) -> dict[str, Any]:
    return RotationMemory(msgspec.structs.replace(COURSE, **changes)).to_data()


TWENTY = [*seed_pods(), *(pod(f"z{i:02}", 0.7) for i in range(14))]
"""Of so many, one may be unknown without that nothing can be decided."""


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"cpu_cores": None}, "but the usage of 1 pod over the metrics window is unknown. The"),
        ({"has_restarted": True}, "but the usage of 1 pod over the metrics window is unknown. The"),
    ],
    ids=["not measured", "restarted"],
)
def test_no_verdict_is_given_while_more_is_unknown_than_before(
    changes: dict[str, Any], sentence: str
) -> None:
    """The hottest may be the one that nobody measured: the rotation waits, and goes on when it is known."""
    unknown = msgspec.structs.replace(TWENTY[0], **changes)
    seen = live(unknown, *TWENTY[1:], hpa={"replicas_max": 50})
    for over in ({}, {"evicted": 4}):
        decision = decision_of(POLICY, seen, _memory(**over))
        assert decision.memory == _memory(**over)
        assert (decision.reason.code, decision.actions) == (Code.HELD_BY_COOLDOWN, ())
        assert sentence in decision.reason.sentence
        assert decision.reason.numbers["pods_unknown"] == 1
    calm = live(unknown, *(msgspec.structs.replace(each, cpu_cores=0.7) for each in TWENTY[1:]))
    decision = decision_of(POLICY, calm, _memory())
    assert (decision.reason.code, decision.memory) == (Code.NO_HOT_PODS, _memory())
    late = decision_of(POLICY, seen, _memory(wave_at=NOW - 1801))
    assert late.memory["last"]["ending"] == Ending.TIMED_OUT
    assert "realisedPercent" not in late.memory["last"]


def test_a_pod_that_was_unknown_from_the_beginning_holds_no_verdict() -> None:
    """One that is never measured would keep every rotation from its end."""
    seen = live(pod("y", None), *TWENTY)
    decision, details = decide(POLICY, seen)
    course = begin_wave(decision, details, seen, "r").run
    assert course is not None
    assert course.unknown == 1
    ended = decision_of(POLICY, seen, _memory(evicted=4, unknown=1))
    assert ended.memory["last"]["ending"] == Ending.USED_UP
    assert decision_of(POLICY, seen, _memory(evicted=4)).memory == _memory(evicted=4)


def test_who_became_known_since_the_beginning_is_no_excuse_for_another() -> None:
    """One had restarted when it began; the one that is unknown now may be the hottest."""
    whole = decision_of(POLICY, live(*TWENTY), _memory(unknown=1, wave_at=NOW - 60))
    assert whole.memory == _memory(unknown=0, wave_at=NOW - 60)
    unknown = live(pod("a-hot-one", None), *TWENTY)
    assert (
        decision_of(POLICY, unknown, _memory(evicted=4, unknown=1)).memory["last"]["ending"] == Ending.USED_UP
    )
    later = decision_of(POLICY, unknown, whole.memory | {"course": whole.memory["course"] | {"evicted": 4}})
    assert "last" not in later.memory
    away = live(*TWENTY[:-1], msgspec.structs.replace(TWENTY[-1], is_ready=False))
    assert decision_of(POLICY, away, _memory(unknown=1)).memory == _memory(unknown=1)
