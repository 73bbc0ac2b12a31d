"""Advice for a cluster: histories joined with what runs, lot by lot; what is unknown stays unknown."""

import weakref
from typing import Any

import msgspec
import numpy as np
import pytest

from equipoise.core.cluster import Container, HpaSpec, Requirement, Selector
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.recommendation.advisor import AdviceScope, DataSources
from equipoise.recommendation.settings import AdviceType
from equipoise.recommendation.usage import BATCH
from tests.support.recommendation.clusters import (
    AT,
    DAY,
    END,
    TIMES,
    WEEK,
    FixedCluster,
    FixedOwners,
    Histories,
    pod,
    ref,
    workload,
)
from tests.support.recommendation.worlds import plan, policy

WEB = workload("web")
PODS = [pod(WEB, f"web-7c9f8b6d5-{letters}") for letters in ("bcdfg", "hjklm")]
USED = {("shop", one.name, "app"): 6.0 * DAY for one in PODS}


def _plan(cluster: FixedCluster, histories: Histories, **more: Any) -> dict[str, Any]:
    told: list[str] = more.pop("told", [])
    world = DataSources(cluster, histories, cluster, more.pop("owners", None), told.append)
    found = plan(AdviceScope(**({"algorithm": None} | more)), world, AT)
    return {decision.subject: decision for decision in found}


def _numbers(cluster: FixedCluster, series: Any, **more: Any) -> Any:
    return _plan(cluster, Histories(series), **more)["shop/web"].reason.numbers


def test_a_week_of_all_pods_becomes_advice() -> None:
    """One question for all workloads; the pods that are gone count, and those of others do not."""
    gone = {("shop", "web-9d8c7b6f5-zzzzz", "app"): np.where(np.arange(WEEK) < 1440, DAY, np.nan)}
    other = {("shop", "job-1", "app"): 100.0, ("park", PODS[0].name, "app"): 100.0}
    histories = Histories(USED | gone | other)
    decision = _plan(FixedCluster([WEB], PODS), histories)["shop/web"]
    assert decision.reason.code.value == "Recommend"
    assert histories.asked == [("cpu", END - 7 * 86400 + 60, END, 60.0, None)]
    numbers = decision.reason.numbers
    assert numbers["peak_cores"] == pytest.approx(13 * 1.6, rel=1e-4)
    assert (numbers["coverage"], numbers["samples"], numbers["request_cores"]) == (1.0, WEEK, 2.0)
    assert (numbers["replicas"], numbers["pods"], numbers["pods_available"]) == (2, 2, 2)
    assert numbers["pods_unknown"] == 0


def test_labels_choose_workloads_and_what_is_read() -> None:
    """Those without the label get no advice, and their namespace is not read."""
    api = msgspec.structs.replace(workload("api", namespace="park"), labels=(("team", "park"),))
    web = msgspec.structs.replace(WEB, labels=(("team", "shop"),))
    histories = Histories(USED)
    selector = Selector((Requirement("team", "In", ("shop",)),))
    found = _plan(FixedCluster([web, api, workload("bare")], PODS), histories, selector=selector)
    assert list(found) == ["shop/web"]
    assert [asked[-1] for asked in histories.asked] == [["shop"]]


def test_a_pod_that_runs_without_samples_makes_the_total_unknown_and_is_counted() -> None:
    """Since it was made, but for the time that two samples take; before, the others are known."""
    young = pod(WEB, "web-7c9f8b6d5-zzzzz", created_at=END - 86400.0)
    numbers = _numbers(FixedCluster([WEB], [*PODS, young]), USED)
    assert numbers["pods_unknown"] == 1
    assert numbers["samples"] == WEEK - 1440 + 300 // 60 - 1
    for harmless in ({"phase": "Pending"}, {"deletion_at": END}):
        waiting = pod(WEB, "web-7c9f8b6d5-zzzzz", created_at=END - 86400.0, **harmless)
        numbers = _numbers(FixedCluster([WEB], [*PODS, waiting]), USED)
        assert (numbers["pods_unknown"], numbers["samples"]) == (0, WEEK)


