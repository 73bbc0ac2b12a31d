"""What is doubtful about a file's samples and the advice from them: most likely a mistake of units.

A doubt changes no advice. It is a warning, and makes the confidence low.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from equipoise.core.decision import Decision
from equipoise.core.quantity import plain_number
from equipoise.recommendation.files import is_of_week
from equipoise.recommendation.observe import Observation
from equipoise.stats.ranks import Floats, percentiles
from equipoise.stats.samples import Samples, Shape

TIMES_REQUEST_MAX = 20.0
"""Usage above so many times what all pods request is most likely in other units."""
POD_CORES_MAX = 500.0
"""Usage or a request of one pod from which it is most likely in millicores; few machines are larger."""
REQUEST_IDLE_CORES_MIN, IDLE_SHARE = 64.0, 0.01
"""A request of so many cores of which a pod uses less than this share is most likely in millicores."""
BYTES_MIN = 1e6
"""Usage of one pod from which it is most likely bytes."""
STEPS_MIN = 12
FALLING_SHARE_MAX, RISING_SHARE_MIN = 0.01, 0.5
"""A counter falls only where a pod restarts, and rises nearly always."""
P95 = 0.95
COUNTER = "the values never fall: this looks like a counter; use rate() in the query"


class Doubt(NamedTuple):
    """A warning, and the workload whose confidence it makes low; without one, it is about all of the file."""

    text: str
    subject: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Doubts:
    """All doubts about a file."""

    found: Sequence[Doubt] = ()

    def lines(self) -> Iterator[str]:
        """Yield one warning for each kind of doubt, with the first workload that it is about."""
        kinds: dict[str, list[Doubt]] = {}
        for doubt in self.found:
            kinds.setdefault(doubt.kind or doubt.text, []).append(doubt)
        for same in kinds.values():
            more = f" (and {len(same) - 1} more workloads)" if len(same) > 1 else ""
            yield f"{same[0].text}{more}"

    def lowered(self, decision: Decision) -> Decision:
        """Return the decision with low confidence where there is a doubt about its workload."""
        if not any(doubt.subject in {"", decision.subject} for doubt in self.found):
            return decision
        numbers = decision.reason.numbers | {"confidence": "low"}
        return msgspec.structs.replace(
            decision,
            reason=msgspec.structs.replace(decision.reason, numbers=numbers),
            extra=decision.extra | {"confidence": "low"},
        )


def doubts_of_samples(samples: Samples, source: str) -> Iterator[Doubt]:
    """Yield doubts about the samples of a file."""
    with np.errstate(invalid="ignore"):
        negative = int(np.count_nonzero(samples.values < 0))
    if negative:
        one = "1 sample is" if negative == 1 else f"{negative:,} samples are"
        yield Doubt(f"{source}: {one} negative, of {len(samples.values):,}, and dropped", kind="negative")


def doubts_of_usage(observation: Observation) -> Iterator[Doubt]:
    """Yield doubts about the usage and the requests of each workload."""
    usual = percentiles(observation.history, (P95,))[:, 0]
    is_counter = counters(observation.history)
    rows = zip(
        observation.subjects,
        usual.tolist(),
        is_counter.tolist(),
        np.maximum(observation.replicas, 1).tolist(),
        observation.request_cores.tolist(),
        strict=True,
    )
    for subject, cores, counts, replicas, request in rows:
        if counts:
            yield Doubt(f"{subject}: {COUNTER}", subject, "counter")
        elif (found := _unit_of(cores, replicas, request)) is not None:
            yield Doubt(f"{subject}: {found}", subject, "unit")
        if request >= POD_CORES_MAX or (
            request >= REQUEST_IDLE_CORES_MIN and cores / replicas < IDLE_SHARE * request
        ):
            text = f"a request of {_cores(request)} for each pod looks like millicores"
            milli = f"{plain_number(request, 6).replace(',', '')}m is {_cores(request / 1000)}"
            yield Doubt(f"{subject}: {text}; {milli}", subject, "request")


def doubts_of_series(subject: str, values: Floats) -> Iterator[Doubt]:
    """Yield doubts about the usage of one workload, of which no request is known."""
    if counters(values[None])[0]:
        yield Doubt(f"{subject}: {COUNTER}", subject, "counter")
    elif (found := _unit_of(float(percentiles(values[None], (P95,))[0, 0]), 1, 0.0)) is not None:
        yield Doubt(f"{subject}: {found}", subject, "unit")


def _unit_of(cores: float, replicas: int, request: float) -> str | None:
    """Return what usage of so many cores looks like instead; None where it is plausible."""
    share = cores / replicas
    used = f"usage of {_cores(cores)}"
    if share >= BYTES_MIN:
        return f"{used} looks like bytes of memory"
    if request > 0 and cores > TIMES_REQUEST_MAX * request * replicas:
        whole = f"{_cores(request * replicas)} that {replicas} pods request"
        if replicas == 1:
            whole = f"{_cores(request)} that its pod requests"
        return f"{used} is more than {TIMES_REQUEST_MAX:.0f} times the {whole}: this looks like millicores"
    if not request > 0 and share > POD_CORES_MAX:
        return f"{used} looks like millicores"
    return None


def _cores(cores: float) -> str:
    return "1 core" if cores == 1 else f"{plain_number(cores)} cores"


def counters(history: Floats) -> np.ndarray:
    """Return for each row whether it looks like a counter: it rises at most steps, and hardly ever falls."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(history, axis=1)
        known = np.count_nonzero(~np.isnan(steps), axis=1)
        falling = np.count_nonzero(steps < 0, axis=1)
        rising = np.count_nonzero(steps > 0, axis=1)
    enough = known >= STEPS_MIN
    found: np.ndarray = enough & (falling <= FALLING_SHARE_MAX * known) & (rising >= RISING_SHARE_MIN * known)
    return found


