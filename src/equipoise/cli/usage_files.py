"""Files of CPU usage: what `recommendation plan|simulate --from` and `forecast --from` read and warn of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from equipoise.adapters.sample_files import read_samples
from equipoise.cli import options
from equipoise.core.decision import Decision
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_typed_cores
from equipoise.core.reason import Code
from equipoise.recommendation.doubts import (
    Doubt,
    Doubts,
    doubts_of_advice,
    doubts_of_pods,
    doubts_of_samples,
    doubts_of_usage,
)
from equipoise.recommendation.files import (
    REQUEST_CORES_MAX,
    FileDefaults,
    is_of_week,
    named_subject,
    observe,
    observe_many,
)
from equipoise.recommendation.observe import Observation, without_kind
from equipoise.recommendation.series import per_replica, with_owners
from equipoise.runtime.output import LARGE_BYTES, reading, warn
from equipoise.stats.samples import Samples, Shape

KIND_FORM = r"[A-Z][A-Za-z0-9]{0,62}"


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file of usage, and the facts about its workloads that it does not contain."""

    path: str
    names: Sequence[str]
    kind: str
    workload: options.WorkloadOptions
    cpu_share: float = 0.99
    """Which percentile of a pod's usage a CPU request covers, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class FileUsage:
    """The usage that a file has, by the step of its samples, and what is doubtful about it."""

    request: FileRequest
    observations: list[Observation]
    doubts: Sequence[Doubt]

    def doubts_with(self, decisions: Sequence[Decision]) -> Doubts:
        """Return the doubts about the file and about the advice from it."""
        return Doubts([*self.doubts, *doubts_of_advice(decisions)])

    def warn_of_requests(self, decisions: Iterable[Decision]) -> None:
        """Warn of a missing request if it is why nothing is advised."""
        is_missing = any(one.reason.code is Code.NO_REQUEST for one in decisions)
        if self.request.workload.request is None and is_missing:
            warn(
                "--request was not given, and no row has one; say what a pod requests, such as --request 500m"
            )


def warn_of_doubts(doubts: Doubts) -> None:
    """Print a warning for each kind of doubt."""
    for line in doubts.lines():
        warn(line)


def samples_of(path: str, names: Sequence[str], kind: str | None) -> tuple[Samples, list[str]]:
    """Return a file's samples with the workload of each, and the workloads that were asked for by name."""
    with reading(path, bytes_min=LARGE_BYTES) as on_bytes:
        samples = read_samples(path, on_bytes)
    namespaces = samples.names.get("namespace", ())
    plain = [without_kind(text, kind, namespaces) for text in names]
    samples = with_owners(samples, plain, path)
    for note in samples.notes:
        warn(note)
    return samples, plain


def read_usage(request: FileRequest) -> FileUsage:
    """Return the usage of one or many workloads, grouped by the step of their samples."""
    file, workload = request.path, request.workload
    if not re.fullmatch(KIND_FORM, request.kind):
        raise BadInput(f"--kind: expected a kind such as Deployment or StatefulSet, got {request.kind!r}")
    replicas, available = workload.replicas, workload.available
    if available is not None and replicas is not None and available > replicas:
        raise BadInput(f"--available: expected at most --replicas ({replicas}), got {available}")
    cores = _cores(workload.request)
    pods_from, share = workload.pod_usage or "", request.cpu_share
    defaults = FileDefaults(file, request.kind, cores, replicas, available, pods_from, cpu_share=share)
    samples, names = samples_of(file, request.names, request.kind)
    if not samples.is_of_many and len(names) > 1:
        raise BadInput(f"{file}: expected at most one WORKLOAD, since the file is of one, got {len(names)}")
    pods = None if workload.pod_usage is None else read_samples(workload.pod_usage)
    if pods is not None and "pod" not in pods.labels:
        raise BadInput(f"{workload.pod_usage}: line 1: expected the columns timestamp,pod,value, without pod")
    doubts = list(doubts_of_samples(samples, file))
    if samples.is_of_many and pods is None:
        found = observe_many(samples, defaults, names)
        if samples.shape is Shape.TOTALS:
            found = [per_replica(observation) for observation in found]
            if replicas is None and found:
                warn("--replicas was not given; 1 is taken")
    else:
        found = [_of_one(samples, defaults, named_subject(names, file), pods)]
    subjects = [subject for observation in found for subject in observation.subjects]
    doubts += [doubt for observation in found for doubt in doubts_of_usage(observation)]
    if subjects:
        doubts += doubts_of_pods(samples, replicas, file, subjects)
        if pods is not None:
            doubts += doubts_of_pods(pods, replicas, workload.pod_usage or "", subjects)
    return FileUsage(request, found, doubts)


def _of_one(samples: Samples, defaults: FileDefaults, subject: str, pods: Samples | None) -> Observation:
    observation = observe(samples, defaults, subject, pods)
    if (observation.available > observation.pods).any():
        expected = f"expected at most the replicas ({observation.pods[0]})"
        raise BadInput(f"--available: {expected}, got {defaults.available}")
    if defaults.replicas is None:
        count = "the number of pods in --pod-usage" if pods is not None else "1"
        warn(f"--replicas was not given; {count} is taken")
    if pods is not None and len(pods.times) and not is_of_week(pods.times, observation.at).any():
        own = f"no sample is of the week with which {defaults.source} ends; its own is taken"
        warn(f"{defaults.pods_source}: {own}")
    return observation


def _cores(request: str | None) -> float | None:
    if request is None:
        return None
    with options.values_of("--request: "):
        cores = parse_typed_cores(request)
    if cores > REQUEST_CORES_MAX:
        raise BadInput(f"--request: expected at most {REQUEST_CORES_MAX:,} cores for a pod, got {request!r}")
    return cores