@pytest.mark.parametrize(
    ("measure", "about", "reason"),
    [
        ("cpu", AdviceType.HPA, "MetricsIncomplete"),
        ("cpu", AdviceType.RESOURCE, "MetricsIncomplete"),
        ("memory", AdviceType.RESOURCE, "MetricsIncomplete"),
    ],
)
def test_nothing_is_advised_from_a_part_of_the_samples(measure: str, about: AdviceType, reason: str) -> None:
    """However much is known: the source says that there is more which it could not give."""
    histories = Histories(USED, USED, partial={measure: "store 10.0.0.7:10901 is down"})
    decision = _plan(FixedCluster([WEB], PODS), histories, about=about)["shop/web"]
    assert (decision.reason.code.value, decision.extra["recommended"]) == (reason, None)
    assert (decision.extra["confidence"], decision.reason.numbers["confidence"]) == ("low", "low")
    assert decision.reason.sentence == (
        "The metrics source returned a part of the data (store 10.0.0.7:10901 is down); advice needs all of "
        "it."
    )


def test_whoever_is_in_no_answer_may_be_in_the_part_that_is_missing() -> None:
    """No sample of web came, and no whole answer either: that it has none is not known."""
    histories = Histories(
        {("park", "x-1", "app"): DAY}, lots=(("park",),), partial={"cpu": "a store is down"}
    )
    decision = _plan(FixedCluster([WEB], PODS), histories)["shop/web"]
    assert decision.reason.code.value == "MetricsIncomplete"


@pytest.mark.parametrize(
    ("pods", "measured", "reason"),
    [
        (10, 9, "Recommend"),
        (10, 8, "MetricsIncomplete"),
        (9, 8, "MetricsIncomplete"),
        (12, 8, "MetricsIncomplete"),
    ],
)
def test_a_tenth_of_the_pods_may_lack_samples_and_no_more(pods: int, measured: int, reason: str) -> None:
    """The week of their forerunners is known, and they must have some by now."""
    gone = {("shop", "web-9d8c7b6f5-zzzzz", "app"): 12.0 * DAY}
    young = [
        pod(WEB, f"web-7c9f8b6d5-{n:05}", created_at=END - 1200.0, ready_since=END - 1190.0)
        for n in range(pods)
    ]
    used = {("shop", one.name, "app"): np.where(TIMES > END - 900, DAY, np.nan) for one in young[:measured]}
    decision = _plan(FixedCluster([WEB], young), Histories(gone | used))["shop/web"]
    assert decision.reason.code.value == reason
    assert decision.reason.numbers["coverage"] == pytest.approx(measured / pods, abs=0.002)
    if reason == "MetricsIncomplete":
        assert decision.extra["recommended"] is None
        assert decision.extra["confidence"] == "low"
        assert decision.reason.sentence.startswith(
            f"{pods - measured} of the {pods} pods that have been ready for ten minutes "
        )


def test_pods_that_are_ready_for_less_than_ten_minutes_need_no_samples() -> None:
    """Nobody knows yet whether they will have some."""
    young = [
        pod(WEB, f"web-7c9f8b6d5-{n:05}", created_at=END - 700.0, ready_since=AT - 599.0) for n in range(4)
    ]
    decision = _plan(FixedCluster([WEB], [*PODS, *young]), Histories(USED))["shop/web"]
    assert decision.reason.code.value == "Recommend"
    assert decision.reason.numbers["pods_unknown"] == 4


def test_a_container_without_samples_makes_its_pod_unknown() -> None:
    """A sidecar that nobody scrapes uses something all the same."""
    both = (Container("app", 2.0), Container("proxy", 1.0))
    pods = [pod(WEB, one.name, containers=both) for one in PODS]
    refused = _plan(FixedCluster([WEB], pods), Histories(USED))["shop/web"]
    assert (refused.reason.code.value, refused.reason.numbers["pods_unknown"]) == ("NoSamples", 2)
    proxies = {("shop", one.name, "proxy"): DAY for one in PODS}
    numbers = _numbers(FixedCluster([WEB], pods), USED | proxies)
    assert numbers["pod_p99_cores"] == pytest.approx(7 * 1.6, rel=1e-3)
    assert (numbers["request_cores"], numbers["samples"]) == (3.0, WEEK)


