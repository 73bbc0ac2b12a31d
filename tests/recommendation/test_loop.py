"""Analytics in a simulated cluster: what is due, what is written, what is adopted; and quiet at rest."""

from typing import Any

import pytest
import yaml

from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import NoHistory
from equipoise.sim.faults import FaultKind
from tests.support.recommendation import analytics_facts as desk_facts
from tests.support.recommendation.analytics_cluster import ALL, ANNOTATION, PERIOD, WEB, AnalyticsCluster


def test_the_simulated_kinds_are_as_the_real_ones() -> None:
    """The same facts are checked on the API server."""
    simulation = AnalyticsCluster()
    desk_facts.check(simulation.objects, simulation.ask(), lambda found, _: found())


def test_the_seeds_shape() -> None:
    """Status, names, labels and spec as the seed prints them."""
    simulation = AnalyticsCluster()
    asked = simulation.ask()
    report = simulation.cycle()
    assert [one.reason.code.value for one in report.decisions] == ["Recommend"]
    status, given = simulation.analytics().status, simulation.recommendation()
    assert status["conditions"] == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AnalyticsReady",
            "message": "Analytics is ready",
            "lastTransitionTime": status["lastUpdateTime"],
        }
    ]
    (entry,) = status["recommendations"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"}
    assert entry == {
        "lastStartTime": status["lastUpdateTime"],
        "message": "Success",
        "name": given.ref.name,
        "namespace": "shop",
        "targetRef": target,
        "uid": given.ref.uid,
    }
    assert given.ref.name.startswith("web-hpa-hpa-")
    assert len(given.ref.name) == len("web-hpa-hpa-cd86s")
    assert given.labels == {
        "analysis.crane.io/analytics-name": "web-hpa",
        "analysis.crane.io/analytics-type": "HPA",
        "analysis.crane.io/analytics-uid": asked.ref.uid,
        "app": "web",
    }
    assert given.spec == {
        "adoptionType": "StatusAndAnnotation",
        "completionStrategy": {"completionStrategyType": "Once"},
        "targetRef": target,
        "type": "HPA",
    }
    ready = given.status["conditions"][0]
    assert (ready["reason"], ready["message"]) == ("RecommendationReady", "Recommendation is ready")
    advice = yaml.safe_load(given.status["recommendedValue"])
    assert set(advice) == {"minReplicas", "maxReplicas", "metrics", "prediction"}
    assert simulation.annotations()[ANNOTATION] == given.status["recommendedValue"]
    assert given.status["confidence"] == "high"


def test_at_rest_nothing_is_written_and_a_period_updates_the_times_only() -> None:
    """One write for a run of a Periodical Analytics; the past is read once for it."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.cycle()
    writes, given = simulation.objects.writes, simulation.recommendation()
    for _ in range(5):
        report = simulation.cycle(after=30)
        assert (report.decisions, len(report.carried)) == ((), 1)
    assert (simulation.objects.writes, simulation.history.reads) == (writes, 1)
    simulation.history.cores *= 1.0001
    report = simulation.cycle(after=PERIOD)
    assert len(report.decisions) == 1
    assert (simulation.objects.writes, simulation.history.reads) == (writes + 1, 2)
    assert simulation.recommendation() == given, "numbers that merely moved are no news"
    assert simulation.sim.actuator.events == []


def test_once_is_once_until_it_is_changed() -> None:
    """And a change of what was asked is a new question."""
    simulation = AnalyticsCluster()
    simulation.ask(completionStrategy={"completionStrategyType": "Once"})
    simulation.cycle()
    simulation.cycle(after=10 * 86400.0)
    assert simulation.history.reads == 1
    simulation.ask(
        completionStrategy={"completionStrategyType": "Once"}, config={"ehpa.default-min-replicas": "9"}
    )
    simulation.cycle(after=30)
    assert simulation.history.reads == 2


def test_pods_that_start_are_waited_for_but_not_for_ever() -> None:
    """A new Analytics of a new workload need not wait for its period, nor end with Once."""
    simulation = AnalyticsCluster()
    once = {"completionStrategyType": "Once"}
    simulation.ask(completionStrategy=once, config={"ehpa.pod-min-ready-seconds": "100"})
    simulation.cycle()
    assert simulation.recommendation().status["conditions"][0]["reason"] == "TooFewAvailablePods"
    simulation.cycle(after=5)
    assert simulation.history.reads == 1
    simulation.cycle(after=100)
    assert simulation.recommendation().status["conditions"][0]["reason"] == "RecommendationReady"
    simulation.ask("never", completionStrategy=once, config={"ehpa.pod-min-ready-seconds": "1000000"})
    for _ in range(40):
        simulation.cycle(after=60)
    assert simulation.history.reads == 2 + 14


def test_all_that_is_due_shares_one_reading() -> None:
    """Two types, two policies, by name and by label: CPU and memory are asked for once."""
    simulation = AnalyticsCluster("web", "api")
    simulation.ask("one")
    simulation.ask("two", resourceSelectors=ALL, type="Resource")
    simulation.ask("three", resourceSelectors=ALL, config={"ehpa.min-cpu-usage-threshold": "1000"})
    report = simulation.cycle()
    assert simulation.history.reads == 1
    assert [one.reason.code.value for one in report.decisions] == [
        "Recommend",
        *["LowUsage"] * 2,
        *["Recommend"] * 2,
    ]
    given = {
        (one.labels["analysis.crane.io/analytics-name"], one.spec["targetRef"]["name"]): one
        for one in simulation.objects.recommendations()
    }
    assert set(given) == {("one", "web"), ("two", "api"), ("two", "web"), ("three", "api"), ("three", "web")}
    assert given["two", "api"].ref.name.startswith("two-resource-")
    assert yaml.safe_load(given["two", "api"].status["recommendedValue"]) == {
        "resourceRequest": {
            "containers": [{"containerName": "app", "target": {"cpu": "11039m", "memory": "115000000"}}]
        }
    }
    refused = given["three", "web"].status
    assert "recommendedValue" not in refused
    assert refused["conditions"][0]["reason"] == "LowUsage"
    assert "at least 1000 cores (ehpa.min-cpu-usage-threshold)" in refused["conditions"][0]["message"]
    (message,) = {one["message"] for one in simulation.analytics("three").status["recommendations"]}
    assert message == refused["conditions"][0]["message"]
    assert simulation.ready("three") == ("True", "AnalyticsReady")
    assert (
        simulation.analytics("three").status["recommendationsTotal"],
        simulation.analytics("three").status["recommendedTotal"],
    ) == (2, 0)


UNSELECTED = "FailedSelectResource"
REFUSED = [
    (
        {"resourceSelectors": [{"kind": "Deployment", "name": "nope"}]},
        UNSELECTED,
        "spec.resourceSelectors[0]: expected a Deployment nope in this namespace, found none",
    ),
    (
        {"resourceSelectors": [*ALL, {"kind": "StatefulSet"}]},
        UNSELECTED,
        "spec.resourceSelectors[1]: expected a StatefulSet in this namespace",
    ),
    (
        {"resourceSelectors": [{"kind": "Deployment", "labelSelector": {"matchLabels": {"app": "nope"}}}]},
        UNSELECTED,
        "expected a Deployment with these labels",
    ),
    ({"config": {"ehpa.nope": "1"}}, "InvalidSpec", "spec.config: ehpa.nope: unknown key"),
    ({"config": {"ehpa.max-replicas-factor": "x"}}, "InvalidSpec", "ehpa.max-replicas-factor: expected"),
    ({"type": "Replicas"}, "InvalidSpec", "spec.type: expected 'HPA' or 'Resource'"),
    (
        {"resourceSelectors": [{"kind": "DaemonSet", "name": "web"}]},
        "InvalidSpec",
        "spec.resourceSelectors[0].kind",
    ),
]


@pytest.mark.parametrize(("changes", "reason", "words"), REFUSED, ids=lambda part: str(part)[:30])
def test_what_cannot_be_followed_says_why_by_path(changes: dict[str, Any], reason: str, words: str) -> None:
    """Once; nothing is read and nothing else is written; others are served."""
    simulation = AnalyticsCluster()
    simulation.ask("bad", **changes)
    simulation.cycle()
    condition = simulation.analytics("bad").status["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert words in condition["message"]
    simulation.cycle(after=30)
    assert (simulation.objects.writes, simulation.history.reads) == (1, 0)
    assert [one.reason for one in simulation.sim.actuator.events] == [reason]
    simulation.ask()
    simulation.cycle(after=30)
    assert simulation.ready() == ("True", "AnalyticsReady")


def test_a_selection_that_fails_later_changes_nothing_and_recovers() -> None:
    """Earlier advice stands; when the workload is back, it is looked at at once."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.cycle()
    given, times = simulation.recommendation(), simulation.analytics().status["lastUpdateTime"]
    web = simulation.sim.state.workloads.pop(WEB)
    simulation.cycle(after=PERIOD)
    assert simulation.ready() == ("False", "FailedSelectResource")
    assert simulation.recommendation() == given
    assert simulation.analytics().status["lastUpdateTime"] == times
    simulation.sim.state.workloads[WEB] = web
    simulation.cycle(after=30)
    assert simulation.ready() == ("True", "AnalyticsReady")


def test_a_workload_that_is_selected_no_more_loses_its_recommendation() -> None:
    """And of two for one workload the older stays."""
    simulation = AnalyticsCluster("web", "api")
    simulation.ask(resourceSelectors=ALL)
    simulation.cycle()
    twice = next(
        one for one in simulation.objects.recommendations() if one.spec["targetRef"]["name"] == "web"
    )
    simulation.sim.advance(1)
    spare = simulation.objects.create(
        {
            "metadata": {"generateName": "web-hpa-hpa-", "namespace": "shop", "labels": twice.labels},
            "spec": twice.spec,
        }
    )
    simulation.sim.state.workloads.pop(WEB._replace(name="api"))
    simulation.cycle(after=PERIOD)
    assert [one.ref.uid for one in simulation.objects.recommendations()] == [twice.ref.uid]
    assert spare.ref.uid != twice.ref.uid


@pytest.mark.parametrize(
    ("error", "reason", "is_failure"),
    [
        (NoHistory("no Prometheus was found"), "NoHistory", False),
        (WorldFailed("it took 3.7 s"), "HistoryUnknown", True),
    ],
    ids=["none", "fails"],
)
def test_without_a_past_there_is_a_condition_and_earlier_advice_stands(
    error: WorldFailed, reason: str, is_failure: bool
) -> None:
    """Said once, whatever the error's numbers; tried again; well again when it answers."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.history.error = error
    report = simulation.cycle()
    assert simulation.ready() == ("False", reason)
    assert bool(report.failure) is is_failure
    assert bool(report.warnings) is not is_failure
    simulation.history.error = WorldFailed("it took 3.8 s") if is_failure else error
    simulation.cycle(after=30)
    assert simulation.objects.writes == 1
    simulation.history.error = None
    simulation.cycle(after=60)
    assert simulation.ready() == ("True", "AnalyticsReady")


def test_who_does_not_lead_does_nothing_and_who_loses_the_lead_stops() -> None:
    """Also in the middle of reading and of writing; the next leader does the rest."""
    simulation = AnalyticsCluster("web", "api")
    simulation.ask(resourceSelectors=ALL)
    simulation.leadership.is_leading = False
    simulation.cycle()
    assert (simulation.objects.writes, simulation.history.reads) == (0, 0)
    simulation.leadership.is_leading = True
    made = simulation.objects.create

    def lose(manifest: Any) -> Any:
        simulation.leadership.is_leading = False
        return made(manifest)

    simulation.objects.create = lose  # type: ignore[method-assign]
    simulation.cycle(after=30)
    assert (simulation.objects.writes, len(simulation.objects.recommendations())) == (1, 1)
    assert "conditions" not in simulation.analytics().status
    simulation.objects.create = made  # type: ignore[method-assign]
    simulation.leadership.is_leading = True
    simulation.cycle(after=30)
    assert simulation.ready() == ("True", "AnalyticsReady")
    assert len(simulation.objects.recommendations()) == 2


def test_an_api_server_that_fails_ends_the_cycle_only() -> None:
    """It is known who was not answered, and the next cycle does it."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.sim.faults.add(FaultKind.API_UNAVAILABLE, seconds=5)
    with pytest.raises(WorldFailed):
        simulation.cycle()
    simulation.cycle(after=30)
    assert simulation.ready() == ("True", "AnalyticsReady")


def test_status_holds_200_and_a_count() -> None:
    """However many there are."""
    simulation = AnalyticsCluster(*(f"web-{number}" for number in range(203)))
    simulation.ask(resourceSelectors=ALL, algorithmType="profile")
    simulation.cycle()
    status = simulation.analytics().status
    assert (len(status["recommendations"]), status["recommendationsTotal"]) == (200, 203)
    assert len(simulation.objects.recommendations()) == 203


def test_a_definition_that_is_not_ours_is_left_alone_unless_told() -> None:
    """With a condition where nobody else answers; what another controller said stays as it is."""
    simulation = AnalyticsCluster()
    simulation.objects.whose = Standing.FOREIGN
    theirs = simulation.objects.ask("shop", "theirs", simulation.ask().spec)
    simulation.objects.write_status(
        theirs, {"conditions": [{"type": "Ready", "status": "True", "reason": "AnalyticsReady"}]}
    )
    report = simulation.cycle()
    assert "compat.crane: on takes over" in report.warnings[-1]
    assert simulation.analytics().status == {}, "its own controller has some seconds to answer"
    for _ in range(3):
        simulation.cycle(after=15)
    assert simulation.ready() == ("False", "ForeignController")
    assert simulation.ready("theirs") == ("True", "AnalyticsReady")
    assert (simulation.objects.writes, simulation.history.reads) == (2, 0)
    simulation.loop.takes_over = True
    simulation.cycle(after=30)
    assert simulation.ready() == simulation.ready("theirs") == ("True", "AnalyticsReady")
    assert len(simulation.objects.recommendations()) == 2


def test_a_definition_that_drops_fields_stays_quiet_too() -> None:
    """Crane's knows neither the count nor the confidence."""
    simulation = AnalyticsCluster(takes_over=True)
    simulation.objects.whose = Standing.FOREIGN
    simulation.objects.unknown_fields = frozenset(
        {"confidence", "coveragePercent", "reason", "description", "recommendationsTotal"}
    )
    simulation.ask()
    simulation.cycle()
    writes = simulation.objects.writes
    simulation.cycle(after=30)
    assert simulation.objects.writes == writes
    simulation.cycle(after=PERIOD)
    assert simulation.objects.writes == writes + 1


def test_kinds_that_are_not_installed_are_a_warning() -> None:
    """And no failure: other balancers go on, and this one waits."""
    simulation = AnalyticsCluster()
    simulation.objects.whose = Standing.ABSENT
    report = simulation.cycle()
    assert (report.failure, len(report.warnings)) == ("", 1)
    assert "equipoise crds apply" in report.warnings[0]
