"""An error about one workload or Analytics costs its turn; all others are advised as without it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from equipoise.core.decision import Decision
from equipoise.core.documents import explain
from equipoise.crd.targets import Mode
from equipoise.engine import policies as engine_policies
from equipoise.engine.isolation import BatchLost
from equipoise.engine.policies import condition_of
from equipoise.ports import CycleReport, PolicyObject
from equipoise.ports.cluster import UsageHistory
from equipoise.recommendation import loop, publish, snapshot
from equipoise.recommendation.decide import examine_all
from tests.support.guard.faults import ERRORS, Around, Unforeseen, failing, in_module, in_port
from tests.support.recommendation.analytics_cluster import ALL, SPEC, TEMPLATE, AnalyticsCluster

TENANTS = ("blue", "green", "odd", "red")
ODD = "odd"
NAMES = ("api", "web")
AUTO = {"adoptionType": "Auto", "resourceSelectors": ALL}


class Offices(AnalyticsCluster):
    """Two Deployments and one Analytics for each tenant."""

    def __init__(self) -> None:
        super().__init__("unasked", mode=Mode.ENFORCE)
        for tenant in TENANTS:
            for name in NAMES:
                self.sim.add_workload(tenant, name, replicas=2, template=TEMPLATE)
        self.sim.advance(60)
        for tenant in TENANTS:
            self.objects.ask(tenant, "all", SPEC | AUTO)

    def break_part(
        self, part: str, name: str, is_about: Callable[..., bool], error: Exception, **how: Any
    ) -> None:
        inner = getattr(self.loop, part)
        wrapped = Around(inner, **{name: failing(getattr(inner, name), is_about, error, **how)})
        setattr(self.loop, part, wrapped)

    def run(self, cycles: int = 3) -> list[CycleReport]:
        return [self.cycle(after=30.0) for _ in range(cycles)]

    def said(self, tenant: str) -> tuple[str, str]:
        """The condition of a tenant's Analytics, as it stands."""
        (about,) = [one for one in self.objects.analytics() if one.ref.namespace == tenant]
        found = condition_of(about.status, "Ready")
        return str(found.get("status")), str(found.get("reason"))


def others(reports: list[CycleReport]) -> list[list[Decision]]:
    """What everybody but one was advised, or carries."""
    return [
        sorted(
            (each for each in (*report.decisions, *report.carried) if not each.subject.startswith(f"{ODD}/")),
            key=lambda each: each.subject,
        )
        for report in reports
    ]


@pytest.fixture(scope="module")
def undisturbed() -> list[list[Decision]]:
    """What everybody gets while nothing fails: advice for each workload, and an HPA."""
    offices = Offices()
    reports = offices.run()
    assert [one.reason.code.value for one in reports[0].decisions] == ["Recommend"] * 8
    assert [one.result for one in reports[0].outcomes] == ["Created"] * 8
    return others(reports)


def _change_odd(offices: Offices, **changes: Any) -> None:
    """Let the odd one's Analytics be another, past the server that would not take it."""
    inner = offices.objects

    def analytics() -> list[PolicyObject]:
        return [replace(one, **changes) if one.ref.namespace == ODD else one for one in inner.analytics()]

    offices.loop.objects = Around(inner, analytics=analytics)


def _bad_spec(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_policies, "explain", failing(explain, lambda _: True, error))
    _change_odd(offices, spec={"type": 7})


