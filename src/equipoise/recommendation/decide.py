"""Advice for batches of workloads, each with its reason, its numbers and one sentence. Pure.

The seed's arithmetic on arrays: inspection in its order, then targets and replicas.

    target      = ceil(P99 of a pod / its request), within [min, max] percent
    minReplicas = max(default, 1, ceil(lowest hourly median / (request x highest target)))
    maxReplicas = max(minReplicas, ceil(P95 of the workload / (request x target) x factor))

Every comparison that refuses is strict, up to the noise of floats; before a ceil, six digits count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from equipoise.core.cluster import Container
from equipoise.core.decision import Decision
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.containers import container_advice
from equipoise.recommendation.explain import (
    USAGE_FIGURES,
    Advice,
    AdviceDetails,
    ContainerAdvice,
    ContainerFacts,
    Facts,
    RecommendedContainer,
    RecommendedHpa,
    confidence,
    numbers_of,
)
from equipoise.recommendation.observe import Inherited, Observation, Shared, Statistics, share_key, summarise
from equipoise.recommendation.sentences import LIFTABLE, sentence
from equipoise.recommendation.settings import AdviceRequest, AdviceType, RecommendationPolicy
from equipoise.stats.ranks import Claims, Floats, Whole, rounded_up

SLACK = 1e-7
"""Relative tolerance of comparisons: 0.3 / 0.2 must not count as below 1.5."""
REPLICAS_MAX = 2**31 - 1
CORES_SLACK = 1e-12


def advise(request: AdviceRequest, facts: Sequence[Facts]) -> list[Advice]:
    """Return the advice for a batch, with the checks that each workload fails."""
    policy = request.policy
    used = {name: _column(facts, name) for name in (*USAGE_FIGURES, "request_cores")}
    fluctuation = _fluctuations(used["lowest_median_cores"], used["highest_median_cores"])
    checks = (
        inspections(policy, facts, used, fluctuation)
        if request.about is AdviceType.HPA
        else resource_inspections(facts)
    )
    refusals = [
        tuple(code for code, is_failed in zip(checks, row, strict=True) if is_failed)
        for row in np.array(list(checks.values())).T.tolist()
    ]
    requests = np.where(used["request_cores"] > 0, used["request_cores"], np.nan)
    target = rounded_up(used["pod_p99_cores"] / requests * 100)
    target = np.clip(target, policy.target_percent_min, policy.target_percent_max)
    least = rounded_up(used["lowest_median_cores"] / (requests * policy.target_percent_max / 100))
    least = np.maximum(least, max(policy.replicas_min_default, 1))
    most = rounded_up(used["p95_cores"] / (requests * target / 100) * policy.replicas_max_factor)
    replicas_min, replicas_max = _whole(least), _whole(np.maximum(most, least))
    assert (np.isnan(most) | (replicas_min <= replicas_max)).all(), "the bounds of advice are in order"
    assert len(refusals) == len(replicas_max) == len(facts), "every workload has a reason and bounds"
    columns = (column.tolist() for column in (fluctuation, _whole(target), replicas_min, replicas_max))
    return [
        Advice(failed[0] if failed else Code.RECOMMEND, share, percent, low, high, failed)
        for failed, share, percent, low, high in zip(refusals, *columns, strict=True)
    ]


def _column(facts: Sequence[Facts], name: str) -> Floats:
    """Return one number of each workload; NaN where it is unknown."""
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
            Code.METRICS_INCOMPLETE: np.array([each.is_incomplete for each in facts], np.bool_),
            Code.NO_SAMPLES: (known_samples == 0) | np.isnan(used["pod_p99_cores"]),
            Code.LOW_USAGE: _below(used["peak_cores"], policy.peak_cores_min),
            Code.LOW_FLUCTUATION: _below(fluctuation, policy.fluctuation_min),
            Code.NO_REQUEST: ~(used["request_cores"] > 0),
        }


def resource_inspections(facts: Sequence[Facts]) -> dict[Code, Claims]:
    """Return which checks each workload fails where the advice is about requests, in order of precedence.

    The pods of a CronJob come and go, so that having none now says nothing.
    """
    return {
        Code.NO_PODS: np.array([each.pods == 0 and each.kind != "CronJob" for each in facts], np.bool_),
        Code.METRICS_INCOMPLETE: np.array([bool(each.partial) for each in facts], np.bool_),
        Code.NO_SAMPLES: np.array([not each.has_usage for each in facts], np.bool_),
    }


def _fluctuations(lowest: Floats, highest: Floats) -> Floats:
    """Return highest / lowest hourly median; infinite where the lowest is 0."""
    is_still = lowest <= CORES_SLACK
    return np.where(is_still, np.inf, highest / np.where(lowest > CORES_SLACK, lowest, np.nan))


def _below(values: Floats, limit: float) -> Claims:
    return np.asarray(values < limit - SLACK * max(limit, CORES_SLACK))


def _whole(values: Floats) -> Whole:
    return np.clip(np.nan_to_num(values, posinf=REPLICAS_MAX), 0, REPLICAS_MAX).astype(np.intp)


BATCH = 256
"""Workloads per part: their forecasts of a week of minutes take 10 MiB."""


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
        found = decide_from(request, facts_of(part, statistics))
        if (hours := statistics.hourly_usage) is not None:
            for row, one in enumerate(found):
                if one.decision.reason.code is Code.RECOMMEND:
                    facts = structs.replace(one.facts, hourly_usage=hours.of(row))
                    found[row] = one._replace(facts=facts)
        yield found


def decide_from(request: AdviceRequest, facts: Sequence[Facts]) -> list[Examined]:
    """Decide from the facts alone, without the histories."""
    sizes: Sequence[list[ContainerAdvice] | None] = [None] * len(facts)
    if request.needs_containers:
        is_lacking: Claims = np.logical_or.reduce(list(resource_inspections(facts).values()))
        advised = container_advice(request.policy.resource, facts)
        sizes = [None if is_lacking[row] else some for row, some in enumerate(advised)]
    rows = zip(facts, advise(request, facts), sizes, strict=True)
    return [_examined(request, known, advice, some) for known, advice, some in rows]


def _examined(
    request: AdviceRequest, facts: Facts, advice: Advice, sizes: list[ContainerAdvice] | None
) -> Examined:
    policy, is_advice = request.policy, advice.code is Code.RECOMMEND
    hpa = refused = containers = None
    if request.about is AdviceType.RESOURCE:
        containers = None if sizes is None else [_requests_of(each) for each in sizes]
    elif is_advice:
        hpa = _hpa(policy, facts, advice)
    elif request.shows_refused and LIFTABLE.issuperset(advice.refusals):
        refused = _hpa(policy, facts, advice)
    text = sentence(policy, facts, advice, None if containers is None else sizes, refused)
    details = AdviceDetails(
        kind=facts.kind,
        hpa=hpa,
        containers=containers,
        prediction=facts.prediction,
        confidence=confidence(facts),
        coverage=facts.coverage,
        refused_hpa=refused,
        sizes=sizes,
    )
    reason = Reason(advice.code, text, numbers_of(facts, advice))
    return Examined(Decision(facts.subject, reason, extra=details.document), details, facts)


def _requests_of(advice: ContainerAdvice) -> RecommendedContainer:
    return RecommendedContainer(advice.name, advice.recommended.requests)


def facts_of(observation: Observation, statistics: Statistics) -> list[Facts]:
    """Return the facts of each workload, which records contain instead of the histories."""
    containers: list[list[ContainerFacts]] = [[] for _ in observation.subjects]
    if (own := observation.containers) is not None:
        columns = (own.owner, own.cpu_cores, own.memory_peak_bytes, own.is_oom_killed)
        for number, spec in enumerate(own.specs):
            owner, cores, bytes_, is_oom_killed = (column[number].item() for column in columns)
            containers[owner].append(_container_facts(spec, cores, bytes_, is_oom_killed=is_oom_killed))
    return [_facts(observation, statistics, row, some) for row, some in enumerate(containers)]


def _container_facts(spec: Container, cores: float, bytes_: float, *, is_oom_killed: bool) -> ContainerFacts:
    return ContainerFacts(
        spec.name,
        _finite(cores),
        _finite(bytes_),
        spec.cpu_request_cores,
        spec.memory_request_bytes,
        spec.cpu_limit_cores,
        spec.memory_limit_bytes,
        is_oom_killed,
    )


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
