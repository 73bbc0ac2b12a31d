"""What is done on a node, case by case."""

from typing import Any

import msgspec
import pytest

from equipoise.qos.decide import decide
from equipoise.qos.plan_file import read_plan_file
from tests.support.qos.worlds import ACTIONS, AT, GI, action, names, node, plan, pod, pod_qos, policy, rule

CPU = policy(rule("cpu_total_usage", 6000, "evict"))
MEMORY = policy(rule("memory_total_usage", "40Gi", "evict"), name="m")
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_pods_go_until_the_gap_is_closed_and_no_further() -> None:
    """The largest first: 2000 are closed by 1500 and 800; the third stays."""
    decision = plan(node({"cpu_total_usage": 8000}, [pod("a", 0.8), pod("b", 1.5), pod("c", 0.7)], CPU))
    assert decision["reason"] == "Evict"
    assert decision["numbers"]["gaps"] == {
        "evict": {"cpu_total_usage": 2000},
        "throttleDown": {},
        "throttleUp": {},
    }
    # The budget of a small node is one pod a round; the rest is held, and said to be.
    assert names(decision) == ["b"]
    assert decision["numbers"]["cut_by_budget"] == 1
    assert [(held["pod"], held["reason"]) for held in decision["held"]] == [("d/a", "HeldByBudget")]
    wide = plan(
        node(
            {"cpu_total_usage": 8000},
            [pod("a", 0.8), pod("b", 1.5), pod("c", 0.7)],
            CPU,
            budget={"evictionsPerRound": 10},
        )
    )
    assert wide["actions"] == [
        {
            "kind": "EvictPod",
            "pod": "d/b",
            "metric": "cpu_total_usage",
            "release": 1500,
            "gap_after": {"cpu_total_usage": 500},
            "grace_seconds": 30,
        },
        {
            "kind": "EvictPod",
            "pod": "d/a",
            "metric": "cpu_total_usage",
            "release": 800,
            "gap_after": {"cpu_total_usage": -300},
            "grace_seconds": 30,
        },
    ]
    assert (wide["numbers"]["budget"], wide["numbers"]["cut_by_budget"]) == (10, 0)


SORTING: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "class before everything": (
        [
            pod("g", 3, 1, qosClass="Guaranteed"),
            pod("b", 2, 1, qosClass="Burstable"),
            pod("e", 1, 1, qosClass="BestEffort", priority=9),
        ],
        ["e", "b", "g"],
    ),
    "then the lower priority": ([pod("a", 3, 1, priority=5), pod("b", 1, 1, priority=-1)], ["b", "a"]),
    "then the larger usage": ([pod("a", 1, 1), pod("b", "1500m", 1)], ["b", "a"]),
    "then the larger share of extended CPU": (
        [pod("a", 1, 1), pod("b", 1, 1, extendedCpuLimit=4), pod("c", 1, 1, extendedCpuLimit=2)],
        ["c", "b", "a"],
    ),
    "then the youngest": ([pod("a", 1, 1, startTime=EARLY), pod("b", 1, 1, startTime=LATE)], ["b", "a"]),
    "no start time is the youngest": ([pod("a", 1, 1, startTime=LATE), pod("b", 1, 1)], ["b", "a"]),
    "then the name": ([pod("b", 1, 1), pod("a", 1, 1)], ["a", "b"]),
}


@pytest.mark.parametrize("case", SORTING)
def test_the_order_of_acting(case: str) -> None:
    """One comparator after the other decides."""
    pods, expected = SORTING[case]
    decision = plan(node({"cpu_total_usage": 16000}, pods, CPU, budget={"evictionsPerRound": 9}))
    assert names(decision) == expected


def test_an_action_may_name_its_own_order() -> None:
    """The seed's first story; equals are told apart by name."""
    pods = [pod("a", 1, "1Gi", startTime=LATE), pod("b", 2, "2Gi", startTime=EARLY, priority=7)]
    for sort_by, expected in {
        ("runningTime",): ["a", "b"],
        ("memoryUsage",): ["b", "a"],
        ("name",): ["a", "b"],
        ("cpuUsage", "name"): ["b", "a"],
    }.items():
        own = action("own", eviction={}, sortBy=list(sort_by))
        asked = policy(rule("cpu_total_usage", 6000, "own"))
        decision = plan(node({"cpu_total_usage": 16000}, pods, own, asked, budget={"evictionsPerRound": 9}))
        assert names(decision) == expected


