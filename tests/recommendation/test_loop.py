"""Analytics in a simulated cluster: what is due, what is written, what is adopted; and quiet at rest."""

from typing import Any

import pytest
import yaml

from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import NoHistory
from equipoise.sim.faults import FaultKind
from tests.support.recommendation import analytics_facts as desk_facts
from tests.support.recommendation.analytics_cluster import ALL, ANNOTATION, PERIOD, WEB, Desk


def test_the_simulated_kinds_are_as_the_real_ones() -> None:
    """The same facts are checked on the API server."""
    desk = Desk()
    desk_facts.check(desk.objects, desk.ask(), lambda found, _: found())


def test_the_seeds_shape() -> None:
    """Status, names, labels and spec as the seed prints them."""
    desk = Desk()
    asked = desk.ask()
    report = desk.cycle()
    assert [one.reason.code.value for one in report.decisions] == ["Recommend"]
    status, given = desk.analytics().status, desk.given()
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
    assert desk.annotations()[ANNOTATION] == given.status["recommendedValue"]
    assert given.status["confidence"] == "high"


def test_at_rest_nothing_is_written_and_a_period_updates_the_times_only() -> None:
    """One write for a run of a Periodical Analytics; the past is read once for it."""
    desk = Desk()
    desk.ask()
    desk.cycle()
    writes, given = desk.objects.writes, desk.given()
    for _ in range(5):
        report = desk.cycle(after=30)
        assert (report.decisions, len(report.carried)) == ((), 1)
    assert (desk.objects.writes, desk.past.reads) == (writes, 1)
    desk.past.cores *= 1.0001
    report = desk.cycle(after=PERIOD)
    assert len(report.decisions) == 1
    assert (desk.objects.writes, desk.past.reads) == (writes + 1, 2)
    assert desk.given() == given, "numbers that merely moved are no news"
    assert desk.sim.actuator.events == []


def test_once_is_once_until_it_is_changed() -> None:
    """And a change of what was asked is a new question."""
    desk = Desk()
    desk.ask(completionStrategy={"completionStrategyType": "Once"})
    desk.cycle()
    desk.cycle(after=10 * 86400.0)
    assert desk.past.reads == 1
    desk.ask(completionStrategy={"completionStrategyType": "Once"}, config={"ehpa.default-min-replicas": "9"})
    desk.cycle(after=30)
    assert desk.past.reads == 2


def test_pods_that_start_are_waited_for_but_not_for_ever() -> None:
    """A new Analytics of a new workload need not wait for its period, nor end with Once."""
    desk = Desk()
    once = {"completionStrategyType": "Once"}
    desk.ask(completionStrategy=once, config={"ehpa.pod-min-ready-seconds": "100"})
    desk.cycle()
    assert desk.given().status["conditions"][0]["reason"] == "TooFewAvailablePods"
    desk.cycle(after=5)
    assert desk.past.reads == 1
    desk.cycle(after=100)
    assert desk.given().status["conditions"][0]["reason"] == "RecommendationReady"
    desk.ask("never", completionStrategy=once, config={"ehpa.pod-min-ready-seconds": "1000000"})
    for _ in range(40):
        desk.cycle(after=60)
    assert desk.past.reads == 2 + 14


