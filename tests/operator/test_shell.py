"""The shell around loops of the test's own, asked over HTTP."""

import re
import threading
import time
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from equipoise.core.errors import SetUpWrong, WorldFailed
from equipoise.engine.executor import StoppingLeadership
from equipoise.engine.isolation import failed_turn
from equipoise.ports import CycleReport
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.metrics import OperatorMetrics
from tests.support.operator.worlds import WAIT_SECONDS, ScriptedLoop, decision, eventually, report, standing


def test_it_is_ready_when_a_cycle_has_gone_well() -> None:
    """And healthy all the while."""
    gate = threading.Event()

    def script(at: float) -> CycleReport:
        gate.wait(WAIT_SECONDS)
        return report(decision())

    with standing(ScriptedLoop(script)) as shell:
        assert shell.get("/healthz") == (200, "ok\n")
        assert shell.get("/readyz") == (503, "loop rotation: no cycle has succeeded yet\n")
        gate.set()
        eventually(lambda: shell.get("/readyz") == (200, "ok\n"))


def test_a_neighbour_that_is_set_up_wrong_stops_one_loop_and_the_page_says_why() -> None:
    """Before its first cycle and after many; the other loops go on, and it does, too, once that is mended."""
    wrong = ["tiers: Redis evicts keys"]

    def script(at: float) -> CycleReport:
        if wrong:
            raise SetUpWrong(wrong[0])
        return report(decision())

    other = ScriptedLoop(name="proportional")
    with standing(ScriptedLoop(script, name="pools"), other) as shell:
        eventually(lambda: shell.get("/readyz") == (503, "loop pools: tiers: Redis evicts keys\n"))
        began = other.cycles
        eventually(lambda: other.cycles > began + 3)
        assert shell.get("/healthz") == (200, "ok\n")
        wrong.clear()
        eventually(lambda: shell.get("/readyz") == (200, "ok\n"))
        wrong.append("tiers: Redis evicts keys again")
        eventually(lambda: shell.get("/readyz") == (503, "loop pools: tiers: Redis evicts keys again\n"))
        assert [line for line in shell.lines() if "Redis evicts keys again" in line["message"]]


def test_no_cycle_begins_before_the_caches_are_synced() -> None:
    """An empty cache is not an empty cluster; the page says what is missing."""
    loop = ScriptedLoop()
    with standing(loop, waits_for=["the pods have not been listed yet: 403"]) as shell:
        assert "the pods have not been listed yet: 403" in shell.get("/readyz")[1]
        assert shell.get("/healthz")[0] == 200
        assert loop.cycles == 0
        shell.part.waits_for.clear()
        eventually(lambda: shell.get("/readyz")[0] == 200)


def test_metrics_show_what_the_cycles_decided() -> None:
    """Read as Prometheus reads them."""
    with standing(ScriptedLoop(lambda _: report(decision("shop/web", threshold_cores=1.05)))) as shell:
        eventually(lambda: shell.get("/readyz")[0] == 200)
        status, text = shell.get("/metrics")
        names = {family.name for family in text_string_to_metric_families(text)}
        assert status == 200
        assert {
            "equipoise_decisions",
            "equipoise_cycle_seconds",
            "rebalancer_safety_threshold_current",
        } <= names


def test_the_index_names_the_pages_and_others_are_not_there() -> None:
    """For whoever opens the port in a browser."""
    with standing() as shell:
        status, text = shell.get("/")
        assert status == 200
        assert all(page in text for page in ("/healthz", "/readyz", "/metrics"))
        assert shell.get("/nonsense")[0] == 404


def test_a_stalled_loop_is_unhealthy() -> None:
    """No heartbeat for a minute, by the test's clock; beating again makes it well."""
    ahead = [0.0]
    gate, entered = threading.Event(), threading.Event()

    def script(at: float) -> CycleReport:
        entered.set()
        gate.wait(WAIT_SECONDS)
        return report()

    with standing(ScriptedLoop(script), monotonic=lambda: time.monotonic() + ahead[0]) as shell:
        assert entered.wait(WAIT_SECONDS)
        ahead[0] = 30.0
        assert shell.get("/healthz")[0] == 200
        ahead[0] = 90.0
        status, text = shell.get("/healthz")
        assert status == 503
        silent = re.search(r"loop rotation has stalled: no heartbeat for (\d+) s", text)
        assert silent, text
        assert int(silent[1]) >= 90
        gate.set()
        eventually(lambda: shell.get("/healthz")[0] == 200)


def test_a_part_that_is_ill_makes_the_whole_unhealthy() -> None:
    """Such as a lease thread that has died."""
    with standing() as shell:
        shell.lease.ill.append("the lease thread has died")
        assert shell.get("/healthz") == (503, "the lease thread has died\n")


@pytest.mark.parametrize(
    ("error", "result", "level"),
    [(WorldFailed("no answer"), "failed", "warning"), (KeyError("x"), "bug", "error")],
)
def test_a_failed_cycle_is_told_and_the_next_goes_on(error: Exception, result: str, level: str) -> None:
    """Whatever it was."""
    failures = iter([error, error])

    def script(at: float) -> CycleReport:
        for failure in failures:
            raise failure
        return report()

    with standing(ScriptedLoop(script)) as shell:
        eventually(lambda: shell.get("/readyz")[0] == 200)
        told = [line for line in shell.lines() if line["message"].startswith("the cycle failed")]
        assert [line["level"] for line in told] == [level, level]
        count = f'equipoise_cycles_total{{balancer="rotation",result="{result}"}} 2.0'
        assert count in shell.get("/metrics")[1]