def test_a_hole_in_a_life_is_unknown_and_an_end_is_none() -> None:
    """A pod that runs has no end; one that is gone had."""
    holed = 6.0 * DAY
    holed[5000:5100] = np.nan
    holed[-50:] = np.nan
    name = PODS[0].name
    assert _numbers(FixedCluster([WEB], PODS), USED | {("shop", name, "app"): holed})["samples"] == WEEK - 150
    assert (
        _numbers(FixedCluster([WEB], PODS[1:]), USED | {("shop", name, "app"): holed})["samples"]
        == WEEK - 100
    )


def test_amounts_that_no_cluster_has_are_unknown() -> None:
    """A counter that went mad for one minute says nothing about it, and never asks for endless replicas."""
    mad = {("shop", PODS[0].name, "app"): np.where(np.arange(WEEK) == 5000, 1e308, 6.0 * DAY)}
    numbers = _numbers(FixedCluster([WEB], PODS), USED | mad)
    assert numbers["samples"] == WEEK - 1
    assert numbers["peak_cores"] == pytest.approx(12 * 1.6, rel=1e-4)
    always = {("shop", PODS[0].name, "app"): 1e308}
    refused = _plan(FixedCluster([WEB], PODS), Histories(USED | always))["shop/web"]
    assert refused.reason.code.value == "NoSamples"
    memory = {("shop", PODS[0].name, "app"): 1e300}
    histories = Histories(USED | mad, memory)
    advised = _plan(FixedCluster([WEB], PODS), histories, about=AdviceType.RESOURCE)["shop/web"]
    (container,) = advised.extra["recommended"]["containers"]
    assert set(container["requests"]) == {"cpu"}


def test_refusals_come_from_live_objects() -> None:
    """No samples, no request, too few replicas, no pods, none available: each with its reason."""
    bare, idle, small, none, new = (workload(name) for name in ("bare", "idle", "small", "none", "new"))
    pods = [
        pod(bare, "bare-7c9f8b6d5-bcdfg", containers=(Container("app"),)),
        pod(idle, "idle-7c9f8b6d5-bcdfg"),
        pod(new, "new-7c9f8b6d5-bcdfg", ready_since=AT - 29),
    ]
    series = {("shop", one.name, "app"): 12.0 * DAY for one in pods if one.name[:4] != "idle"}
    small = workload("small", replicas=1)
    found = _plan(
        FixedCluster([bare, idle, small, none, new], pods),
        Histories(series),
        policy=policy(deployment_min_replicas="2"),
    )
    assert {subject: one.reason.code.value for subject, one in found.items()} == {
        "shop/bare": "NoRequest",
        "shop/idle": "NoSamples",
        "shop/new": "TooFewAvailablePods",
        "shop/none": "NoPods",
        "shop/small": "TooFewReplicas",
    }


def test_lots_are_decided_as_they_come_and_let_go() -> None:
    """At most one lot is held; a namespace that is in no lot has no samples; alone the advice is the same."""
    many = [workload("web", namespace=f"ns-{i}") for i in range(4)]
    pods = [pod(one, "web-7c9f8b6d5-bcdfg") for one in many]
    series = {(one.namespace, one.name, "app"): (20.0 + i) * DAY for i, one in enumerate(pods)}
    alive: list[weakref.ref[Any]] = []

    def given(lot: object) -> None:
        assert [one for one in alive if one() is not None] == []
        alive.append(weakref.ref(lot))

    # A lot is a slotted dataclass: its array stands for it.
    histories = Histories(series, lots=[("ns-0", "ns-2"), ("ns-1",)], given=lambda lot: given(lot.values))
    found = _plan(FixedCluster(many, pods), histories)
    assert [one.reason.code.value for one in found.values()] == ["Recommend"] * 3 + ["NoSamples"]
    assert len(alive) == 2
    alone = _plan(FixedCluster(many, pods), Histories(series), namespace="ns-1")
    assert alone == {"ns-1/web": found["ns-1/web"]}


