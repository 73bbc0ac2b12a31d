"""Advice as a record: not the week behind it, but the few numbers that decided. Replay starts there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from equipoise.core.decision import Decision, Outcome, Record
from equipoise.core.reason import Code
from equipoise.engine import recording
from equipoise.engine.recording import as_json, replay_holds
from equipoise.recommendation.adopt import proposed
from equipoise.recommendation.decide import container_requests, decide_from, summarised
from equipoise.recommendation.observe import (
    WEEK_SECONDS,
    Containers,
    HourlyUsage,
    Inherited,
    Observation,
    Shared,
    Statistics,
)
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.stats.predict import Algorithm

BALANCER = "recommendation"
FOR = " for "
"""Between the workload and the Analytics that asks, in the subject of a decision."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """What a container used in the week; None where that is unknown."""

    name: str
    cpu_p99_cores: float | None
    memory_peak_bytes: float | None


class Facts(msgspec.Struct, frozen=True):
    """All that decided for one workload; None where something is unknown."""

    subject: str
    kind: str
    replicas: int
    pods: int
    available: int
    pods_unknown: int
    request_cores: float | None
    pod_p99_cores: float | None
    lowest_median_cores: float | None
    highest_median_cores: float | None
    p95_cores: float | None
    p95_past_cores: float | None
    peak_cores: float | None
    known_samples: int
    expected_samples: int
    prediction: dict[str, Any]
    metrics: list[dict[str, Any]] = []
    behavior: dict[str, Any] | None = None
    containers: list[ContainerFacts] = []
    picture: HourlyUsage | None = None
    """For people's eyes, where there is advice: nothing is decided from it."""
    measurable: int = 0
    """Pods that must have samples."""
    unmeasured: int = 0
    """Those of them that have none."""
    partial: str = ""
    """Why the source could not answer in full."""


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """How somebody wants to be advised."""

    policy: RecommendationPolicy
    about: AdviceType = AdviceType.HPA
    algorithm: Algorithm | None = Algorithm.PROFILE


Decided = tuple[Decision, Facts]
Batch = Sequence[tuple[AdviceRequest, Observation, Sequence[int]]]
"""Questions about many workloads at once, and how many pods of each are unknown."""


def examine_all(batch: Batch) -> list[list[Decided]]:
    """Decide, and keep what decided. Pure, and light on the way back: it may be done in another process.

    Questions about the same histories share their statistics.
    """
    shared: Shared = {}
    return [examine(question, seen, unknown, shared) for question, seen, unknown in batch]


def examine(
    question: AdviceRequest, seen: Observation, unknown: Sequence[int], shared: Shared | None = None
) -> list[Decided]:
    """Decide for every workload of an observation, and give the facts beside each decision."""
    found: list[Decided] = []
    containers = _containers(seen)
    policy, about = question.policy, question.about
    parts = summarised(policy, seen, question.algorithm, about, shared, is_drawn=True)
    for part, numbers, requests in parts:
        decisions = decide_from(policy, part, numbers, about, requests)
        for row, decision in enumerate(decisions):
            place = len(found)
            facts = _facts(part, numbers, row, unknown[place], containers[place])
            if decision.reason.code is Code.RECOMMEND and numbers.sketch is not None:
                facts = msgspec.structs.replace(facts, picture=numbers.sketch.of(row))
            found.append((_counted(decision, facts), facts))
    return found


def _counted(decision: Decision, facts: Facts) -> Decision:
    """Say also how many pods are unknown."""
    numbers = {**decision.reason.numbers, "pods_unknown": facts.pods_unknown}
    return msgspec.structs.replace(decision, reason=msgspec.structs.replace(decision.reason, numbers=numbers))


def _facts(
    seen: Observation, numbers: Statistics, row: int, unknown: int, containers: list[ContainerFacts]
) -> Facts:
    inherited = (seen.inherited[row] if seen.inherited else None) or Inherited()
    return Facts(
        subject=seen.subjects[row],
        kind=seen.kinds[row],
        replicas=int(seen.replicas[row]),
        pods=int(seen.pods[row]),
        available=int(seen.available[row]),
        pods_unknown=unknown,
        request_cores=_known(seen.request_cores[row]),
        pod_p99_cores=_known(numbers.pod_p99_cores[row]),
        lowest_median_cores=_known(numbers.lowest_median_cores[row]),
        highest_median_cores=_known(numbers.highest_median_cores[row]),
        p95_cores=_known(numbers.p95_cores[row]),
        p95_past_cores=_known(numbers.p95_past_cores[row]),
        peak_cores=_known(numbers.peak_cores[row]),
        known_samples=int(numbers.known_samples[row]),
        expected_samples=numbers.expected_samples,
        prediction=dict(numbers.predictions[row]),
        metrics=[dict(metric) for metric in inherited.metrics],
        behavior=None if inherited.behavior is None else dict(inherited.behavior),
        containers=containers,
        measurable=0 if seen.measurable is None else int(seen.measurable[row]),
        unmeasured=0 if seen.unmeasured is None else int(seen.unmeasured[row]),
        partial=seen.partial[row] if seen.partial else "",
    )


