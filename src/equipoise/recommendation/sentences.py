"""The sentence of each decision, and the settings with which an inspection would pass.

A refusal has both numbers: the observed value and the limit.
"""

import math
from collections.abc import Iterator, Sequence

from equipoise.core.quantity import parse_bytes, parse_cores
from equipoise.core.reason import Code
from equipoise.recommendation.containers import OOM_FACTOR, memory_used
from equipoise.recommendation.explain import (
    Advice,
    ContainerAdvice,
    ContainerFacts,
    Facts,
    RecommendedHpa,
    coverage_text,
)
from equipoise.recommendation.settings import PREFIX, RecommendationPolicy, ResourcePolicy

LIFTABLE = frozenset(
    {Code.TOO_FEW_REPLICAS, Code.TOO_FEW_AVAILABLE_PODS, Code.LOW_USAGE, Code.LOW_FLUCTUATION}
)
"""Refusals that a setting lifts; the others lack what advice is made from."""
TIMES = "\N{MULTIPLICATION SIGN}"
CONTAINERS_MAX = 5
"""The most containers that a sentence has."""
WHOLE_POD = "*"
NEXT_TO_NOTHING = 1e-9


def sentence(
    policy: RecommendationPolicy,
    facts: Facts,
    advice: Advice,
    sizes: Sequence[ContainerAdvice] | None = None,
    refused: RecommendedHpa | None = None,
) -> str:
    """Return the sentence of a decision.

    `sizes` is set for advice of the type Resource, `refused` where a plan shows the advice that is refused.
    """
    if advice.code is Code.RECOMMEND:
        text = _hpa(policy, facts, advice) if sizes is None else _requests(policy.resource, facts, sizes)
        return text if facts.coverage >= 1 else f"{text} {_known(facts)}"
    text = _refusal(policy, facts, advice)
    if refused is None:
        return text
    flags = " ".join(f"--set {setting}" for setting in lifted_by(policy, facts, advice))
    return f"{text} For this advice anyway, add {flags}: {_bounds(refused)}."


def _known(facts: Facts) -> str:
    return f"{coverage_text(facts.coverage)} of the samples of the past seven days are known."


def _refusal(policy: RecommendationPolicy, facts: Facts, advice: Advice) -> str:
    """Return which check failed, with the observed value and the limit."""
    match advice.code:
        case Code.TOO_FEW_REPLICAS:
            needed, key = policy.replicas_needed(facts.kind)
            has = _count(facts.replicas, "replica")
            return f"The {facts.kind} has {has}; advice needs at least {needed} ({PREFIX}{key})."
        case Code.NO_PODS:
            return "The workload has 0 pods; advice needs at least 1."
        case Code.TOO_FEW_AVAILABLE_PODS:
            needed_percent = policy.pod_available_share_min * 100
            percent = _below(facts.available / facts.pods * 100, needed_percent, 3)
            be = "is" if facts.pods == 1 else "are"
            return (
                f"{facts.available} of {_count(facts.pods, 'pod')} {be} available, which is {percent}%; "
                f"advice needs at least {needed_percent:.12g}% ({PREFIX}pod-available-ratio)."
            )
        case Code.LOW_USAGE:
            assert facts.peak_cores is not None, "what is below a limit is known"
            peak = _below(facts.peak_cores, policy.peak_cores_min)
            return (
                f"The workload used at most {_unit(peak)} in the past seven days; HPA advice needs a peak of "
                f"at least {cores_text(policy.peak_cores_min)} ({PREFIX}min-cpu-usage-threshold)."
            )
        case Code.LOW_FLUCTUATION:
            times = _below(advice.fluctuation, policy.fluctuation_min)
            return (
                f"The busiest hour of the day uses {times} times as much CPU as the quietest "
                f"({cores_text(facts.highest_median_cores)} and {cores_text(facts.lowest_median_cores)}); "
                f"HPA advice needs at least {policy.fluctuation_min:.12g} times "
                f"({PREFIX}fluctuation-threshold)."
            )
        case Code.NO_REQUEST:
            return (
                f"The pods request {cores_text(facts.request_cores or 0.0)} of CPU; an HPA's target is a "
                "percentage of the request, which must be more than 0."
            )
    return _unknown(facts, advice.code)


def _unknown(facts: Facts, code: Code) -> str:
    """Return which samples are missing, as a sentence."""
    if code is Code.NO_SAMPLES:
        of = "of single pods" if facts.known_samples else f"of {facts.expected_samples:,}"
        samples = f"0 samples {of}" if facts.known_samples else f"0 {of} samples"
        return f"The past seven days have {samples}; advice needs at least 1."
    if facts.partial:
        return f"The metrics source returned a part of the data ({facts.partial}); advice needs all of it."
    have = "has" if facts.unmeasured == 1 else "have"
    return (
        f"{facts.unmeasured} of the {_count(facts.measurable, 'pod')} that have been ready for ten minutes "
        f"{have} no samples; advice needs samples of at least 90% of them."
    )


