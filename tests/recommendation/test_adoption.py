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
from equipoise.engine.status import condition_of
from equipoise.ports import Applier, ApplyAnswer, ApplyResult
from equipoise.runtime.metrics import OperatorMetrics
from tests.support.recommendation.analytics_cluster import ALL, ANNOTATION, PERIOD, WEB, Desk


def test_status_alone_touches_nothing_else() -> None:
    """No annotation, and no condition about one."""
    desk = Desk()
    desk.ask(adoptionType="Status")
    desk.cycle()
    assert desk.adopted() == ("", "")
    assert ANNOTATION not in desk.annotations()
    desk.objects.want(desk.given().ref.name, "StatusAndAnnotation")
    desk.cycle(after=30)
    assert desk.given().spec["adoptionType"] == "Status", "what the Analytics says holds for all"
    desk.ask()
    desk.objects.want(desk.given().ref.name, "StatusAndAnnotation")
    desk.cycle(after=30)
    assert desk.adopted() == ("True", "Annotated")
    assert ANNOTATION in desk.annotations()


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
    desk = Desk()
    desk.loop.applier = applier = Forbidding(desk.sim.applier)
    desk.ask()
    reports = [desk.cycle()]
    assert desk.adopted() == ("False", "StatusOnly")
    assert desk.ready() == ("True", "AnalyticsReady")
    assert "recommendation.annotate" in condition_of(desk.given().status, "Adopted")["message"]
    assert "recommendedValue" in desk.given().status
    given = desk.given()
    reports += [desk.cycle(after=PERIOD) for _ in range(2)]
    assert desk.given() == given
    assert [(report.failure, report.warnings) for report in reports] == [("", [])] * 3
    assert desk.sim.actuator.events == []
    assert desk.analytics().status["recommendations"][0]["message"] == "Success"
    applier.is_forbidden = False
    desk.cycle(after=PERIOD)
    assert desk.adopted() == ("True", "Annotated")
    assert ANNOTATION in desk.annotations()


class Slow(Forbidding):
    """An applier that looks for so long, the first time, that nothing is sent."""

    def annotate(self, workload: Any, annotations: Any, *, is_dry_run: bool = False) -> ApplyAnswer:
        if self.is_forbidden:
            self.is_forbidden = False
            return ApplyAnswer(ApplyResult.LATE, "it took 4 s to say what is there, so nothing was sent")
        return super().annotate(workload, annotations, is_dry_run=is_dry_run)


def test_an_annotation_that_was_late_is_written_at_the_second_try() -> None:
    """It need not wait until the Analytics is due again."""
    desk = Desk()
    desk.loop.applier = Slow(desk.sim.applier)
    desk.ask()
    desk.cycle()
    assert desk.adopted() == ("True", "Annotated")
    assert ANNOTATION in desk.annotations()


def test_an_hpa_is_applied_without_the_right_to_annotate() -> None:
    """What was asked for most is done, and what is missing is said; the annotation follows with the right."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.loop.applier = applier = Forbidding(desk.sim.applier)
    desk.ask(adoptionType="Auto")
    desk.cycle()
    assert desk.adopted() == ("True", "AppliedOnly")
    message = condition_of(desk.given().status, "Adopted")["message"]
    assert message == (
        "HorizontalPodAutoscaler web is as advised; the workload is not annotated (StatusOnly)"
    )
    assert len(desk.sim.cluster.hpas()) == 1
    applier.is_forbidden = False
    desk.cycle(after=PERIOD)
    assert desk.adopted() == ("True", "Applied")
    assert ANNOTATION in desk.annotations()


def test_auto_waits_for_enforce() -> None:
    """Advice and annotation do not; with Enforce the HPA is made in the next cycle, once."""
    desk = Desk()
    desk.ask(completionStrategy={"completionStrategyType": "Once"}, adoptionType="Auto")
    report = desk.cycle()
    assert (desk.adopted(), report.outcomes) == (("False", "Preview"), [])
    assert desk.sim.cluster.hpas() == []
    assert ANNOTATION in desk.annotations()
    desk.loop.mode = Mode.ENFORCE
    report = desk.cycle(after=30)
    assert [one.result for one in report.outcomes] == ["Created"]
    (hpa,) = desk.sim.cluster.hpas()
    advice = yaml.safe_load(desk.given().status["recommendedValue"])
    assert (hpa.name, hpa.replicas_min, hpa.replicas_max) == (
        "web",
        advice["minReplicas"],
        advice["maxReplicas"],
    )
    assert desk.adopted() == ("True", "Applied")
    assert [one.reason for one in desk.sim.actuator.events] == ["Recommend"]
    reads = desk.past.reads
    desk.cycle(after=30)
    assert desk.past.reads == reads


def test_auto_never_takes_over_and_is_quiet_about_it() -> None:
    """An HPA of somebody else stays, and is inherited from; the workload is told once."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.sim.add_hpa(desk.sim.state.workloads[WEB], name="theirs", replicas_min=2, replicas_max=3)
    rps = {"type": "Pods", "pods": {"metric": {"name": "rps"}}}
    slowly = {"scaleDown": {"stabilizationWindowSeconds": 600}}
    desk.hpas = [HpaSpec("theirs", WEB, (rps,), slowly)]
    desk.ask(adoptionType="Auto")
    desk.cycle()
    assert desk.adopted() == ("False", "NotOurs")
    for _ in range(3):
        desk.cycle(after=PERIOD)
    assert [one.name for one in desk.sim.cluster.hpas()] == ["theirs"]
    assert desk.sim.actuator.events == []
    advice = yaml.safe_load(desk.given().status["recommendedValue"])
    assert (advice["metrics"][1:], advice["behavior"]) == ([rps], slowly)


