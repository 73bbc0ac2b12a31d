"""Workloads described by samples in a file: the input of `recommendation plan --from FILE`.

Workloads of one file may be sampled at different steps, and each is put on a grid of its own step: on a grid
of minutes, a workload that is sampled every hour would seem to lack 59 of 60 samples. A workload with too few
samples to show a step gets the step of the file.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath

import numpy as np

from equipoise.core.cluster import Container
from equipoise.core.errors import BadInput
from equipoise.core.quantity import plain_number
from equipoise.recommendation.forecast import WEEK_SECONDS, WorkloadSeries
from equipoise.recommendation.observe import Containers, Observation
from equipoise.recommendation.usage import P99, by_ordinal
from equipoise.stats.forecast import DAYS_USED_MAX
from equipoise.stats.grid import alive_mask, distinct, on_grid, phases, slots, sum_groups, usual_interval
from equipoise.stats.predict import CORES_MAX
from equipoise.stats.profile import DAY_SECONDS
from equipoise.stats.ranks import Claims, Floats, Whole, cleaned, percentiles, pooled_percentiles
from equipoise.stats.samples import Samples, rows_by_step, steps_of

TABLE_CELLS_MAX = 400_000_000
INTERVAL_SECONDS_DEFAULT = 60.0
TIME_MIN, TIME_MAX = -62_135_510_400.0, 253_402_214_399.0
"""Unix seconds that are within the years 1 to 9999 in every time zone."""
INTERVAL_SECONDS_MIN = 0.05
"""Smallest step; a week of closer samples takes too much memory."""
REQUEST_CORES_MAX = 1_000_000
"""Largest plausible CPU request; a larger one is probably memory, or millicores."""
NAME_MAX = 63
DIGITS_MAX = 21
"""Of longer amounts, error messages have the number of digits."""
CONTAINER = "*"
"""Stands for all containers: a file has no containers, so the advice is for the pod as a whole."""


@dataclass(frozen=True, slots=True)
class FileDefaults:
    """Values from the command line for what the file does not have."""

    source: str
    kind: str = "Deployment"
    request_cores: float | None = None
    replicas: int | None = None
    available: int | None = None
    pods_source: str = ""
    takes_pods: bool = True
    """Whether the command accepts a file of pods too."""
    cpu_share: float = P99
    """Which percentile of a pod's usage a CPU request covers, from 0 to 1."""
    at: float | None = None
    """The end of a file of many workloads; None means the time of its last sample."""
    interval_seconds: float | None = None
    """The step of a file of many workloads; None means that it is derived from the samples."""


def observe(
    samples: Samples, defaults: FileDefaults, subject: str, pods: Samples | None = None
) -> Observation:
    """Return a file's samples as an observation of one workload, or of many."""
    check(samples, defaults.source)
    if pods is not None:
        check(pods, defaults.pods_source)
        owners = max(len(pods.names.get(label, ())) for label in ("namespace", "workload"))
        if owners > 1:
            raise BadInput(
                f"{defaults.pods_source}: expected the pods of one workload, got those of {owners}"
            )
    if samples.is_of_many:
        if pods is not None:
            raise BadInput(
                "--pod-usage: expected a file of one workload beside it; this one has pods of its own"
            )
        return _with_memory(_many(samples, defaults), samples)
    for label in samples.labels:
        # Rows of several pods would be read as one total, in which the last row of each time wins.
        hint = ", or the file as --pod-usage" if label == "pod" and defaults.takes_pods else ""
        raise BadInput(f"{defaults.source}: line 1: expected a column workload beside {label}{hint}")
    return _with_memory(_one(samples, defaults, subject, pods), samples)


def check(samples: Samples, source: str) -> None:
    """Refuse times and amounts that are not plausible."""
    largest = np.max(samples.values, where=np.isfinite(samples.values), initial=0.0)
    if largest > CORES_MAX:
        expected = f"expected at most {CORES_MAX:,.0f} cores"
        raise BadInput(f"{source}: value: {expected}, got {_amount(largest)}")
    if not np.isfinite(samples.times).all():
        raise BadInput(f"{source}: timestamp: expected a time in every row")
    is_odd = (samples.times < TIME_MIN) | (samples.times > TIME_MAX)
    if is_odd.any():
        odd = samples.times[int(is_odd.argmax())]
        units = ("milliseconds", "microseconds", "nanoseconds")
        meant = (unit for power, unit in enumerate(units, 1) if abs(odd) / 1000.0**power <= TIME_MAX)
        unit = next(meant, None)
        hint = f"; are these {unit}?" if unit else ""
        got = _amount(odd, 17).replace(",", "")
        raise BadInput(f"{source}: timestamp: expected seconds since 1970 or ISO 8601, got {got}{hint}")