GAPS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "exactly at the waterline is not above": ({"cpu_total_usage": 6000}, [CPU], {}),
    "a millionth above is": ({"cpu_total_usage": "6000.000001"}, [CPU], {"cpu_total_usage": 0.000001}),
    "percent become millicores": (
        {"cpu_total_usage": 12000},
        [policy(rule("cpu_total_utilization", 62.5, "evict"))],
        {"cpu_total_utilization": 2000},
    ),
    "percent become bytes": (
        {"memory_total_usage": "52Gi"},
        [policy(rule("memory_total_utilization", 75, "evict"))],
        {"memory_total_utilization": 4 * GI},
    ),
    "a share that is given wins": (
        {"cpu_total_usage": 1, "cpu_total_utilization": 80},
        [policy(rule("cpu_total_utilization", 75, "evict"))],
        {"cpu_total_utilization": 800},
    ),
    "the lowest crossed waterline of all policies": (
        {"cpu_total_usage": 8000},
        [
            CPU,
            policy(rule("cpu_total_usage", 5000, "evict"), name="q"),
            policy(rule("cpu_total_usage", 9000, "evict"), name="r"),
        ],
        {"cpu_total_usage": 3000},
    ),
    "memory comes first": (
        {"cpu_total_usage": 8000, "memory_total_usage": "41Gi"},
        [CPU, MEMORY],
        {"memory_total_usage": GI, "cpu_total_usage": 2000},
    ),
    "a quantity is exact": (
        {"cpu_total_usage": 3},
        [policy(rule("cpu_total_usage", "1500m", "evict"))],
        {"cpu_total_usage": 1.5},
    ),
    "a metric that is missing is not crossed": ({"memory_total_usage": "1Gi"}, [CPU], {}),
    "another node's policy counts for nothing": (
        {"cpu_total_usage": 8000},
        [policy(rule("cpu_total_usage", 6000, "evict"), selector={"matchLabels": {"pool": "x"}})],
        {},
    ),
}


@pytest.mark.parametrize("case", GAPS)
def test_gaps(case: str) -> None:
    """Usage less the lowest crossed waterline, in millicores and bytes."""
    usage, policies, expected = GAPS[case]
    decision = plan(node(usage, [pod("a", 1, "1Gi")], *policies))
    assert decision["numbers"]["gaps"]["evict"] == expected
    assert list(decision["numbers"]["gaps"]["evict"]) == list(expected)
    assert decision["reason"] == ("Evict" if expected else "BelowWaterlines")


def test_an_excess_widens_the_gap() -> None:
    """10 % of 2000."""
    document = node({"cpu_total_usage": 8000}, [pod("a", 1)], CPU)
    assert plan(document, excess=10)["numbers"]["gaps"]["evict"] == {"cpu_total_usage": 2200}


def test_an_eviction_releases_of_every_metric() -> None:
    """Memory is closed first, by its largest consumer; what that used of CPU counts as well."""
    pods = [
        pod("a", 1.5, "1Gi"),
        pod("b", 1.6, "3Gi"),
        pod("c", 0.5, "2Gi"),
        pod("d", 9, "9Gi", qosClass="Burstable"),
    ]
    usage = {"cpu_total_usage": 8000, "memory_total_usage": "44Gi"}
    decision = plan(node(usage, pods, CPU, MEMORY, budget={"evictionsPerRound": 9}))
    assert [(one["pod"], one["metric"]) for one in decision["actions"]] == [
        ("d/b", "memory_total_usage"),
        ("d/c", "memory_total_usage"),
    ]
    assert [one["gap_after"] for one in decision["actions"]] == [
        {"memory_total_usage": GI, "cpu_total_usage": 400},
        {"memory_total_usage": -GI, "cpu_total_usage": -100},
    ]


@pytest.mark.parametrize(
    "metric", ["cpu_load_1_min", "cpu_load_15_min", "cpu_pressure", "memory_pressure_full_avg60"]
)
def test_what_cannot_be_quantified_acts_on_all_within_the_budget(metric: str) -> None:
    """In the order class and priority, age, name; however large they are."""
    pods = [pod(f"p{n}", n, startTime=EARLY) for n in range(1, 8)] + [pod("young", 0, startTime=LATE)]
    decision = plan(
        node({metric: 20}, pods, policy(rule(metric, 12, "evict")), budget={"evictionsPerRound": 3})
    )
    assert (decision["reason"], names(decision)) == ("Evict", ["young", "p1", "p2"])
    assert decision["numbers"]["gaps"]["evict"] == {metric: None}
    assert (decision["numbers"]["budget"], decision["numbers"]["cut_by_budget"]) == (3, 5)
    assert "holds 5 more evictions" in decision["sentence"]


def test_one_unquantifiable_metric_among_several_acts_on_all() -> None:
    """The gap of CPU alone would have taken one pod."""
    asked = policy(rule("cpu_total_usage", 6000, "evict"), rule("cpu_load_5_min", 12, "evict"))
    pods = [pod("a", 4), pod("b", 1)]
    decision = plan(
        node({"cpu_total_usage": 8000, "cpu_load_5_min": 13}, pods, asked, budget={"evictionsPerRound": 9})
    )
    assert names(decision) == ["a", "b"]