def doubts_of_pods(
    samples: Samples, replicas: int | None, source: str, subjects: Sequence[str]
) -> Iterator[Doubt]:
    """Yield where the file's pods of its last week differ from the replicas that were given."""
    if replicas is None or "pod" not in samples.labels or samples.shape is Shape.TOTALS:
        return
    rows = np.flatnonzero(is_of_week(samples.times, float(samples.times.max(initial=-np.inf))))
    spaces = samples.names.get("namespace", [""])
    works = samples.names.get("workload", [""])
    zero = np.zeros(len(rows), np.intp)
    space = samples.labels["namespace"][rows] if "namespace" in samples.labels else zero
    work = samples.labels["workload"][rows] if "workload" in samples.labels else zero
    owner = space * len(works) + work
    keys = np.unique(owner * len(samples.names["pod"]) + samples.labels["pod"][rows])
    for key, count in zip(*np.unique(keys // len(samples.names["pod"]), return_counts=True), strict=True):
        namespace, name = spaces[int(key) // len(works)], works[int(key) % len(works)]
        subject = f"{namespace}/{name}" if namespace else name or subjects[0]
        if count != replicas and subject in subjects:
            pods = "1 pod" if count == 1 else f"{count} pods"
            yield Doubt(
                f"{subject}: {source} has {pods} in its last week, and --replicas {replicas} is taken",
                subject,
                "replicas",
            )


def doubts_of_advice(decisions: Sequence[Decision]) -> Iterator[Doubt]:
    """Yield advice that leaves an HPA nothing to do."""
    for decision in decisions:
        recommended = decision.extra.get("recommended") or {}
        least, most = recommended.get("minReplicas"), recommended.get("maxReplicas")
        if least is not None and least == most:
            text = f"minReplicas and maxReplicas are both {least}: this HPA would never scale"
            yield Doubt(f"{decision.subject}: {text}", decision.subject, "fixed")