def _amount(value: float, digits: int = 3) -> str:
    length = len(f"{abs(value):.0f}")
    return f"a number of {length} digits" if length > DIGITS_MAX else plain_number(float(value), digits)


def named_subject(workloads: Sequence[str], file: str) -> str:
    """Return the name of a file's only workload: the user's, else one made from the file's name."""
    if workloads:
        return workloads[0]
    words = re.findall(r"[a-z0-9]+", PurePath(file).stem.lower())
    return "-".join(words)[:NAME_MAX].rstrip("-") or "workload"


def chosen(samples: Samples, workloads: Sequence[str], source: str) -> Claims:
    """Return which rows belong to the workloads named by NAMESPACE/NAME or NAME; all rows without names."""
    if not workloads:
        return np.ones(len(samples.times), np.bool_)
    names, spaces = np.array(samples.names["workload"]), np.array(samples.names.get("namespace", [""]))
    space = samples.labels.get("namespace", np.zeros(len(samples.times), np.intp))
    is_kept = np.zeros(len(samples.times), np.bool_)
    for workload in workloads:
        namespace, _, name = workload.rpartition("/")
        is_meant = (names == name)[samples.labels["workload"]]
        if namespace:
            is_meant &= (spaces == namespace)[space]
        if not is_meant.any():
            raise BadInput(f"{source}: expected the workload {workload}, and no row is of it")
        is_kept |= is_meant
    return is_kept


def _one(samples: Samples, defaults: FileDefaults, subject: str, pods: Samples | None) -> Observation:
    at = float(samples.times.max()) if len(samples.times) else 0.0
    row = np.zeros(len(samples.times), np.intp)
    interval = usual_interval(samples.times, row) or INTERVAL_SECONDS_DEFAULT
    columns = _columns(defaults.source, samples.times, at, interval, 1)
    times, values, row = _valid_samples(samples, row)
    history = on_grid(values, row, slots(times, at, interval, columns), (1, columns))
    is_counted = times > at - WEEK_SECONDS + min(interval, WEEK_SECONDS) / 1000
    replicas = defaults.replicas
    if replicas is None:
        replicas = 1 if pods is None else len(pods.names.get("pod", ())) or 1
    week = values[is_counted][None]
    shares = (P99, defaults.cpu_share)
    tops = percentiles(week, shares) / max(replicas, 1) if pods is None else _of_pods(pods, at, shares)
    requests = _requests(samples, np.zeros(len(samples.times), np.intp), 1, defaults)
    return Observation(
        subjects=[subject],
        kinds=[defaults.kind],
        replicas=np.array([replicas]),
        pods=np.array([replicas]),
        available=np.array([replicas if defaults.available is None else defaults.available]),
        request_cores=requests,
        history=history,
        interval_seconds=interval,
        at=at,
        pod_p99_cores=tops[:, 0],
        samples=week,
        sample_times=times[is_counted],
        containers=_whole_pods(tops[:, 1], requests),
    )


def _valid_samples(samples: Samples, rows: Whole) -> tuple[Floats, Floats, Whole]:
    """Return valid samples in the order of rows and times; of duplicates, the last one in the file."""
    values = cleaned(samples.values)
    is_known = ~np.isnan(values)
    times, values, rows = samples.times[is_known], values[is_known], rows[is_known]
    places = distinct(times, rows)
    return times[places], values[places], rows[places]


def _of_pods(pods: Samples, at: float, shares: Sequence[float]) -> Floats:
    """Return percentiles over all samples of all pods in the seven days before `at`."""
    times, values, _ = _valid_samples(pods, pods.labels["pod"])
    is_counted = is_of_week(times, at)
    if len(times) and not is_counted.any():
        is_counted = is_of_week(times, float(times.max()))
    return percentiles(values[is_counted][None], shares)


def is_of_week(times: Floats, at: float) -> Claims:
    """Return which samples are of the seven days before `at`; those a little after it count, too."""
    return np.asarray((times > at - WEEK_SECONDS) & (times <= at + DAY_SECONDS))


def _columns(source: str, times: Floats, at: float, interval: float, rows: int) -> int:
    """Return how many columns the history needs, up to what a forecast can use."""
    if interval < INTERVAL_SECONDS_MIN:
        expected = f"expected samples at least {plain_number(INTERVAL_SECONDS_MIN)} s apart"
        raise BadInput(f"{source}: timestamp: {expected}, got {plain_number(interval)} s")
    span = at - float(times.min()) if len(times) else 0.0
    columns = 1 + round(min(span, DAYS_USED_MAX * DAY_SECONDS - interval) / interval)
    if columns * rows > TABLE_CELLS_MAX:
        raise BadInput(
            f"{source}: expected at most {TABLE_CELLS_MAX:,} samples on the grid, got {rows} series of "
            f"{columns} ({plain_number(interval)} s apart)"
        )
    return columns


