"""Which pods of a workload to rotate now: the seed's steps 1 to 5. Pure.

    target    = HPA target x mean request          (or the target itself, when it is an average value)
    hot       = the K busiest candidates that use more than target x tolerance
    cold      = the K idlest candidates that are not among the K busiest
    predicted = (mean(hot) - mean(hot + cold)) / mean(hot)

Rotate when there is a hot pod and the predicted improvement is above the minimum. Both comparisons are
strict, and ties are broken by name, so that the same observation always gives the same plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from equipoise.core.cluster import HpaMetric
from equipoise.core.decision import Decided, Decision, EvictPod
from equipoise.core.quantity import print_cores, print_count, print_list, print_number, print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import (
    CORES_MAX,
    Observation,
    ObservedHpa,
    PodLoad,
    RotationPlan,
    held_by_autoscaler_pause,
    held_by_health,
    held_by_opt_out,
    held_by_rollout,
    held_by_scaling,
)
from equipoise.rotation.progress import RotationDetails, RotationMemory, Situation, advance, describe

COVERAGE_MIN = 0.9
"""Smallest share of ready pods with known usage: fresh samples that cover the window."""

SLACK = 1e-9
"""Tolerance of comparisons: 1.05 must not count as above 0.7 x 1.5, nor float noise as above 0 %."""


class NoPlan(Exception):  # noqa: N818 - reads as a fact
    """Raised with the reason why the algorithm cannot be applied to a workload."""

    def __init__(self, code: Code, sentence: str, **numbers: Any) -> None:
        super().__init__(sentence)
        self.reason = Reason(code, sentence, numbers)


NOTHING: Mapping[str, Any] = MappingProxyType({})


def decide(
    policy: RotationPolicy, observation: Observation, memory: Mapping[str, Any] = NOTHING
) -> Decided[RotationDetails]:
    """Decide the rotation of one workload, and its next memory.

    In order: the proposal of the algorithm, the progress of the rotation under way, and the holds.
    """
    proposed, plan = propose(policy, observation)
    before = RotationMemory.from_data(memory)
    is_proposed = bool(proposed.actions)
    details = advance(Situation(policy, observation, before, plan, is_rotation_proposed=is_proposed))
    decision = _first_held(policy, observation, details, proposed)
    if details.room is not None:
        assert details.room > 0, "a rotation that took all it planned has ended"
        room = details.room
        sentence = f"The rotation in progress may evict {room} more of its planned pods; the others stay."
        decision = decision.hold(Reason(Code.HELD_BY_BUDGET, sentence, {"rotation_room": room}), room)
    assert len(decision.actions) + len(decision.held) == len(proposed.actions), "what is held is not lost"
    numbers = Reason.of(decision.reason.code, "", *_numbers_of(details.memory, observation.at)).numbers
    sentence = decision.reason.sentence
    if details.result is not None:
        sentence = f"{describe(details.result)} {sentence}"
    reason = Reason(decision.reason.code, sentence, decision.reason.numbers | numbers)
    decision = msgspec.structs.replace(decision, reason=reason, memory=details.memory.to_data())
    return Decided(decision, details)


def _first_held(
    policy: RotationPolicy, observation: Observation, details: RotationDetails, proposed: Decision
) -> Decision:
    """Hold the proposal for the first reason that applies; a paused autoscaler explains a missing HPA."""
    if proposed.reason.code is Code.NO_HPA:
        paused = held_by_autoscaler_pause(observation)
        return proposed if paused is None else Decision(proposed.subject, paused)
    if not proposed.actions:
        return proposed
    holds = _holds(policy, observation, details)
    reason = next((reason for reason in holds if reason is not None), None)
    return proposed if reason is None else proposed.hold(reason)


def _holds(
    policy: RotationPolicy, observation: Observation, details: RotationDetails
) -> Iterator[Reason | None]:
    """Yield the results of the preconditions, the most useful reason for a person first."""
    assert details.plan is not None, "what is proposed comes from a plan"
    yield held_by_opt_out(policy, observation)
    yield held_by_autoscaler_pause(observation)
    yield held_by_rollout(observation)
    yield held_by_health(observation)
    yield held_by_scaling(policy, observation, details.plan.target_cores)
    yield _held_by_futility(policy, details.memory, observation.at)
    yield details.hold


def _held_by_futility(policy: RotationPolicy, memory: RotationMemory, at: float) -> Reason | None:
    if memory.futile_until is None or at >= memory.futile_until:
        return None
    until = datetime.fromtimestamp(memory.futile_until, UTC).strftime("%Y-%m-%d %H:%M UTC")
    sentence = (
        f"{memory.failures} rotations in a row did not lower the usage of the hottest pod by "
        f"{policy.improvement_percent_min:g}%. The imbalance probably follows the load or the node, not the "
        f"pod. The next attempt is after {until}."
    )
    return Reason(Code.FUTILE, sentence, {"rotations_failed": memory.failures})


class _RealisedNumbers(msgspec.Struct, frozen=True):
    predicted_improvement_percent: float
    realised_improvement_percent: float


class _FutileNumbers(msgspec.Struct, frozen=True):
    futile_until: float


class _RunNumbers(msgspec.Struct, frozen=True):
    wave: int
    evicted: int
    planned: int


def _numbers_of(memory: RotationMemory, at: float) -> Iterator[msgspec.Struct]:
    """Yield predicted beside realised improvement, and how far a rotation under way has come."""
    last, run, until = memory.last, memory.run, memory.futile_until
    if last is not None and last.realised_percent is not None:
        yield _RealisedNumbers(last.predicted_percent, last.realised_percent)
    if until is not None and at < until:
        yield _FutileNumbers(until)
    if run is not None:
        yield _RunNumbers(run.waves, run.evicted, run.planned)


def propose(policy: RotationPolicy, observation: Observation) -> tuple[Decision, RotationPlan | None]:
    """Return the proposal of the algorithm, the seed's steps 1 to 5, before any hold."""
    try:
        metric = choose_metric(policy, observation.hpas)
        ready = [pod for pod in observation.pods if pod.is_ready]
        _check_replicas(policy, ready, len(observation.pods))
        _check_coverage(ready, observation.metrics_partial)
        return _rotate(policy, observation, ready, target_cores(metric, ready))
    except NoPlan as error:
        return Decision(observation.subject, error.reason), None


