"""Metrics: what is counted, under which names, and that nothing outlives its subject."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from equipoise import __version__
from equipoise.core.reason import Code
from equipoise.runtime.metrics import OperatorMetrics, ReflectorMetrics
from tests.support.operator.worlds import decision, report

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def _series(meters: OperatorMetrics) -> Series:
    text = generate_latest(meters.registry).decode()
    families = list(text_string_to_metric_families(text))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, frozenset(labels.items())))


NUMBERS: dict[str, Any] = {
    "average_hot_cores": 1.15,
    "average_rotated_cores": 0.75,
    "improvement_percent": 34.8,
    "threshold_cores": 1.05,
    "hot": ["web-1"],
}


def test_decisions_actions_and_cycles_are_counted() -> None:
    """By balancer and reason, by kind and result."""
    meters = OperatorMetrics()
    meters.observe_cycle(
        "rotation", report(decision("a/b", Code.ROTATE, "p", "q"), done="Accepted"), 0.2, 1000.0
    )
    meters.observe_cycle("rotation", report(decision("a/b"), decision("a/c")), 0.2, 1030.0)
    meters.observe_failure("rotation", "failed", 3.0)
    meters.observe_failure("rotation", "bug", 3.0)
    series = _series(meters)
    assert _value(series, "equipoise_decisions_total", balancer="rotation", reason="Rotate") == 1
    assert _value(series, "equipoise_decisions_total", balancer="rotation", reason="NoHotPods") == 2
    done = {"balancer": "rotation", "kind": "EvictPod", "result": "Accepted"}
    assert _value(series, "equipoise_actions_total", **done) == 2
    assert _value(series, "equipoise_cycles_total", balancer="rotation", result="done") == 2
    assert _value(series, "equipoise_cycles_total", balancer="rotation", result="failed") == 1
    assert _value(series, "equipoise_cycles_total", balancer="rotation", result="bug") == 1
    assert _value(series, "equipoise_cycle_seconds_count", balancer="rotation") == 4
    assert _value(series, "equipoise_last_success_timestamp_seconds", balancer="rotation") == 1030
    assert _value(series, "equipoise_subjects", balancer="rotation") == 2


def test_the_build_and_the_process_are_shown() -> None:
    """Which version, how much memory."""
    series = _series(OperatorMetrics())
    build = next(labels for name, labels in series if name == "equipoise_build_info")
    assert ("version", __version__) in build
    assert (_value(series, "process_resident_memory_bytes") or 0) > 1e6
    assert not any(name.endswith("_created") for name, _ in series)


def test_the_rotation_has_the_seeds_names() -> None:
    """Averages and threshold in cores, improvement in percent, by namespace and workload."""
    meters = OperatorMetrics()
    meters.observe_cycle("rotation", report(decision("shop/web", Code.ROTATE, "web-1", **NUMBERS)), 0.1, 0.0)
    series = _series(meters)
    where = {"namespace": "shop", "workload": "web"}
    assert _value(series, "rebalancer_current_cpu_average", **where) == 1.15
    assert _value(series, "rebalancer_predicted_cpu_average", **where) == 0.75
    assert _value(series, "rebalancer_improvement_calculated", **where) == 34.8
    assert _value(series, "rebalancer_safety_threshold_current", **where) == 1.05
    assert _value(series, "rebalancer_improvement_realised", **where) is None
    assert _value(series, "rebalancer_rotation_decisions_total", reason="Rotate", **where) == 1


def test_no_label_carries_a_pods_name() -> None:
    """A pod lives for hours, a series for weeks."""
    meters = OperatorMetrics()
    meters.observe_cycle(
        "rotation", report(decision("shop/web", Code.ROTATE, "web-1", **NUMBERS), done="Gone"), 0.1, 0.0
    )
    assert not [labels for _, labels in _series(meters) if any("web-1" in value for _, value in labels)]


def test_a_number_that_is_missing_is_no_series() -> None:
    """Missing is never zero, and never yesterday's."""
    meters = OperatorMetrics()
    meters.observe_cycle("rotation", report(decision("shop/web", Code.ROTATE, **NUMBERS)), 0.1, 0.0)
    calm = NUMBERS | {"average_hot_cores": None, "average_rotated_cores": None, "improvement_percent": None}
    meters.observe_cycle("rotation", report(decision("shop/web", **calm)), 0.1, 0.0)
    names = {name for name, labels in _series(meters) if ("workload", "web") in labels}
    assert names == {
        "rebalancer_safety_threshold_current",
        "rebalancer_rotation_decisions_total",
        "rebalancer_futile",
    }