def _many(samples: Samples, defaults: FileDefaults) -> Observation:
    if "pod" not in samples.labels:
        raise BadInput(f"{defaults.source}: line 1: expected a column pod beside workload")
    subjects, pod_owner, pod, pod_names = _owners(samples)
    if len(set(subjects)) < len(subjects):  # the name a/b/web would be ambiguous
        twice = next(one for one, other in pairwise(sorted(subjects)) if one == other)
        expected = "expected workloads that can be told apart"
        raise BadInput(f"{defaults.source}: {expected}, got {twice!r} twice, from names with a / in them")
    at = defaults.at
    if at is None:
        at = float(samples.times.max()) if len(samples.times) else 0.0
    interval = defaults.interval_seconds or usual_interval(samples.times, pod) or INTERVAL_SECONDS_DEFAULT
    columns = _columns(defaults.source, samples.times, at, interval, max(1, len(pod_owner)))
    phase = phases(samples.times, pod, len(pod_owner), at, interval)
    column = np.minimum(slots(samples.times - phase[pod], at, interval, columns), columns - 1)
    table = on_grid(cleaned(samples.values), pod, column, (len(pod_owner), columns))
    counts = np.bincount(pod_owner, minlength=len(subjects))
    is_alive = _alive_mask(pod, column, table.shape, _sets(pod_names, counts), interval)
    history = sum_groups(table, is_alive, counts)
    week = round(WEEK_SECONDS / interval)
    is_recent = is_alive[:, -week:].any(axis=1)
    replicas = np.bincount(pod_owner[is_recent], minlength=len(subjects))
    if defaults.replicas is not None:
        replicas = np.full(len(subjects), defaults.replicas)
    available = replicas if defaults.available is None else np.minimum(replicas, defaults.available)
    p99 = pooled_percentiles(table[:, -week:], counts, P99)
    cores = p99
    if defaults.cpu_share != P99:
        cores = pooled_percentiles(table[:, -week:], counts, defaults.cpu_share)
    requests = _requests(samples, pod_owner[pod] if len(pod) else pod, len(subjects), defaults)
    return Observation(
        subjects=subjects,
        kinds=[defaults.kind] * len(subjects),
        replicas=replicas,
        pods=replicas,
        available=available,
        request_cores=requests,
        history=history,
        interval_seconds=interval,
        at=at,
        pod_p99_cores=p99,
        containers=_whole_pods(cores, requests),
    )


def _whole_pods(cores: Floats, requests: Floats) -> Containers:
    """Return each workload's pod as one container, with its usage and its request."""
    count = len(cores)
    specs = [Container(CONTAINER, None if np.isnan(each) else each) for each in requests.tolist()]
    return Containers(
        np.arange(count), specs, cores, np.full(count, np.nan), is_oom_killed=np.zeros(count, np.bool_)
    )


def _with_memory(observation: Observation, samples: Samples) -> Observation:
    """Return an observation with the most memory that a pod of each workload used in the last week.

    In a file of one workload it is the total, of which each pod has an equal share.
    """
    containers = observation.containers
    if samples.memory is None or containers is None:
        return observation
    owner, shares = np.zeros(len(samples.times), np.intp), np.maximum(observation.replicas, 1)
    if samples.is_of_many and len(samples.times):
        _, pod_owner, pod, _ = _owners(samples)
        owner, shares = pod_owner[pod], np.ones(len(observation.subjects))
    peaks = np.full(len(observation.subjects), -np.inf)
    is_counted = is_of_week(samples.times, observation.at) & (cleaned(samples.memory) >= 0)
    np.maximum.at(peaks, owner[is_counted], samples.memory[is_counted])
    peaks = np.where(np.isfinite(peaks), peaks, np.nan) / shares
    return replace(observation, containers=replace(containers, memory_peak_bytes=peaks))