def test_a_pause_stops_annotations_and_auto_and_its_end_lets_them_go() -> None:
    """Advice is written all the same; nobody has to wait for the next period."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.sim.pauses.pause("shop", "me")
    desk.ask(completionStrategy={"completionStrategyType": "Once"}, adoptionType="Auto")
    report = desk.cycle()
    assert [(one.reason.code.value, len(one.held)) for one in report.decisions] == [("HeldByPause", 1)]
    assert desk.adopted() == ("False", "HeldByPause")
    assert "recommendedValue" in desk.given().status
    assert ANNOTATION not in desk.annotations()
    desk.cycle(after=30)
    assert desk.past.reads == 1
    desk.sim.pauses.resume("shop")
    desk.cycle(after=30)
    assert desk.adopted() == ("True", "Applied")
    assert ANNOTATION in desk.annotations()


def test_a_reason_that_changes_is_told_at_the_workload() -> None:
    """The first one is no news."""
    desk = Desk()
    desk.ask()
    desk.cycle()
    desk.past.cores = 0.0
    desk.ask(config={"ehpa.min-cpu-usage-threshold": "1"})
    desk.cycle(after=30)
    assert [(one.about.kind, one.reason) for one in desk.sim.actuator.events] == [("Deployment", "LowUsage")]
    assert desk.adopted() == ("", "")


def test_metrics_show_advice_and_forget_what_is_gone() -> None:
    """By workload and Analytics; a refusal has no replicas."""
    desk, meters = Desk("web", "api"), OperatorMetrics()

    def shown(name: str) -> dict[str, float]:
        found = meters.registry.collect()
        samples = [one for family in found if family.name == name for one in family.samples]
        return {f"{one.labels['workload']} {one.labels['analytics']}": one.value for one in samples}

    def cycle(after: float = 0.0) -> None:
        meters.observe_cycle("recommendation", desk.cycle(after), 0.1, desk.sim.now)

    desk.ask("hpa", resourceSelectors=ALL)
    desk.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    cycle()
    assert shown("equipoise_recommended_max_replicas") == {"api hpa": 39.0, "web hpa": 39.0}
    assert set(shown("equipoise_recommendation_coverage")) == {"api hpa", "web hpa", "web refused"}
    cycle(after=30)
    desk.objects.remove(desk.analytics("hpa"))
    cycle(after=30)
    assert shown("equipoise_recommended_max_replicas") == {}
    assert set(shown("equipoise_recommendation_coverage")) == {"web refused"}


def test_at_rest_the_journal_and_the_log_are_quiet_whoever_asks(tmp_path: Path) -> None:
    """Two Analytics that come to different ends for one workload each have a course of their own."""
    desk = Desk(mode=Mode.ENFORCE)
    desk.sim.add_hpa(desk.sim.state.workloads[WEB], name="theirs", replicas_min=2, replicas_max=3)
    desk.ask("hpa", adoptionType="Auto")
    desk.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    reports = [desk.cycle(after=PERIOD) for _ in range(4)]
    assert {report.outcomes == [] for report in reports} == {True}
    path = tmp_path / "journal.db"
    with closing(
        SqliteJournal(path, age_max_seconds=1e9, bytes_max=1 << 24, clock=desk.sim.clock)
    ) as journal:
        for record in desk.journal.records:
            journal.append(record)
    with closing(open_reader(path)) as reader:
        kept = {one.decision.subject: one for one in reader.records(Query())}
    assert {subject: one.streak.times for subject, one in kept.items() if one.streak} == {
        "shop/web for hpa": 3,
        "shop/web for refused": 3,
    }


def test_every_record_decides_again_from_its_facts() -> None:
    """Without the week: refused, advised, of both types, applied, held, and left to its owner."""
    desk = Desk("web", "api", mode=Mode.ENFORCE)
    desk.ask("hpa", resourceSelectors=ALL, adoptionType="Auto")
    desk.ask("resource", resourceSelectors=ALL, type="Resource", adoptionType="Auto")
    desk.ask("refused", config={"ehpa.min-cpu-usage-threshold": "1000"})
    desk.cycle()
    desk.sim.pauses.pause("shop", "me")
    desk.cycle(after=PERIOD)
    desk.past.cores = 0.0
    desk.cycle(after=PERIOD)
    records = [Record.from_json(record.to_json()) for record in desk.journal.records]
    assert len(records) == 15
    assert {record.decision.reason.code.value for record in records} >= {
        "Recommend",
        "HeldByPause",
        "LowUsage",
    }
    assert any(record.outcomes for record in records)
    assert [compare(record) for record in records if compare(record) is not None] == []
    assert max(len(record.to_json()) for record in records) < 8000, "not the week, only what decided"
