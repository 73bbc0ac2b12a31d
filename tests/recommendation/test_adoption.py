"""What becomes of advice: annotations, HPAs, pauses; and what is kept of it."""

from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from equipoise.adapters.journal import Query, SqliteJournal, open_reader
from equipoise.cli.replay import compare
from equipoise.core.cluster import HpaSpec
from equipoise.core.decision import Record
from equipoise.crd.targets import Mode
from equipoise.engine.policies import condition_of
from equipoise.ports import Applier, ApplyAnswer, ApplyResult
from equipoise.runtime.metrics import OperatorMetrics
from tests.support.recommendation.analytics_cluster import ALL, ANNOTATION, PERIOD, WEB, AnalyticsCluster


def test_status_alone_touches_nothing_else() -> None:
    """No annotation, and no condition about one."""
    simulation = AnalyticsCluster()
    simulation.ask(adoptionType="Status")
    simulation.cycle()
    assert simulation.adopted() == ("", "")
    assert ANNOTATION not in simulation.annotations()
    simulation.objects.want(simulation.recommendation().ref.name, "StatusAndAnnotation")
    simulation.cycle(after=30)
    assert simulation.recommendation().spec["adoptionType"] == "Status", (
        "what the Analytics says holds for all"
    )
    simulation.ask()
    simulation.objects.want(simulation.recommendation().ref.name, "StatusAndAnnotation")
    simulation.cycle(after=30)
    assert simulation.adopted() == ("True", "Annotated")
    assert ANNOTATION in simulation.annotations()


