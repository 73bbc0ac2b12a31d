"""Decides recorded decisions again, and compares the results.

How the world or the policy would have to differ for another decision, where that is easy to say.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from equipoise import __version__
from equipoise.core.decision import Decision, Record, hash_inputs
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.reason import Code
from equipoise.engine.balancer import BALANCERS, balancer
from equipoise.rotation.balancer import inputs
from equipoise.rotation.decide import COVERAGE_MIN
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER


@dataclass(frozen=True, slots=True)
class Difference:
    """A record whose replay differs: the new decision, or why there is none."""

    record: Record
    now: Decision | None
    error: str = ""

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Return each part that differs: its name, what it was and what it is now, as JSON."""
        return [] if self.now is None else changes(self.record.decision, self.now)

    @property
    def sentence(self) -> str:
        if self.error:
            return self.error
        parts = [name for name, _, _ in self.changes]
        by = self.record.version
        since = f"; it was decided by {by}, and this is {__version__}" if by not in {"", __version__} else ""
        return f"{', '.join(parts)} would be different{since}."


@dataclass(slots=True)
class Replay:
    """The result of replaying several records."""

    same: int = 0
    without_inputs: int = 0
    different: list[Difference] = field(default_factory=list)

    @property
    def replayed(self) -> int:
        """The number of records that could be replayed."""
        return self.same + len(self.different)

    @property
    def sentence(self) -> str:
        without = f", {self.without_inputs} without inputs" if self.without_inputs else ""
        return f"{self.replayed} replayed, {self.same} the same{without}."


def replay(records: Iterable[Record]) -> Replay:
    """Replay each record with its balancer's `decide`, and compare exactly."""
    answer = Replay()
    for record in records:
        if not record.has_inputs:
            answer.without_inputs += 1
        elif (difference := compare(record)) is not None:
            answer.different.append(difference)
        else:
            answer.same += 1
    return answer


def compare(record: Record) -> Difference | None:
    """Replay one record; return None if the decision is the same.

    The sentences of a record of another version are not compared: only its reason, numbers and actions are.
    """
    if record.balancer not in BALANCERS:
        return Difference(record, None, f"this version has no balancer {record.balancer!r}")
    if record.inputs_hash not in {"", hash_inputs(record.policy, record.observation, record.memory)}:
        return Difference(record, None, "its inputs are not the ones that were recorded: the hash differs")
    try:
        now = balancer(record.balancer).redecide(record)
    except DECODE_ERRORS as error:
        reason = " ".join(str(error).split())
        return Difference(record, None, f"this version cannot read its inputs: {reason}")
    before = record.decision
    if record.version not in {"", __version__} and not changes(_wordless(before), _wordless(now)):
        return None  # another version says the same in other words
    return Difference(record, now) if changes(before, now) else None


def _wordless(decision: Decision) -> Decision:
    """Return a decision without its sentences."""
    replace = msgspec.structs.replace
    held = tuple(replace(one, sentence="") for one in decision.held)
    return replace(decision, reason=replace(decision.reason, sentence=""), held=held)


def changes(before: Decision, now: Decision) -> list[tuple[str, str, str]]:
    """Return the parts of two decisions that differ; numbers are compared exactly."""
    rows = zip(PARTS, _parts(before), _parts(now), strict=True)
    return [(name, _text(one), _text(other)) for name, one, other in rows if one != other]


PARTS = ("subject", "reason", "sentence", "numbers", "actions", "held", "memory")
_parts = attrgetter(
    "subject", "reason.code", "reason.sentence", "reason.numbers", "actions", "held", "memory"
)


def _text(part: object) -> str:
    return msgspec.json.encode(part, order="sorted").decode()


Explain = Callable[[RotationPolicy, Observation, Mapping[str, Any]], list[str]]


def otherwise(record: Record) -> list[str]:
    """Return what would have changed the decision; empty if the record has too little data."""
    if record.balancer != BALANCER or not record.has_inputs:
        return []
    try:
        policy, observation = inputs(record)
    except ValueError:
        return []
    explain = ROTATION.get(record.decision.reason.code)
    return explain(policy, observation, record.decision.reason.numbers) if explain else []


