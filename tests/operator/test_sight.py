"""How the operator sees: namespaces that are watched, and a source of usage that is found again."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from equipoise.app.operator.sight import SEARCH_SECONDS, FoundMetrics, Source, WatchedNamespaces
from equipoise.model.errors import BadInput, WorldFailed
from equipoise.ports import CpuUsage


class _Metrics:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_lost = False

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        if self.is_lost:
            raise WorldFailed(f"{self.name} does not answer")
        return CpuUsage([], [], [], np.array([]), np.array([]), window_seconds, self.name)

    def scalar(self, query: str, at: float) -> float | None:
        if self.is_lost:
            raise WorldFailed(f"{self.name} does not answer")
        if query == "sum((":
            raise BadInput("parse error: unclosed left parenthesis")
        return 1.0


def _source_of(metrics: FoundMetrics) -> str:
    return metrics.cpu_usage({}, 0.0, 300.0).source


def test_a_source_that_is_lost_is_looked_for_again() -> None:
    """The cycle that loses it fails; the next finds another, and a source that works is kept."""
    first, second = _Metrics("first"), _Metrics("second")
    found = iter([Source(first), Source(second)])
    metrics = FoundMetrics(lambda: next(found))
    assert [_source_of(metrics), _source_of(metrics)] == ["first", "first"]
    first.is_lost = True
    with pytest.raises(WorldFailed):
        metrics.scalar("x", 0.0)
    assert [_source_of(metrics), _source_of(metrics)] == ["second", "second"]


def test_a_query_that_cannot_be_read_is_no_answer_and_no_reason_to_look_elsewhere() -> None:
    """It is a typing error in one policy: its workloads are held, and the cycle goes on for all others."""
    found = iter([Source(_Metrics("only"))])
    metrics = FoundMetrics(lambda: next(found))
    with pytest.raises(WorldFailed, match="unclosed left parenthesis"):
        metrics.scalar("sum((", 0.0)
    assert (metrics.scalar("up", 0.0), _source_of(metrics)) == (1.0, "only")


def test_a_search_that_fails_is_tried_again_with_the_next_question() -> None:
    """Nothing is remembered of it."""
    answers = iter([None, _Metrics("late")])

    def find() -> Source:
        answer = next(answers)
        if answer is None:
            raise WorldFailed("no Prometheus")
        return Source(answer)

    metrics = FoundMetrics(find)
    with pytest.raises(WorldFailed):
        _source_of(metrics)
    assert _source_of(metrics) == "late"


def test_the_second_choice_gives_way_when_the_first_appears() -> None:
    """Looked for every few minutes, not with every question."""
    now = [0.0]
    found = iter([Source(_Metrics("metrics-server"), is_second_choice=True), Source(_Metrics("prometheus"))])
    metrics = FoundMetrics(lambda: next(found), lambda: now[0])
    assert _source_of(metrics) == "metrics-server"
    now[0] = SEARCH_SECONDS - 1
    assert _source_of(metrics) == "metrics-server"
    now[0] = SEARCH_SECONDS + 1
    assert _source_of(metrics) == "prometheus"
    now[0] *= 10
    assert _source_of(metrics) == "prometheus"


def _cluster(name: str) -> Any:
    """Give a cluster that answers each question with its name and the question."""
    questions = ("pods", "nodes", "workloads", "hpas", "pdbs")
    return SimpleNamespace(**{asked: partial(list, [f"{name} {asked}"]) for asked in questions})


def test_several_namespaces_look_like_one_cluster() -> None:
    """All of them, or one; nodes have no namespace."""
    seen: Any = WatchedNamespaces({"shop": _cluster("shop"), "pay": _cluster("pay")})
    assert seen.pods() == ["shop pods", "pay pods"]
    assert seen.hpas("pay") == ["pay hpas"]
    assert seen.pdbs() == ["shop pdbs", "pay pdbs"]
    assert seen.workloads("shop") == ["shop workloads"]
    assert seen.nodes() == ["shop nodes"]


def test_a_namespace_that_is_not_watched_is_unknown_not_empty() -> None:
    """Nothing may be concluded from what nobody looked at."""
    seen = WatchedNamespaces({"shop": _cluster("shop")})
    with pytest.raises(WorldFailed, match="namespace pay: not watched"):
        seen.pods("pay")
