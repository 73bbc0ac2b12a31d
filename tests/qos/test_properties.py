"""What holds for every node."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.qos.decide import decide
from equipoise.qos.observation import METRICS, Observation, sorted_by
from equipoise.qos.plan_file import read_plan_file
from tests.support.qos.worlds import ACTIONS, AT, names, node, plan, pod, policy, rule

MILLI = st.integers(0, 4000).map(lambda value: f"{value}m")
CLASSES = st.sampled_from(["BestEffort", "Burstable", "Guaranteed"])
OWNERS = st.sampled_from(["ReplicaSet"] * 6 + ["DaemonSet", "Node"])
STARTS = st.none() | st.integers(0, 23).map(lambda hour: f"2026-01-01T{hour:02}:00:00Z")
CONTAINERS = st.fixed_dictionaries(
    {"cpu": MILLI | st.none(), "memory": st.integers(0, 2**34) | st.none()},
    optional={
        "quota": st.just(-1) | st.integers(1000, 400000),
        "request": st.fixed_dictionaries({"cpu": MILLI}),
        "limit": st.fixed_dictionaries({"cpu": st.integers(1, 4000).map(lambda value: f"{value}m")}),
        "reclaimable": st.integers(0, 2**30),
    },
)


def _named(containers: Any) -> list[dict[str, Any]]:
    return [part | {"name": f"c{n}"} for n, part in enumerate(containers)]


PODS = st.lists(
    st.fixed_dictionaries(
        {
            "qosClass": CLASSES,
            "priority": st.integers(-2, 2) | st.just(2_000_000_000),
            "owner": OWNERS,
            "containers": st.lists(CONTAINERS, min_size=1, max_size=3),
        },
        optional={"startTime": STARTS, "extendedCpuLimit": MILLI},
    ),
    max_size=12,
).map(
    lambda pods: [
        one
        | {
            "name": f"p{place}",
            "namespace": "d",
            "containers": _named(one["containers"]),
        }
        for place, one in enumerate(pods)
    ]
)
QUANTIFIABLE = [name for name, metric in METRICS.items() if metric.is_quantifiable]
RULES = st.lists(
    st.tuples(
        st.sampled_from([*QUANTIFIABLE, "cpu_load_1_min"]),
        st.sampled_from(["evict", "throttle", "both", "close"]),
    ),
    max_size=4,
).map(
    lambda chosen: [
        rule(
            metric, 5, "reclaim" if "memory" in metric and then in {"throttle", "both"} else then, f"r{place}"
        )
        for place, (metric, then) in enumerate(chosen)
    ]
)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "cpu_total_usage": st.integers(0, 16000),
        "memory_total_usage": st.integers(0, 2**36),
        "cpu_load_1_min": st.integers(0, 20),
    },
)
STATES = st.fixed_dictionaries(
    {}, optional={"lastTrigger": st.integers(1, 600), "schedulingDisabled": st.booleans()}
)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Any node, with pods on their way out and pods that we throttled."""
    pods = draw(PODS)
    keys = [f"d/{one['name']}" for one in pods]
    some = st.lists(st.sampled_from(keys), unique=True) if keys else st.just([])
    state = draw(STATES) | {"terminating": draw(some), "throttled": draw(some)}
    rules = draw(RULES)
    policies = [policy(*rules)] if rules else []
    budget = draw(st.none() | st.integers(0, 4))
    return node(draw(USAGE), pods, *policies, state=state, budget={"evictionsPerRound": budget})


def _usable(document: dict[str, Any], one: dict[str, Any]) -> bool:
    return (
        one["owner"] not in {"Node", "DaemonSet"}
        and one["priority"] < 2_000_000_000
        and f"d/{one['name']}" not in document["state"]["terminating"]
    )


@settings(deadline=None, max_examples=120)
@given(worlds())
def test_no_pod_twice_no_protected_pod_never_past_the_budget(document: dict[str, Any]) -> None:
    """Whatever is asked for."""
    decision = plan(document)
    acted = [one["pod"] for one in decision["actions"] if "pod" in one]
    assert len(set(acted)) == len(acted)
    usable = {f"d/{one['name']}" for one in document["pods"] if _usable(document, one)}
    done = [one["pod"] for one in decision["actions"] if one["kind"] in {"EvictPod", "ThrottlePod"}]
    assert set(done) <= usable
    evicted = [one for one in decision["actions"] if one["kind"] == "EvictPod"]
    assert len(evicted) <= decision["numbers"]["budget"]
    assert decision["numbers"]["cut_by_budget"] == sum(one["kind"] == "EvictPod" for one in decision["held"])


