"""Workloads to advise, from the few numbers that matter."""

from typing import Any

import numpy as np

from equipoise.core.decision import Decision
from equipoise.recommendation.advisor import AdviceScope, DataSources
from equipoise.recommendation.advisor import advised as advise
from equipoise.recommendation.decide import decide, decide_from, facts_of
from equipoise.recommendation.observe import Inherited, Observation, PredictionFacts, Statistics
from equipoise.recommendation.settings import AdviceRequest, AdviceType, RecommendationPolicy, read_policy
from equipoise.stats.predict import Algorithm

NAN = float("nan")


def policy(**settings: str) -> RecommendationPolicy:
    """Give the defaults with these keys changed; `_` stands for `-`."""
    return read_policy({f"ehpa.{key.replace('_', '-')}": value for key, value in settings.items()}, "test")


def observation(
    *,
    kind: str = "Deployment",
    replicas: int = 10,
    pods: int | None = None,
    available: int | None = None,
    request: float = 1.0,
    history: Any = None,
    inherited: Inherited | None = None,
) -> Observation:
    """Give one workload that passes every inspection unless told otherwise."""
    seen = replicas if pods is None else pods
    return Observation(
        subjects=["shop/web"],
        kinds=[kind],
        replicas=np.array([replicas]),
        pods=np.array([seen]),
        available=np.array([seen if available is None else available]),
        request_cores=np.array([request]),
        history=np.full((1, 1), NAN) if history is None else np.asarray(history)[None],
        interval_seconds=60.0,
        at=0.0,
        inherited=[inherited],
    )


def statistics(
    *,
    p99: float = 0.6,
    lowest: float = 4.0,
    highest: float = 12.0,
    p95: float = 11.0,
    peak: float = 20.0,
    samples: int = 10080,
    is_predictable: bool = False,
) -> Statistics:
    """Give numbers of a workload that swings between 4 and 12 cores."""
    return Statistics(
        pod_p99_cores=np.array([p99]),
        lowest_median_cores=np.array([lowest]),
        highest_median_cores=np.array([highest]),
        p95_cores=np.array([p95]),
        p95_past_cores=np.array([p95]),
        peak_cores=np.array([peak]),
        known_samples=np.array([samples]),
        expected_samples=10080,
        predictions=[PredictionFacts(is_predictable=is_predictable)],
    )


def advised(
    settings: RecommendationPolicy | None = None, seen: Observation | None = None, **numbers: Any
) -> Decision:
    """Decide for one workload."""
    facts = facts_of(seen or observation(), statistics(**numbers))
    ((decision, *_),) = decide_from(AdviceRequest(settings or policy()), facts)
    return decision


def decisions(
    settings: RecommendationPolicy,
    seen: Observation,
    algorithm: Algorithm | None = Algorithm.PROFILE,
    about: AdviceType = AdviceType.HPA,
) -> list[Decision]:
    """Return what is decided, without the details."""
    return [decision for decision, *_ in decide(AdviceRequest(settings, about, algorithm), seen)]


def plan(scope: AdviceScope, sources: DataSources, at: float) -> list[Decision]:
    """Return what is decided for a live cluster, without what decided."""
    return [one.decision for one in advise(scope, sources, at)]
