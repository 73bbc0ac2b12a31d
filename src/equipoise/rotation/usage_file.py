"""The usage of pods at one time, as others print it: what `rotation plan --from FILE` reads, too.

`kubectl top pod`, with its options (`-A`, `--containers`, `--no-headers`, `--sum`), and the PodMetrics of
metrics.k8s.io. They have neither requests nor an HPA, so both come from the command line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.cluster import HpaMetric, deployment_of_pod, workload_of_pod
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.file_forms import READINGS, TOP_LINE
from equipoise.core.quantity import parse_cores, parse_typed_cores, plain_number
from equipoise.rotation.preconditions import CORES_MAX, Observation, ObservedHpa, PodLoad

PODS_MAX = 200_000
UNKNOWN = "<unknown>"
NODES_LINE = re.compile(r"NAME\s+CPU\(cores\)\s+CPU%|NAME\s+CPU\(cores\)\s+CPU\(%\)")
BARE_LINE = re.compile(r"(\S+\s+){1,3}(\d+(n|u|m)?|<unknown>)\s+(\d+(Ki|Mi|Gi)?|<unknown>)")
"""A line of `kubectl top pod --no-headers`."""
TIMES_REQUEST_MAX = 20.0
REQUEST_CORES_MAX = 500.0


class _Reading(NamedTuple):
    """The usage of one pod, or of one container; None where it is unknown."""

    namespace: str
    pod: str
    cores: float | None


class RotationTarget(NamedTuple):
    """What a file of usage does not have: the request of a pod and the target of the HPA."""

    request_cores: float | None
    type: str
    value: float


def is_top(text: str) -> bool:
    """Return whether a text is what `kubectl top pod` prints."""
    lines = text.strip().splitlines()
    return bool(lines) and bool(TOP_LINE.match(lines[0]) or all(map(BARE_LINE.fullmatch, lines[:3])))


def is_pod_metrics(document: object) -> bool:
    """Return whether a document is a PodMetricsList, one PodMetrics, or a List of them."""
    if not isinstance(document, Mapping):
        return False
    kind, items = document.get("kind"), document.get("items")
    if kind == "List" and isinstance(items, list) and items:
        return all(isinstance(one, Mapping) and one.get("kind") == "PodMetrics" for one in items)
    return isinstance(kind, str) and kind in READINGS


def read_target(request: str | None, target: str | None, source: str) -> RotationTarget:
    """Read `--request` and `--target`: percent of the request (`70`, `70%`), or cores of a pod (`700m`)."""
    if target is None:
        raise BadInput(
            f"{source}: expected --target beside it, since it has no HPA: percent of the request such as 70, "
            "or cores for each pod such as 700m"
        )
    cores = None
    try:
        cores = None if request is None else parse_typed_cores(request)
    except DECODE_ERRORS as error:
        raise BadInput(f"--request: {error}") from error
    if cores is not None and not 0 < cores <= CORES_MAX:
        raise BadInput(f"--request: expected cores above 0, got {request!r}")
    percent = re.fullmatch(r"(\d{1,4})(?:\.0+)?%?", target)
    if percent and int(percent[1]) > 0:
        if cores is None:
            raise BadInput(
                f"--target {target}: expected --request beside it, since it is percent of the request"
            )
        return RotationTarget(cores, "Utilization", float(percent[1]))
    found = re.fullmatch(r"\d+[num]", target)
    if found is None or parse_cores(target) <= 0:
        raise BadInput(
            f"--target: expected percent of the request such as 70, or cores for each pod such as 700m, got "
            f"{target!r}"
        )
    return RotationTarget(cores, "AverageValue", parse_cores(target))


def read_top(text: str, source: str) -> list[_Reading]:
    """Return the usage of pods or containers that `kubectl top pod` printed."""
    lines = text.strip().splitlines()
    header = lines[0].split()
    if NODES_LINE.match(lines[0]):
        raise BadInput(f"{source}: expected the output of `kubectl top pod`, got that of `kubectl top node`")
    has_header = "CPU(cores)" in header
    columns = header if has_header else _bare_columns(lines[0].split())
    found = []
    for number, line in enumerate(lines[has_header:], 1 + has_header):
        words = line.split()
        if not words or set(words[0]) == {"_"}:  # what is below it is a sum
            break
        if len(words) != len(columns):
            raise BadInput(f"{source}: line {number}: expected {len(columns)} columns, got {len(words)}")
        row = dict(zip(columns, words, strict=True))
        cores = _cores(row["CPU(cores)"], f"{source}: line {number}")
        found.append(_Reading(row.get("NAMESPACE", ""), row.get("POD", row["NAME"]), cores))
    return found


def _bare_columns(words: Sequence[str]) -> list[str]:
    """Return the columns of lines without a header, by their number."""
    before = {3: ["NAME"], 4: ["NAMESPACE", "NAME"], 5: ["NAMESPACE", "POD", "NAME"]}
    return [*before.get(len(words), ["NAME"]), "CPU(cores)", "MEMORY(bytes)"]


def _cores(value: object, where: str) -> float | None:
    if value is None or value in (UNKNOWN, ""):
        return None
    try:
        cores = parse_cores(value)  # type: ignore[arg-type]  # what it is not, it refuses
    except DECODE_ERRORS as error:
        raise BadInput(f"{where}: expected cores such as 250m, got {str(value)[:40]!r}") from error
    if cores > CORES_MAX:
        raise BadInput(f"{where}: expected at most {plain_number(CORES_MAX)} cores, got {str(value)[:40]!r}")
    return cores


def read_pod_metrics(document: Any, source: str) -> list[_Reading]:
    """Return the usage of each container of a PodMetricsList; a pod without containers is unknown."""
    items = document.get("items") if "items" in document else [document]
    if not isinstance(items, list):
        raise BadInput(f"{source}: items: expected a list of PodMetrics, got {type(items).__name__}")
    found = []
    for number, item in enumerate(items):
        where = f"{source}: items[{number}]"
        metadata = item.get("metadata") if isinstance(item, Mapping) else None
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(metadata, Mapping) or not isinstance(name, str):
            raise BadInput(f"{where}: expected PodMetrics with metadata.name")
        namespace = str(metadata.get("namespace") or "")
        containers = item.get("containers") or [{}]
        if not isinstance(containers, list):
            raise BadInput(f"{where}.containers: expected a list")
        for one in containers:
            usage = one.get("usage") if isinstance(one, Mapping) else None
            cores = _cores(usage.get("cpu") if isinstance(usage, Mapping) else None, f"{where}.containers")
            found.append(_Reading(namespace, name, cores))
    return found


def observations(
    readings: Sequence[_Reading],
    target: RotationTarget,
    workloads: Sequence[str],
    source: str,
    hpa_name: str = "",
) -> list[Observation]:
    """Return each workload with its pods; without names, a pod is of the workload that its name fits."""
    if len(readings) > PODS_MAX:
        raise BadInput(f"{source}: expected at most {PODS_MAX:,} lines, got {len(readings):,}")
    usage: dict[tuple[str, str], float | None] = {}
    for namespace, pod, cores in readings:
        before = usage.get((namespace, pod), 0.0)
        usage[namespace, pod] = None if before is None or cores is None else before + cores
    found: dict[tuple[str, str], list[PodLoad]] = {}
    for (namespace, pod), used in usage.items():
        name = _owner(namespace, pod, workloads)
        if name is not None:
            load = PodLoad(pod, used, target.request_cores)
            found.setdefault((namespace, name), []).append(load)
    for text in workloads:
        if not any(text in {name, f"{namespace}/{name}"} for namespace, name in found):
            raise BadInput(f"{source}: expected pods of {text}, and no name begins with it")
    metric = HpaMetric("Resource", "cpu", target.type, target.value)
    return [
        Observation(
            f"{namespace}/{name}" if namespace else name,
            at=0.0,
            hpas=(ObservedHpa(hpa_name, (metric,)),),
            pods=tuple(pods),
            namespace=namespace,
        )
        for (namespace, name), pods in sorted(found.items())
    ]


def _owner(namespace: str, pod: str, workloads: Sequence[str]) -> str | None:
    """Return the workload of a pod, among those that are asked for; None for one of no interest."""
    if not workloads:
        return workload_of_pod(pod)
    for text in sorted(workloads, key=len, reverse=True):
        space, _, name = text.rpartition("/")
        is_there = not space or space == namespace
        is_named = pod.startswith(f"{name}-") and deployment_of_pod(pod) in {"", name}
        if is_there and (pod == name or is_named):
            return name
    return None


def doubts(seen: Sequence[Observation]) -> Iterator[str]:
    """Yield what is most likely a mistake of units, in usage and in the request."""
    for observation in seen:
        used = [pod.cpu_cores for pod in observation.pods if pod.cpu_cores is not None]
        request = observation.pods[0].request_cores or 0.0
        if request >= REQUEST_CORES_MAX:
            yield f"{observation.subject}: a request of {plain_number(request)} cores looks like millicores"
        elif used and request and min(used) > TIMES_REQUEST_MAX * request:
            most = plain_number(max(used))
            yield (
                f"{observation.subject}: usage of up to {most} cores is more than {TIMES_REQUEST_MAX:.0f} "
                f"times the request of {plain_number(request)}: one of them looks like other units"
            )
