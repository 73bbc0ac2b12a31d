"""The arithmetic of throttling one pod: exact, in whole microseconds of quota.

down      new = quota (or usage when unlimited) x (1 - step/100), at least the request and limit x ratio/100
          release = sum of max(0, usage - new) over the containers that it would be lower for
up        new = quota x (1 + step/100), at most the limit; unlimited where there is no limit and new has
          passed twice the usage
"""

from fractions import Fraction
from typing import NamedTuple

from equipoise.qos.observation import NANOS_PER_MILLI, PERCENT, UNLIMITED, ObservedContainer, ObservedPod

QUOTA_MIN_US = 1000
"""The kernel's minimum."""
NANO = 10**9


class QuotaChange(NamedTuple):
    """New quotas by container, and how much less, or more, the pod can then use: millicores."""

    quota: dict[str, int]
    release: Fraction


def throttled_down(pod: ObservedPod, step_percent: int, ratio_min_percent: int) -> QuotaChange:
    """Return lower quotas for the containers whose usage they reduce; the others keep theirs."""
    quota: dict[str, int] = {}
    release = Fraction(0)
    for container in pod.containers:
        lower = _lower(container, step_percent, ratio_min_percent)
        if lower is not None:
            quota[container.name], released = lower
            release += released
    return QuotaChange(quota, release)


def _lower(container: ObservedContainer, step: int, ratio_min: int) -> tuple[int, Fraction] | None:
    if container.cpu_nanos is None:
        return None
    used = Fraction(container.cpu_nanos * container.period_us, NANO)
    is_unlimited = container.quota_us <= 0
    start = used if is_unlimited else Fraction(container.quota_us)
    wanted = start * (PERCENT - step) // PERCENT
    # The floors are rounded up and the step down: never below the request.
    request = _ceil(Fraction(container.cpu_request_nanos * container.period_us, NANO))
    ratio = _ceil(Fraction(container.cpu_limit_nanos * container.period_us * ratio_min, NANO * PERCENT))
    new = max(wanted, request, ratio, QUOTA_MIN_US)
    if new >= used or (not is_unlimited and new >= container.quota_us):
        return None
    return new, _millicores(used - new, container)


def throttled_up(pod: ObservedPod, step_percent: int) -> QuotaChange:
    """Return higher quotas for the containers that we throttled: one step towards their limits."""
    quota: dict[str, int] = {}
    growth = Fraction(0)
    for container in pod.containers:
        higher = _higher(container, step_percent)
        if higher is not None:
            quota[container.name], grown = higher
            growth += grown
    return QuotaChange(quota, growth)


def _higher(container: ObservedContainer, step: int) -> tuple[int, Fraction] | None:
    if not _is_below_limit(container):
        return None
    limit = container.limit_us
    new = max(container.quota_us * (PERCENT + step) // PERCENT, container.quota_us + 1)
    used = Fraction((container.cpu_nanos or 0) * container.period_us, NANO)
    grown = max(Fraction(0), new - used)
    if limit != UNLIMITED:
        new = min(new, limit)
        grown = max(Fraction(0), new - used)
    elif container.cpu_nanos is not None and new > 2 * used:
        new = UNLIMITED
    return new, _millicores(grown, container)


def lifted(pod: ObservedPod) -> QuotaChange:
    """Return the quotas of the limits, for the containers that we throttled."""
    quota = {part.name: part.limit_us for part in pod.containers if _is_below_limit(part)}
    return QuotaChange(quota, Fraction(0))


def _is_below_limit(container: ObservedContainer) -> bool:
    if not container.is_throttled or container.quota_us <= 0:
        return False
    return container.limit_us == UNLIMITED or container.quota_us < container.limit_us


def _millicores(quota_us: Fraction, container: ObservedContainer) -> Fraction:
    return quota_us * NANO / (container.period_us * NANOS_PER_MILLI)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
