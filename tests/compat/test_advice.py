"""The same twenty workloads on every server that understands PromQL, beside Prometheus 2.42."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from equipoise.core.decision import Decision
from equipoise.core.reason import Code
from equipoise.engine.policies import condition_of
from equipoise.recommendation.settings import AdviceType
from tests.e2e.conftest import Offered, new_namespace
from tests.support.compat.servers import Thanos, VictoriaMetrics, rounded_now, split
from tests.support.compat.workloads import (
    NAMES,
    PODS,
    UNSCALED,
    WORKLOADS,
    Twenty,
    brief,
    difference,
    make,
    moves,
    past,
    prometheus_with,
)
from tests.testbed import ControlPlane, Kwok

AHEAD_SECONDS = 1200.0
"""How much later than now the history ends: by then, all pods have been ready for more than ten minutes."""
OTHERS = ("prometheus-3", "victoria-metrics", "thanos")
ROTATED_MIN = 3
UNSEEN_MAX = 0.005
"""Version 3 counts no sample at a window's begin; Thanos reckons otherwise in the minute after a restart."""
INCOMPLETE = Code.METRICS_INCOMPLETE.value
LINE = re.compile(r"^\S.{0,600}$")


@dataclass(frozen=True)
class Servers:
    """Addresses by name, and the two Thanos, each before two stores."""

    urls: Mapping[str, str]
    kept: Thanos
    strict: Thanos
    """It asks a store also when that is down, so that it notices."""


@pytest.fixture(scope="module")
def twenty(control_plane: ControlPlane, kwok: Kwok) -> Iterator[Twenty]:
    """Twenty workloads of six pods each."""
    del kwok
    with new_namespace(control_plane) as namespace:
        yield make(control_plane, namespace, rounded_now() + AHEAD_SECONDS)


