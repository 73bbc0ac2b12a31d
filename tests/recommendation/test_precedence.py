"""Several Analytics for one workload: the oldest has its annotation and its HPA, and the others say so."""

from typing import Any

import pytest
import yaml

from equipoise.crd.targets import Mode
from equipoise.engine.policies import condition_of
from tests.support.recommendation.analytics_cluster import ANNOTATION, PERIOD, SPEC, WEB, AnalyticsCluster

MORE = {"config": {**SPEC["config"], "ehpa.default-min-replicas": "9"}}
"""Another opinion about the same workload."""


def _adopted(simulation: AnalyticsCluster) -> dict[str, tuple[str, str]]:
    found = {}
    for one in simulation.objects.recommendations():
        condition = condition_of(one.status, "Adopted")
        name = one.labels["analysis.crane.io/analytics-name"]
        found[name] = (condition.get("status", ""), condition.get("reason", ""))
    return found


def _least(simulation: AnalyticsCluster) -> int:
    """Give the minReplicas that the workload carries."""
    return int(yaml.safe_load(simulation.annotations()[ANNOTATION])["minReplicas"])


def _changes(simulation: AnalyticsCluster) -> list[str]:
    """Give what was written to the workload and to its HPA, in order."""
    return [entry.kind for entry in simulation.sim.state.history if entry.kind in {"Annotated", "HpaApplied"}]


@pytest.mark.parametrize("mode", list(Mode))
def test_the_older_has_the_annotation_and_nobody_fights(mode: Mode) -> None:
    """Whatever their names, and however often they look; when it goes, the other has it at once."""
    simulation = AnalyticsCluster(mode=mode)
    simulation.ask("z-older")
    simulation.sim.advance(1)
    simulation.ask("a-younger", **MORE)
    for _ in range(4):
        simulation.cycle(after=PERIOD)
    assert _adopted(simulation) == {
        "z-older": ("True", "Annotated"),
        "a-younger": ("False", "OlderAnalytics"),
    }
    assert _least(simulation) != 9
    assert _changes(simulation) == ["Annotated"]
    assert simulation.sim.actuator.events == []
    younger = next(
        one for one in simulation.objects.recommendations() if one.ref.name.startswith("a-younger-hpa-")
    )
    assert condition_of(younger.status, "Adopted")["message"] == (
        "The workload's annotation is left to Analytics z-older: it is older and asks for it."
    )
    assert yaml.safe_load(younger.status["recommendedValue"])["minReplicas"] == 9, "it is told all the same"
    simulation.objects.remove(simulation.analytics("z-older"))
    simulation.cycle(after=30)
    assert _adopted(simulation) == {"a-younger": ("True", "Annotated")}
    assert _least(simulation) == 9


def test_two_that_would_apply_an_hpa_do_not_take_turns() -> None:
    """The HPA is the older one's for as long as that exists, also while its selector finds nothing."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.history.cores = 0.1  # so little that the HPA's own scaling changes no advice
    auto: dict[str, Any] = {"adoptionType": "Auto"}
    simulation.ask("older", **auto)
    simulation.sim.advance(1)
    simulation.ask("younger", **MORE, **auto)
    reports = [simulation.cycle(after=PERIOD) for _ in range(4)]
    assert [[one.result for one in report.outcomes] for report in reports] == [["Created"], [], [], []]
    assert _adopted(simulation) == {"older": ("True", "Applied"), "younger": ("False", "OlderAnalytics")}
    (hpa,) = simulation.sim.cluster.hpas()
    assert hpa.replicas_min != 9
    assert _changes(simulation) == ["Annotated", "HpaApplied"]
    simulation.ask(
        "older",
        resourceSelectors=[*SPEC["resourceSelectors"], {"kind": "StatefulSet", "name": "gone"}],
        **auto,
    )
    simulation.cycle(after=PERIOD)
    assert simulation.ready("older") == ("False", "FailedSelectResource")
    assert simulation.sim.cluster.hpas()[0].replicas_min == hpa.replicas_min
    simulation.ask("older", adoptionType="Status")
    simulation.cycle(after=30)
    simulation.cycle(after=30)
    assert _adopted(simulation) == {"older": ("", ""), "younger": ("True", "Applied")}
    assert simulation.sim.cluster.hpas()[0].replicas_min == 9
    assert _least(simulation) == 9


def test_an_older_one_that_only_annotates_leaves_the_hpa_to_the_other() -> None:
    """Each has what it asks for; two types of advice are two annotations."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.history.cores = 0.1  # so little that the HPA's own scaling changes no advice
    simulation.ask("older")
    simulation.ask("sizes", type="Resource")
    simulation.sim.advance(1)
    simulation.ask("younger", **MORE, adoptionType="Auto")
    for _ in range(3):
        simulation.cycle(after=PERIOD)
    assert _adopted(simulation) == {
        "older": ("True", "Annotated"),
        "sizes": ("True", "Annotated"),
        "younger": ("True", "AppliedOnly"),
    }
    assert _least(simulation) != 9
    assert simulation.sim.cluster.hpas()[0].replicas_min == 9
    assert simulation.sim.cluster.workload(WEB) is not None
    simulation.objects.remove(simulation.analytics("older"))
    simulation.cycle(after=PERIOD)
    assert _adopted(simulation)["younger"] == ("True", "Applied")
    assert _least(simulation) == 9
