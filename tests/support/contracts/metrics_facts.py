"""What holds of every source of usage."""

import math

import pytest

from tests.support.contracts.contract import Contract
from tests.support.contracts.worlds import MetricsWorld, QueryWorld

METRICS: Contract[MetricsWorld] = Contract("Metrics")
QUERIES: Contract[QueryWorld] = Contract("Metrics with a query language")


def _usage(world: MetricsWorld, *pods: str) -> dict[tuple[str, str, str], float]:
    answer = world.metrics.cpu_usage({world.namespace: pods}, world.now(), world.window_seconds)
    rows = zip(answer.namespaces, answer.pods, answer.containers, answer.cores.tolist(), strict=True)
    return {(namespace, pod, container): cores for namespace, pod, container, cores in rows}


@METRICS.fact
def usage_is_what_the_pods_use(world: MetricsWorld) -> None:
    """One row for each container, in cores."""
    expected = {(world.namespace, pod, "app"): cores for pod, cores in world.loads.items()}
    assert _usage(world, *world.loads) == pytest.approx(expected, rel=0.1)


@METRICS.fact
def only_pods_that_were_asked_for_are_told(world: MetricsWorld) -> None:
    """Whoever else is measured."""
    pod = next(iter(world.loads))
    assert {key[1] for key in _usage(world, pod)} == {pod}


@METRICS.fact
def an_unknown_pod_has_no_row(world: MetricsWorld) -> None:
    """Missing is never zero."""
    pod = next(iter(world.loads))
    assert {key[1] for key in _usage(world, pod, "nobody")} == {pod}
    assert _usage(world, "nobody") == {}


@METRICS.fact
def a_pod_of_another_namespace_is_another_pod(world: MetricsWorld) -> None:
    """A name alone says nothing."""
    answer = world.metrics.cpu_usage(
        {"no-such-namespace": list(world.loads)}, world.now(), world.window_seconds
    )
    assert len(answer.pods) == len(answer.cores) == 0


@METRICS.fact
def asking_for_nothing_gives_nothing(world: MetricsWorld) -> None:
    """And is no error."""
    asked: tuple[dict[str, list[str]], ...] = ({}, {world.namespace: []})
    for nothing in asked:
        answer = world.metrics.cpu_usage(nothing, world.now(), world.window_seconds)
        assert len(answer.pods) == len(answer.cores) == len(answer.sampled_at) == 0


@METRICS.fact
def samples_say_when_they_were_taken(world: MetricsWorld) -> None:
    """Fresh ones, and none from the future but for a clock's grain."""
    answer = world.metrics.cpu_usage({world.namespace: list(world.loads)}, world.now(), world.window_seconds)
    ages = [world.now() - at for at in answer.sampled_at.tolist()]
    assert all(-2 < age < 120 for age in ages), ages
    assert answer.source


@METRICS.fact
def columns_have_one_length_and_plain_numbers(world: MetricsWorld) -> None:
    """NaN and infinity are dropped where metrics enter."""
    answer = world.metrics.cpu_usage({world.namespace: list(world.loads)}, world.now(), world.window_seconds)
    lengths = {len(answer.namespaces), len(answer.pods), len(answer.containers), len(answer.cores)}
    assert lengths == {len(answer.sampled_at)} == {len(world.loads)}
    assert all(math.isfinite(cores) and cores >= 0 for cores in answer.cores.tolist())


@METRICS.fact
def samples_of_the_whole_window_are_no_part_of_it(world: MetricsWorld) -> None:
    """Who was measured all the time is known."""
    answer = world.metrics.cpu_usage({world.namespace: list(world.loads)}, world.now(), world.window_seconds)
    assert answer.is_covered is None or answer.is_covered.tolist() == [True] * len(world.loads)


@QUERIES.fact
def a_window_that_began_before_the_samples_is_not_covered(world: QueryWorld) -> None:
    """A rate over it would be too low: the pods were not idle before they were measured."""
    answer = world.metrics.cpu_usage({world.namespace: list(world.loads)}, world.now(), 4 * 3600.0)
    assert answer.is_covered is not None
    assert answer.is_covered.tolist() == [False] * len(world.loads)


@QUERIES.fact
def a_query_gives_its_one_number(world: QueryWorld) -> None:
    """As a float."""
    query, expected = world.known_query
    assert world.metrics.scalar(query, world.now()) == expected


@QUERIES.fact
def a_query_without_an_answer_gives_none(world: QueryWorld) -> None:
    """Missing is never zero."""
    assert world.metrics.scalar("no_such_metric_anywhere", world.now()) is None
