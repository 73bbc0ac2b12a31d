"""The seed's arithmetic on arrays: inspection in its order, then targets and replicas.

    target      = ceil(P99 of a pod / its request), within [min, max] percent
    minReplicas = max(default, 1, ceil(lowest hourly median / (request x highest target)))
    maxReplicas = max(minReplicas, ceil(P95 of the workload / (request x target) x factor))

Every comparison that refuses is strict, up to the noise of floats; before a ceil, six digits count.
"""

from typing import NamedTuple

import numpy as np

from equipoise.model.reason import Code
from equipoise.recommendation.observation import Observation, Statistics
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.stats.arrays import Claims, Floats, Whole

SLACK = 1e-7
"""0.3 / 0.2 is not below 1.5, although floats say so; single precision has twice that noise."""
UNMEASURED_SHARE_MAX = 0.1
"""So many of the pods that must have samples may have none; beyond, there is no advice."""
REPLICAS_MAX = 2**31 - 1
CORES_SLACK = 1e-12
NEXT_TO_NOTHING = 1e-290
"""What is less is this: it has no six digits."""


class Advice(NamedTuple):
    """One entry per workload; replicas and targets mean something where the code is Recommend."""

    codes: list[Code]
    fluctuation: Floats
    target_percent: Whole
    replicas_min: Whole
    replicas_max: Whole


def advise(
    policy: RecommendationPolicy, seen: Observation, numbers: Statistics, about: AdviceType = AdviceType.HPA
) -> Advice:
    """Inspect and advise a batch."""
    fluctuation = fluctuations(numbers)
    refusals = inspections(policy, seen, numbers, fluctuation)
    if about is AdviceType.RESOURCE:
        del refusals[Code.NO_REQUEST]  # a request is what the advice is about
    codes, order = list(refusals), np.array(list(refusals.values()))
    first = np.where(order.any(axis=0), order.argmax(axis=0), len(codes))
    codes.append(Code.RECOMMEND)
    request = np.where(seen.request_cores > 0, seen.request_cores, np.nan)
    wanted = rounded_up(numbers.pod_p99_cores / request * 100)
    target = np.clip(wanted, policy.target_percent_min, policy.target_percent_max)
    least = rounded_up(numbers.lowest_median_cores / (request * policy.target_percent_max / 100))
    least = np.maximum(least, max(policy.replicas_min_default, 1))
    most = rounded_up(numbers.p95_cores / (request * target / 100) * policy.replicas_max_factor)
    return Advice(
        codes=[codes[place] for place in first.tolist()],
        fluctuation=fluctuation,
        target_percent=_whole(target),
        replicas_min=_whole(least),
        replicas_max=_whole(np.maximum(most, least)),
    )


def inspections(
    policy: RecommendationPolicy, seen: Observation, numbers: Statistics, fluctuation: Floats
) -> dict[Code, Claims]:
    """Tell which checks each workload fails, in the order in which they refuse."""
    needed = np.array([policy.replicas_needed(kind)[0] for kind in seen.kinds], np.intp)
    with np.errstate(invalid="ignore"):
        return {
            Code.TOO_FEW_REPLICAS: seen.replicas < needed,
            Code.NO_PODS: seen.pods == 0,
            Code.TOO_FEW_AVAILABLE_PODS: _is_below(
                seen.available / np.maximum(seen.pods, 1), policy.pod_available_share_min
            ),
            Code.METRICS_INCOMPLETE: _is_incomplete(seen, numbers),
            Code.NO_SAMPLES: (numbers.known_samples == 0) | np.isnan(numbers.pod_p99_cores),
            Code.LOW_USAGE: _is_below(numbers.peak_cores, policy.peak_cores_min),
            Code.LOW_FLUCTUATION: _is_below(fluctuation, policy.fluctuation_min),
            Code.NO_REQUEST: ~(seen.request_cores > 0),
        }


def _is_incomplete(seen: Observation, numbers: Statistics) -> Claims:
    """Return whose samples are a part of what should be there; who has none at all is `NoSamples`."""
    is_partial = np.array([bool(why) for why in seen.partial] or [False] * len(seen.subjects))
    if seen.measurable is None or seen.unmeasured is None:
        return is_partial
    has_some = (numbers.known_samples > 0) | (seen.unmeasured < seen.measurable)
    is_lacking = seen.unmeasured * 100 > round(UNMEASURED_SHARE_MAX * 100) * seen.measurable
    return np.asarray(is_partial | (has_some & is_lacking))


def fluctuations(numbers: Statistics) -> Floats:
    """Give highest / lowest hourly median; infinite where the lowest is 0."""
    lowest = np.where(numbers.lowest_median_cores > CORES_SLACK, numbers.lowest_median_cores, np.nan)
    is_still = numbers.lowest_median_cores <= CORES_SLACK
    return np.where(is_still, np.inf, numbers.highest_median_cores / lowest)


def rounded_up(values: Floats) -> Floats:
    """Round to six significant digits, then up: 0.69 x 100 is 69."""
    values = np.where(values > 0, np.maximum(values, NEXT_TO_NOTHING), values)
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 5 - np.floor(np.log10(np.abs(values)))
    digits = np.where(np.isfinite(digits), digits, 0.0)
    up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    return np.asarray(np.ceil(np.rint(values * up / down) / up * down))


def _is_below(values: Floats, limit: float) -> Claims:
    return np.asarray(values < limit - SLACK * max(limit, CORES_SLACK))


def _whole(values: Floats) -> Whole:
    return np.clip(np.nan_to_num(values, posinf=REPLICAS_MAX), 0, REPLICAS_MAX).astype(np.intp)
