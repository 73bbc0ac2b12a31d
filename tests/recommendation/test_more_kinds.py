"""What a plan reads beside CPU: memory, OOM kills, and the workloads that no HPA scales."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equipoise.core.cluster import Container, Owner, Pod, Workload, WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.quantity import parse_bytes
from equipoise.recommendation.advisor import AdviceBatch, AdviceScope, DataSources, advise_all
from equipoise.recommendation.settings import AdviceRequest, AdviceType, read_policy
from tests.support.recommendation.clusters import (
    AT,
    DAY,
    END,
    FixedCluster,
    FixedOwners,
    Histories,
    pod,
    workload,
)
from tests.support.recommendation.worlds import plan

WEB = workload("web")
PODS = [pod(WEB, f"web-7c9f8b6d5-{letters}") for letters in ("bcdfg", "hjklm")]
USED = {("shop", one.name, "app"): 6.0 * DAY for one in PODS}
MEMORY = dict.fromkeys(USED, 1e9)


def _plan(sources: DataSources, **more: Any) -> dict[str, Decision]:
    scope = AdviceScope(**({"algorithm": None, "has_containers": True} | more))
    found = plan(scope, sources, AT)
    named = {f"{one.extra['kind']} {one.subject}": one for one in found}
    assert len(named) == len(found), "a workload has one decision"
    return named


def _sources(cluster: FixedCluster, histories: Histories, **more: Any) -> DataSources:
    return replace(DataSources(cluster, histories, cluster), **more)


def test_a_plan_without_a_type_has_the_hpa_and_the_requests() -> None:
    """From one read of both; each as if it had been asked for alone."""
    histories = Histories(USED, MEMORY)
    sources = _sources(FixedCluster([WEB], PODS), histories)
    decision = _plan(sources)["Deployment shop/web"]
    assert [asked[0] for asked in histories.asked] == ["memory+cpu"]
    hpa = _plan(sources, has_containers=False)["Deployment shop/web"]
    resource = _plan(sources, about=AdviceType.RESOURCE)["Deployment shop/web"]
    assert decision.extra["recommended"] == hpa.extra["recommended"]
    assert "containers" not in hpa.extra
    assert decision.extra["containers"] == resource.extra["containers"]
    (sizes,) = decision.extra["containers"]
    assert [{"name": sizes["name"], "requests": sizes["recommended"]["requests"]}] == (
        resource.extra["recommended"]["containers"]
    )


def test_each_batch_has_the_percentile_of_its_own_settings() -> None:
    """Also where several ask about the same workload in one pass."""
    settings = [read_policy({"resource.cpu-percentile": text}, "") for text in ("99", "50%")]
    batches = [AdviceBatch(AdviceRequest(each, AdviceType.RESOURCE, None), [WEB]) for each in settings]
    sources = _sources(FixedCluster([WEB], PODS), Histories(USED))
    found = list(advise_all(batches, [WEB], sources, AT))
    cores = [one.facts.containers[0].cpu_cores for one in found if one.facts is not None]
    assert [one.batch for one in found] == [0, 1]
    assert cores[0] is not None
    assert cores[1] is not None
    assert cores[0] > 1.2 * cores[1]


LIMITED = (Container("app", 2.0, 1e9, None, 2e9),)


def _memory(pods: list[Pod], owners: FixedOwners | None, told: list[str] | None = None) -> float:
    """Return the memory request of the container `app`, in GB without the margin."""
    sources = _sources(FixedCluster([WEB], pods), Histories(USED, MEMORY), owners=owners)
    if told is not None:
        sources = replace(sources, warn=told.append)
    decision = _plan(sources, about=AdviceType.RESOURCE)["Deployment shop/web"]
    (sizes,) = decision.extra["recommended"]["containers"]
    return parse_bytes(sizes["requests"]["memory"]) / 1.15e9


@pytest.mark.parametrize(
    ("killed_at", "recorded", "expected"),
    [
        (None, (), 1.0),
        (END - 3600.0, (), 2.4),
        (END - 8 * 86400.0, (), 1.0),
        (None, (("shop", PODS[0].name, "app"),), 2.4),
        (None, (("shop", "web-9d8c7b6f5-zzzzz", "app"),), 2.4),  # a pod that is gone
        (None, (("shop", PODS[0].name, "proxy"), ("park", PODS[0].name, "app")), 1.0),
        (END - 8 * 86400.0, (("shop", PODS[0].name, "app"),), 1.0),  # recorded for weeks after
    ],
)
def test_an_oom_kill_of_the_week_raises_memory(
    killed_at: float | None, recorded: tuple[tuple[str, str, str], ...], expected: float
) -> None:
    """From a pod's status or from kube-state-metrics; the limit of 2 GB was not enough."""
    kills = () if killed_at is None else (("app", killed_at),)
    pods = [pod(WEB, one.name, containers=LIMITED, oom_kills=kills) for one in PODS]
    assert _memory(pods, FixedOwners({}, killed=recorded)) == pytest.approx(expected, rel=1e-5)