class Forbidding:
    """An applier that may make HPAs, and not annotate."""

    def __init__(self, inner: Applier) -> None:
        self.inner, self.is_forbidden = inner, True

    def apply_hpa(self, manifest: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        return self.inner.apply_hpa(manifest, is_dry_run=is_dry_run)

    def annotate(self, workload: Any, annotations: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        if self.is_forbidden:
            return ApplyAnswer(ApplyResult.FORBIDDEN, "the right to patch Deployments is missing")
        return self.inner.annotate(workload, annotations, is_dry_run=is_dry_run)


def test_without_the_right_to_annotate_advice_is_in_status_and_nobody_complains() -> None:
    """As the chart installs it: no warning, no event, quiet at rest; a right that is given later is used."""
    simulation = AnalyticsCluster()
    simulation.loop.applier = applier = Forbidding(simulation.sim.applier)
    simulation.ask()
    reports = [simulation.cycle()]
    assert simulation.adopted() == ("False", "StatusOnly")
    assert simulation.ready() == ("True", "AnalyticsReady")
    assert "recommendation.annotate" in condition_of(simulation.recommendation().status, "Adopted")["message"]
    assert "recommendedValue" in simulation.recommendation().status
    given = simulation.recommendation()
    reports += [simulation.cycle(after=PERIOD) for _ in range(2)]
    assert simulation.recommendation() == given
    assert [(report.failure, report.warnings) for report in reports] == [("", [])] * 3
    assert simulation.sim.actuator.events == []
    assert simulation.analytics().status["recommendations"][0]["message"] == "Success"
    applier.is_forbidden = False
    simulation.cycle(after=PERIOD)
    assert simulation.adopted() == ("True", "Annotated")
    assert ANNOTATION in simulation.annotations()


class Slow(Forbidding):
    """An applier that looks for so long, the first time, that nothing is sent."""

    def annotate(self, workload: Any, annotations: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        if self.is_forbidden:
            self.is_forbidden = False
            return ApplyAnswer(ApplyResult.LATE, "it took 4 s to answer, so nothing was sent")
        return super().annotate(workload, annotations, is_dry_run=is_dry_run)


def test_an_annotation_that_was_late_is_written_at_the_second_try() -> None:
    """It need not wait until the Analytics is due again."""
    simulation = AnalyticsCluster()
    simulation.loop.applier = Slow(simulation.sim.applier)
    simulation.ask()
    simulation.cycle()
    assert simulation.adopted() == ("True", "Annotated")
    assert ANNOTATION in simulation.annotations()


def test_an_hpa_is_applied_without_the_right_to_annotate() -> None:
    """What was asked for most is done, and what is missing is said; the annotation follows with the right."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.loop.applier = applier = Forbidding(simulation.sim.applier)
    simulation.ask(adoptionType="Auto")
    simulation.cycle()
    assert simulation.adopted() == ("True", "AppliedOnly")
    message = condition_of(simulation.recommendation().status, "Adopted")["message"]
    assert message == (
        "HorizontalPodAutoscaler web is as advised; the workload is not annotated (StatusOnly)"
    )
    assert len(simulation.sim.cluster.hpas()) == 1
    applier.is_forbidden = False
    simulation.cycle(after=PERIOD)
    assert simulation.adopted() == ("True", "Applied")
    assert ANNOTATION in simulation.annotations()


def test_auto_waits_for_enforce() -> None:
    """Advice and annotation do not; with Enforce the HPA is made in the next cycle, once."""
    simulation = AnalyticsCluster()
    simulation.ask(completionStrategy={"completionStrategyType": "Once"}, adoptionType="Auto")
    report = simulation.cycle()
    assert (simulation.adopted(), report.outcomes) == (("False", "Preview"), [])
    assert simulation.sim.cluster.hpas() == []
    assert ANNOTATION in simulation.annotations()
    simulation.loop.mode = Mode.ENFORCE
    report = simulation.cycle(after=30)
    assert [one.result for one in report.outcomes] == ["Created"]
    (hpa,) = simulation.sim.cluster.hpas()
    advice = yaml.safe_load(simulation.recommendation().status["recommendedValue"])
    assert (hpa.name, hpa.replicas_min, hpa.replicas_max) == (
        "web",
        advice["minReplicas"],
        advice["maxReplicas"],
    )
    assert simulation.adopted() == ("True", "Applied")
    assert [one.reason for one in simulation.sim.actuator.events] == ["Recommend"]
    reads = simulation.history.reads
    simulation.cycle(after=30)
    assert simulation.history.reads == reads


def test_auto_never_takes_over_and_is_quiet_about_it() -> None:
    """An HPA of somebody else stays, and is inherited from; the workload is told once."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.sim.add_hpa(simulation.sim.state.workloads[WEB], name="theirs", replicas_min=2, replicas_max=3)
    rps = {"type": "Pods", "pods": {"metric": {"name": "rps"}}}
    slowly = {"scaleDown": {"stabilizationWindowSeconds": 600}}
    simulation.hpas = [HpaSpec("theirs", WEB, (rps,), slowly)]
    simulation.ask(adoptionType="Auto")
    simulation.cycle()
    assert simulation.adopted() == ("False", "NotOurs")
    for _ in range(3):
        simulation.cycle(after=PERIOD)
    assert [one.name for one in simulation.sim.cluster.hpas()] == ["theirs"]
    assert simulation.sim.actuator.events == []
    advice = yaml.safe_load(simulation.recommendation().status["recommendedValue"])
    assert (advice["metrics"][1:], advice["behavior"]) == ([rps], slowly)


def test_a_pause_stops_annotations_and_auto_and_its_end_lets_them_go() -> None:
    """Advice is written all the same; nobody has to wait for the next period."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.sim.pauses.pause("shop", "me")
    simulation.ask(completionStrategy={"completionStrategyType": "Once"}, adoptionType="Auto")
    report = simulation.cycle()
    assert [(one.reason.code.value, len(one.held)) for one in report.decisions] == [("HeldByPause", 1)]
    assert simulation.adopted() == ("False", "HeldByPause")
    assert "recommendedValue" in simulation.recommendation().status
    assert ANNOTATION not in simulation.annotations()
    simulation.cycle(after=30)
    assert simulation.history.reads == 1
    simulation.sim.pauses.resume("shop")
    simulation.cycle(after=30)
    assert simulation.adopted() == ("True", "Applied")
    assert ANNOTATION in simulation.annotations()


def test_a_reason_that_changes_is_told_at_the_workload() -> None:
    """The first one is no news."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.cycle()
    simulation.history.cores = 0.0
    simulation.ask(config={"ehpa.min-cpu-usage-threshold": "1"})
    simulation.cycle(after=30)
    assert [(one.about.kind, one.reason) for one in simulation.sim.actuator.events] == [
        ("Deployment", "LowUsage")
    ]
    assert simulation.adopted() == ("", "")


def test_metrics_show_advice_and_forget_what_is_gone() -> None:
    """By workload and Analytics; a refusal has no replicas."""
    simulation, meters = AnalyticsCluster("web", "api"), OperatorMetrics()

    def shown(name: str) -> dict[str, float]:
        found = meters.registry.collect()
        samples = [one for family in found if family.name == name for one in family.samples]
        return {f"{one.labels['workload']} {one.labels['analytics']}": one.value for one in samples}

    def cycle(after: float = 0.0) -> None:
        meters.observe_cycle("recommendation", simulation.cycle(after), 0.1, simulation.sim.now)

    simulation.ask("hpa", resourceSelectors=ALL)
    simulation.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    cycle()
    assert shown("equipoise_recommended_max_replicas") == {"api hpa": 39.0, "web hpa": 39.0}
    assert set(shown("equipoise_recommendation_coverage")) == {"api hpa", "web hpa", "web refused"}
    cycle(after=30)
    simulation.objects.remove(simulation.analytics("hpa"))
    cycle(after=30)
    assert shown("equipoise_recommended_max_replicas") == {}
    assert set(shown("equipoise_recommendation_coverage")) == {"web refused"}


def test_at_rest_the_journal_and_the_log_are_quiet_whoever_asks(tmp_path: Path) -> None:
    """Two Analytics that come to different ends for one workload each have a course of their own."""
    simulation = AnalyticsCluster(mode=Mode.ENFORCE)
    simulation.sim.add_hpa(simulation.sim.state.workloads[WEB], name="theirs", replicas_min=2, replicas_max=3)
    simulation.ask("hpa", adoptionType="Auto")
    simulation.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    reports = [simulation.cycle(after=PERIOD) for _ in range(4)]
    assert {report.outcomes == [] for report in reports} == {True}
    path = tmp_path / "journal.db"
    with closing(
        SqliteJournal(path, age_max_seconds=1e9, bytes_max=1 << 24, clock=simulation.sim.clock)
    ) as journal:
        for record in simulation.journal.records:
            journal.append(record)
    with closing(open_reader(path)) as reader:
        kept = {one.decision.subject: one for one in reader.records(Query())}
    assert {subject: one.streak.times for subject, one in kept.items() if one.streak} == {
        "shop/web for hpa": 3,
        "shop/web for refused": 3,
    }


def test_every_record_decides_again_from_its_facts() -> None:
    """Without the week: refused, advised, of both types, applied, held, and left to its owner."""
    simulation = AnalyticsCluster("web", "api", mode=Mode.ENFORCE)
    simulation.ask("hpa", resourceSelectors=ALL, adoptionType="Auto")
    simulation.ask("resource", resourceSelectors=ALL, type="Resource", adoptionType="Auto")
    simulation.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    simulation.cycle()
    simulation.sim.pauses.pause("shop", "me")
    simulation.cycle(after=PERIOD)
    simulation.history.cores = 0.0
    simulation.cycle(after=PERIOD)
    records = [Record.from_json(record.to_json()) for record in simulation.journal.records]
    assert len(records) == 15
    assert {record.decision.reason.code.value for record in records} >= {
        "Recommend",
        "HeldByPause",
        "LowUsage",
    }
    assert any(record.outcomes for record in records)
    assert [compare(record) for record in records if compare(record) is not None] == []
    assert max(len(record.to_json()) for record in records) < 8000, "not the week, only what decided"
