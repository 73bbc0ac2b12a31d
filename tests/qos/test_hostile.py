"""Whatever is in a file: one clear message with the field's path, or a plan that is whole."""

import contextlib
import copy
import io
import json
import math
from typing import Any

import pytest

from equipoise.cli.qos import print_qos
from equipoise.core.decision import plan_document
from equipoise.core.errors import BadInput
from equipoise.qos import selection
from equipoise.runtime.output import Format
from tests.support.damage import paths
from tests.support.qos.worlds import Document, decided, names, node, plan, pod, pod_qos, policy, rule

WHOLE = node(
    {"cpu_total_usage": 9000, "memory_total_usage": "40Gi", "cpu_load_1_min": 3},
    [
        pod("a", 3, "1Gi", quota=400000, limit={"cpu": 4}, request={"cpu": "100m"}, labels={"app": "x"}),
        pod("b", "2500m", 2**30, startTime="2026-01-01T00:00:00Z", priority=5, extendedCpuLimit=1),
    ],
    policy(
        rule("cpu_total_usage", 6000, "both"),
        rule("cpu_total_utilization", 30, "throttle", avoidanceThreshold=2),
        rule("memory_total_utilization", "50", "evict", strategy="None"),
        selector={"matchLabels": {}},
    ),
    pod_qos(labelSelector={}, allowedActions=["both", "throttle", "evict"]),
    fresh={"cpu_total_usage": 8500},
    state={"breaches": {"cpu-total-usage": 1}, "throttled": ["d/a"], "lastTrigger": "90s"},
    budget={"evictionsPerRound": 1},
    now="2026-01-31T08:00:00Z",
)
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 2**63, 1e308, math.nan, math.inf, -math.inf, 0.1, "", " ",
    "NaN", "-5", "1e64", "9" * 70, "\x1b[31m", "[red]x[/red]", "a/b", "2026-01-01",
    [], {}, [[]], {"a": {}}, [None], ["x"], {"": 1},
)  # fmt: skip


def _replaced(path: tuple[Any, ...], value: Any) -> Document:
    document = copy.deepcopy(WHOLE)
    part: Any = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return document


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_a_hostile_value_anywhere_is_refused_in_one_line_or_planned_whole(value: Any) -> None:
    """Nothing is half done, nothing ends in a traceback, and what is printed is finite JSON."""
    said: list[str] = []
    for place, path in enumerate(paths(WHOLE)):
        try:
            decision = decided(_replaced(path, value))
        except BadInput as error:
            said.append(str(error))
            continue
        text = json.dumps(plan_document("qos", [decision]), allow_nan=False)
        assert "\x1b" not in text, path
        if place % 16 == 0:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                print_qos(decision, Format.TABLE)
            assert "Nothing was changed." in printed.getvalue()
    assert said
    assert [one for one in said if "\n" in one or not one.startswith("node.yaml: ")] == []


def test_the_whole_file_is_planned() -> None:
    """Else the test above would only show that it is refused."""
    assert plan(WHOLE)["actions"]


def test_a_percentage_and_an_amount_of_one_resource_are_closed_together() -> None:
    """The lower waterline decides how far; what is released counts for both."""
    usage = {"cpu_total_usage": 9000}
    asked = policy(rule("cpu_total_usage", 8000, "evict"), rule("cpu_total_utilization", 40, "evict"))
    pods = [pod("a", 1), pod("b", 2), pod("c", 3)]
    found = plan(node(usage, pods, asked, budget={"evictionsPerRound": 10}))
    assert found["numbers"]["gaps"]["evict"] == {"cpu_total_usage": 1000, "cpu_total_utilization": 2600}
    assert names(found) == ["c"]
    assert found["numbers"]["left"]["evict"] == {"cpu_total_usage": -2000, "cpu_total_utilization": -400}


def test_a_cool_down_that_began_in_the_future_lasts_no_longer_than_itself() -> None:
    """A clock that was set back must not keep pods throttled for years."""
    asked = policy(rule("cpu_total_usage", 6000, "throttle"))
    throttled = pod("a", 0.1, quota=100000)
    state = {"throttled": ["d/a"], "lastTrigger": "2036-01-01T00:00:00Z"}
    found = plan(node({"cpu_total_usage": 100}, [throttled], asked, state=state, now="2026-01-01T00:00:00Z"))
    assert found["reason"] == "HeldByCooldown"
    assert found["sentence"].endswith("The cool-down of action throttle ends in 5m.")


@pytest.mark.parametrize("waterline", [100, 6000, 290_000])
def test_evicting_beside_throttling_does_not_select_once_for_each_pod(
    waterline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node of many pods far above both waterlines: the square of the pods would stall the agent."""
    selections = []
    real = selection.plan_throttles

    def counted(*given: Any) -> Any:
        selections.append(given)
        return real(*given)

    monkeypatch.setattr(selection, "plan_throttles", counted)
    asked = policy(
        rule("cpu_total_usage", 5000, "evict"), rule("cpu_total_usage", waterline, "throttle", name="t")
    )
    pods = [pod(f"p{number:03}", 1 + number / 1000) for number in range(300)]
    decision = decided(node({"cpu_total_usage": 330_000}, pods, asked, budget={"evictionsPerRound": 300}))
    assert decision.actions
    assert len(selections) <= 30