def test_without_kube_state_metrics_the_statuses_have_oom_kills() -> None:
    """A server that does not answer costs nothing but a warning."""
    pods = [pod(WEB, one.name, containers=LIMITED, oom_kills=(("app", END - 60.0),)) for one in PODS]
    told: list[str] = []
    assert _memory(pods, FixedOwners(), told) == pytest.approx(2.4, rel=1e-5)
    assert told == ["OOM kills are read from the statuses of the pods only: nobody answers"]
    assert _memory(pods, None) == pytest.approx(2.4, rel=1e-5)


def _of(api_version: str, kind: str, name: str) -> Workload:
    ref = WorkloadRef(api_version, kind, "shop", name)
    return replaced(workload(name), ref=ref, uid=f"uid of {ref}", containers=(Container("app", 1.0),))


def replaced(of: Workload, **fields: Any) -> Workload:
    """Return the workload with these fields changed."""
    return Workload(**{name: getattr(of, name) for name in of.__struct_fields__} | fields)


AGENT = _of("apps/v1", "DaemonSet", "agent")
NIGHTLY = _of("batch/v1", "CronJob", "nightly")
CANARY = _of("argoproj.io/v1alpha1", "Rollout", "canary")
OTHERS = [AGENT, NIGHTLY, CANARY]
CANARY_SET = Owner("apps/v1", "ReplicaSet", "canary-7c9f8b6d5", "uid of a ReplicaSet")
RUNNING = [
    *PODS,
    pod(AGENT, "agent-bcdfg"),
    pod(CANARY, "canary-7c9f8b6d5-bcdfg", owner=CANARY_SET),
]
SERIES = {
    **USED,
    ("shop", "agent-bcdfg", "app"): 0.1 * DAY,
    ("shop", "canary-7c9f8b6d5-bcdfg", "app"): 0.2 * DAY,
    ("shop", "canary-5d4c6b2f9-bcdfg", "app"): 0.4 * DAY,  # of an earlier revision
    ("shop", "nightly-29391840-bcdfg", "app"): np.where(np.arange(len(DAY)) < 60, 0.3, np.nan),
    ("shop", "nightly-x-bcdfg", "app"): 100.0,
}


def test_daemon_sets_cron_jobs_and_rollouts_get_requests() -> None:
    """An HPA is advised for none of them; the pods of a CronJob are known by their names."""
    memory = dict.fromkeys(SERIES, 1e9)
    sources = _sources(FixedCluster([WEB], RUNNING), Histories(SERIES, memory), unscaled=lambda _: OTHERS)
    found = _plan(sources)
    assert {name: one.reason.code.value for name, one in found.items()} == dict.fromkeys(
        ("Deployment shop/web", "DaemonSet shop/agent", "CronJob shop/nightly", "Rollout shop/canary"),
        "Recommend",
    )
    cores = {
        name: float(one.extra["containers"][0]["recommended"]["requests"]["cpu"].removesuffix("m")) / 1150
        for name, one in found.items()
        if name != "Deployment shop/web"
    }
    assert cores == pytest.approx(
        {"DaemonSet shop/agent": 0.16, "CronJob shop/nightly": 0.3, "Rollout shop/canary": 0.64}, rel=0.01
    )
    assert list(found["CronJob shop/nightly"].extra["recommended"]) == ["containers"]
    assert found["CronJob shop/nightly"].reason.numbers["pods"] == 0


def test_kinds_without_a_scale_are_read_only_for_requests() -> None:
    """HPA advice lists what it always did; a name chooses among all kinds."""

    def refuse(_: str | None) -> Any:
        raise AssertionError

    histories = Histories(SERIES, dict.fromkeys(SERIES, 1e9))
    sources = _sources(FixedCluster([WEB], RUNNING), histories, unscaled=refuse)
    assert list(_plan(sources, has_containers=False)) == ["Deployment shop/web"]
    sources = replace(sources, unscaled=lambda _: OTHERS)
    assert list(_plan(sources, names=["cj/nightly"])) == ["CronJob shop/nightly"]
    assert list(_plan(sources, names=["ds/agent"], about=AdviceType.RESOURCE)) == ["DaemonSet shop/agent"]