def _odd_dates(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    ready = {"type": "Ready", "status": "True", "reason": "AnalyticsReady"}
    status = {"observedGeneration": 1, "lastUpdateTime": "9999-12-31T23:59:59-23:59", "conditions": [ready]}
    _change_odd(offices, status=status)


def _odd_status(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    _change_odd(offices, status={"observedGeneration": 1, "conditions": 7})


def _bad_selector(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    inner = offices.loop.cluster

    def workloads(*args: Any) -> list[Any]:
        return [
            each
            if each.ref.namespace != ODD
            else msgspec.structs.replace(each, selector=Unforeseen(each.selector.requirements))
            for each in inner.workloads(*args)
        ]

    offices.loop.cluster = Around(inner, workloads=workloads)


def _bad_past(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    """Whoever reads the odd namespace fails, late, whatever else is read with it."""
    del patch
    inner = offices.history

    def read(*args: Any, **more: Any) -> Iterator[UsageHistory]:
        yield from inner.read(*args, **more)
        if ODD in (more["namespaces"] or ()):
            raise error

    world = offices.loop.sources
    offices.loop.sources = lambda: replace(world(), history=Around(inner, read=read))


def _is_odd_row(self: Any, question: Any, workloads: Any, *_: Any) -> bool:
    del self, question
    return any(workload.ref.namespace == ODD for workload in workloads)


def _bad_batch(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del patch
    world = offices.loop.sources
    decide = failing(
        examine_all, lambda batch: any(ODD in name for _, seen in batch for name in seen.subjects), error
    )
    offices.loop.sources = lambda: replace(world(), decide=decide)


def _lost_batch(offices: Offices, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error
    _bad_batch(offices, BatchLost("the batch's worker died (signal SIGKILL)"), patch)


def _is_of_odd(one: Any, *_: Any, **__: Any) -> bool:
    return bool(getattr(one, "ref", one).namespace == ODD)


FAULTS: dict[str, Callable[..., None]] = {
    "its Analytics": _bad_spec,
    "its dates": _odd_dates,
    "its status as others wrote it": _odd_status,
    "its selector": _bad_selector,
    "its past": _bad_past,
    "whether it is due": in_module(loop, "is_due", lambda found, *_: found.analytics.ref.namespace == ODD),
    "its observation": in_module(snapshot.LiveFacts, "observation", _is_odd_row),
    "its batch": _bad_batch,
    "the worker of its batch": _lost_batch,
    "its text": in_module(publish, "advice_text", lambda subject, *_: subject.startswith(f"{ODD}/")),
    "its Recommendation": in_port("objects", "create", lambda made: made["metadata"]["namespace"] == ODD),
    "the write of its status": in_port("objects", "write_status", _is_of_odd),
    "its annotation": in_port("applier", "annotate", _is_of_odd, is_done=True),
    "the answer to its HPA": in_port(
        "applier", "apply_hpa", lambda manifest, **_: manifest["metadata"]["namespace"] == ODD, is_done=True
    ),
    "its event": in_port("actuator", "record_event", _is_of_odd),
    "its record": in_module(
        publish, "record", lambda _, facts, *__, **___: facts.subject.startswith(f"{ODD}/")
    ),
    "the journal": in_port("journal", "append", lambda one, **_: one.decision.subject.startswith(ODD)),
}
FORESEEN = {"its dates"}
"""What is not taken for an error: the Analytics is looked at, and the nonsense written over."""


@pytest.mark.parametrize("fault", FAULTS)
def test_all_others_get_the_advice_that_they_get_without_it(
    fault: str, undisturbed: list[list[Decision]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of one tenant fails, over several cycles."""
    offices = Offices()
    FAULTS[fault](offices, ERRORS[list(FAULTS).index(fault) % len(ERRORS)], monkeypatch)
    reports = offices.run()
    assert others(reports) == undisturbed
    assert [offices.said(tenant) for tenant in TENANTS if tenant != ODD] == [("True", "AnalyticsReady")] * 3
    failed = [each for report in reports for each in report.failed_turns]
    assert bool(failed) == (fault not in FORESEEN)
    assert all(ODD in each.subject for each in failed)


def test_one_workload_of_an_analytics_costs_the_others_of_it_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Recommendation says why, the Analytics lists it, and it is tried again; then it has its advice."""
    offices = Offices()
    decide = failing(
        examine_all, lambda batch: any("odd/web" in seen.subjects for _, seen in batch), KeyError("x")
    )
    world = offices.loop.sources
    with monkeypatch.context() as patch:
        patch.setattr(offices.loop, "sources", lambda: replace(world(), decide=decide))
        report = offices.cycle()
    told = {one.subject: one.reason.code.value for one in report.decisions}
    assert (told["odd/api for all"], told["odd/web for all"]) == ("Recommend", "InternalError")
    (about,) = [one for one in offices.objects.analytics() if one.ref.namespace == ODD]
    assert [each["message"][:9] for each in about.status["recommendations"]] == ["Success", "The proce"]
    (given,) = [
        one
        for one in offices.objects.recommendations()
        if (one.ref.namespace, one.spec["targetRef"]["name"]) == (ODD, "web")
    ]
    assert condition_of(given.status, "Ready")["reason"] == "InternalError"
    assert [outcome.action.namespace for outcome in report.outcomes].count(ODD) == 1
    report = offices.cycle(after=30.0)
    assert {one.subject: one.reason.code.value for one in report.decisions} == {
        "odd/api for all": "Recommend",
        "odd/web for all": "Recommend",
    }


def test_a_past_that_fails_for_one_is_not_read_in_every_cycle() -> None:
    """As seldom as any other that can't be read: a week is much to read."""
    offices = Offices()
    _bad_past(offices, KeyError("x"), pytest.MonkeyPatch())
    offices.cycle()
    reads = offices.history.reads
    assert offices.said(ODD) == ("False", "InternalError")
    for _ in range(20):
        offices.cycle(after=30.0)
    assert offices.history.reads - reads <= 10