def test_series_of_a_vanished_workload_are_removed() -> None:
    """Under every reason that it ever had; the others stay, and so do the totals."""
    meters = OperatorMetrics()
    both = [decision("shop/web", Code.ROTATE, **NUMBERS), decision("shop/db", **NUMBERS)]
    meters.observe_cycle("rotation", report(*both), 0.1, 0.0)
    meters.observe_cycle("rotation", report(decision("shop/web", **NUMBERS), both[1]), 0.1, 0.0)
    meters.observe_failure("rotation", "failed", 0.1)
    assert any(("workload", "web") in labels for _, labels in _series(meters))
    meters.observe_cycle("rotation", report(both[1]), 0.1, 0.0)
    series = _series(meters)
    assert not any(("workload", "web") in labels for _, labels in series)
    assert any(("workload", "db") in labels for _, labels in series)
    assert _value(series, "equipoise_decisions_total", balancer="rotation", reason="Rotate") == 1


def test_leadership_is_shown_and_its_changes_counted() -> None:
    """A gauge for now, a counter for what was missed between two scrapes."""
    meters = OperatorMetrics()
    for epoch in (3, None, 5):
        meters.leadership_changed(epoch)
    series = _series(meters)
    assert _value(series, "equipoise_leader") == 1
    assert _value(series, "equipoise_lease_epoch") == 5
    assert _value(series, "equipoise_lease_transitions_total", to="leader") == 2
    assert _value(series, "equipoise_lease_transitions_total", to="follower") == 1


def test_reflectors_of_one_resource_are_summed() -> None:
    """With several namespaces there are several of each."""

    class Kind:
        plural = "pods"

    class Counters:
        lists, watches, failures = 1, 4, 2

    class Reflected:
        kind, counters, cache = Kind, Counters, (1, 2, 3)

        def __init__(self, age: float) -> None:
            self.age = age

        def last_contact_age_seconds(self, now: float) -> float:
            return now - self.age

    meters = OperatorMetrics()
    meters.registry.register(ReflectorMetrics(lambda: [Reflected(40.0), Reflected(90.0)], lambda: 100.0))
    series = _series(meters)
    assert _value(series, "equipoise_reflector_lists_total", resource="pods") == 2
    assert _value(series, "equipoise_reflector_watches_total", resource="pods") == 8
    assert _value(series, "equipoise_reflector_failures_total", resource="pods") == 4
    assert _value(series, "equipoise_reflector_silence_seconds", resource="pods") == 60
    assert _value(series, "equipoise_reflector_objects", resource="pods") == 6


def test_evictions_and_waves_are_counted_by_what_came_of_them() -> None:
    """A wave of which nothing went is none; several pods of one wave are one."""
    meters = OperatorMetrics()
    where = {"namespace": "shop", "workload": "web"}
    for done in ("Accepted", "Blocked", "Accepted", "Fenced", "Unknown"):
        decided = decision("shop/web", Code.ROTATE, "p", "q", **NUMBERS)
        meters.observe_cycle("rotation", report(decided, done=done), 0.1, 0.0)
    series = _series(meters)
    assert _value(series, "rebalancer_evictions_total", result="Accepted", **where) == 4
    assert _value(series, "rebalancer_evictions_total", result="Blocked", **where) == 2
    assert _value(series, "rebalancer_evictions_total", result="Fenced", **where) == 2
    assert _value(series, "rebalancer_evictions_total", result="Unknown", **where) == 2
    assert _value(series, "rebalancer_waves_total", **where) == 2