def decide_all(
    batch: Sequence[tuple[RotationPolicy, Observation, Mapping[str, Any]]],
) -> list[Decided[RotationDetails]]:
    """Decide for many workloads: one batch, in this process or in the worker."""
    return [decide(policy, observation, memory) for policy, observation, memory in batch]


def choose_metric(policy: RotationPolicy, hpas: Sequence[ObservedHpa]) -> HpaMetric:
    """Return the one HPA metric that says how busy a pod should be; raises NoPlan where there is none."""
    chosen = [hpa for hpa in hpas if hpa.name.startswith(policy.hpa_prefix)]
    if not chosen:
        named = f" whose name starts with {policy.hpa_prefix}" if policy.hpa_prefix else ""
        raise NoPlan(Code.NO_HPA, f"No HPA{named} targets this workload.", hpas=[hpa.name for hpa in hpas])
    if len(chosen) > 1:
        names = sorted(hpa.name for hpa in chosen)
        sentence = f"{len(names)} HPAs target this workload: {print_list(names)}. Delete all but one."
        raise NoPlan(Code.AMBIGUOUS_HPA, sentence, hpas=names)
    return _cpu_metric(policy, chosen[0])


def _cpu_metric(policy: RotationPolicy, hpa: ObservedHpa) -> HpaMetric:
    named = [metric for metric in hpa.metrics if metric.name == policy.hpa_metric_name]
    for kind in ("Resource", "ContainerResource"):
        metrics = [metric for metric in named if metric.type == kind]
        if len(metrics) != 1 or metrics[0].name != "cpu":
            continue
        if metrics[0].target_type in {"Utilization", "AverageValue"} and metrics[0].target_value > 0:
            return metrics[0]
    if policy.hpa_metric_name != "cpu":
        sentence = f"hpaMetricName is {policy.hpa_metric_name}, but rotation compares CPU only."
        raise NoPlan(Code.UNSUPPORTED_TARGET, sentence, hpa=hpa.name)
    found = ", ".join(f"{m.type} {m.name} {m.target_type}" for m in hpa.metrics) or "no metric"
    kinds = "of type Resource or ContainerResource with a Utilization or AverageValue target"
    needed = f"exactly one CPU metric {kinds}"
    sentence = f"HPA {hpa.name} has {found}; rotation requires {needed}."
    raise NoPlan(Code.UNSUPPORTED_TARGET, sentence, hpa=hpa.name)


