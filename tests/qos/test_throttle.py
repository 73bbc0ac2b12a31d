"""Throttling and giving back: the arithmetic, container by container, and who comes when."""

from typing import Any

import pytest

from tests.support.qos.worlds import GI, names, node, plan, pod, policy, rule

DOWN = policy(rule("cpu_total_usage", 6000, "throttle"))
HOUR_AGO = 3600

QUOTAS: dict[str, tuple[dict[str, Any], int | None, float]] = {
    "unlimited begins at its usage": ({"cpu": 1.2}, 96000, 240),
    "a quota is lowered by a step": ({"cpu": 2, "quota": 200000, "limit": {"cpu": 2}}, 160000, 400),
    "never below the request": ({"cpu": 2, "request": {"cpu": "1900m"}}, 190000, 100),
    "never below the least share of the limit": (
        {"cpu": 0.9, "quota": 100000, "limit": {"cpu": 9.5}},
        95000,
        0,
    ),
    "the share of the limit holds": ({"cpu": 1, "quota": 100000, "limit": {"cpu": 9.5}}, 95000, 50),
    "what is not used can't be released": ({"cpu": 1.2, "quota": 200000, "limit": {"cpu": 2}}, None, 0),
    "at the request already": ({"cpu": 1, "quota": 100000, "request": {"cpu": 1}}, None, 0),
    "above its quota for a moment": ({"cpu": 1.1, "quota": 100000, "request": {"cpu": 1}}, None, 0),
    "too little to take from": ({"cpu": "1234567n"}, None, 0),
    "a fraction of a microsecond": ({"cpu": "1.000001"}, 80000, 200.001),
    "never below what the kernel takes": ({"cpu": "11m"}, 1000, 1),
    "unknown usage": ({}, None, 0),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_throttling_down(case: str) -> None:
    """The new one is the quota, or usage when unlimited, x 0.8, within its bounds; release = usage - new."""
    container, quota, release = QUOTAS[case]
    decision = plan(node({"cpu_total_usage": 16000}, [pod("a", **container)], DOWN))
    if quota is None or release == 0:
        assert (decision["reason"], decision["actions"]) == ("NoEligiblePods", [])
        return
    (one,) = decision["actions"]
    assert (one["kind"], one["quota"], one["release"]) == ("ThrottlePod", {"c": quota}, release)
    assert one["gap_after"] == {"cpu_total_usage": 10000 - release}


def test_a_pod_releases_what_its_containers_release_together() -> None:
    """A container that would release nothing keeps its quota."""
    many = {
        "name": "a",
        "namespace": "d",
        "containers": [
            {"name": "x", "cpu": 1},
            {"name": "y", "cpu": 0.5, "request": {"cpu": 1}},
            {"name": "z", "cpu": 2, "quota": 250000, "limit": {"cpu": 2.5}},
        ],
    }
    decision = plan(node({"cpu_total_usage": 7000}, [many], DOWN))
    assert decision["actions"][0]["quota"] == {"x": 80000}
    assert decision["actions"][0]["release"] == 200


def test_the_walk_stops_when_the_gap_is_closed_and_skips_who_releases_nothing() -> None:
    """One metric, one step each."""
    pods = [pod("a", 3), pod("b", 2, request={"cpu": 2}), pod("c", 1.5), pod("d", 1)]
    decision = plan(node({"cpu_total_usage": 6800}, pods, DOWN))
    assert (decision["reason"], names(decision)) == ("Throttle", ["a", "c"])
    assert [one["gap_after"]["cpu_total_usage"] for one in decision["actions"]] == [200, -100]
    assert decision["numbers"]["left"]["throttleDown"] == {"cpu_total_usage": -100}
    short = plan(node({"cpu_total_usage": 9000}, pods, DOWN))
    assert names(short) == ["a", "c", "d"]
    assert short["sentence"].endswith("A gap of 1.9 cores of cpu_total_usage remains.")


def test_memory_is_reclaimed_from_the_sorted_pods() -> None:
    """What a container has to give is what it releases."""
    asked = policy(rule("memory_total_usage", "40Gi", "reclaim"))
    pods = [pod("a", 1, "3Gi", reclaimable="1Gi"), pod("b", 1, "9Gi"), pod("c", 1, "2Gi", reclaimable="1Gi")]
    decision = plan(node({"memory_total_usage": "41Gi"}, pods, asked))
    assert (decision["reason"], names(decision)) == ("Throttle", ["a"])
    assert decision["actions"][0]["release"] == GI
    assert decision["actions"][0]["reclaim"] == {"c": GI}
    assert "quota" not in decision["actions"][0]


def test_who_is_evicted_is_not_throttled_and_its_cpu_counts() -> None:
    """Memory first: evicting for it closes part of the gap of CPU."""
    asked = policy(rule("memory_total_usage", "40Gi", "evict"), rule("cpu_total_usage", 6000, "throttle"))
    pods = [pod("a", 1, "4Gi"), pod("b", 3, "1Gi"), pod("c", 2, "1Gi")]
    decision = plan(node({"cpu_total_usage": 7500, "memory_total_usage": "43Gi"}, pods, asked))
    assert decision["reason"] == "ThrottleAndEvict"
    assert [(one["kind"], one["pod"]) for one in decision["actions"]] == [
        ("EvictPod", "d/a"),
        ("ThrottlePod", "d/b"),
    ]
    assert decision["actions"][1]["gap_after"] == {"cpu_total_usage": -100}


def test_nobody_is_evicted_where_throttling_closes_the_gap() -> None:
    """An action with both; and no more than are needed beside throttling the others."""
    asked = policy(rule("cpu_total_usage", 6000, "both"))
    pods = [pod("a", 3), pod("b", 2), pod("c", 2, request={"cpu": 2}, qosClass="Guaranteed")]
    enough = plan(node({"cpu_total_usage": 7000}, pods, asked))
    assert (enough["reason"], names(enough)) == ("Throttle", ["a", "b"])
    more = plan(node({"cpu_total_usage": 7200}, pods, asked))
    assert more["reason"] == "Evict"
    assert names(more) == ["a"]
    most = plan(node({"cpu_total_usage": 9400}, pods, asked))
    assert [(one["kind"], one["pod"]) for one in most["actions"]] == [
        ("EvictPod", "d/a"),
        ("ThrottlePod", "d/b"),
    ]
    assert most["numbers"]["left"] == {
        "evict": {"cpu_total_usage": 0},
        "throttleDown": {"cpu_total_usage": 0},
    }


def test_acting_on_all_throttles_before_it_evicts() -> None:
    """Each pod once: those that can be throttled are, the others go within the budget."""
    asked = policy(rule("cpu_load_1_min", 10, "both"))
    pods = [pod("a", 1), pod("b", 2, request={"cpu": 2}), pod("c", 3), pod("d", 1, request={"cpu": 1})]
    decision = plan(node({"cpu_load_1_min": 11}, pods, asked))
    assert [(one["kind"], one["pod"]) for one in decision["actions"]] == [
        ("ThrottlePod", "d/a"),
        ("ThrottlePod", "d/c"),
        ("EvictPod", "d/b"),
    ]
    assert decision["numbers"]["cut_by_budget"] == 1


RAISED: dict[str, tuple[dict[str, Any], int | None]] = {
    "one step": ({"cpu": 0.5, "quota": 50000, "limit": {"cpu": 2}}, 60000),
    "at most the limit": ({"cpu": 1, "quota": 90000, "limit": {"cpu": 1}}, 100000),
    "at its limit": ({"cpu": 1, "quota": 100000, "limit": {"cpu": 1}}, None),
    "no limit, and still used": ({"cpu": 0.5, "quota": 50000}, 60000),
    "no limit, and twice the usage has been passed": ({"cpu": 0.2, "quota": 50000}, -1),
    "no limit, and exactly twice": ({"cpu": 0.3, "quota": 50000}, 60000),
    "unlimited already": ({"cpu": 0.3}, None),
}


@pytest.mark.parametrize("case", RAISED)
def test_throttling_up(case: str) -> None:
    """The new one is the quota x 1.2, up to what the pod may use now."""
    container, quota = RAISED[case]
    decision = plan(
        node({"cpu_total_usage": 3000}, [pod("a", **container)], DOWN, state={"throttled": ["d/a"]})
    )
    assert decision["numbers"]["gaps"]["throttleUp"] == {"cpu_total_usage": 3000}
    if quota is None:
        assert (decision["reason"], decision["actions"]) == ("BelowWaterlines", [])
        return
    assert decision["reason"] == "Restore"
    (one,) = decision["actions"]
    assert (one["kind"], one["quota"]) == ("RestorePod", {"c": quota})


def _throttled(usage: int, count: int, asked: Any = DOWN, **state: Any) -> dict[str, Any]:
    pods = [pod(f"p{n}", 1 + n / 10, quota=110000 + n * 10000, limit={"cpu": 4}) for n in range(count)]
    keys = [f"d/p{n}" for n in range(count)]
    return plan(node({"cpu_total_usage": usage}, pods, asked, state={"throttled": keys} | state))


def test_restoring_walks_in_reverse_while_there_is_room() -> None:
    """Who was taken from last gets back first."""
    assert names(_throttled(1000, 3)) == ["p0", "p1", "p2"]
    down = plan(node({"cpu_total_usage": 16000}, [pod(f"p{n}", 1 + n / 10) for n in range(3)], DOWN))
    assert names(down) == ["p2", "p1", "p0"]
    # p0 may use 320m more, p1 340m: there is room for the first, and a little for the second.
    close = _throttled(5500, 3)
    assert names(close) == ["p0", "p1"]
    assert [one["gap_after"]["cpu_total_usage"] for one in close["actions"]] == [180, -160]


def test_restoring_waits_for_the_cooldown_and_the_threshold() -> None:
    """Counted from the last trigger; and nothing is given back while a rule is crossed."""
    held = _throttled(1000, 2, lastTrigger=100)
    assert (held["reason"], held["actions"]) == ("HeldByCooldown", [])
    assert [one["kind"] for one in held["held"]] == ["RestorePod", "RestorePod"]
    assert _throttled(1000, 2, lastTrigger=HOUR_AGO)["reason"] == "Restore"
    asked = policy(rule("cpu_total_usage", 6000, "throttle", restoreThreshold=3))
    waiting = _throttled(1000, 2, asked, clear={"cpu-total-usage": 2})
    assert (waiting["reason"], waiting["actions"]) == ("HeldByThreshold", [])
    other = policy(
        rule("cpu_total_usage", 6000, "throttle"), rule("cpu_load_1_min", 5, "throttle", avoidanceThreshold=9)
    )
    pods = [pod("a", 1, quota=100000, limit={"cpu": 4})]
    state = {"throttled": ["d/a"], "breaches": {"cpu-load-1-min": 1}}
    crossed = plan(node({"cpu_total_usage": 1000, "cpu_load_1_min": 6}, pods, other, state=state))
    assert (crossed["reason"], crossed["actions"]) == ("HeldByThreshold", [])


def test_nothing_is_given_back_on_a_guess() -> None:
    """Usage that could not be read, at first or again."""
    pods = [pod("a", 1, quota=100000, limit={"cpu": 4})]
    state = {"throttled": ["d/a"]}
    for document in (
        node({}, pods, DOWN, state=state),
        node({"cpu_total_usage": 1000}, pods, DOWN, state=state, fresh={"cpu_total_usage": None}),
    ):
        assert plan(document)["actions"] == []
    said = "cpu_total_usage could not be read, so nothing is restored."
    assert plan(node({}, pods, DOWN, state=state))["sentence"].endswith(said)
    assert "restored" not in plan(node({}, pods, DOWN))["sentence"]  # nothing was taken


def test_what_no_policy_throttles_any_more_is_given_back_at_once() -> None:
    """To its limit, or to no limit."""
    pods = [pod("a", 1, quota=20000, limit={"cpu": 4}), pod("b", 1, quota=20000)]
    decision = plan(node({"cpu_total_usage": 15000}, pods, state={"throttled": ["d/a", "d/b"]}))
    assert decision["reason"] == "Restore"
    assert [one["quota"] for one in decision["actions"]] == [{"c": 400000}, {"c": -1}]
    assert decision["sentence"].startswith("No policy throttles d/a and d/b any more.")