def test_futility_is_a_gauge_that_falls_again() -> None:
    """1 while rotation is given up, whatever reason is told first, and 0 as soon as it is not."""
    meters = OperatorMetrics()
    where = {"namespace": "shop", "workload": "web"}
    given_up = {"futile_until": 1.8e9}
    for code, more in ((Code.FUTILE, given_up), (Code.NO_HOT_PODS, {}), (Code.HELD_BY_HEALTH, given_up)):
        value = len(more)
        meters.observe_cycle("rotation", report(decision("shop/web", code, **NUMBERS, **more)), 0.1, 0.0)
        assert _value(_series(meters), "rebalancer_futile", **where) == value


def test_what_was_realised_stands_beside_what_was_predicted() -> None:
    """From the verdict on the last rotation; a rise is below zero."""
    meters = OperatorMetrics()
    where = {"namespace": "shop", "workload": "web"}
    told = NUMBERS | {"predicted_improvement_percent": 34.8, "realised_improvement_percent": -3.5}
    meters.observe_cycle("rotation", report(decision("shop/web", **told)), 0.1, 0.0)
    series = _series(meters)
    assert _value(series, "rebalancer_improvement_realised", **where) == -3.5
    assert _value(series, "rebalancer_improvement_calculated", **where) == 34.8


def test_evictions_waves_and_futility_vanish_with_their_workload() -> None:
    """Every series of it, under every result; another workload of the same name keeps its own."""
    meters = OperatorMetrics()
    told = NUMBERS | {"realised_improvement_percent": 12.0}
    both = [
        decision("shop/web", Code.ROTATE, "p", **told),
        decision("lab/web", Code.ROTATE, "q", **told),
    ]
    for done in ("Accepted", "Blocked"):
        meters.observe_cycle("rotation", report(*both, done=done), 0.1, 0.0)
    meters.observe_cycle("rotation", report(decision("shop/web", Code.FUTILE, **told), both[1]), 0.1, 0.0)
    meters.observe_cycle("rotation", report(both[1]), 0.1, 0.0)
    series = _series(meters)
    assert not any(("namespace", "shop") in labels for _, labels in series)
    kept = {name for name, labels in series if ("namespace", "lab") in labels}
    assert {"rebalancer_evictions_total", "rebalancer_waves_total", "rebalancer_futile"} < kept
    meters.observe_cycle("rotation", report(), 0.1, 0.0)
    assert not any(name.startswith("rebalancer_") for name, _ in _series(meters))


def test_scaling_shows_targets_values_in_force_and_pods_until_the_workload_goes() -> None:
    """In cores and bytes; what is unknown has no series."""
    meters = OperatorMetrics()
    numbers: dict[str, Any] = {
        "target": {"dns.requests.cpu": "300m", "dns.limits.memory": "1Gi"},
        "current": {"dns.requests.cpu": "250m", "dns.limits.memory": None},
        "pods": 3,
        "pods_behind": 1,
    }
    meters.observe_cycle("proportional", report(decision("kube/dns", Code.SET, **numbers)), 0.1, 1.0)
    slot = {"namespace": "kube", "workload": "dns", "container": "dns"}
    cpu, memory = slot | {"section": "requests", "resource": "cpu"}, slot | {"section": "limits"}
    series = _series(meters)
    assert _value(series, "equipoise_scaling_target", **cpu) == 0.3
    assert _value(series, "equipoise_scaling_in_force", **cpu) == 0.25
    assert _value(series, "equipoise_scaling_target", **memory, resource="memory") == 2**30
    assert _value(series, "equipoise_scaling_in_force", **memory, resource="memory") is None
    pods = {"namespace": "kube", "workload": "dns"}
    assert _value(series, "equipoise_scaling_pods", **pods) == 3
    assert _value(series, "equipoise_scaling_pods_behind", **pods) == 1
    meters.observe_cycle("proportional", report(), 0.1, 2.0)
    assert not [name for name, _ in _series(meters) if name.startswith("equipoise_scaling_")]