def _hpa(policy: RecommendationPolicy, facts: Facts, advice: Advice) -> str:
    """Return the advice, and the usage and the factor that its bounds come from."""
    assert facts.request_cores is not None, "advice has a request"
    assert facts.p95_cores is not None, "advice has samples"
    bounds = f"{advice.replicas_min} to {advice.replicas_max} replicas at {advice.target_percent}%"
    per_pod = facts.request_cores * advice.target_percent / 100
    span = "of the past week"
    if facts.prediction.is_predictable:
        span += " and the forecast of the next"
    factor = f"{policy.replicas_max_factor:.12g} {TIMES} {cores_text(facts.p95_cores)}"
    computed = f"{factor} ÷ {cores_text(per_pod)} per pod"
    most = policy.replicas_max_factor * facts.p95_cores / per_pod
    is_raised = math.ceil(float(f"{most:.6g}")) < advice.replicas_min
    maximum = f"is the minimum, since {computed} is less" if is_raised else f"is {computed}"
    return (
        f"The HPA should keep {bounds} of the CPU request. A pod requests {cores_text(facts.request_cores)} "
        f"and uses {cores_text(facts.pod_p99_cores)} at P99; the workload uses "
        f"{cores_text(facts.lowest_median_cores)} in its quietest hour and {cores_text(facts.p95_cores)} at "
        f"P95 {span}; the maximum {maximum}."
    )


def _requests(policy: ResourcePolicy, facts: Facts, sizes: Sequence[ContainerAdvice]) -> str:
    used = {container.name: container for container in facts.containers}
    if not sizes:
        return "Every container is excluded (resource.exclude-containers)."
    parts = [_container(policy, used[each.name], each) for each in sizes[:CONTAINERS_MAX]]
    more = [f"and {_count(rest, 'more container')}"] if (rest := len(sizes) - CONTAINERS_MAX) > 0 else []
    text = "; ".join(parts + more)
    return f"{text[0].upper()}{text[1:]}."


def _container(policy: ResourcePolicy, used: ContainerFacts, advice: ContainerAdvice) -> str:
    requests, parts = advice.recommended.requests, []
    if "cpu" in requests and used.cpu_cores is not None:
        source = (
            f"P{policy.cpu_percentile:g} of {cores_text(used.cpu_cores)} + {policy.cpu_margin_percent:g}%"
        )
        kept = requests["cpu"] == advice.current.requests.get("cpu")
        parts.append(_amount(cores_text(parse_cores(requests["cpu"])), "CPU", source, is_kept=kept))
    if "memory" in requests and (memory := memory_used(used)) is not None:
        source = f"peak of {bytes_text(memory)} + {policy.memory_margin_percent:g}%"
        if used.is_oom_killed:
            reached = f"out of memory at {bytes_text(memory / OOM_FACTOR)}"
            source = f"{reached}, + {(OOM_FACTOR - 1) * 100:.0f}% + {policy.memory_margin_percent:g}%"
        kept = requests["memory"] == advice.current.requests.get("memory")
        parts.append(_amount(bytes_text(parse_bytes(requests["memory"])), "memory", source, is_kept=kept))
    who = "the pod" if used.name == WHOLE_POD else f"container {used.name}"
    return f"{who} should request {' and '.join(parts)}" if parts else f"{who} has no samples"


def _amount(size: str, what: str, source: str, *, is_kept: bool) -> str:
    return f"{size} of {what} ({source}{', as it is now' if is_kept else ''})"


def _bounds(hpa: RecommendedHpa) -> str:
    return f"{hpa.replicas_min} to {hpa.replicas_max} replicas at {hpa.target_percent}% of the CPU request"


def lifted_by(policy: RecommendationPolicy, facts: Facts, advice: Advice) -> list[str]:
    """Return the settings with which every inspection that fails would pass."""
    return [setting for code in advice.refusals for setting in _lifted_by(policy, facts, advice, code)]


def _lifted_by(policy: RecommendationPolicy, facts: Facts, advice: Advice, code: Code) -> Iterator[str]:
    match code:
        case Code.TOO_FEW_REPLICAS:
            for needed, key in policy.replicas_limits(facts.kind):
                if needed > facts.replicas:
                    yield f"{PREFIX}{key}={facts.replicas}"
        case Code.TOO_FEW_AVAILABLE_PODS:
            yield f"{PREFIX}pod-available-ratio={_floor(facts.available / facts.pods)}"
        case Code.LOW_USAGE:
            yield f"{PREFIX}min-cpu-usage-threshold={_floor(facts.peak_cores or 0.0)}"
        case Code.LOW_FLUCTUATION:
            yield f"{PREFIX}fluctuation-threshold={_floor(advice.fluctuation)}"


def _floor(value: float) -> str:
    """Return a number rounded down to two digits, so that it is not above the value."""
    if value < NEXT_TO_NOTHING:
        return "0"
    decimals = max(0, 1 - math.floor(math.log10(value)))
    return number_text(math.floor(value * 10**decimals) / 10**decimals)


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number with three digits, never in scientific notation."""
    if value is None or not math.isfinite(value):
        return "unknown"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cores_text(value: float | None) -> str:
    return _unit(number_text(value))


def _unit(number: str) -> str:
    return f"{number} core" if number == "1" else f"{number} cores"


def bytes_text(size: float) -> str:
    for unit, power in (("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if size >= 1024.0**power:
            return f"{number_text(size / 1024.0**power)} {unit}"
    return f"{number_text(size)} bytes"


def _below(value: float, limit: float, digits: int = 4) -> str:
    """Return a number with as many digits as it takes to be distinct from its limit."""
    texts = (number_text(value, count) for count in range(digits, 13))
    return next((text for text in texts if float(text) < limit), number_text(value, 12))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
