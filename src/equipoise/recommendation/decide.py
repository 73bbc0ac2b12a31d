"""Advice for batches of workloads, each with its reason, its numbers and one sentence. Pure.

The seed's arithmetic on arrays: inspection in its order, then targets and replicas.

    target      = ceil(P99 of a pod / its request), within [min, max] percent
    minReplicas = max(default, 1, ceil(lowest hourly median / (request x highest target)))
    maxReplicas = max(minReplicas, ceil(P95 of the workload / (request x target) x factor))

Every comparison that refuses is strict, up to the noise of floats; before a ceil, six digits count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from equipoise.core.decision import Decision
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.explain import (
    USAGE_FIGURES,
    Advice,
    AdviceDetails,
    ContainerFacts,
    Facts,
    RecommendedContainer,
    RecommendedHpa,
    confidence,
    numbers_of,
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
    policy: RecommendationPolicy, facts: Sequence[Facts], about: AdviceType = AdviceType.HPA
) -> list[Advice]:
    """Return the advice for a batch, with the first check that each workload fails."""
    used = {name: _column(facts, name) for name in (*USAGE_FIGURES, "request_cores")}
    fluctuation = _fluctuations(used["lowest_median_cores"], used["highest_median_cores"])
    refusals = inspections(policy, facts, used, fluctuation)
    if about is AdviceType.RESOURCE:
        del refusals[Code.NO_REQUEST]  # advice about requests needs none
    codes, order = list(refusals), np.array(list(refusals.values()))
    first = np.where(order.any(axis=0), order.argmax(axis=0), len(codes))
    codes.append(Code.RECOMMEND)
    request = np.where(used["request_cores"] > 0, used["request_cores"], np.nan)
    target = rounded_up(used["pod_p99_cores"] / request * 100)
    target = np.clip(target, policy.target_percent_min, policy.target_percent_max)
    least = rounded_up(used["lowest_median_cores"] / (request * policy.target_percent_max / 100))
    least = np.maximum(least, max(policy.replicas_min_default, 1))
    most = rounded_up(used["p95_cores"] / (request * target / 100) * policy.replicas_max_factor)
    replicas_min, replicas_max = _whole(least), _whole(np.maximum(most, least))
    assert (np.isnan(most) | (replicas_min <= replicas_max)).all(), "the bounds of advice are in order"
    assert first.shape == replicas_max.shape == (len(facts),), "every workload has a reason and bounds"
    columns = (fluctuation, _whole(target), replicas_min, replicas_max)
    own = [codes[place] for place in first.tolist()]
    return [Advice(*row) for row in zip(own, *(column.tolist() for column in columns), strict=True)]


def _column(facts: Sequence[Facts] | Sequence[ContainerFacts], name: str) -> Floats:
    """Return one number of each workload or container; NaN where it is unknown."""
    values = (getattr(each, name) for each in facts)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def inspections(
    policy: RecommendationPolicy, facts: Sequence[Facts], used: Mapping[str, Floats], fluctuation: Floats
) -> dict[Code, Claims]:
    """Return which checks each workload fails, in order of precedence."""
    needed = np.array([policy.replicas_needed(each.kind)[0] for each in facts], np.intp)
    pods, known_samples = _column(facts, "pods"), _column(facts, "known_samples")
    available_share = _column(facts, "available") / np.maximum(pods, 1)
    with np.errstate(invalid="ignore"):
        return {
            Code.TOO_FEW_REPLICAS: _column(facts, "replicas") < needed,
            Code.NO_PODS: pods == 0,
            Code.TOO_FEW_AVAILABLE_PODS: _below(available_share, policy.pod_available_share_min),
            Code.METRICS_INCOMPLETE: np.array([_is_incomplete(each) for each in facts], np.bool_),
            Code.NO_SAMPLES: (known_samples == 0) | np.isnan(used["pod_p99_cores"]),
            Code.LOW_USAGE: _below(used["peak_cores"], policy.peak_cores_min),
            Code.LOW_FLUCTUATION: _below(fluctuation, policy.fluctuation_min),
            Code.NO_REQUEST: ~(used["request_cores"] > 0),
        }


def _is_incomplete(facts: Facts) -> bool:
    """Return whether a workload lacks a part of its samples; one without any fails `NoSamples` instead."""
    has_some = facts.known_samples > 0 or facts.unmeasured < facts.measurable
    is_lacking = facts.unmeasured * 100 > round(UNMEASURED_SHARE_MAX * 100) * facts.measurable
    return bool(facts.partial) or (has_some and is_lacking)


def _fluctuations(lowest: Floats, highest: Floats) -> Floats:
    """Return highest / lowest hourly median; infinite where the lowest is 0."""
    is_still = lowest <= CORES_SLACK
    return np.where(is_still, np.inf, highest / np.where(lowest > CORES_SLACK, lowest, np.nan))


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
    """Decide for every workload of an observation; usage by the hour, for display, is optional."""
    return list(chain.from_iterable(decide_parts(request, observation, shared, has_hours=has_hours)))


def decide_parts(
    request: AdviceRequest, observation: Observation, shared: Shared | None = None, *, has_hours: bool = False
) -> Iterator[list[Examined]]:
    """Decide for an observation part by part, so that memory holds one forecast at a time.

    Statistics that are in `shared` are not computed again.
    """
    policy, algorithm = request.policy, request.algorithm
    key, taken = share_key(policy, observation, algorithm), {} if shared is None else shared
    for start in range(0, len(observation.subjects), BATCH):
        part = observation.rows(slice(start, start + BATCH))
        if (start, *key) not in taken:
            taken[start, *key] = summarise(policy, part, algorithm, has_hours=has_hours)
        statistics = taken[start, *key]
        found = decide_from(policy, facts_of(part, statistics), request.about)
        if (hours := statistics.hourly_usage) is not None:
            for row, one in enumerate(found):
                if one.decision.reason.code is Code.RECOMMEND:
                    facts = structs.replace(one.facts, hourly_usage=hours.of(row))
                    found[row] = one._replace(facts=facts)
        yield found


def decide_from(
    policy: RecommendationPolicy, facts: Sequence[Facts], about: AdviceType = AdviceType.HPA
) -> list[Examined]:
    """Decide from the facts alone, without the histories."""
    is_about_hpa = about is AdviceType.HPA
    requests = [None] * len(facts) if is_about_hpa else container_requests(facts)
    found = []
    for known, advice, recommended in zip(facts, advise(policy, facts, about), requests, strict=True):
        is_advice = advice.code is Code.RECOMMEND
        hpa = _hpa(policy, known, advice) if is_advice and is_about_hpa else None
        containers = recommended if is_advice else None
        certainty, text = confidence(known, advice.code), sentence(policy, known, advice, containers)
        details = AdviceDetails(known.kind, hpa, containers, known.prediction, certainty, known.coverage)
        reason = Reason(advice.code, text, numbers_of(known, advice))
        found.append(Examined(Decision(known.subject, reason, extra=details.document), details, known))
    return found


def facts_of(observation: Observation, statistics: Statistics) -> list[Facts]:
    """Return the facts of each workload, which records contain instead of the histories."""
    containers: list[list[ContainerFacts]] = [[] for _ in observation.subjects]
    if (own := observation.containers) is not None:
        columns = (column.tolist() for column in (own.owner, own.cpu_p99_cores, own.memory_peak_bytes))
        for name, owner, cores, bytes_ in zip(own.names, *columns, strict=True):
            containers[owner].append(ContainerFacts(name, _finite(cores), _finite(bytes_)))
    return [_facts(observation, statistics, row, some) for row, some in enumerate(containers)]


def _facts(
    observation: Observation, statistics: Statistics, row: int, containers: list[ContainerFacts]
) -> Facts:
    def whole(column: Whole | None) -> int:
        return 0 if column is None else int(column[row])

    figures: dict[str, Any] = {name: _finite(getattr(statistics, name)[row]) for name in USAGE_FIGURES}
    inherited = (observation.inherited[row] if observation.inherited else None) or Inherited()
    return Facts(
        subject=observation.subjects[row],
        kind=observation.kinds[row],
        replicas=whole(observation.replicas),
        pods=whole(observation.pods),
        available=whole(observation.available),
        pods_unknown=None if observation.unknown is None else whole(observation.unknown),
        request_cores=_finite(observation.request_cores[row]),
        **figures,
        known_samples=whole(statistics.known_samples),
        expected_samples=statistics.expected_samples,
        prediction=statistics.predictions[row],
        metrics=[dict(metric) for metric in inherited.metrics],
        behavior=None if inherited.behavior is None else dict(inherited.behavior),
        containers=containers,
        measurable=whole(observation.measurable),
        unmeasured=whole(observation.unmeasured),
        partial=observation.partial[row] if observation.partial else "",
    )


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


def container_requests(facts: Sequence[Facts]) -> list[list[RecommendedContainer]]:
    """Return the containers of each workload with their recommended requests."""
    containers = [container for each in facts for container in each.containers]
    millis = rounded_up(_column(containers, "cpu_p99_cores") * RESOURCE_MARGIN * MILLI)
    bytes_ = rounded_up(_column(containers, "memory_peak_bytes") * RESOURCE_MARGIN)
    recommended = []
    for container, milli, size in zip(containers, millis.tolist(), bytes_.tolist(), strict=True):
        requests = {}
        if np.isfinite(milli):
            cores, rest = divmod(int(milli), MILLI)
            requests["cpu"] = str(cores) if cores and not rest else f"{int(milli)}m"
        if np.isfinite(size):
            requests["memory"] = str(int(size))
        recommended.append(RecommendedContainer(container.name, requests))
    in_order = iter(recommended)
    return [list(islice(in_order, len(each.containers))) for each in facts]