def test_usage_that_cannot_be_read_again_acts_on_all() -> None:
    """The second reading decides: null is unknown, a smaller one makes the gap smaller."""
    pods = [pod("a", 4), pod("b", 1), pod("c", 1)]
    many = {"evictionsPerRound": 9}
    document = node({"cpu_total_usage": 8000}, pods, CPU, budget=many)
    assert names(plan(document)) == ["a"]
    unread = plan(document | {"fresh": {"cpu_total_usage": None}})
    assert names(unread) == ["a", "b", "c"]
    assert unread["numbers"]["gaps"]["evict"] == {"cpu_total_usage": None}
    assert "could not be read a second time" in unread["sentence"]
    less = plan(document | {"fresh": {"cpu_total_usage": 6500}})
    assert less["numbers"]["gaps"]["evict"] == {"cpu_total_usage": 500}
    gone = plan(document | {"fresh": {"cpu_total_usage": 5000}})
    assert (gone["reason"], gone["actions"]) == ("BelowWaterlines", [])
    share = node(
        {"cpu_total_usage": 8000}, pods, policy(rule("cpu_total_utilization", 40, "evict")), budget=many
    )
    assert names(plan(share | {"fresh": {"cpu_total_usage": None}})) == ["a", "b", "c"]


@pytest.mark.parametrize(("count", "budget"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (35, 3)])
def test_the_budget_is_a_tenth_of_the_pods_and_at_least_one(count: int, budget: int) -> None:
    """Rounded down."""
    pods = [pod(f"p{n}", 0.1) for n in range(count)]
    decision = plan(node({"cpu_total_usage": 16000}, pods, CPU))
    assert (decision["numbers"]["budget"], len(decision["actions"])) == (budget, budget)
    assert decision["numbers"]["cut_by_budget"] == count - budget == len(decision["held"])


def test_a_budget_of_none_holds_everything() -> None:
    """And says so."""
    decision = plan(node({"cpu_total_usage": 9000}, [pod("a", 1)], CPU, budget={"evictionsPerRound": 0}))
    assert (decision["reason"], decision["actions"]) == ("HeldByBudget", [])


def test_what_terminating_pods_use_counts_as_released() -> None:
    """Nobody else goes while one that closes the gap is on its way."""
    pods = [pod("a", 1.5), pod("b", 1)]
    document = node({"cpu_total_usage": 7500}, pods, CPU)
    held = plan(document | {"state": {"terminating": ["d/a"]}})
    assert (held["reason"], held["actions"]) == ("BelowWaterlines", [])
    assert "terminating" in held["sentence"]
    more = plan(document | {"state": {"terminating": ["d/b"]}})
    assert more["numbers"]["gaps"]["evict"] == {"cpu_total_usage": 500}
    assert names(more) == ["a"]


THRESHOLDS = {
    "counts are taken as reached": ({}, 3, "Evict"),
    "two of three": ({"breaches": {"cpu-total-usage": 2}}, 3, "HeldByThreshold"),
    "three of three": ({"breaches": {"cpu-total-usage": 3}}, 3, "Evict"),
    "named with its policy": ({"breaches": {"p/cpu-total-usage": 1}}, 2, "HeldByThreshold"),
}


@pytest.mark.parametrize("case", THRESHOLDS)
def test_a_rule_must_be_crossed_often_enough_in_a_row(case: str) -> None:
    """`avoidanceThreshold`."""
    state, least, reason = THRESHOLDS[case]
    asked = policy(rule("cpu_total_usage", 6000, "evict", avoidanceThreshold=least))
    decision = plan(node({"cpu_total_usage": 8000}, [pod("a", 3)], asked, state=state))
    assert decision["reason"] == reason
    assert bool(decision["actions"]) is (reason == "Evict")


def test_a_preview_rule_does_nothing() -> None:
    """It says that it is crossed."""
    asked = policy(rule("cpu_total_usage", 6000, "evict", strategy="Preview"))
    decision = plan(node({"cpu_total_usage": 8000}, [pod("a", 3)], asked))
    assert (decision["reason"], decision["actions"]) == ("BelowWaterlines", [])
    assert "strategy is Preview" in decision["sentence"]


def test_protected_pods_are_never_acted_on() -> None:
    """Static, critical, of a DaemonSet; and a pod whose usage is unknown is not evicted on a guess."""
    pods = [
        pod("static", 3, owner="Node"),
        pod("critical", 3, priority=2_000_000_000),
        pod("class", 3, priorityClassName="system-node-critical"),
        pod("daemon", 3, owner="DaemonSet"),
        pod("unknown"),
    ]
    decision = plan(node({"cpu_total_usage": 9000}, pods, CPU))
    assert (decision["reason"], decision["actions"]) == ("NoEligiblePods", [])
    assert decision["numbers"]["unknown"] == 5  # nobody said how much memory they use
    all_ = plan(node({"cpu_load_1_min": 9}, pods, policy(rule("cpu_load_1_min", 8, "evict"))))
    assert names(all_) == ["unknown"]