def _owners(samples: Samples) -> tuple[list[str], Whole, Whole, list[str]]:
    """Return the workloads' names, the workload of each pod, the pod of each row, and the pods' names."""
    namespaces = samples.labels.get("namespace", np.zeros(len(samples.times), np.intp))
    spaces, works, names = (
        samples.names.get("namespace", [""]),
        samples.names["workload"],
        samples.names["pod"],
    )
    keys = (namespaces * max(len(works), 1) + samples.labels["workload"]) * max(len(names), 1)
    _, first, place = np.unique(keys + samples.labels["pod"], return_index=True, return_inverse=True)
    who = [
        (spaces[namespaces[row]], works[samples.labels["workload"][row]], names[samples.labels["pod"][row]])
        for row in first.tolist()
    ]
    order = sorted(range(len(who)), key=who.__getitem__)
    rank = np.empty(len(who), np.intp)
    rank[order] = np.arange(len(who))
    subjects = sorted({who[number][:2] for number in order})
    number_of = {subject: number for number, subject in enumerate(subjects)}
    owner = np.array([number_of[who[number][:2]] for number in order], np.intp)
    texts = [f"{space}/{work}" if space else work for space, work in subjects]
    return texts, owner, rank[place] if len(place) else place, [who[number][2] for number in order]


def _sets(pods: Sequence[str], counts: Whole) -> Iterator[list[Whole]]:
    """Yield workloads whose pods have ordinals, as in a StatefulSet: the row of each pod, by ordinal."""
    ends = np.cumsum(counts).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        if order := by_ordinal(pods[start:end]):
            yield [np.array([start + place], np.intp) for place in order]


def _alive_mask(
    pod: Whole, column: Whole, shape: tuple[int, ...], sets: Iterator[list[Whole]], interval_seconds: float
) -> Claims:
    """Return when each pod was alive: from its first row to its last, rows without a value included."""
    first, last = np.full(shape[0], shape[1]), np.full(shape[0], -1)
    np.minimum.at(first, pod, np.maximum(column, 0))
    np.maximum.at(last, pod, column)
    is_observed = np.zeros(shape, np.bool_)
    is_observed[pod[column >= 0], column[column >= 0]] = True
    return alive_mask(first, last, is_observed, sets, interval_seconds)


def _requests(samples: Samples, owner: Whole, count: int, defaults: FileDefaults) -> Floats:
    """Return each workload's request: the latest in the file, else that of the command line."""
    found = np.full(count, np.nan if defaults.request_cores is None else defaults.request_cores)
    if samples.requests is not None:
        largest = np.fmax.reduce(samples.requests, initial=0.0)
        if largest > REQUEST_CORES_MAX:
            expected = f"expected at most {REQUEST_CORES_MAX:,} cores for a pod"
            raise BadInput(f"{defaults.source}: request: {expected}, got {_amount(largest)}")
        order = np.argsort(samples.times, kind="stable")
        order = order[samples.requests[order] > 0]
        found[owner[order]] = samples.requests[order]
    return found


def observe_many(samples: Samples, defaults: FileDefaults, workloads: Sequence[str]) -> list[Observation]:
    """Return an observation for each step, with the named workloads or all.

    Step and end come from the whole file, so that names do not change the advice for a workload.
    """
    check(samples, defaults.source)
    is_kept = chosen(samples, workloads, defaults.source)
    own, owner = steps_of(samples)
    if not len(owner):
        return [observe(samples, replace(defaults, at=None, interval_seconds=None), "")]
    end = float(samples.times.max())
    found = []
    for step, rows in rows_by_step(own, owner):
        part = rows[is_kept[rows]]
        if not len(part):
            continue
        some = samples if len(part) == len(owner) else samples.only(part)
        last = float(samples.times[rows].max())
        # The end is the file's, unless no sample of this step was due between its last one and the end.
        at = last if end - last < step else end
        found.append(observe(some, replace(defaults, at=at, interval_seconds=step or None), ""))
    return found


def series_of(samples: Samples, workload: str, source: str) -> WorkloadSeries:
    """Return the usage of the one selected workload, on a grid."""
    names = [workload] if workload else []
    if samples.is_of_many and names:
        samples = samples.only(chosen(samples, names, source))
    defaults = FileDefaults(source, takes_pods=False)
    observation = observe(samples, defaults, named_subject(names, source))
    subjects = observation.subjects
    if len(subjects) > 1:
        raise BadInput(
            f"{source}: expected one workload, got {len(subjects)}; name one, such as {subjects[0]}"
        )
    values = observation.history[0] if len(subjects) else np.zeros(0)
    known_places = np.flatnonzero(~np.isnan(values))
    if not len(known_places):
        raise BadInput(f"{source}: expected at least one sample that is a number of cores, got none")
    after = len(values) - 1 - int(known_places[-1])
    end = observation.at - after * observation.interval_seconds
    return WorkloadSeries(
        source, values[: known_places[-1] + 1], observation.interval_seconds, end, observation.subjects[0]
    )
