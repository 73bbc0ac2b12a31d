"""Strategies against flapping, on histories that anybody can make again."""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from equipoise.cli.proportional_study import DEFAULT_POLICY
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.parse import read_spec
from equipoise.sim.smoothing_study import (
    WALKS,
    ClusterShape,
    SizeHistory,
    SmoothingStrategy,
    StrategyRun,
    generate,
    judge,
    modelled,
    run,
    strategies,
    study,
)

CLUSTER = ClusterShape(nodes=30, hours=1)
POLICY = read_spec(DEFAULT_POLICY, "default")
START = CLUSTER.sized(CLUSTER.nodes)
WAYS = {way.name: way for way in strategies(POLICY, START)}


@pytest.mark.parametrize("name", WALKS)
def test_a_seed_makes_the_same_history_again(name: str) -> None:
    """And another seed another one; no history is ever empty of nodes."""
    first, again, other = generate(name, CLUSTER, 1), generate(name, CLUSTER, 1), generate(name, CLUSTER, 2)
    assert first == again != other
    assert (len(first.times), first.hours) == (360, 1)
    assert min(inputs["nodes"] for inputs in first.inputs) > 0
    assert first.inputs[0]["cores"] == first.inputs[0]["nodes"] * 4


@pytest.mark.parametrize("seed", range(5))
def test_an_update_of_all_nodes_is_quiet_with_smoothing_and_loud_without(seed: int) -> None:
    """At least two changes without; none with percentile or a delay."""
    history = generate("rolling-update", CLUSTER, seed)
    changes = {name: len(run(way, history).changed) for name, way in WAYS.items()}
    assert changes["none"] >= 2
    assert {
        changes[name] for name in ("percentile", "delay by inputs", "delay by time", "delay by both")
    } == {0}


@pytest.mark.parametrize("name", WALKS)
def test_only_percentile_is_ever_below_the_model(name: str) -> None:
    """The others scale up at once, and round up."""
    summaries = study(POLICY, START, [generate(name, CLUSTER, seed) for seed in range(3)])
    below = {summary.name for summary in summaries if summary.below_model_share > 0}
    assert below <= {"percentile"}
    assert all(summary.changes_per_hour == pytest.approx(summary.changes) for summary in summaries)
    bare = next(summary for summary in summaries if summary.name == "none")
    assert (bare.over_provision_mean, bare.below_model_worst) == (0, 0)


def test_the_page_shows_every_strategy_over_a_hundred_seeds() -> None:
    """Made by `docs/proportional_simulation.py`."""
    page = (Path(__file__).parents[2] / "docs" / "proportional.md").read_text()
    assert all(f"**{name}**, 100 seeds of 2 h" in page for name in WALKS)
    assert all(page.count(f"\n| {name} | ") == len(WALKS) for name in WAYS)


def test_over_provision_and_time_below_are_what_they_say() -> None:
    """Two looks: a fifth too much, and a tenth too little."""
    course = StrategyRun([{"a": 120}, {"a": 90}], [1])
    outcome = judge(course, [{"a": 100}, {"a": 100}])
    assert (outcome.changes, outcome.below_model_share) == (1, 0.5)
    assert (outcome.over_provision_mean, outcome.below_model_worst) == pytest.approx((0.1, 0.1))


def test_a_policys_own_settings_are_used() -> None:
    """Defaults are made from the cluster only where it has none."""
    document = read_spec(DEFAULT_POLICY, "x").model_dump(mode="json", by_alias=True, exclude_none=True)
    document["smoothing"] = {"delayScaleDown": {"inputs": {"cores": 7}, "delaySeconds": 60}}
    document["containers"][0]["quantization"] = [{"resource": "cpu", "base": "250m"}]
    rules = document["containers"][0]["resources"]["requests"]
    rules[0]["function"]["segments"] = [{"at": 0, "every": 3}]
    ways = {way.name: way for way in strategies(read_spec(document, "x"), START)}
    assert ways["delay by both"].settings == "down after 7 cores, or 1m"
    assert (ways["segments"].settings, ways["quantization"].settings) == ("as in the policy",) * 2
    assert "as written" in ways
    assert "as written" not in WAYS
    history = SizeHistory([0, 10_000], [CLUSTER.sized(30), CLUSTER.sized(31)])
    assert [list(row.values()) for row in run(ways["segments"], history).applied] == [[1300], [1360]]
    assert [list(row.values()) for row in run(ways["quantization"], history).applied] == [[1500], [1500]]
    assert [list(row.values()) for row in modelled(POLICY, history)] == [[1300], [1340]]


DEMO = {
    "scaleTargetRef": {"kind": "Deployment", "name": "kube-dns"},
    "container": {
        "name": "kube-dns",
        "requests": {
            "resource": "cpu",
            "function": {
                "input": "cores",
                "base": "200m",
                "slope": "250m",
                "segments": [{"at": 10, "every": 5}, {"at": 50, "every": 10}],
            },
        },
    },
}


@pytest.mark.parametrize(
    ("smoothing", "changes", "is_below"),
    [
        ({}, 202, False),
        ({"delayScaleDown": {"inputs": {"cores": 20}}}, 78, False),
        ({"percentile": {}}, 17, True),
        ({"delayScaleDown": {"delaySeconds": 300}}, 38, False),
    ],
    ids=str,
)
def test_the_figures_of_an_independent_run_are_met(
    smoothing: dict[str, Any], changes: float, is_below: bool
) -> None:
    """The simulation of old: 100 nodes, a step each second, a look each ten, one hour; 300 seeds there."""
    policy = read_spec(DEMO | {"smoothing": smoothing}, "demo")
    way = SmoothingStrategy("demo", "", CompiledPolicy.of(policy))
    cluster = ClusterShape(nodes=100, interval_seconds=1, hours=1)
    outcomes = []
    for seed in range(12):
        history = generate("random-walk", cluster, seed)
        seen = SizeHistory(history.times[::10], history.inputs[::10])
        outcomes.append(judge(run(way, seen), modelled(policy, seen)))
    assert mean(outcome.changes for outcome in outcomes) == pytest.approx(changes, rel=0.12)
    below = mean(outcome.below_model_share for outcome in outcomes)
    assert (0.15 < below < 0.35) if is_below else below == 0