def target_cores(metric: HpaMetric, ready: Sequence[PodLoad]) -> float:
    """Return how many cores a pod uses at exactly the HPA's target."""
    if metric.target_type == "AverageValue":
        return metric.target_value
    requests = [pod.request_cores for pod in ready if pod.request_cores]
    if len(requests) < len(ready):
        without = min(pod.name for pod in ready if not pod.request_cores)
        sentence = (
            f"The HPA's Utilization target requires a CPU request on every pod, but {without} has none."
        )
        missing = len(ready) - len(requests)
        raise NoPlan(Code.UNSUPPORTED_TARGET, sentence, pods_without_request=missing)
    return metric.target_value / 100 * (sum(requests) / len(requests))


def _check_replicas(policy: RotationPolicy, ready: Sequence[PodLoad], total: int) -> None:
    count, needed = len(ready), policy.replicas_min
    if count < needed:
        are = "is" if count == 1 else "are"
        sentence = f"{count} of {total} pods {are} ready; rotation requires at least {needed} (minReplicas)."
        raise NoPlan(Code.TOO_FEW_REPLICAS, sentence, pods_ready=count, replicas_min=needed)


def _check_coverage(ready: Sequence[PodLoad], partial: str) -> None:
    count, measured = len(ready), sum(pod.cpu_cores is not None for pod in ready)
    coverage = measured / count if ready else 0.0
    if partial:
        why = f"The source of the CPU usage returned incomplete data ({partial}), so nothing is decided."
    elif (
        measured * 100 < COVERAGE_MIN * 100 * count
    ):  # in whole pods: 0.9 x 10 as a float is slightly above 9
        why = (
            f"{measured} of {count} ready pods ({coverage * 100:.0f}%) have fresh CPU samples for the entire "
            f"metrics window; at least {COVERAGE_MIN * 100:.0f}% are required."
        )
    else:
        return
    unknown = count - measured
    raise NoPlan(Code.METRICS_INCOMPLETE, why, pods_ready=count, pods_unknown=unknown, coverage=coverage)


def _rotate(
    policy: RotationPolicy, observation: Observation, ready: Sequence[PodLoad], target: float
) -> tuple[Decision, RotationPlan]:
    threshold = min(target * policy.tolerance_multiplier, CORES_MAX)
    candidates = sorted((pod for pod in ready if _is_candidate(policy, pod)), key=attrgetter("name"))
    busiest = sorted(candidates, key=_cores, reverse=True)
    hot = [pod for pod in busiest[: policy.top_k] if _is_above(_cores(pod), threshold)]
    cold = sorted(sorted(busiest[policy.top_k :], key=attrgetter("name")), key=_cores)[: policy.top_k]
    assert len(hot) + len(cold) <= len(candidates), "hot and cold pods are disjoint"
    unknown = sum(pod.cpu_cores is None for pod in ready)
    protected = [pod for pod in ready if pod.protection and pod.cpu_cores is not None]
    mean_hot = mean_rotated = improvement = None
    if hot:
        mean_hot, mean_rotated = _mean(hot), _mean([*hot, *cold])
        improvement = (mean_hot - mean_rotated) / mean_hot * 100
    plan = RotationPlan(
        target_cores=_shown(target),
        threshold_cores=_shown(threshold),
        hot=[pod.name for pod in hot],
        cold=[pod.name for pod in cold],
        average_hot_cores=None if mean_hot is None else _shown(mean_hot),
        average_rotated_cores=None if mean_rotated is None else _shown(mean_rotated),
        improvement_percent=improvement,
        pods_ready=len(ready),
        pods_unknown=unknown,
        candidates=len(candidates),
        pods_protected=len(protected) or msgspec.UNSET,
    )
    actions: tuple[EvictPod, ...] = ()
    if improvement is None and any(_is_above(_cores(pod), threshold) for pod in protected):
        code, sentence = Code.OPTED_OUT, _protected_sentence(protected)
    elif improvement is None:
        code, sentence = Code.NO_HOT_PODS, _no_hot_sentence(policy, ready, busiest, threshold)
    elif _is_above(improvement, policy.improvement_percent_min):
        code, sentence = Code.ROTATE, _rotate_sentence(plan, improvement)
        actions = tuple(EvictPod(pod.name, observation.namespace, pod.uid) for pod in [*hot, *cold])
    else:
        code = Code.INSUFFICIENT_IMPROVEMENT
        sentence = (
            f"Rotating {print_list(plan.hot)} with the coldest pods is predicted to lower their average "
            f"usage by {improvement:.1f}%; more than {policy.improvement_percent_min:g}% is required."
        )
    if unknown:
        have = "has" if unknown == 1 else "have"
        sentence += f" {unknown} of {len(ready)} ready pods {have} no fresh samples for the metrics window."
    return Decision(observation.subject, Reason.of(code, sentence, plan), actions), plan


