"""The input of the recommendation commands: settings, and usage from files."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from equipoise.cli.options import WorkloadOptions
from equipoise.core.errors import BadInput
from equipoise.runtime.output import LARGE_BYTES, counting, reading, warn

if TYPE_CHECKING:
    from equipoise.core.decision import Decision
    from equipoise.recommendation.observe import Observation
    from equipoise.recommendation.policy import AdviceRequest, RecommendationPolicy

KIND_FORM = r"[A-Z][A-Za-z0-9]{0,62}"


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file of usage, and the facts about its workloads that it does not contain."""

    path: str
    names: Sequence[str]
    kind: str
    workload: WorkloadOptions


def read_settings(texts: Sequence[str]) -> "RecommendationPolicy":
    """Read `--set ehpa.KEY=VALUE`."""
    from equipoise.recommendation.policy import read_policy

    config = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {text}: expected ehpa.KEY=VALUE, such as ehpa.fluctuation-threshold=3")
        config[key.strip()] = value.strip()
    return read_policy(config, "--set")


def read_usage(request: FileRequest) -> "list[Observation]":
    """Return the usage of one or many workloads, grouped by the step of their samples."""
    from equipoise.adapters.sample_files import read_samples
    from equipoise.recommendation.files import FileDefaults, is_of_week, named_subject, observe, observe_many
    from equipoise.recommendation.observe import without_kind

    file, workload = request.path, request.workload
    if not re.fullmatch(KIND_FORM, request.kind):
        raise BadInput(f"--kind: expected a kind such as Deployment or StatefulSet, got {request.kind!r}")
    replicas, available = workload.replicas, workload.available
    if available is not None and replicas is not None and available > replicas:
        raise BadInput(f"--available: expected at most --replicas ({replicas}), got {available}")
    cores = _cores(workload.request)
    defaults = FileDefaults(file, request.kind, cores, replicas, available, workload.pod_usage or "")
    with reading(file, bytes_min=LARGE_BYTES) as on_bytes:
        samples = read_samples(file, on_bytes)
    namespaces = samples.names.get("namespace", ())
    names = [without_kind(text, request.kind, namespaces) for text in request.names]
    if not samples.is_of_many and len(names) > 1:
        raise BadInput(f"{file}: expected at most one WORKLOAD, since the file is of one, got {len(names)}")
    pods = None if workload.pod_usage is None else read_samples(workload.pod_usage)
    if pods is not None and "pod" not in pods.labels:
        raise BadInput(f"{workload.pod_usage}: line 1: expected the columns timestamp,pod,value, without pod")
    if samples.is_of_many and pods is None:
        return observe_many(samples, defaults, names)
    observation = observe(samples, defaults, named_subject(names, file), pods)
    if (observation.available > observation.pods).any():
        raise BadInput(f"--available: expected at most the replicas ({observation.pods[0]}), got {available}")
    if replicas is None:
        count = "the number of pods in --pod-usage" if pods is not None else "1"
        warn(f"--replicas was not given; {count} is taken")
    if pods is not None and len(pods.times) and not is_of_week(pods.times, observation.at).any():
        warn(f"{workload.pod_usage}: no sample is of the week with which {file} ends; its own is taken")
    return [observation]


class Answered(NamedTuple):
    """The decision for one workload, and the row of its observation."""

    decision: "Decision"
    observation: "Observation"
    row: int


def by_name(decision: "Decision") -> tuple[str, str]:
    """Return the sort key: namespace, then name."""
    namespace, _, name = decision.subject.rpartition("/")
    return namespace, name


def answered(question: "AdviceRequest", usage: "Sequence[Observation]") -> list[Answered]:
    """Return the decisions for all workloads of a file, by name."""
    found = [
        Answered(decision, observation, row)
        for observation in usage
        for row, decision in enumerate(decided(question, observation))
    ]
    return found if len(usage) == 1 else sorted(found, key=lambda each: by_name(each.decision))


def warn_of_requests(decisions: "Iterable[Decision]", request: FileRequest) -> None:
    """Warn of a missing request if it is why nothing is advised."""
    from equipoise.core.reason import Code

    if request.workload.request is None and any(one.reason.code is Code.NO_REQUEST for one in decisions):
        warn("--request was not given, and no row has one; say what a pod requests, such as --request 500m")


def decided(question: "AdviceRequest", observation: "Observation") -> "list[Decision]":
    """Return the decisions for the workloads of one step; many of them show a progress bar."""
    from equipoise.recommendation.decide import BATCH, decide_parts

    parts, batches = decide_parts(question, observation), -(-len(observation.subjects) // BATCH)
    counted = counting(parts, "deciding", batches) if batches > 1 else parts
    return [each.decision for part in counted for each in part]


def _cores(request: str | None) -> float | None:
    from equipoise.core.quantity import parse_typed_cores
    from equipoise.recommendation.files import REQUEST_CORES_MAX

    if request is None:
        return None
    try:
        cores = parse_typed_cores(request)
    except ValueError as error:
        raise BadInput(f"--request: {error}") from error
    if cores > REQUEST_CORES_MAX:
        raise BadInput(f"--request: expected at most {REQUEST_CORES_MAX:,} cores for a pod, got {request!r}")
    return cores