@settings(deadline=None, max_examples=100)
@given(worlds())
def test_the_order_of_the_pods_in_the_file_does_not_matter(document: dict[str, Any]) -> None:
    """And deciding again gives the same, also from what JSON keeps of the inputs."""
    decision = plan(document)
    assert plan(document | {"pods": document["pods"][::-1]}) == decision
    planned = read_plan_file(document, "x", AT)
    kept = msgspec.json.decode(msgspec.json.encode(planned.seen), type=Observation)
    assert decide(planned.policy, kept, planned.memory) == decide(
        planned.policy, planned.seen, planned.memory
    )


@settings(deadline=None, max_examples=120)
@given(worlds(), st.sampled_from(QUANTIFIABLE))
def test_one_quantifiable_metric_takes_the_shortest_prefix(document: dict[str, Any], metric: str) -> None:
    """Of the sorted pods that may go, whose usage is known; no budget cut."""
    document = document | {
        "policies": [*ACTIONS, policy(rule(metric, 5, "evict"))],
        "budget": {"evictionsPerRound": 99},
    }
    decision = plan(document)
    gap = decision["numbers"]["gaps"]["evict"].get(metric, 0)
    seen = read_plan_file(document, "x", AT).seen
    releases = METRICS[metric].releases
    assert releases is not None
    usable = {f"d/{one['name']}" for one in document["pods"] if _usable(document, one)}
    order = sorted_by(METRICS[metric].chain, [one for one in seen.pods if one.key in usable])
    expected = []
    for one in order:
        released = releases(one)
        if gap > 0 and released is not None:
            expected.append(one.name)
            gap -= released
    assert names(decision, "EvictPod") == expected


@settings(deadline=None, max_examples=120)
@given(worlds())
def test_a_quota_is_never_below_the_request_nor_the_least_share_and_restoring_never_lowers(
    document: dict[str, Any],
) -> None:
    """A throttle lowers, a restore raises, and neither leaves its bounds."""
    decision = plan(document)
    seen = {one.key: one for one in read_plan_file(document, "x", AT).seen.pods}
    for one in decision["actions"]:
        for container in seen[one["pod"]].containers if "pod" in one else ():
            new = one.get("quota", {}).get(container.name)
            if new is None:
                continue
            cores = new * 10**4
            if one["kind"] == "ThrottlePod":
                assert cores >= container.cpu_request_nanos
                assert (
                    cores * 10 >= container.cpu_limit_nanos
                    or decision["actions"][0]["metric"] != "cpu_total_usage"
                )
                assert container.quota_us == -1 or new < container.quota_us
                assert container.cpu_nanos is not None
                assert cores < container.cpu_nanos
            elif new != -1:
                assert (
                    container.quota_us
                    < new
                    <= max(container.limit_us, new if container.limit_us == -1 else 0)
                )
            else:
                assert container.cpu_limit_nanos == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_restoring_is_the_inverse_order_of_throttling(tenths: list[int]) -> None:
    """With room for all."""
    asked = policy(rule("cpu_total_usage", 15000, "throttle"))
    pods = [pod(f"p{n}", cores / 10) for n, cores in enumerate(tenths)]
    down = names(plan(node({"cpu_total_usage": 99000}, pods, asked)))
    low = [one | {"containers": [one["containers"][0] | {"quota": 1000}]} for one in pods]
    keys = [f"d/{one['name']}" for one in pods]
    up = names(plan(node({"cpu_total_usage": 1}, low, asked, state={"throttled": keys})))
    assert up == down[::-1]


@settings(deadline=None, max_examples=120)
@given(worlds())
def test_what_is_done_and_what_is_left_over_add_up(document: dict[str, Any]) -> None:
    """The last gap after is what is left; nothing is done where no gap is open."""
    decision = plan(document)
    gaps, left = decision["numbers"]["gaps"], decision["numbers"]["left"]
    for kind, side in (("EvictPod", "evict"), ("ThrottlePod", "throttleDown")):
        is_open = any(gap is None or gap > 0 for gap in gaps[side].values())
        done = [one for one in decision["actions"] if one["kind"] == kind]
        assert is_open or not done
        for metric, gap in gaps[side].items():
            assert (gap is None) == (left[side][metric] is None)
            assert gap is None or left[side][metric] <= gap
