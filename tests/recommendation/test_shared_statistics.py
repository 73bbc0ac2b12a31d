"""Questions about the same histories take their statistics once, and each gets what it would get alone."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from equipoise.core.cluster import Container
from equipoise.recommendation import decide
from equipoise.recommendation.advisor import AdviceBatch, DataSources, advise_all
from equipoise.recommendation.decide import examine_all
from equipoise.recommendation.observe import Containers, Observation, summarise
from equipoise.recommendation.settings import AdviceRequest, AdviceType
from equipoise.stats.predict import Algorithm
from tests.support.recommendation.clusters import AT, DAY, FixedCluster, Histories, pod, workload
from tests.support.recommendation.worlds import policy

HPA = AdviceRequest(policy())
RESOURCE = AdviceRequest(policy(fluctuation_threshold="1"), AdviceType.RESOURCE)
COUNT = 300
"""More than one part."""


@pytest.fixture
def summaries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tell how many workloads were summarised, each time."""
    found: list[int] = []

    def counting(policy_: Any, seen: Observation, algorithm: Any, **how: bool) -> Any:
        found.append(len(seen.subjects))
        return summarise(policy_, seen, algorithm, **how)

    monkeypatch.setattr(decide, "summarise", counting)
    return found


def _seen() -> Observation:
    history = np.random.default_rng(3).gamma(50, 0.3, (COUNT, 200))
    return Observation(
        subjects=[f"shop/web-{number}" for number in range(COUNT)],
        kinds=["Deployment"] * COUNT,
        replicas=np.full(COUNT, 3),
        pods=np.full(COUNT, 3),
        available=np.full(COUNT, 3),
        request_cores=np.full(COUNT, 2.0),
        history=history,
        interval_seconds=60.0,
        at=AT,
        pod_p99_cores=history.max(axis=1),
    )


def test_two_types_share_and_each_gets_its_own_advice(summaries: list[int]) -> None:
    """Also where the batch went to another process."""
    seen = _seen()
    specs, tops = [Container("app")] * COUNT, seen.history.max(axis=1)
    containers = Containers(np.arange(COUNT), specs, tops, tops, np.zeros(COUNT, np.bool_))
    with_containers = replace(seen, containers=containers)
    batch = [(HPA, seen), (RESOURCE, with_containers)]
    alone = [decide.decide(*one, has_hours=True) for one in batch]
    assert summaries == [256, 44] * 2
    for copy in (batch, pickle.loads(pickle.dumps(batch))):
        summaries.clear()
        assert examine_all(copy) == alone
        assert summaries == [256, 44]


@pytest.mark.parametrize(
    ("question", "changes"),
    [
        (replace(HPA, policy=policy(time_zone="Asia/Kolkata")), {}),
        (replace(HPA, algorithm=None), {}),
        (replace(HPA, algorithm=Algorithm.DSP), {}),
        (HPA, {"history": np.full((1, 200), 7.0)}),
        (HPA, {"pod_p99_cores": np.ones(1)}),
        (HPA, {"interval_seconds": 300.0}),
        (HPA, {"at": AT + 3600.0}),
        (HPA, {"pod_p99_cores": None}),
    ],
)
def test_what_changes_the_numbers_is_not_shared(
    question: AdviceRequest, changes: Any, summaries: list[int]
) -> None:
    """Another zone, another algorithm, another past."""
    seen = _seen().rows(slice(0, 1))
    other = replace(seen, **changes)
    found = examine_all([(HPA, seen), (question, other)])
    assert summaries == [1, 1]
    assert found[1] == decide.decide(question, other, has_hours=True)


def test_live_questions_about_the_same_workloads_share(summaries: list[int]) -> None:
    """All of a batch, or the same part of it; and the advice is what each job gets alone."""
    web, api, db = workload("web"), workload("api"), workload("db")
    pods = [pod(one, f"{one.ref.name}-7c9f8b6d5-bcdfg") for one in (web, api, db)]
    series = {("shop", one.name, "app"): 6.0 * DAY for one in pods}
    cluster = FixedCluster([web, api, db], pods)
    world = DataSources(cluster, Histories(series, dict.fromkeys(series, 1e8)), cluster)
    jobs = [
        AdviceBatch(HPA, [web, api, db]),
        AdviceBatch(RESOURCE, [web, api, db]),
        AdviceBatch(HPA, [web, db]),
        AdviceBatch(RESOURCE, [web, db]),
    ]
    together = [one[1:] for one in sorted(advise_all(jobs, cluster.listed, world, AT), key=lambda a: a.batch)]
    assert summaries == [3, 2]
    alone = [one[1:] for job in jobs for one in advise_all([job], cluster.listed, world, AT)]
    assert together == alone
