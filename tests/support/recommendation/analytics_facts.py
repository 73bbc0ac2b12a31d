"""What the recommendation relies on of its kinds: true of the simulator and of a real API server alike."""

from collections.abc import Callable
from typing import Any

import pytest

from equipoise.ports import PolicyObject, StoreConflict
from equipoise.ports.state import Analyses
from equipoise.recommendation.analytics import (
    ANALYTICS_READY,
    analytics_uid,
    answered_status,
    new_recommendation,
)
from equipoise.recommendation.policy import AdoptionType
from equipoise.recommendation.settings import AdviceType
from tests.support.recommendation.analytics_cluster import WEB

Wait = Callable[[Callable[[], Any], str], Any]


def check(objects: Analyses, about: PolicyObject, wait: Wait) -> None:
    """Make, answer, change and remove; `wait` gives the watch its time."""
    target = WEB._replace(namespace=about.ref.namespace)
    manifest = new_recommendation(about, AdviceType.HPA, target, {"app": "web"}, AdoptionType.STATUS)
    made = objects.create(manifest)
    assert made.ref.name.startswith(f"{about.ref.name}-hpa-")
    assert (made.spec["adoptionType"], made.status) == ("Status", {})
    assert analytics_uid(made) == about.ref.uid

    def listed() -> PolicyObject | None:
        found = (one for one in objects.recommendations() if one.ref.uid == made.ref.uid)
        return next(found, None)

    assert wait(listed, "the Recommendation listed").version == made.version
    condition = {"type": "Ready", "status": "False", "reason": "LowUsage", "message": "It is idle."}
    condition["lastTransitionTime"] = "2026-01-31T08:00:00Z"
    status = {"conditions": [condition], "observedGeneration": made.generation, "recommendedValue": "a: 1\n"}
    objects.write_status(made, status)
    with pytest.raises(StoreConflict):
        objects.write_status(made, {"recommendedValue": "b: 2\n"})
    told = wait(lambda: _with(listed(), "recommendedValue"), "the status listed")
    assert told.generation == made.generation, "a status is no new question"
    assert {key: told.status[key] for key in status} == status
    objects.write_status(told, {"conditions": [condition], "observedGeneration": told.generation})
    kept = wait(lambda: (one := listed()) and "recommendedValue" not in one.status and one, "it is gone")
    changed = objects.set_adoption(kept, "Auto")
    assert (changed.generation != kept.generation, changed.spec["adoptionType"]) == (True, "Auto")
    asked = wait(lambda: (one := listed()) and one.version == changed.version and one, "the change listed")
    assert asked.status["observedGeneration"] == kept.generation, "it is still about the old question"
    objects.delete(asked)
    objects.delete(asked)
    with pytest.raises(StoreConflict):
        objects.write_status(asked, {})
    wait(lambda: listed() is None, "the Recommendation forgotten")
    objects.write_status(about, answered_status(about, [], 1_789_603_200.0))
    done = wait(
        lambda: next((one for one in objects.analytics() if one.ref == about.ref and one.status), None),
        "answer",
    )
    assert done.status["conditions"][0]["reason"] == ANALYTICS_READY.reason
    assert done.status["observedGeneration"] == done.generation == about.generation


def _with(one: PolicyObject | None, key: str) -> PolicyObject | None:
    return one if one is not None and key in one.status else None