def test_all_that_is_due_shares_one_reading() -> None:
    """Two types, two policies, by name and by label: CPU and memory are asked for once."""
    desk = Desk("web", "api")
    desk.ask("one")
    desk.ask("two", resourceSelectors=ALL, type="Resource")
    desk.ask("three", resourceSelectors=ALL, config={"ehpa.min-cpu-usage-threshold": "1000"})
    report = desk.cycle()
    assert desk.past.reads == 1
    assert [one.reason.code.value for one in report.decisions] == [
        "Recommend",
        *["LowUsage"] * 2,
        *["Recommend"] * 2,
    ]
    given = {
        (one.labels["analysis.crane.io/analytics-name"], one.spec["targetRef"]["name"]): one
        for one in desk.objects.recommendations()
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
    assert "which is 1000" in refused["conditions"][0]["message"]
    (message,) = {one["message"] for one in desk.analytics("three").status["recommendations"]}
    assert message == refused["conditions"][0]["message"]
    assert desk.ready("three") == ("True", "AnalyticsReady")
    assert (
        desk.analytics("three").status["recommendationsTotal"],
        desk.analytics("three").status["recommendedTotal"],
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
    desk = Desk()
    desk.ask("bad", **changes)
    desk.cycle()
    condition = desk.analytics("bad").status["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert words in condition["message"]
    desk.cycle(after=30)
    assert (desk.objects.writes, desk.past.reads) == (1, 0)
    assert [one.reason for one in desk.sim.actuator.events] == [reason]
    desk.ask()
    desk.cycle(after=30)
    assert desk.ready() == ("True", "AnalyticsReady")


def test_a_selection_that_fails_later_changes_nothing_and_recovers() -> None:
    """Earlier advice stands; when the workload is back, it is looked at at once."""
    desk = Desk()
    desk.ask()
    desk.cycle()
    given, times = desk.given(), desk.analytics().status["lastUpdateTime"]
    web = desk.sim.state.workloads.pop(WEB)
    desk.cycle(after=PERIOD)
    assert desk.ready() == ("False", "FailedSelectResource")
    assert desk.given() == given
    assert desk.analytics().status["lastUpdateTime"] == times
    desk.sim.state.workloads[WEB] = web
    desk.cycle(after=30)
    assert desk.ready() == ("True", "AnalyticsReady")


def test_a_workload_that_is_selected_no_more_loses_its_recommendation() -> None:
    """And of two for one workload the older stays."""
    desk = Desk("web", "api")
    desk.ask(resourceSelectors=ALL)
    desk.cycle()
    twice = next(one for one in desk.objects.recommendations() if one.spec["targetRef"]["name"] == "web")
    desk.sim.advance(1)
    spare = desk.objects.create(
        {
            "metadata": {"generateName": "web-hpa-hpa-", "namespace": "shop", "labels": twice.labels},
            "spec": twice.spec,
        }
    )
    desk.sim.state.workloads.pop(WEB._replace(name="api"))
    desk.cycle(after=PERIOD)
    assert [one.ref.uid for one in desk.objects.recommendations()] == [twice.ref.uid]
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
    desk = Desk()
    desk.ask()
    desk.past.error = error
    report = desk.cycle()
    assert desk.ready() == ("False", reason)
    assert bool(report.failure) is is_failure
    assert bool(report.warnings) is not is_failure
    desk.past.error = WorldFailed("it took 3.8 s") if is_failure else error
    desk.cycle(after=30)
    assert desk.objects.writes == 1
    desk.past.error = None
    desk.cycle(after=60)
    assert desk.ready() == ("True", "AnalyticsReady")


def test_who_does_not_lead_does_nothing_and_who_loses_the_lead_stops() -> None:
    """Also in the middle of reading and of writing; the next leader does the rest."""
    desk = Desk("web", "api")
    desk.ask(resourceSelectors=ALL)
    desk.leadership.is_leading = False
    desk.cycle()
    assert (desk.objects.writes, desk.past.reads) == (0, 0)
    desk.leadership.is_leading = True
    made = desk.objects.create

    def lose(manifest: Any) -> Any:
        desk.leadership.is_leading = False
        return made(manifest)

    desk.objects.create = lose  # type: ignore[method-assign]
    desk.cycle(after=30)
    assert (desk.objects.writes, len(desk.objects.recommendations())) == (1, 1)
    assert "conditions" not in desk.analytics().status
    desk.objects.create = made  # type: ignore[method-assign]
    desk.leadership.is_leading = True
    desk.cycle(after=30)
    assert desk.ready() == ("True", "AnalyticsReady")
    assert len(desk.objects.recommendations()) == 2


def test_an_api_server_that_fails_ends_the_cycle_only() -> None:
    """It is known who was not answered, and the next cycle does it."""
    desk = Desk()
    desk.ask()
    desk.sim.faults.add(FaultKind.API_UNAVAILABLE, seconds=5)
    with pytest.raises(WorldFailed):
        desk.cycle()
    desk.cycle(after=30)
    assert desk.ready() == ("True", "AnalyticsReady")


def test_status_holds_200_and_a_count() -> None:
    """However many there are."""
    desk = Desk(*(f"web-{number}" for number in range(203)))
    desk.ask(resourceSelectors=ALL, algorithmType="profile")
    desk.cycle()
    status = desk.analytics().status
    assert (len(status["recommendations"]), status["recommendationsTotal"]) == (200, 203)
    assert len(desk.objects.recommendations()) == 203


def test_a_definition_that_is_not_ours_is_left_alone_unless_told() -> None:
    """With a condition where nobody else answers; what another controller said stays as it is."""
    desk = Desk()
    desk.objects.whose = Standing.FOREIGN
    theirs = desk.objects.ask("shop", "theirs", desk.ask().spec)
    desk.objects.write_status(
        theirs, {"conditions": [{"type": "Ready", "status": "True", "reason": "AnalyticsReady"}]}
    )
    report = desk.cycle()
    assert "compat.crane: on takes over" in report.warnings[-1]
    assert desk.analytics().status == {}, "its own controller has some seconds to answer"
    for _ in range(3):
        desk.cycle(after=15)
    assert desk.ready() == ("False", "ForeignController")
    assert desk.ready("theirs") == ("True", "AnalyticsReady")
    assert (desk.objects.writes, desk.past.reads) == (2, 0)
    desk.loop.takes_over = True
    desk.cycle(after=30)
    assert desk.ready() == desk.ready("theirs") == ("True", "AnalyticsReady")
    assert len(desk.objects.recommendations()) == 2


def test_a_definition_that_drops_fields_stays_quiet_too() -> None:
    """Crane's knows neither the count nor the confidence."""
    desk = Desk(takes_over=True)
    desk.objects.whose = Standing.FOREIGN
    desk.objects.unknown_fields = frozenset(
        {"confidence", "coveragePercent", "reason", "description", "recommendationsTotal"}
    )
    desk.ask()
    desk.cycle()
    writes = desk.objects.writes
    desk.cycle(after=30)
    assert desk.objects.writes == writes
    desk.cycle(after=PERIOD)
    assert desk.objects.writes == writes + 1


def test_kinds_that_are_not_installed_are_a_warning() -> None:
    """And no failure: other balancers go on, and this one waits."""
    desk = Desk()
    desk.objects.whose = Standing.ABSENT
    report = desk.cycle()
    assert (report.failure, len(report.warnings)) == ("", 1)
    assert "equipoise crds apply" in report.warnings[0]
