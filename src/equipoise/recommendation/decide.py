"""Advice for batches of workloads, each with its reason, its numbers and one sentence. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from equipoise.model.decision import Decision
from equipoise.model.reason import Code, Reason
from equipoise.recommendation.advise import Advice, advise, rounded_up
from equipoise.recommendation.explain import Row, sentence
from equipoise.recommendation.observation import Inherited, Observation, Statistics
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.recommendation.summarise import Shared, share_key, summarise
from equipoise.stats.arrays import Whole
from equipoise.stats.predict import Algorithm

BATCH = 256
"""So many forecasts of a week of minutes are held at once: 10 MiB."""
CONFIDENT_COVERAGE_MIN = 0.5
RESOURCE_MARGIN = 1.15
MILLI = 1000

Requests = Sequence[Sequence[Mapping[str, Any]]]
"""Of each workload its containers, with what they should ask for."""


def decide(
    policy: RecommendationPolicy,
    seen: Observation,
    algorithm: Algorithm | None = Algorithm.PROFILE,
    about: AdviceType = AdviceType.HPA,
) -> list[Decision]:
    """Decide for every workload of an observation; without an algorithm from the past only."""
    return [
        decision
        for part, numbers, containers in summarised(policy, seen, algorithm, about)
        for decision in decide_from(policy, part, numbers, about, containers)
    ]


def summarised(
    policy: RecommendationPolicy,
    seen: Observation,
    algorithm: Algorithm | None,
    about: AdviceType,
    shared: Shared | None = None,
    *,
    is_drawn: bool = False,
) -> Iterator[tuple[Observation, Statistics, Requests | None]]:
    """Take the statistics of an observation, a part of it at a time, so that memory holds one forecast.

    Those that are `shared` already are not taken again.
    """
    requests = container_requests(seen) if about is AdviceType.RESOURCE else None
    key, taken = share_key(policy, seen, algorithm), {} if shared is None else shared
    for start in range(0, len(seen.subjects), BATCH):
        part = seen.rows(slice(start, start + BATCH))
        containers = None if requests is None else requests[start : start + BATCH]
        if (start, *key) not in taken:
            taken[start, *key] = summarise(policy, part, algorithm, is_drawn=is_drawn)
        yield part, taken[start, *key], containers


def decide_from(
    policy: RecommendationPolicy,
    seen: Observation,
    numbers: Statistics,
    about: AdviceType = AdviceType.HPA,
    containers: Requests | None = None,
) -> list[Decision]:
    """Decide from the statistics alone: the histories are not needed any more."""
    advice = advise(policy, seen, numbers, about)
    inherited = list(seen.inherited) or [None] * len(seen.subjects)
    decisions = []
    for place, row in enumerate(_rows(seen, numbers, advice)):
        recommended: dict[str, Any] | None = None
        if row.code is Code.RECOMMEND and containers is not None:
            recommended = {"containers": list(containers[place])}
        elif row.code is Code.RECOMMEND:
            recommended = _hpa(row, inherited[place] if policy.inherits_hpa else None)
        reason = Reason(row.code, sentence(policy, row, recommended), _numbers(row))
        extra = {
            "kind": row.kind,
            "recommended": recommended,
            "prediction": dict(row.prediction),
            "confidence": _confidence(row),
        }
        decisions.append(Decision(row.subject, reason, extra=extra))
    return decisions


def _rows(seen: Observation, numbers: Statistics, advice: Advice) -> list[Row]:
    """Turn the columns into one plain row per workload."""
    columns = (
        seen.subjects,
        seen.kinds,
        advice.codes,
        seen.replicas.tolist(),
        seen.pods.tolist(),
        seen.available.tolist(),
        seen.request_cores.tolist(),
        numbers.pod_p99_cores.tolist(),
        numbers.lowest_median_cores.tolist(),
        numbers.highest_median_cores.tolist(),
        numbers.p95_cores.tolist(),
        numbers.p95_past_cores.tolist(),
        numbers.peak_cores.tolist(),
        advice.fluctuation.tolist(),
        (numbers.coverage * seen.measured_share).tolist(),
        numbers.known_samples.tolist(),
        [numbers.expected_samples] * len(seen.subjects),
        advice.target_percent.tolist(),
        advice.replicas_min.tolist(),
        advice.replicas_max.tolist(),
        numbers.predictions,
        _column(seen.measurable, seen),
        _column(seen.unmeasured, seen),
        list(seen.partial) or [""] * len(seen.subjects),
    )
    return [Row(*row) for row in zip(*columns, strict=True)]


def _column(values: Whole | None, seen: Observation) -> list[int]:
    return [0] * len(seen.subjects) if values is None else values.tolist()


def _confidence(row: Row) -> str:
    is_low = row.coverage < CONFIDENT_COVERAGE_MIN or row.code is Code.METRICS_INCOMPLETE
    return "low" if is_low else "high"


def _hpa(row: Row, inherited: Inherited | None) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": row.target_percent}
    metrics: list[Any] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = None
    if inherited is not None:
        metrics += [dict(metric) for metric in inherited.metrics if not _is_cpu(metric)]
        behavior = None if inherited.behavior is None else dict(inherited.behavior)
    return {
        "minReplicas": row.replicas_min,
        "maxReplicas": row.replicas_max,
        "targetUtilization": row.target_percent,
        "metrics": metrics,
        "behavior": behavior,
    }


def _is_cpu(metric: Mapping[str, Any]) -> bool:
    """Tell whether this is the utilisation that the advice replaces."""
    resource = metric.get("resource") or {}
    is_utilisation = (resource.get("target") or {}).get("type", "Utilization") == "Utilization"
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and is_utilisation


def _numbers(row: Row) -> dict[str, Any]:
    incomplete = {"pods_measurable": row.measurable, "pods_unmeasured": row.unmeasured}
    return {
        "pod_p99_cores": shown(row.pod_p99_cores),
        "lowest_median_cores": shown(row.lowest_median_cores),
        "highest_median_cores": shown(row.highest_median_cores),
        "p95_cores": shown(row.p95_cores),
        "p95_past_cores": shown(row.p95_past_cores),
        "peak_cores": shown(row.peak_cores),
        "fluctuation": shown(row.fluctuation),
        "coverage": row.coverage,
        "confidence": _confidence(row),
        "replicas": row.replicas,
        "pods": row.pods,
        "pods_available": row.available,
        "request_cores": shown(row.request_cores),
        "samples": row.known_samples,
        **(incomplete if row.code is Code.METRICS_INCOMPLETE else {}),
    }


def shown(value: float) -> float | None:
    """Give what JSON can hold: nothing for what is unknown or infinite, and no noise of the last digits."""
    return float(f"{value:.12g}") if np.isfinite(value) else None


def container_requests(seen: Observation) -> list[list[dict[str, Any]]]:
    """Give each workload's containers with what they should ask for."""
    found: list[list[dict[str, Any]]] = [[] for _ in seen.subjects]
    containers = seen.containers
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
        found[owner].append({"name": name, "requests": requests})
    return found


def _cpu_text(milli: int) -> str:
    return str(milli // MILLI) if milli and milli % MILLI == 0 else f"{milli}m"