@pytest.fixture(scope="module")
def servers(offered: Offered, twenty: Twenty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """All servers, with the same past; behind Thanos, a third of the pods is in a store of its own."""
    text = past(twenty)
    folder = tmp_path_factory.mktemp("compat")
    names = sorted(twenty.pods)
    parts = split(text, {pod: place % 3 != 2 for place, pod in enumerate(names)})
    with ExitStack() as stack, offered():
        urls = {}
        for name, command in (("prometheus-2", "prometheus"), ("prometheus-3", "prometheus3")):
            server = prometheus_with(folder / name, text, command)
            stack.callback(server.stop)
            server.start()
            urls[name] = server.url
        victoria = VictoriaMetrics(folder / "victoria-metrics")
        stack.callback(victoria.stop)
        victoria.start()
        victoria.backfill(text)
        stores = []
        for number, part in enumerate(parts):
            labels = {"store": str(number)}
            store = prometheus_with(folder / f"store-{number}", part, external_labels=labels)
            stack.callback(store.stop)
            store.start()
            stores.append(store)
        both = [Thanos(folder / f"thanos-{strict}", stores, is_strict=strict) for strict in (False, True)]
        for thanos in both:
            stack.callback(thanos.stop)
            thanos.start()
        urls |= {"victoria-metrics": victoria.url, "thanos": both[0].url}
        yield Servers(urls, *both)


def _table(title: str, found: Mapping[str, Mapping[str, Decision]], said: Callable[[Decision], str]) -> str:
    """Write decisions side by side as Markdown, and the largest difference of the numbers behind them."""
    first = found["prometheus-2"]
    head = ["workload", *found]
    rows = [[name, *(said(each[name]) for each in found.values())] for name in first]
    largest = [max(difference(first[name], each[name]) for name in first) for each in found.values()]
    rows.append(["largest difference", *(f"{share * 100:.2g} %" for share in largest)])
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(["", f"{title}:", "", *lines, ""])


def _show(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(text)


@pytest.mark.parametrize("about", AdviceType)
def test_advice_is_the_same_on_every_server(
    about: AdviceType, twenty: Twenty, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same reasons, from numbers that are the same; to the letter where windows and rates are."""
    found = {name: twenty.advice(url, about) for name, url in servers.urls.items()}
    _show(_table(f"Advice of type {about.value}", found, brief), capsys)
    first = found["prometheus-2"]
    assert len(first) == WORKLOADS
    assert sum(one.reason.code is Code.RECOMMEND for one in first.values()) >= WORKLOADS // 2
    for name in OTHERS:
        assert {one: decision.reason.code for one, decision in found[name].items()} == {
            one: decision.reason.code for one, decision in first.items()
        }
        assert max(difference(first[one], found[name][one]) for one in first) < UNSEEN_MAX
    third, victoria = found["prometheus-3"], found["victoria-metrics"]
    assert {one: brief(victoria[one]) for one in first} == {one: brief(third[one]) for one in first}


def test_rotations_are_the_same_on_every_server(
    twenty: Twenty, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same workloads, the same pods; and the usage of each is covered."""
    with twenty.all_scaled():
        found = {name: twenty.rotations(url) for name, url in servers.urls.items()}
    _show(_table("Rotations", found, moves), capsys)
    first = found["prometheus-2"]
    assert len(first) == WORKLOADS
    assert Code.METRICS_INCOMPLETE not in {one.reason.code for one in first.values()}
    assert sum(moves(one) != one.reason.code.value for one in first.values()) >= ROTATED_MIN
    for name in OTHERS:
        for one, decision in found[name].items():
            assert moves(decision) == moves(first[one]), (name, one)
            assert decision.reason.numbers.get("hot") == first[one].reason.numbers.get("hot")
            assert difference(first[one], decision) < UNSEEN_MAX


def test_the_doctor_is_content_with_every_server(twenty: Twenty, servers: Servers) -> None:
    """Its clock agrees: VictoriaMetrics took the present to be half a minute ago, and NTP was advised."""
    for name, url in servers.urls.items():
        checks = twenty.checks(url)
        assert checks["prometheus-clock"].status == "ok", (name, checks["prometheus-clock"])


def test_where_all_stores_are_up_advice_is_applied(twenty: Twenty, servers: Servers) -> None:
    """By a dry run, so that what follows means something: workloads without an HPA would get one."""
    found = twenty.applied(servers.kept.url, is_dry_run=True)
    made = {name for name, one in found.items() if one.outcome and one.outcome.result == "Created"}
    assert made == set(NAMES[:UNSCALED])


def test_a_store_that_is_down_and_missed_is_one_sentence_and_nothing_is_done(
    twenty: Twenty, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thanos knows of the store, so a query for the whole fails; without asking it would answer in part."""
    before = twenty.hpas()
    servers.strict.stop_store(1)
    for what in (twenty.advice, twenty.applied, twenty.rotations):
        with pytest.raises(Exception, match=r"could not compute the query|usage over") as caught:
            what(servers.strict.url)
        said = str(caught.value)
        _show(f"{what.__name__}: {said}", capsys)
        assert LINE.match(said)
    assert twenty.hpas() == before
    _check_nobody_went(twenty, servers.strict.url)
    checks = twenty.checks(servers.strict.url)
    _show(f"doctor: {checks['prometheus']}", capsys)
    assert checks["prometheus"].status == "fail"
    assert checks["prometheus"].remedy.startswith("Start the store that it misses")


def test_the_operator_says_that_a_store_is_missed_and_does_nothing(
    twenty: Twenty, servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the status of the Analytics and of the policy; it tries again."""
    before, folder = twenty.hpas(), _folder(tmp_path, "strict")
    with twenty.operator(servers.strict.url, folder) as operator:
        ready = operator.wait_for(
            lambda: condition_of(twenty.said("analytics", "strict"), "Ready"), "a word on the past"
        )
        held = operator.wait_for(
            lambda: twenty.said("rotationpolicies", "strict").get("lastDecision"), "a word on the rotation"
        )
        operator.wait_for(lambda: operator.decisions(twenty.namespace, INCOMPLETE) >= 2, "two cycles")
    _show(f"Analytics: {ready['reason']}: {ready['message']}\nRotationPolicy: {held}", capsys)
    assert (ready["status"], ready["reason"]) == ("False", "HistoryUnknown")
    assert "could not compute the query" in ready["message"]
    assert (held["reason"], "could not compute the query" in held["sentence"]) == (INCOMPLETE, True)
    assert (twenty.advised("strict"), twenty.hpas()) == ([], before)


def _check_nobody_went(twenty: Twenty, url: str) -> None:
    """`rotation apply` evicts no pod."""
    done = twenty.rotated(url)
    assert {each.last.reason.code for each in done} == {Code.METRICS_INCOMPLETE}
    assert [each.evicted for each in done] == [[]] * (WORKLOADS - UNSCALED)


def test_a_store_that_is_down_and_forgotten_holds_advice_and_rotation(
    twenty: Twenty, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thanos answers as if a third of the pods had never been measured, and warns of nothing."""
    before = twenty.hpas()
    servers.kept.stop_store(1)
    servers.kept.wait_for_stores(1)
    decisions = twenty.advice(servers.kept.url)
    (sentences, applied) = (
        {one.reason.sentence for one in decisions.values()},
        twenty.applied(servers.kept.url),
    )
    rotations = twenty.rotations(servers.kept.url)
    _show("\n".join(sorted({*sentences, *(one.reason.sentence for one in rotations.values())})), capsys)
    assert {one.reason.code for one in decisions.values()} == {Code.METRICS_INCOMPLETE}
    assert {one.extra["confidence"] for one in decisions.values()} == {"low"}
    assert all(one.extra["recommended"] is None for one in decisions.values())
    assert all(
        f"of the {PODS} pods that have been ready for ten minutes have no samples" in one for one in sentences
    )
    assert {one.outcome for one in applied.values()} == {None}
    assert {one.reason.code for one in rotations.values()} == {Code.METRICS_INCOMPLETE}
    assert twenty.hpas() == before
    _check_nobody_went(twenty, servers.kept.url)
    checks = twenty.checks(servers.kept.url)
    _show(f"doctor: {checks['prometheus']}", capsys)
    assert checks["prometheus"].sentence.startswith("80 of 120 running pods have a fresh CPU sample")
    assert checks["prometheus"].remedy.startswith("See whether every store behind Thanos is up")


def test_the_operator_holds_advice_where_a_store_is_forgotten_and_applies_it_where_none_is(
    twenty: Twenty, servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same operator with the same Analytics; only with whole answers there are HPAs."""
    before, folder = twenty.hpas(), _folder(tmp_path, "kept")
    with twenty.operator(servers.kept.url, folder) as operator:
        found = operator.wait_for(lambda: _all(twenty.advised("kept")), "a word on each workload")
        held = operator.wait_for(
            lambda: twenty.said("rotationpolicies", "kept").get("lastDecision"), "a word on the rotation"
        )
        operator.wait_for(lambda: operator.decisions(twenty.namespace, INCOMPLETE) >= 2, "two cycles")
    _show(f"Recommendations: {set(found)}\nRotationPolicy: {held}", capsys)
    assert {reason for reason, _ in found} == {INCOMPLETE}
    assert held["reason"] == INCOMPLETE
    assert twenty.hpas() == before
    with twenty.operator(servers.urls["prometheus-3"], _folder(tmp_path, "whole")) as operator:
        operator.wait_for(lambda: len(twenty.hpas()) == len(before) + UNSCALED, "the HPAs of those without")
    assert twenty.hpas() - before == set(NAMES[:UNSCALED])


def _folder(above: Path, name: str) -> Path:
    folder = above / name
    folder.mkdir()
    return folder


def _all(advised: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return advised if len(advised) == WORKLOADS and all(reason for reason, _ in advised) else []
