"""Records of advice: not the week of samples, but the few numbers that decided; replay uses these."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from equipoise.core.decision import Decision, Outcome, Record
from equipoise.engine import recording
from equipoise.engine.recording import as_json, replay_holds
from equipoise.recommendation.adopt import proposed
from equipoise.recommendation.decide import container_requests, decide_from, summarised
from equipoise.recommendation.explain import AdviceDetails
from equipoise.recommendation.observe import (
    WEEK_SECONDS,
    Containers,
    HourlyUsage,
    Inherited,
    Observation,
    PredictionFacts,
    Shared,
    Statistics,
)
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.stats.predict import Algorithm

BALANCER = "recommendation"
SUBJECT_SEPARATOR = " for "
"""Separates the workload from its Analytics in the subject of a decision."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """A container's usage in the week; None where it is unknown."""

    name: str
    cpu_p99_cores: float | None
    memory_peak_bytes: float | None


class Facts(msgspec.Struct, frozen=True):
    """The inputs of one workload's decision; None where one is unknown."""

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
    prediction: PredictionFacts
    metrics: list[dict[str, Any]] = []
    behavior: dict[str, Any] | None = None
    containers: list[ContainerFacts] = []
    hourly_usage: HourlyUsage | None = msgspec.field(name="picture", default=None)
    """For display, where there is advice; nothing is decided from it."""
    measurable: int = 0
    """Pods that have been ready long enough to have samples."""
    unmeasured: int = 0
    """Measurable pods that have no samples."""
    partial: str = ""
    """Why the source's answer was partial."""


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """A request for advice: its settings, its type, and the algorithm of the forecast."""

    policy: RecommendationPolicy
    about: AdviceType = AdviceType.HPA
    algorithm: Algorithm | None = Algorithm.PROFILE


class Examined(NamedTuple):
    """The decision for one workload, and the facts that it follows from."""

    decision: Decision
    details: AdviceDetails
    facts: Facts


Batch = Sequence[tuple[AdviceRequest, Observation, Sequence[int]]]
"""Requests with their observations, and the number of unknown pods of each workload."""


def examine_all(batch: Batch) -> list[list[Examined]]:
    """Decide for a batch, and return the facts of each decision. Pure; can run in a worker process.

    The result is small to pickle. Requests about the same histories share their statistics.
    """
    shared: Shared = {}
    return [examine(request, observation, unknown, shared) for request, observation, unknown in batch]


def examine(
    request: AdviceRequest, observation: Observation, unknown: Sequence[int], shared: Shared | None = None
) -> list[Examined]:
    """Decide for every workload of an observation, and return the facts beside each decision."""
    assert len(unknown) == len(observation.subjects), "of every workload, how many pods are unknown"
    found: list[Examined] = []
    containers = _containers(observation)
    policy, about = request.policy, request.about
    parts = summarised(policy, observation, request.algorithm, about, shared, has_hours=True)
    for part, statistics, requests in parts:
        begin = len(found)
        part_unknown = unknown[begin : begin + len(part.subjects)]
        decided = decide_from(policy, part, statistics, about, requests, part_unknown)
        for row, (decision, details) in enumerate(decided):
            facts = _facts(part, statistics, row, part_unknown[row], containers[begin + row])
            if details.is_advice and statistics.hourly_usage is not None:
                facts = msgspec.structs.replace(facts, hourly_usage=statistics.hourly_usage.of(row))
            found.append(Examined(decision, details, facts))
    return found


def _facts(
    observation: Observation, statistics: Statistics, row: int, unknown: int, containers: list[ContainerFacts]
) -> Facts:
    inherited = (observation.inherited[row] if observation.inherited else None) or Inherited()
    return Facts(
        subject=observation.subjects[row],
        kind=observation.kinds[row],
        replicas=int(observation.replicas[row]),
        pods=int(observation.pods[row]),
        available=int(observation.available[row]),
        pods_unknown=unknown,
        request_cores=_finite(observation.request_cores[row]),
        pod_p99_cores=_finite(statistics.pod_p99_cores[row]),
        lowest_median_cores=_finite(statistics.lowest_median_cores[row]),
        highest_median_cores=_finite(statistics.highest_median_cores[row]),
        p95_cores=_finite(statistics.p95_cores[row]),
        p95_past_cores=_finite(statistics.p95_past_cores[row]),
        peak_cores=_finite(statistics.peak_cores[row]),
        known_samples=int(statistics.known_samples[row]),
        expected_samples=statistics.expected_samples,
        prediction=statistics.predictions[row],
        metrics=[dict(metric) for metric in inherited.metrics],
        behavior=None if inherited.behavior is None else dict(inherited.behavior),
        containers=containers,
        measurable=0 if observation.measurable is None else int(observation.measurable[row]),
        unmeasured=0 if observation.unmeasured is None else int(observation.unmeasured[row]),
        partial=observation.partial[row] if observation.partial else "",
    )


def _containers(observation: Observation) -> list[list[ContainerFacts]]:
    found: list[list[ContainerFacts]] = [[] for _ in observation.subjects]
    if observation.containers is not None:
        columns = (
            observation.containers.owner,
            observation.containers.cpu_p99_cores,
            observation.containers.memory_peak_bytes,
        )
        rows = zip(observation.containers.names, *(column.tolist() for column in columns), strict=True)
        for name, owner, cores, bytes_ in rows:
            found[owner].append(ContainerFacts(name, _finite(cores), _finite(bytes_)))
    return found


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def named_for(decision: Decision, asker: str) -> Decision:
    """Return the decision with the Analytics in its subject: a workload may be selected by several."""
    return (
        msgspec.structs.replace(decision, subject=f"{decision.subject}{SUBJECT_SEPARATOR}{asker}")
        if asker
        else decision
    )


def record(
    request: AdviceRequest,
    facts: Facts,
    decision: Decision,
    at: float,
    record_id: str,
    *,
    asker: str = "",
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Return the record of a decision whose subject names the asker already."""
    is_applied = bool(decision.actions or decision.held)
    settings = _policy_document(request.policy, request.about, asker, is_applied=is_applied)
    return recording.record(BALANCER, settings, facts, {}, decision, at, record_id, outcomes)


@lru_cache(maxsize=256)
def _policy_document(
    policy: RecommendationPolicy, about: AdviceType, asker: str, *, is_applied: bool
) -> dict[str, Any]:
    settings = policy.model_dump(by_alias=True)
    return as_json({"for": asker, "type": about.value, "isApplied": is_applied, "settings": settings})


def redecide(recorded: Record) -> Decision:
    """Decide again from a record; the actions that guards held are taken from it, too."""
    policy = RecommendationPolicy.model_validate(recorded.policy.get("settings", {}))
    about = AdviceType(recorded.policy.get("type", ""))
    facts = msgspec.convert(recorded.observation, Facts)
    observation, statistics = _observation(facts), _statistics(facts)
    requests = container_requests(observation) if about is AdviceType.RESOURCE else None
    (decided,) = decide_from(policy, observation, statistics, about, requests, [facts.pods_unknown])
    is_applied = recorded.policy.get("isApplied")
    decision = proposed(*decided) if is_applied else decided.decision
    return named_for(replay_holds(recorded, decision), recorded.policy.get("for", ""))


def _observation(facts: Facts) -> Observation:
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