def test_a_pod_qos_says_who_may_be_acted_on_and_how() -> None:
    """All its selectors must hold; NotIn means none of the values; protected ones stay protected."""
    pods = [
        pod("a", 1, priority=1500, labels={"tier": "batch"}),
        pod("b", 1, priority=4000, labels={"tier": "batch"}),
        pod("c", 1, labels={"tier": "web"}),
        pod("static", 1, owner="Node", labels={"tier": "batch"}),
        pod("daemon", 1, owner="DaemonSet", labels={"tier": "batch"}),
    ]
    document = node({"cpu_total_usage": 9000}, pods, CPU, budget={"evictionsPerRound": 9})

    def acted(**spec: Any) -> list[str]:
        asked = pod_qos(**{"allowedActions": ["evict"]} | spec)
        return names(plan(document | {"policies": [*document["policies"], asked]}))

    batch = {"matchLabels": {"tier": "batch"}}
    assert acted(labelSelector=batch) == ["a", "b"]
    assert acted(labelSelector={}) == ["c", "a", "b"]
    assert acted(labelSelector=batch, allowedActions=["throttle"]) == []

    def scope(name: str, operator: str, *values: str) -> dict[str, Any]:
        return {"matchExpressions": [{"scopeName": name, "operator": operator, "values": list(values)}]}

    assert acted(labelSelector=batch, scopeSelector=scope("Priority", "In", "1000-3000", "7")) == ["a"]
    assert acted(scopeSelector=scope("Priority", "NotIn", "1000-3000", "0")) == ["b"]
    assert acted(scopeSelector=scope("QOSClass", "In", "Burstable")) == []
    assert acted(scopeSelector=scope("Namespace", "NotIn", "x", "d")) == []


def test_scheduling_is_disabled_where_that_is_all_and_enabled_again() -> None:
    """By a taint; a cool-down holds the way back."""
    asked = policy(rule("cpu_total_usage", 6000, "close"))
    high, low = {"cpu_total_usage": 7000}, {"cpu_total_usage": 5000}
    decision = plan(node(high, [pod("a", 1)], asked))
    assert decision["reason"] == "DisableScheduling"
    assert decision["actions"] == [{"kind": "DisableScheduling", "node": "n1", "metric": "cpu_total_usage"}]
    state = {"schedulingDisabled": True}
    again = plan(node(high, [pod("a", 1)], asked, state=state))
    assert (again["reason"], again["actions"]) == ("DisableScheduling", [])
    back = plan(node(low, [pod("a", 1)], asked, state=state))
    assert (back["reason"], back["actions"]) == ("Restore", [{"kind": "EnableScheduling", "node": "n1"}])
    held = plan(node(low, [pod("a", 1)], asked, state=state | {"lastTrigger": 30}))
    assert (held["reason"], held["actions"]) == ("HeldByCooldown", [])


def test_a_later_spelling_says_the_same() -> None:
    """`NodeQOS` with `rules`."""
    later = policy(rule("cpu_total_usage", 6000, "evict"))
    later |= {"kind": "NodeQOS", "spec": {"rules": later["spec"]["objectiveEnsurances"]}}
    document = node({"cpu_total_usage": 8000}, [pod("a", 3)])
    assert plan(document | {"policies": [*ACTIONS, later]}) == plan(document | {"policies": [*ACTIONS, CPU]})


@pytest.mark.parametrize(("count", "said"), [(5, "1 more waterline is"), (6, "2 more waterlines are")])
def test_many_waterlines_are_counted(count: int, said: str) -> None:
    """Four are named."""
    rules = [rule("cpu_total_usage", 1000 + n, "evict", name=f"r{n}") for n in range(count)]
    decision = plan(node({"cpu_total_usage": 8000}, [pod("a", 3)], policy(*rules)))
    assert f" and {said} crossed. Evicting d/a" in decision["sentence"]


def test_what_ended_pods_used_is_said_where_none_is_terminating() -> None:
    """A count of 0 would explain nothing."""
    made = read_plan_file(node({"cpu_total_usage": 6500}, [pod("a", 6.5)], CPU), "node.yaml", AT)
    seen = msgspec.structs.replace(made.seen, released_cpu_nanos=900 * 10**6)
    said = decide(made.policy, seen, made.memory).decision.reason.sentence
    used = "pods that have since ended or been throttled"
    assert said == f"cpu_total_usage is above the waterline only because of {used}."