def _rotate(policy: RotationPolicy, observation: Observation, numbers: Mapping[str, Any]) -> list[str]:
    hottest = max(pod.cpu_cores or 0.0 for pod in observation.pods if pod.name in numbers["hot"])
    improvement = _rounded(numbers["improvement_percent"], math.ceil)
    tolerance = _rounded(hottest / numbers["target_cores"], math.ceil)
    sentence = (
        f"Nothing would be rotated with minimumImprovementPercent {improvement} or more "
        f"(it is {policy.improvement_percent_min:g}) or with toleranceMultiplier {tolerance} or more "
        f"(it is {policy.tolerance_multiplier:g})."
    )
    return [sentence]


def _no_hot_pods(policy: RotationPolicy, observation: Observation, numbers: Mapping[str, Any]) -> list[str]:
    threshold = numbers["threshold_cores"]
    lines = [f"A pod would have to use more than {threshold:.3g} cores."]
    known = [pod for pod in observation.pods if pod.is_ready and pod.cpu_cores is not None]
    least = policy.candidate_age_min_seconds
    young = [
        pod.name
        for pod in known
        if pod.has_restarted or (pod.age_seconds is not None and pod.age_seconds < least)
    ]
    busiest = max((pod.cpu_cores or 0.0 for pod in known if pod.name not in young), default=0.0)
    if busiest > 0:
        tolerance = _rounded(busiest / numbers["target_cores"], math.floor)
        now = f"(it is {policy.tolerance_multiplier:g})"
        lines.append(f"The busiest would be hot with toleranceMultiplier below {tolerance} {now}.")
    if young:
        lines.append(f"Not judged, being too young or just restarted: {len(young)}.")
    return lines


def _insufficient(policy: RotationPolicy, _: Observation, numbers: Mapping[str, Any]) -> list[str]:
    improvement = numbers["improvement_percent"]
    if improvement <= 0:
        return ["There would have to be colder pods to rotate with."]
    below = f"{_rounded(improvement, math.floor)} (it is {policy.improvement_percent_min:g})"
    return [f"It would rotate with minimumImprovementPercent below {below}."]


def _too_few_replicas(policy: RotationPolicy, _: Observation, numbers: Mapping[str, Any]) -> list[str]:
    ready = numbers["pods_ready"]
    lines = [f"{policy.replicas_min - ready} more pods would have to be ready."]
    if ready:
        lines.append(f"It would look further with minReplicas {ready} or less.")
    return lines


def _metrics_incomplete(_: RotationPolicy, __: Observation, numbers: Mapping[str, Any]) -> list[str]:
    ready, unknown = numbers["pods_ready"], numbers["pods_unknown"]
    # In whole percents, as decided: 0.9 x 10 in floats is slightly above 9.
    wanted = math.ceil(ready * round(COVERAGE_MIN * 100) / 100 - 1e-9)
    return [f"{wanted - (ready - unknown)} more pods would have to have fresh samples over the window."]


def _held_by_lag(policy: RotationPolicy, _: Observation, __: Mapping[str, Any]) -> list[str]:
    return [f"The lag would have to be known and below {policy.kafka_lag.threshold:g}."]


ROTATION: dict[Code, Explain] = {
    Code.ROTATE: _rotate,
    Code.NO_HOT_PODS: _no_hot_pods,
    Code.INSUFFICIENT_IMPROVEMENT: _insufficient,
    Code.TOO_FEW_REPLICAS: _too_few_replicas,
    Code.METRICS_INCOMPLETE: _metrics_incomplete,
    Code.HELD_BY_LAG: _held_by_lag,
}


def _rounded(value: float, towards: Callable[[float], int]) -> str:
    """Round up or down to four digits, so that the printed value is sufficient."""
    scale = 10.0 ** (3 - math.floor(math.log10(value))) if value > 0 else 1.0
    return f"{towards(round(value * scale, 6)) / scale:.4g}"
