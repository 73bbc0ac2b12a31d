"""Advice for batches of workloads, each with its reason, its numbers and one sentence. Pure.

The seed's arithmetic on arrays: inspection in its order, then targets and replicas.

    target      = ceil(P99 of a pod / its request), within [min, max] percent
    minReplicas = max(default, 1, ceil(lowest hourly median / (request x highest target)))
    maxReplicas = max(minReplicas, ceil(P95 of the workload / (request x target) x factor))

Every comparison that refuses is strict, up to the noise of floats; before a ceil, six digits count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from equipoise.core.decision import Decision
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.explain import (
    USAGE_FIGURES,
    Advice,
    AdviceDetails,
    ContainerFacts,
    DecisionNumbers,
    Facts,
    RecommendedContainer,
    RecommendedHpa,
    confidence,
    sentence,
)
from equipoise.recommendation.observe import Inherited, Observation, Shared, Statistics, share_key, summarise
from equipoise.recommendation.policy import AdviceRequest, AdviceType, RecommendationPolicy
from equipoise.stats.ranks import Claims, Floats, Whole

SLACK = 1e-7
"""Relative tolerance of comparisons: 0.3 / 0.2 must not count as below 1.5."""
UNMEASURED_SHARE_MAX = 0.1
"""Largest share of pods without samples, among those that must have some, for which there is advice."""
REPLICAS_MAX = 2**31 - 1
CORES_SLACK = 1e-12
NEXT_TO_NOTHING = 1e-290
"""Lower bound for values to be rounded; below it floats have no six significant digits."""


def advise(
    policy: RecommendationPolicy,
    observation: Observation,
    statistics: Statistics,
    about: AdviceType = AdviceType.HPA,
) -> list[Advice]:
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
    columns = (fluctuation, _whole(target), replicas_min, replicas_max)
    own = [codes[place] for place in first.tolist()]
    return [Advice(*row) for row in zip(own, *(column.tolist() for column in columns), strict=True)]


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
    is_partial = np.array([bool(why) for why in observation.partial or [""] * len(observation.subjects)])
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


class Examined(NamedTuple):
    """The decision for one workload, and the facts that it follows from."""

    decision: Decision
    details: AdviceDetails
    facts: Facts


Batch = Sequence[tuple[AdviceRequest, Observation]]


def examine_all(batch: Batch) -> list[list[Examined]]:
    """Decide for a batch of requests. Pure; can run in a worker process.

    The result is small to pickle. Requests about the same histories share their statistics.
    """
    shared: Shared = {}
    return [decide(request, observation, shared, has_hours=True) for request, observation in batch]


def decide(
    request: AdviceRequest, observation: Observation, shared: Shared | None = None, *, has_hours: bool = False
) -> list[Examined]:
    parts = summarised(request, observation, shared, has_hours=has_hours)
    return [
        each for part, numbers in parts for each in decide_from(request.policy, part, numbers, request.about)
    ]


def summarised(
    request: AdviceRequest, observation: Observation, shared: Shared | None = None, *, has_hours: bool = False
) -> Iterator[tuple[Observation, Statistics]]:
    """Yield parts of an observation with their statistics, so that memory holds one forecast at a time.

    Statistics that are in `shared` are not computed again.
    """
    policy, algorithm = request.policy, request.algorithm
    key, taken = share_key(policy, observation, algorithm), {} if shared is None else shared
    for start in range(0, len(observation.subjects), BATCH):
        part = observation.rows(slice(start, start + BATCH))
        if (start, *key) not in taken:
            taken[start, *key] = summarise(policy, part, algorithm, has_hours=has_hours)
        yield part, taken[start, *key]


def decide_from(
    policy: RecommendationPolicy,
    observation: Observation,
    statistics: Statistics,
    about: AdviceType = AdviceType.HPA,
) -> list[Examined]:
    """Decide from the statistics alone, without the histories."""
    containers = _containers(observation)
    found = []
    for row, advice in enumerate(advise(policy, observation, statistics, about)):
        is_advice = advice.code is Code.RECOMMEND
        facts = _facts(
            observation, statistics, row, [used for used, _ in containers[row]], has_hours=is_advice
        )
        requests, hpa = None, None
        if is_advice and about is AdviceType.RESOURCE:
            requests = [recommended for _, recommended in containers[row]]
        elif is_advice:
            hpa = _hpa(policy, facts, advice)
        certainty, text = confidence(facts, advice.code), sentence(policy, facts, advice, requests)
        details = AdviceDetails(facts.kind, hpa, requests, facts.prediction, certainty, facts.coverage)
        reason = Reason.of(advice.code, text, DecisionNumbers.of(facts, advice))
        found.append(Examined(Decision(facts.subject, reason, extra=details.document), details, facts))
    return found


def _facts(
    observation: Observation,
    statistics: Statistics,
    row: int,
    containers: list[ContainerFacts],
    *,
    has_hours: bool,
) -> Facts:
    def whole(column: Whole | None) -> int:
        return 0 if column is None else int(column[row])

    inherited = (observation.inherited[row] if observation.inherited else None) or Inherited()
    hours = statistics.hourly_usage
    return Facts(
        subject=observation.subjects[row],
        kind=observation.kinds[row],
        replicas=whole(observation.replicas),
        pods=whole(observation.pods),
        available=whole(observation.available),
        pods_unknown=None if observation.unknown is None else whole(observation.unknown),
        request_cores=_finite(observation.request_cores[row]),
        **{name: _finite(getattr(statistics, name)[row]) for name in USAGE_FIGURES},
        known_samples=whole(statistics.known_samples),
        expected_samples=statistics.expected_samples,
        prediction=statistics.predictions[row],
        metrics=[dict(metric) for metric in inherited.metrics],
        behavior=None if inherited.behavior is None else dict(inherited.behavior),
        containers=containers,
        hourly_usage=hours.of(row) if has_hours and hours is not None else None,
        measurable=whole(observation.measurable),
        unmeasured=whole(observation.unmeasured),
        partial=observation.partial[row] if observation.partial else "",
    )


def _containers(observation: Observation) -> list[list[tuple[ContainerFacts, RecommendedContainer]]]:
    """Return the containers of each workload, and what each should request."""
    found: list[list[tuple[ContainerFacts, RecommendedContainer]]] = [[] for _ in observation.subjects]
    if (own := observation.containers) is None:
        return found
    millis = rounded_up(own.cpu_p99_cores * RESOURCE_MARGIN * MILLI)
    bytes_ = rounded_up(own.memory_peak_bytes * RESOURCE_MARGIN)
    columns = (own.owner, own.cpu_p99_cores, own.memory_peak_bytes, millis, bytes_)
    rows = zip(own.names, *(column.tolist() for column in columns), strict=True)
    for name, owner, cores_used, bytes_used, milli, size in rows:
        requests = {}
        if np.isfinite(milli):
            cores, rest = divmod(int(milli), MILLI)
            requests["cpu"] = str(cores) if cores and not rest else f"{int(milli)}m"
        if np.isfinite(size):
            requests["memory"] = str(int(size))
        used = ContainerFacts(name, _finite(cores_used), _finite(bytes_used))
        found[owner].append((used, RecommendedContainer(name, requests)))
    return found


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _hpa(policy: RecommendationPolicy, facts: Facts, advice: Advice) -> RecommendedHpa:
    percent = advice.target_percent
    assert policy.target_percent_min <= percent <= policy.target_percent_max, "targets are bounded"
    target = {"type": "Utilization", "averageUtilization": percent}
    metrics: list[Any] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = None
    if policy.inherits_hpa:
        metrics += [metric for metric in facts.metrics if not _is_cpu(metric)]
        behavior = facts.behavior
    return RecommendedHpa(advice.replicas_min, advice.replicas_max, percent, metrics, behavior)


def _is_cpu(metric: Mapping[str, Any]) -> bool:
    """Return whether this is the CPU utilisation metric that the advice replaces."""
    resource = metric.get("resource") or {}
    is_utilisation = (resource.get("target") or {}).get("type", "Utilization") == "Utilization"
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and is_utilisation
