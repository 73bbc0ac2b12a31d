"""Analytics that cannot be answered: each look reads a week, so they are tried ever more rarely."""

from typing import Any

from equipoise.core.errors import WorldFailed
from equipoise.engine.policies import condition_of
from equipoise.ports import NoHistory, StoreConflict
from tests.support.recommendation.analytics_cluster import PERIOD, SPEC, AnalyticsCluster


def test_who_cannot_be_answered_is_tried_ever_more_rarely() -> None:
    """Each try reads the week; what went wrong is said all the while, and a change is looked at at once."""
    simulation = AnalyticsCluster()
    simulation.ask()
    write = simulation.objects.write_status

    def fail(about: Any, status: Any) -> None:
        if about.ref.kind == "Analytics":
            raise WorldFailed("no room left")
        write(about, status)

    simulation.objects.write_status = fail  # type: ignore[method-assign]
    wrong = ["Analytics shop/web-hpa was not answered in full: no room left"]
    tries, waited = [], 0
    for _ in range(200):
        before = simulation.history.reads
        report = simulation.cycle(after=30)
        assert report.warnings == wrong
        assert len([*report.decisions, *report.carried]) == 1
        waited += 30
        if simulation.history.reads > before:
            tries.append(waited)
            waited = 0
    assert tries == [30, 30, 60, 120, 240, 480] + [600] * 8
    simulation.ask(config={**SPEC["config"], "ehpa.default-min-replicas": "9"})
    simulation.cycle(after=30)
    assert simulation.history.reads == len(tries) + 1
    simulation.objects.write_status = write  # type: ignore[method-assign]
    assert simulation.cycle(after=30).warnings == []
    assert simulation.ready() == ("True", "AnalyticsReady")
    assert len(simulation.objects.recommendations()) == 1
    assert simulation.cycle(after=30).warnings == []
    assert simulation.history.reads == len(tries) + 2


def test_an_answer_or_another_leader_ends_the_wait() -> None:
    """A conflict is no more than a try in the next cycle, however often it happened before."""
    simulation = AnalyticsCluster()
    simulation.ask()
    write = simulation.objects.write_status

    def conflict(about: Any, status: Any) -> None:
        simulation.objects.write_status = write  # type: ignore[method-assign]
        raise StoreConflict(f"{about.ref.name} {status}")

    for read in (1, 3, 5):
        simulation.objects.write_status = conflict  # type: ignore[method-assign]
        simulation.cycle(after=PERIOD)
        assert simulation.history.reads == read
        simulation.cycle(after=30)
        assert (simulation.history.reads, simulation.ready()) == (read + 1, ("True", "AnalyticsReady"))

    def fail(about: Any, status: Any) -> None:
        raise WorldFailed(f"{about.ref.name} {status}")

    simulation.objects.write_status = fail  # type: ignore[method-assign]
    simulation.cycle(after=PERIOD)
    simulation.cycle(after=30)
    simulation.cycle(after=30)
    assert simulation.history.reads == 8
    for is_leading in (False, True):
        simulation.leadership.is_leading = is_leading
        simulation.cycle()
    assert simulation.history.reads == 9


def test_a_past_that_cannot_be_read_is_tried_ever_more_rarely() -> None:
    """It is said all the while, with the next try; status says so once; and a bound holds."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.history.error = WorldFailed("503")
    tries, waited = [], 0
    for _ in range(200):
        before = simulation.history.reads
        report = simulation.cycle(after=30)
        assert report.failure.startswith("no advice can be given: 503; the next try is at 2")
        assert (report.warnings, report.decisions) == ([], ())
        waited += 30
        if simulation.history.reads > before:
            tries.append(waited)
            waited = 0
    assert tries == [30, 30, 60, 120, 240, 480] + [600] * 8
    assert simulation.objects.writes == 1
    condition = condition_of(simulation.analytics().status, "Ready")
    assert condition["reason"] == "HistoryUnknown"
    assert condition["message"] == "503. It is tried again ever more rarely, but at least every ten minutes."
    simulation.history.error = None
    reads = simulation.history.reads
    simulation.ask("another")
    assert simulation.cycle(after=30).failure == ""
    assert (simulation.history.reads, simulation.ready("another")) == (reads + 1, ("True", "AnalyticsReady"))
    simulation.cycle(after=30)
    assert simulation.ready() == ("True", "AnalyticsReady"), "who waited need not, once somebody could read"


def test_a_prometheus_that_is_not_there_is_looked_for_in_every_cycle() -> None:
    """That is one question, and no week of data."""
    simulation = AnalyticsCluster()
    simulation.ask()
    simulation.history.error = NoHistory("no Prometheus was found")
    for _ in range(10):
        report = simulation.cycle(after=30)
        assert (report.failure, report.warnings) == ("", ["no advice can be given: no Prometheus was found"])
    assert simulation.history.reads == 10