def _containers(seen: Observation) -> list[list[ContainerFacts]]:
    found: list[list[ContainerFacts]] = [[] for _ in seen.subjects]
    if seen.containers is not None:
        columns = (seen.containers.owner, seen.containers.cpu_p99_cores, seen.containers.memory_peak_bytes)
        rows = zip(seen.containers.names, *(column.tolist() for column in columns), strict=True)
        for name, owner, cores, bytes_ in rows:
            found[owner].append(ContainerFacts(name, _known(cores), _known(bytes_)))
    return found


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def told_for(decision: Decision, asker: str) -> Decision:
    """Name who asked: several may want different things of one workload, and each has a course of its own."""
    return msgspec.structs.replace(decision, subject=f"{decision.subject}{FOR}{asker}") if asker else decision


def record(
    question: AdviceRequest,
    facts: Facts,
    decision: Decision,
    at: float,
    record_id: str,
    *,
    asker: str = "",
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Write down what decided, and what came of it; the decision is told for the asker already."""
    is_applied = bool(decision.actions or decision.held)
    asked = _asked(question.policy, question.about, asker, is_applied=is_applied)
    return recording.record(BALANCER, asked, facts, {}, decision, at, record_id, outcomes)


@lru_cache(maxsize=256)
def _asked(
    policy: RecommendationPolicy, about: AdviceType, asker: str, *, is_applied: bool
) -> dict[str, Any]:
    settings = policy.model_dump(by_alias=True)
    return as_json({"for": asker, "type": about.value, "isApplied": is_applied, "settings": settings})


def redecide(recorded: Record) -> Decision:
    """Decide again from what is recorded; what guards held is in the record too."""
    policy = RecommendationPolicy.model_validate(recorded.policy.get("settings", {}))
    about = AdviceType(recorded.policy.get("type", ""))
    facts = msgspec.convert(recorded.observation, Facts)
    seen, numbers = _seen(facts), _statistics(facts)
    requests = container_requests(seen) if about is AdviceType.RESOURCE else None
    (decided,) = decide_from(policy, seen, numbers, about, requests)
    decision = _counted(decided, facts)
    if recorded.policy.get("isApplied"):
        decision = proposed(decision)
    return told_for(replay_holds(recorded, decision), recorded.policy.get("for", ""))


def _seen(facts: Facts) -> Observation:
    def column(value: float | None) -> Any:
        return np.array([_number(value)])

    return Observation(
        subjects=[facts.subject],
        kinds=[facts.kind],
        replicas=np.array([facts.replicas], np.intp),
        pods=np.array([facts.pods], np.intp),
        available=np.array([facts.available], np.intp),
        request_cores=column(facts.request_cores),
        history=np.zeros((1, 0)),
        interval_seconds=WEEK_SECONDS / facts.expected_samples,
        at=0.0,
        inherited=[Inherited(tuple(facts.metrics), facts.behavior)],
        containers=Containers(
            owner=np.zeros(len(facts.containers), np.intp),
            names=[each.name for each in facts.containers],
            cpu_p99_cores=np.array([_number(each.cpu_p99_cores) for each in facts.containers]),
            memory_peak_bytes=np.array([_number(each.memory_peak_bytes) for each in facts.containers]),
        ),
        measurable=np.array([facts.measurable], np.intp),
        unmeasured=np.array([facts.unmeasured], np.intp),
        partial=[facts.partial],
    )


def _statistics(facts: Facts) -> Statistics:
    def column(value: float | None) -> Any:
        return np.array([_number(value)])

    return Statistics(
        pod_p99_cores=column(facts.pod_p99_cores),
        lowest_median_cores=column(facts.lowest_median_cores),
        highest_median_cores=column(facts.highest_median_cores),
        p95_cores=column(facts.p95_cores),
        p95_past_cores=column(facts.p95_past_cores),
        peak_cores=column(facts.peak_cores),
        known_samples=np.array([facts.known_samples], np.intp),
        expected_samples=facts.expected_samples,
        predictions=[facts.prediction],
    )