def test_more_workloads_than_a_batch_get_what_each_gets_alone() -> None:
    """Whatever stands beside it."""
    many = [workload(f"web-{i}") for i in range(BATCH + 3)]
    pods = [pod(one, f"{one.ref.name}-7c9f8b6d5-bcdfg") for one in many]
    series = {("shop", one.name, "app"): (12.0 + i) * DAY for i, one in enumerate(pods) if i % 50}
    cluster = FixedCluster(many, pods)
    found = _plan(cluster, Histories(series))
    assert len(found) == BATCH + 3
    for name in ("web-1", "web-50", f"web-{BATCH + 2}"):
        assert _plan(cluster, Histories(series), names=[name]) == {f"shop/{name}": found[f"shop/{name}"]}


def test_other_metrics_and_behavior_of_the_one_hpa_are_inherited() -> None:
    """Not from several, not from Crane's own, and not when told not to."""
    rps = {"type": "Pods", "pods": {"metric": {"name": "rps"}}}
    own = HpaSpec("web", ref("web"), (rps,), {"scaleDown": {"stabilizationWindowSeconds": 60}})
    crane = HpaSpec(
        "ehpa",
        ref("web"),
        ({"type": "External"},),
        labels=(("app.kubernetes.io/managed-by", "effective-hpa-controller"),),
    )
    told: list[str] = []
    recommended = _plan(FixedCluster([WEB], PODS, [own, crane]), Histories(USED))["shop/web"].extra[
        "recommended"
    ]
    assert recommended["metrics"][1:] == [rps]
    assert recommended["behavior"] == own.behavior
    second = HpaSpec("another", ref("web"))
    for cluster, settings in (
        (FixedCluster([WEB], PODS, [own, second]), policy()),
        (FixedCluster([WEB], PODS, [own]), policy(reference_hpa="false")),
    ):
        decision = _plan(cluster, Histories(USED), policy=settings, told=told)["shop/web"]
        assert len(decision.extra["recommended"]["metrics"]) == 1
    assert told == ["Deployment shop/web has 2 HPAs (another, web): nothing is inherited from them"]


def test_requests_are_advised_by_container() -> None:
    """P99 of CPU, the peak of memory whichever pod had it; unknown where nothing was measured."""
    pods = [pod(WEB, one.name, containers=(Container("proxy"), Container("app"))) for one in PODS]
    proxies = {("shop", one.name, "proxy"): 0.1 * DAY for one in PODS}
    memory = {("shop", "web-9d8c7b6f5-zzzzz", "app"): 1e9, ("shop", PODS[0].name, "app"): np.nan}
    histories = Histories(USED | proxies, memory)
    decision = _plan(FixedCluster([WEB], pods), histories, about=AdviceType.RESOURCE)["shop/web"]
    proxy, app = decision.extra["recommended"]["containers"]
    assert [asked[0] for asked in histories.asked] == ["memory+cpu"]
    assert (proxy["name"], list(proxy["requests"])) == ("proxy", ["cpu"])
    assert app == {"name": "app", "requests": {"cpu": app["requests"]["cpu"], "memory": "1150000000"}}
    assert float(app["requests"]["cpu"].removesuffix("m")) == pytest.approx(6000 * 1.6 * 1.15, rel=1e-3)