def _is_candidate(policy: RotationPolicy, pod: PodLoad) -> bool:
    is_old = pod.age_seconds is None or pod.age_seconds >= policy.candidate_age_min_seconds
    return pod.cpu_cores is not None and is_old and not pod.has_restarted and not pod.protection


def _is_above(value: float, limit: float) -> bool:
    return value > limit + SLACK * max(limit, 1.0)


def _shown(value: float) -> float:
    """Return a number without the noise of its last digits: 1.05, not 1.0499999999999998."""
    return float(f"{value:.12g}")


def _cores(pod: PodLoad) -> float:
    assert pod.cpu_cores is not None, "only candidates are compared, and they have a sample"
    return pod.cpu_cores


def _mean(pods: Sequence[PodLoad]) -> float:
    return sum(map(_cores, pods)) / len(pods)


def _no_hot_sentence(
    policy: RotationPolicy, ready: Sequence[PodLoad], busiest: Sequence[PodLoad], threshold: float
) -> str:
    age = print_seconds(policy.candidate_age_min_seconds)
    if not busiest:
        return _no_candidate_sentence(age, ready)
    top = busiest[0]
    limit = f"the threshold is {print_cores(threshold)}"
    used = f"the busiest pod, {top.name}, uses {print_cores(_cores(top))}, and {limit}"
    known = [pod for pod in ready if pod.cpu_cores is not None and not pod.protection]
    young = sum(_is_above(_cores(pod), threshold) for pod in known)
    if young:
        above = f"{print_count(young, 'pod')} above the threshold {'is' if young == 1 else 'are'}"
        return f"No candidate is hot: {used}. {above} younger than {age} (minPodAge) or restarted recently."
    return f"No pod is hot: {used}."


def _no_candidate_sentence(age: str, ready: Sequence[PodLoad]) -> str:
    protected = sorted((pod for pod in ready if pod.protection), key=attrgetter("name"))
    if not protected:
        return f"No pod is a candidate yet: all are younger than {age} (minPodAge) or restarted recently."
    if len(protected) < len(ready):
        why = f"each is younger than {age} (minPodAge), restarted recently or has no samples"
        return f"No unprotected pod is a candidate yet: {why}."
    first = protected[0]
    why = f"{first.name} is never evicted because {first.protection}"
    return f"No pod is hot, and all pods are protected: {why}."


def _protected_sentence(protected: Sequence[PodLoad]) -> str:
    top = max(sorted(protected, key=attrgetter("name")), key=_cores)
    more = f" {len(protected)} pods are protected." if len(protected) > 1 else ""
    hot = f"{top.name} is hot with {print_cores(_cores(top))}"
    return f"{hot}, but it is never evicted because {top.protection}.{more}"


def _rotate_sentence(plan: RotationPlan, improvement: float) -> str:
    assert plan.average_hot_cores is not None, "a plan to rotate has averages"
    assert plan.average_rotated_cores is not None, "a plan to rotate has averages"
    share = f"{plan.threshold_cores / plan.target_cores * 100:.0f}% of the HPA's target"
    use, them = ("uses", "it") if len(plan.hot) == 1 else ("use", "them")
    above = f"{use} more than {print_cores(plan.threshold_cores)} ({share})"
    before, after = print_number(plan.average_hot_cores), print_cores(plan.average_rotated_cores)
    return (
        f"{print_list(plan.hot)} {above}. Rotating {them} with {print_list(plan.cold)} is predicted to lower "
        f"the average usage of these pods by {improvement:.1f}%, from {before} to {after}."
    )
