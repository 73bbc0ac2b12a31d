"""Advice for batches of workloads, each with its reason, its numbers and one sentence. Pure.

The seed's arithmetic on arrays: inspection in its order, then targets and replicas.

    target      = ceil(P99 of a pod / its request), within [min, max] percent
    minReplicas = max(default, 1, ceil(lowest hourly median / (request x highest target)))
    maxReplicas = max(minReplicas, ceil(P95 of the workload / (request x target) x factor))

Every comparison that refuses is strict, up to the noise of floats; before a ceil, six digits count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from equipoise.core.decision import Decided, Decision
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.explain import (
    AdviceDetails,
    DecisionNumbers,
    RecommendedContainer,
    RecommendedHpa,
    WorkloadFigures,
    sentence,
)
from equipoise.recommendation.observe import Inherited, Observation, Shared, Statistics, share_key, summarise
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.stats.predict import Algorithm
from equipoise.stats.ranks import Claims, Floats, Whole

SLACK = 1e-7
"""Relative tolerance of comparisons: 0.3 / 0.2 must not count as below 1.5."""
UNMEASURED_SHARE_MAX = 0.1
"""Largest share of pods without samples, among those that must have some, for which there is advice."""
REPLICAS_MAX = 2**31 - 1
CORES_SLACK = 1e-12
NEXT_TO_NOTHING = 1e-290
"""Lower bound for values to be rounded; below it floats have no six significant digits."""


class AdviceArrays(NamedTuple):
    """One entry per workload; replicas and targets are valid only where the code is Recommend."""

    codes: list[Code]
    fluctuation: Floats
    target_percent: Whole
    replicas_min: Whole
    replicas_max: Whole


def advise(
    policy: RecommendationPolicy,
    observation: Observation,
    statistics: Statistics,
    about: AdviceType = AdviceType.HPA,
) -> AdviceArrays:
    """Return the advice for a batch, with the first check that each workload fails."""
    fluctuation = fluctuations(statistics)
    refusals = inspections(policy, observation, statistics, fluctuation)
    if about is AdviceType.RESOURCE:
        del refusals[Code.NO_REQUEST]  # advice about requests needs none
    codes, order = list(refusals), np.array(list(refusals.values()))
    first = np.where(order.any(axis=0), order.argmax(axis=0), len(codes))
    codes.append(Code.RECOMMEND)
    request = np.where(observation.request_cores > 0, observation.request_cores, np.nan)
    target = rounded_up(statistics.pod_p99_cores / request * 100)
    target = np.clip(target, policy.target_percent_min, policy.target_percent_max)
    least = rounded_up(statistics.lowest_median_cores / (request * policy.target_percent_max / 100))
    least = np.maximum(least, max(policy.replicas_min_default, 1))
    most = rounded_up(statistics.p95_cores / (request * target / 100) * policy.replicas_max_factor)
    replicas_min, replicas_max = _whole(least), _whole(np.maximum(most, least))
    assert (np.isnan(most) | (replicas_min <= replicas_max)).all(), "the bounds of advice are in order"
    assert first.shape == replicas_max.shape == (len(observation.subjects),), (
        "every workload has a reason and bounds"
    )
    return AdviceArrays(
        codes=[codes[place] for place in first.tolist()],
        fluctuation=fluctuation,
        target_percent=_whole(target),
        replicas_min=replicas_min,
        replicas_max=replicas_max,
    )


def inspections(
    policy: RecommendationPolicy, observation: Observation, statistics: Statistics, fluctuation: Floats
) -> dict[Code, Claims]:
    """Return which checks each workload fails, in order of precedence."""
    needed = np.array([policy.replicas_needed(kind)[0] for kind in observation.kinds], np.intp)
    with np.errstate(invalid="ignore"):
        return {
            Code.TOO_FEW_REPLICAS: observation.replicas < needed,
            Code.NO_PODS: observation.pods == 0,
            Code.TOO_FEW_AVAILABLE_PODS: _below(
                observation.available / np.maximum(observation.pods, 1), policy.pod_available_share_min
            ),
            Code.METRICS_INCOMPLETE: _is_incomplete(observation, statistics),
            Code.NO_SAMPLES: (statistics.known_samples == 0) | np.isnan(statistics.pod_p99_cores),
            Code.LOW_USAGE: _below(statistics.peak_cores, policy.peak_cores_min),
            Code.LOW_FLUCTUATION: _below(fluctuation, policy.fluctuation_min),
            Code.NO_REQUEST: ~(observation.request_cores > 0),
        }


def _is_incomplete(observation: Observation, statistics: Statistics) -> Claims:
    """Return which workloads lack a part of their samples; one without any fails `NoSamples` instead."""
    is_partial = np.array([bool(why) for why in observation.partial] or [False] * len(observation.subjects))
    if observation.measurable is None or observation.unmeasured is None:
        return is_partial
    has_some = (statistics.known_samples > 0) | (observation.unmeasured < observation.measurable)
    is_lacking = observation.unmeasured * 100 > round(UNMEASURED_SHARE_MAX * 100) * observation.measurable
    return np.asarray(is_partial | (has_some & is_lacking))


def fluctuations(statistics: Statistics) -> Floats:
    """Return highest / lowest hourly median; infinite where the lowest is 0."""
    lowest = np.where(statistics.lowest_median_cores > CORES_SLACK, statistics.lowest_median_cores, np.nan)
    is_still = statistics.lowest_median_cores <= CORES_SLACK
    return np.where(is_still, np.inf, statistics.highest_median_cores / lowest)


def rounded_up(values: Floats) -> Floats:
    """Round to six significant digits, then up: 0.69 x 100 is 69."""
    values = np.where(values > 0, np.maximum(values, NEXT_TO_NOTHING), values)
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 5 - np.floor(np.log10(np.abs(values)))
    digits = np.where(np.isfinite(digits), digits, 0.0)
    up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    return np.asarray(np.ceil(np.rint(values * up / down) / up * down))


def _below(values: Floats, limit: float) -> Claims:
    return np.asarray(values < limit - SLACK * max(limit, CORES_SLACK))


def _whole(values: Floats) -> Whole:
    return np.clip(np.nan_to_num(values, posinf=REPLICAS_MAX), 0, REPLICAS_MAX).astype(np.intp)


BATCH = 256
"""Workloads per part: their forecasts of a week of minutes take 10 MiB."""
RESOURCE_MARGIN = 1.15
MILLI = 1000

Requests = Sequence[Sequence[RecommendedContainer]]
"""The containers of each workload, with their recommended requests."""


def decide(
    policy: RecommendationPolicy,
    observation: Observation,
    algorithm: Algorithm | None = Algorithm.PROFILE,
    about: AdviceType = AdviceType.HPA,
) -> list[Decided[AdviceDetails]]:
    """Decide for every workload of an observation; without an algorithm, from the past only."""
    return [
        decided
        for part, statistics, containers in summarised(policy, observation, algorithm, about)
        for decided in decide_from(policy, part, statistics, about, containers)
    ]


def summarised(
    policy: RecommendationPolicy,
    observation: Observation,
    algorithm: Algorithm | None,
    about: AdviceType,
    shared: Shared | None = None,
    *,
    has_hours: bool = False,
) -> Iterator[tuple[Observation, Statistics, Requests | None]]:
    """Yield parts of an observation with their statistics, so that memory holds one forecast at a time.

    Statistics that are in `shared` are not computed again.
    """
    requests = container_requests(observation) if about is AdviceType.RESOURCE else None
    key, taken = share_key(policy, observation, algorithm), {} if shared is None else shared
    for start in range(0, len(observation.subjects), BATCH):
        part = observation.rows(slice(start, start + BATCH))
        containers = None if requests is None else requests[start : start + BATCH]
        if (start, *key) not in taken:
            taken[start, *key] = summarise(policy, part, algorithm, has_hours=has_hours)
        yield part, taken[start, *key], containers


def decide_from(
    policy: RecommendationPolicy,
    observation: Observation,
    statistics: Statistics,
    about: AdviceType = AdviceType.HPA,
    containers: Requests | None = None,
    pods_unknown: Sequence[int] | None = None,
) -> list[Decided[AdviceDetails]]:
    """Decide from the statistics alone, without the histories."""
    advice = advise(policy, observation, statistics, about)
    inherited = list(observation.inherited) or [None] * len(observation.subjects)
    unknown: Sequence[int | None] = pods_unknown or [None] * len(observation.subjects)
    found = []
    for place, row in enumerate(_rows(observation, statistics, advice)):
        hpa, requests = None, None
        if row.code is Code.RECOMMEND and containers is not None:
            requests = list(containers[place])
        elif row.code is Code.RECOMMEND:
            hpa = _hpa(policy, row, inherited[place] if policy.inherits_hpa else None)
        details = AdviceDetails(row.kind, hpa, requests, row.prediction, row.confidence, row.coverage)
        numbers = DecisionNumbers.of(row, unknown[place])
        reason = Reason.of(row.code, sentence(policy, row, requests), numbers)
        found.append(Decided(Decision(row.subject, reason, extra=details.document), details))
    return found


def _rows(observation: Observation, statistics: Statistics, advice: AdviceArrays) -> list[WorkloadFigures]:
    """Return the columns as one plain row per workload."""
    columns = (
        observation.subjects,
        observation.kinds,
        advice.codes,
        observation.replicas.tolist(),
        observation.pods.tolist(),
        observation.available.tolist(),
        observation.request_cores.tolist(),
        statistics.pod_p99_cores.tolist(),
        statistics.lowest_median_cores.tolist(),
        statistics.highest_median_cores.tolist(),
        statistics.p95_cores.tolist(),
        statistics.p95_past_cores.tolist(),
        statistics.peak_cores.tolist(),
        advice.fluctuation.tolist(),
        (statistics.coverage * observation.measured_share).tolist(),
        statistics.known_samples.tolist(),
        [statistics.expected_samples] * len(observation.subjects),
        advice.target_percent.tolist(),
        advice.replicas_min.tolist(),
        advice.replicas_max.tolist(),
        statistics.predictions,
        _column(observation.measurable, observation),
        _column(observation.unmeasured, observation),
        list(observation.partial) or [""] * len(observation.subjects),
    )
    return [WorkloadFigures(*row) for row in zip(*columns, strict=True)]


def _column(values: Whole | None, observation: Observation) -> list[int]:
    return [0] * len(observation.subjects) if values is None else values.tolist()


def _hpa(policy: RecommendationPolicy, row: WorkloadFigures, inherited: Inherited | None) -> RecommendedHpa:
    assert policy.target_percent_min <= row.target_percent <= policy.target_percent_max, "targets are bounded"
    target = {"type": "Utilization", "averageUtilization": row.target_percent}
    metrics: list[Any] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = None
    if inherited is not None:
        metrics += [dict(metric) for metric in inherited.metrics if not _is_cpu(metric)]
        behavior = None if inherited.behavior is None else dict(inherited.behavior)
    return RecommendedHpa(row.replicas_min, row.replicas_max, row.target_percent, metrics, behavior)


def _is_cpu(metric: Mapping[str, Any]) -> bool:
    """Return whether this is the CPU utilisation metric that the advice replaces."""
    resource = metric.get("resource") or {}
    is_utilisation = (resource.get("target") or {}).get("type", "Utilization") == "Utilization"
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and is_utilisation


def container_requests(observation: Observation) -> list[list[RecommendedContainer]]:
    """Return the containers of each workload with their recommended requests."""
    found: list[list[RecommendedContainer]] = [[] for _ in observation.subjects]
    containers = observation.containers
    if containers is None:
        return found
    millis = rounded_up(containers.cpu_p99_cores * RESOURCE_MARGIN * MILLI)
    bytes_ = rounded_up(containers.memory_peak_bytes * RESOURCE_MARGIN)
    for owner, name, milli, size in zip(
        containers.owner.tolist(), containers.names, millis.tolist(), bytes_.tolist(), strict=True
    ):
        requests = {}
        if np.isfinite(milli):
            requests["cpu"] = _cpu_text(int(milli))
        if np.isfinite(size):
            requests["memory"] = str(int(size))
        found[owner].append(RecommendedContainer(name, requests))
    return found


def _cpu_text(milli: int) -> str:
    return str(milli // MILLI) if milli and milli % MILLI == 0 else f"{milli}m"