def test_a_namespace_that_comes_in_groups_of_pods_is_advised_as_if_it_came_whole() -> None:
    """Each workload once, with all of its pods, those that are gone included; also one without any."""
    api, idle = workload("api"), workload("idle")
    cluster = FixedCluster([WEB, api, idle], [*PODS, pod(api, "api-5f6d8c9b7-bcdfg")])
    series = USED | {
        ("shop", "web-9d8c7b6f5-zzzzz", "app"): np.where(np.arange(WEEK) < 1440, DAY, np.nan),
        ("shop", "api-5f6d8c9b7-bcdfg", "app"): 2.0 * DAY,
        ("shop", "job-1", "app"): 100.0,
    }
    memory = {("shop", PODS[0].name, "app"): 1e9}
    for about in AdviceType:
        whole = Histories(series, memory, lots=[("shop",)])
        large = Histories(series, memory, lots=[("shop",)], large=["shop"])
        found = _plan(cluster, large, about=about)
        assert found == _plan(cluster, whole, about=about)
        assert found["shop/idle"].reason.code.value == "NoPods"
    assert [group.name for group in large.groups] == ["api", "web"]  # type: ignore[attr-defined]


def test_owners_are_asked_only_where_names_alone_would_tell() -> None:
    """Once for a namespace; where nobody answers, names decide and it is said."""
    quiet, knowing, failing = (
        FixedOwners({}),
        FixedOwners({("shop", "web-9d8c7b6f5"): ("Rollout", "web")}),
        FixedOwners(),
    )
    cluster = FixedCluster([WEB], PODS)
    told: list[str] = []
    _plan(cluster, Histories(USED), owners=quiet)
    assert quiet.asked == []
    gone = USED | {("shop", "web-9d8c7b6f5-zzzzz", "app"): 50.0 * DAY}
    found = _plan(cluster, Histories(gone, lots=[("shop",), ("shop",)]), owners=knowing)["shop/web"]
    assert knowing.asked == [["shop"]]
    assert found.reason.numbers["peak_cores"] == pytest.approx(12 * 1.6, rel=1e-3)
    found = _plan(cluster, Histories(gone), owners=failing, told=told)["shop/web"]
    assert found.reason.numbers["peak_cores"] == pytest.approx(62 * 1.6, rel=1e-3)
    assert told == ["who owned pods that are gone is told from their names: nobody answers"]


def test_names_kinds_and_namespaces_pick_workloads() -> None:
    """As kubectl's users write them; only the namespaces that matter are read."""
    listed = [
        WEB,
        workload("web", "StatefulSet"),
        workload("web", namespace="park"),
        workload("db", "StatefulSet"),
    ]
    for names, count, spaces in (
        (["web"], 3, ["park", "shop"]),
        (["deploy/web"], 2, ["park", "shop"]),
        (["statefulsets.apps/web"], 1, ["shop"]),
        (["park/web"], 1, ["park"]),
        (["sts/db", "shop/web"], 3, ["shop"]),
        ([], 4, None),
    ):
        histories = Histories({})
        world = DataSources(FixedCluster(listed), histories, FixedCluster([]))
        assert len(plan(AdviceScope(names=names, algorithm=None), world, AT)) == count, names
        (asked,) = histories.asked
        assert asked[4] == spaces, names
    with pytest.raises(WorldFailed, match="workload api: not found in namespace shop"):
        _plan(FixedCluster(listed), Histories({}), names=["api"], namespace="shop")
    for name, hint in (("mall/api", "; -n mall or -A look there"), ("deploy/api", ""), ("shop/api", "")):
        with pytest.raises(WorldFailed) as caught:
            _plan(FixedCluster(listed), Histories({}), names=[name], namespace="shop")
        assert str(caught.value) == f"workload {name}: not found in namespace shop{hint}"
    with pytest.raises(BadInput, match="expected NAME"):
        _plan(FixedCluster(listed), Histories({}), names=["a/b/c"])


def test_nothing_is_read_where_there_is_nothing_to_advise() -> None:
    """And what a source says beside its answer is told once."""
    histories = Histories({})
    told: list[str] = []
    assert _plan(FixedCluster([]), histories) == {}
    assert histories.asked == []
    partial = Histories(USED, lots=[("shop",), ("park",)], warnings=("a store is away",))
    _plan(FixedCluster([WEB], PODS), partial, told=told)
    assert told == ["a store is away"]
