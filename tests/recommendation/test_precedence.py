"""Several Analytics for one workload: the oldest has its annotation and its HPA, and the others say so."""

from typing import Any

import pytest
import yaml

from equipoise.crd.targets import Mode
from equipoise.engine.status import condition_of
from tests.support.recommendation.analytics_cluster import ANNOTATION, PERIOD, SPEC, WEB, Desk

MORE = {"config": {**SPEC["config"], "ehpa.default-min-replicas": "9"}}
"""Another opinion about the same workload."""


def _adopted(desk: Desk) -> dict[str, tuple[str, str]]:
    found = {}
    for one in desk.objects.recommendations():
        condition = condition_of(one.status, "Adopted")
        name = one.labels["analysis.crane.io/analytics-name"]
        found[name] = (condition.get("status", ""), condition.get("reason", ""))
    return found


def _least(desk: Desk) -> int:
    """Give the minReplicas that the workload carries."""
    return int(yaml.safe_load(desk.annotations()[ANNOTATION])["minReplicas"])


def _changes(desk: Desk) -> list[str]:
    """Give what was written to the workload and to its HPA, in order."""
    return [entry.kind for entry in desk.sim.state.history if entry.kind in {"Annotated", "HpaApplied"}]


@pytest.mark.parametrize("mode", list(Mode))
def test_the_older_has_the_annotation_and_nobody_fights(mode: Mode) -> None:
    """Whatever their names, and however often they look; when it goes, the other has it at once."""
    desk = Desk(mode=mode)
    desk.ask("z-older")
    desk.sim.advance(1)
    desk.ask("a-younger", **MORE)
    for _ in range(4):
        desk.cycle(after=PERIOD)
    assert _adopted(desk) == {"z-older": ("True", "Annotated"), "a-younger": ("False", "OlderAnalytics")}
    assert _least(desk) != 9
    assert _changes(desk) == ["Annotated"]
    assert desk.sim.actuator.events == []
    younger = next(one for one in desk.objects.recommendations() if one.ref.name.startswith("a-younger-hpa-"))
    assert condition_of(younger.status, "Adopted")["message"] == (
        "The workload's annotation is left to Analytics z-older: it is older and asks for it."
    )
    assert yaml.safe_load(younger.status["recommendedValue"])["minReplicas"] == 9, "it is told all the same"
    desk.objects.remove(desk.analytics("z-older"))
    desk.cycle(after=30)
    assert _adopted(desk) == {"a-younger": ("True", "Annotated")}
    assert _least(desk) == 9


def test_two_that_would_apply_an_hpa_do_not_take_turns() -> None:
    """The HPA is the older one's for as long as that exists, also while its selector finds nothing."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.past.cores = 0.1  # so little that the HPA's own scaling changes no advice
    auto: dict[str, Any] = {"adoptionType": "Auto"}
    desk.ask("older", **auto)
    desk.sim.advance(1)
    desk.ask("younger", **MORE, **auto)
    reports = [desk.cycle(after=PERIOD) for _ in range(4)]
    assert [[one.result for one in report.outcomes] for report in reports] == [["Created"], [], [], []]
    assert _adopted(desk) == {"older": ("True", "Applied"), "younger": ("False", "OlderAnalytics")}
    (hpa,) = desk.sim.cluster.hpas()
    assert hpa.replicas_min != 9
    assert _changes(desk) == ["Annotated", "HpaApplied"]
    desk.ask(
        "older",
        resourceSelectors=[*SPEC["resourceSelectors"], {"kind": "StatefulSet", "name": "gone"}],
        **auto,
    )
    desk.cycle(after=PERIOD)
    assert desk.ready("older") == ("False", "FailedSelectResource")
    assert desk.sim.cluster.hpas()[0].replicas_min == hpa.replicas_min
    desk.ask("older", adoptionType="Status")
    desk.cycle(after=30)
    desk.cycle(after=30)
    assert _adopted(desk) == {"older": ("", ""), "younger": ("True", "Applied")}
    assert desk.sim.cluster.hpas()[0].replicas_min == 9
    assert _least(desk) == 9


def test_an_older_one_that_only_annotates_leaves_the_hpa_to_the_other() -> None:
    """Each has what it asks for; two types of advice are two annotations."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.past.cores = 0.1  # so little that the HPA's own scaling changes no advice
    desk.ask("older")
    desk.ask("sizes", type="Resource")
    desk.sim.advance(1)
    desk.ask("younger", **MORE, adoptionType="Auto")
    for _ in range(3):
        desk.cycle(after=PERIOD)
    assert _adopted(desk) == {
        "older": ("True", "Annotated"),
        "sizes": ("True", "Annotated"),
        "younger": ("True", "AppliedOnly"),
    }
    assert _least(desk) != 9
    assert desk.sim.cluster.hpas()[0].replicas_min == 9
    assert desk.sim.cluster.workload(WEB) is not None
    desk.objects.remove(desk.analytics("older"))
    desk.cycle(after=PERIOD)
    assert _adopted(desk)["younger"] == ("True", "Applied")
    assert _least(desk) == 9