def test_a_turn_that_fails_in_every_cycle_is_logged_once_counted_always_and_spoils_no_cycle() -> None:
    """One line with the traceback for one cause, however many subjects; an hour later another."""
    ahead = [0.0]
    failed = [failed_turn(f"shop/{name}", KeyError("x")) for name in ("api", "web")]
    failed.append(failed_turn("shop/db", WorldFailed("403")))

    def script(at: float) -> CycleReport:
        return CycleReport([decision("shop/cache")], (), failed_turns=failed)

    loop = ScriptedLoop(script)
    with standing(loop, monotonic=lambda: time.monotonic() + ahead[0]) as shell:

        def told() -> list[tuple[str, str]]:
            return [(line["level"], line["message"]) for line in shell.lines() if "failed" in line["message"]]

        eventually(lambda: shell.get("/readyz")[0] == 200)
        eventually(lambda: loop.cycles >= 4)
        said = [
            ("error", "shop/api and 1 more failed in this cycle, others were not affected: KeyError: 'x'"),
            ("warning", "shop/db failed in this cycle, others were not affected: 403"),
        ]
        assert told() == said
        ahead[0] = 3601.0
        eventually(lambda: told() == said * 2)
        text = shell.get("/metrics")[1]
        counts = dict(re.findall(r'equipoise_failed_turns_total\{.*cause="(\w+)"\} ([\d.]+)', text))
        assert float(counts["bug"]) == 2 * float(counts["world"]) >= 8


def test_numbers_that_can_not_be_shown_cost_their_own_series_only() -> None:
    """The cycle is a good one, and the others' metrics are there."""
    odd = decision("shop/odd", threshold_cores="much")

    with standing(ScriptedLoop(lambda _: report(odd, decision("shop/web", threshold_cores=1.05)))) as shell:
        eventually(lambda: shell.get("/readyz")[0] == 200)
        text = shell.get("/metrics")[1]
        assert 'rebalancer_safety_threshold_current{namespace="shop",workload="web"} 1.05' in text
        assert any("shop/odd failed" in line["message"] for line in shell.lines())


def test_cycles_of_one_loop_never_overlap() -> None:
    """A cycle that outlasts its interval costs turns, and nothing piles up."""
    running, overlaps, began = [0], [0], []

    def script(at: float) -> CycleReport:
        running[0] += 1
        overlaps[0] += running[0] > 1
        began.append(time.monotonic())
        time.sleep(0.05)
        running[0] -= 1
        return report()

    loop = ScriptedLoop(script, interval_seconds=0.02)
    with standing(loop):
        eventually(lambda: loop.cycles >= 5)
    assert overlaps[0] == 0
    assert all(later - earlier >= 0.05 for earlier, later in pairwise(began))


def test_stopping_ends_in_the_order_that_loses_nothing() -> None:
    """Loops first, then the lease, the caches, the journal; the server answers to the end."""
    asked: list[int] = []
    with standing(ScriptedLoop()) as shell:
        stop_caches = shell.part.stop

        def stop(timeout_seconds: float) -> bool:
            asked.append(shell.get("/healthz")[0])
            shell.part.stop = stop_caches  # type: ignore[method-assign]
            return stop_caches(timeout_seconds)

        shell.part.stop = stop  # type: ignore[method-assign]
        assert shell.shell.stop()
        starts = ["start journal", "start caches", "start lease"]
        assert shell.diary == [*starts, "stop lease", "stop caches", "stop journal"]
        assert asked == [200]


def test_a_stop_waits_for_the_cycle_under_way() -> None:
    """What has begun is finished."""
    finished, entered = threading.Event(), threading.Event()

    def script(at: float) -> CycleReport:
        entered.set()
        time.sleep(0.3)
        finished.set()
        return report()

    with standing(ScriptedLoop(script)) as shell:
        assert entered.wait(WAIT_SECONDS)
        assert shell.shell.stop()
        assert finished.is_set()


def test_a_cycle_that_does_not_end_keeps_the_lease_from_being_given_up() -> None:
    """Nobody else may begin while something of ours is under way; the stop is bounded all the same."""
    gate, entered = threading.Event(), threading.Event()

    def script(at: float) -> CycleReport:
        entered.set()
        gate.wait(2 * WAIT_SECONDS)
        return report()

    with standing(ScriptedLoop(script), stop_seconds=0.2) as shell:
        assert entered.wait(WAIT_SECONDS)
        began = time.monotonic()
        assert not shell.shell.stop()
        assert time.monotonic() - began < WAIT_SECONDS
        assert "stop lease" not in shell.diary
        assert "stop journal" in shell.diary
        gate.set()


def test_no_action_begins_once_a_stop_is_asked_for() -> None:
    """Whoever asks for leadership right before an action gets none."""

    class Leading:
        def epoch(self) -> int | None:
            return 7

    stopping = threading.Event()
    turnstile = StoppingLeadership(Leading(), stopping)
    assert turnstile.epoch() == 7
    stopping.set()
    assert turnstile.epoch() is None


def test_an_address_that_is_taken_is_a_failure_with_its_name() -> None:
    """At the start, before anything else has begun."""
    with standing() as shell:
        door = HttpServer(
            f"127.0.0.1:{shell.shell.server.port}", make_app(list, list, OperatorMetrics().registry)
        )
        with pytest.raises(WorldFailed, match=r"http.address 127.0.0.1:\d+: .*address already in use"):
            door.start()


@pytest.mark.parametrize("address", [":0", "localhost:0"])
def test_every_interface_or_a_name_can_be_listened_on(address: str) -> None:
    """As people write addresses."""
    door = HttpServer(address, make_app(list, list, OperatorMetrics().registry))
    door.start()
    try:
        assert door.port > 0
    finally:
        assert door.stop(WAIT_SECONDS)
