"""Samples as columns: a time, a value, and the labels of what was measured."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from equipoise.stats.grid import usual_interval
from equipoise.stats.ranks import Floats, Whole

Numbers = npt.NDArray[np.float64]
WordNumbers = dict[str, int]
"""Distinct words, numbered in order of their first use."""
Part = Mapping[str, npt.NDArray[np.float64] | Whole]

LABELS = ("namespace", "workload", "pod")
CONTAINER = "container"
"""A label whose rows are added up to those of the pod."""


class Column(NamedTuple):
    """What a column of a file is, and what its numbers are multiplied by to be cores or bytes."""

    name: str
    factor: float = 1.0


_UNITS = {"mib": 1 << 20, "gib": 1 << 30, "mb": 10**6, "gb": 10**9}
COLUMNS = {
    **{name: Column(name) for name in (*LABELS, CONTAINER, "request")},
    **{name: Column("timestamp") for name in ("timestamp", "ts", "time", "date", "datetime", "date_time")},
    **{
        name: Column("value")
        for name in ("value", "cpu", "cores", "cpu_cores", "cpu_usage", "cpu_usage_cores", "usage_cores")
    },
    **{name: Column("value", 0.001) for name in ("millicores", "cpu_millicores", "cpu_usage_millicores")},
    **{
        name: Column("memory")
        for name in ("memory", "mem", "memory_bytes", "memory_usage", "memory_usage_bytes", "mem_bytes")
    },
    **{
        f"{name}_{unit}": Column("memory", size)
        for name in ("memory", "mem")
        for unit, size in _UNITS.items()
    },
    "pod_name": Column("pod"),
    "container_name": Column(CONTAINER),
    "cpu_request": Column("request"),
}
"""The names of columns in a file as `column_of` reads them, and what each one means."""


def column_of(name: str) -> Column | None:
    """Return what a column of this name is: `CPU(cores)` is `cpu_cores`; None where the name says nothing."""
    return COLUMNS.get(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"))


class Shape(StrEnum):
    """What a row of a file belongs to."""

    ROWS = "rows"
    """The workload that it names, or the only one of the file."""
    PODS = "pods"
    """A pod, which is of the workload that is asked for or that its name fits."""
    COLUMNS = "columns"
    """A column with a name: a pod of the workload that is asked for, else a workload."""
    TOTALS = "totals"
    """A workload, of which it is the usage of all pods together."""


ROWS_MAX = 50_000_000
"""Most rows of a file; this many take about 6 GB of memory."""
NAME_LENGTH_MAX = 253
"""The longest name that Kubernetes allows, in bytes."""
NEEDED = frozenset({"workload", "pod"})
"""Labels that must not be empty where the column exists: pods without a name would count as one."""
EXPECTED = {
    "timestamp": "seconds or ISO 8601",
    "value": "a number",
    "request": "a number",
    "memory": "an amount of memory such as 1Gi",
    **dict.fromkeys((*LABELS, CONTAINER), "a name"),
}
"""What a column must contain, for error messages."""


def is_name(word: str, *, is_needed: bool) -> bool:
    """Return whether a word is a valid name: printable UTF-8, and no longer than Kubernetes allows."""
    return (
        word.isprintable()
        and "\ufffd" not in word
        and (bool(word) or not is_needed)
        and len(word.encode()) <= NAME_LENGTH_MAX
    )


def expected(column: str, word: str) -> str:
    """Return what a column must contain and what it has instead, for an error message."""
    size = len(word.encode("utf-8", "replace"))
    if column in (*LABELS, CONTAINER) and size > NAME_LENGTH_MAX:
        return f"expected a name of at most {NAME_LENGTH_MAX} characters, got {size:,}: {word[:40]!r}…"
    return f"expected {EXPECTED[column]}, got {word[:60]!r}"


def named(names: WordNumbers, codes: Whole, words: Sequence[str]) -> Whole:
    """Return a block's codes as the numbers of the whole file."""
    return np.array([names.setdefault(word, len(names)) for word in words], np.intp)[codes]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """One entry per row of the file."""

    times: Numbers
    values: Numbers
    """As in the file, with NaN, infinite and negative values; callers have to drop these."""
    labels: Mapping[str, Whole]
    names: Mapping[str, Sequence[str]]
    """The words of each label, by their numbers."""
    requests: Numbers | None = None
    memory: Numbers | None = None
    """Bytes, where the file has them."""
    shape: Shape = Shape.ROWS
    notes: tuple[str, ...] = ()
    """What was ignored or guessed while the file was read, as sentences."""

    @classmethod
    def joined(
        cls, parts: Sequence[Part], names: Mapping[str, WordNumbers], columns: Sequence[str]
    ) -> "Samples":
        """Return the samples of all blocks of a file; those of a pod's containers are added up."""
        assert {"timestamp", "value"} <= set(columns), "samples have a time and a value"
        whole = {
            column: np.concatenate([part[column] for part in parts]) if parts else np.zeros(0)
            for column in columns
        }
        found = cls(
            times=whole["timestamp"].astype(np.float64, copy=False),
            values=whole["value"].astype(np.float64, copy=False),
            labels={label: whole[label].astype(np.intp) for label in (*LABELS, CONTAINER) if label in whole},
            names={label: list(numbers) for label, numbers in names.items()},
            requests=whole["request"].astype(np.float64) if "request" in whole else None,
            memory=whole["memory"].astype(np.float64) if "memory" in whole else None,
        )
        return added_up(found) if CONTAINER in found.labels else found

    def only(self, is_kept: npt.NDArray[np.bool_] | Whole) -> "Samples":
        """Return some of the rows, by mask or by index, with all words."""
        return replace(
            self,
            times=self.times[is_kept],
            values=self.values[is_kept],
            labels={label: codes[is_kept] for label, codes in self.labels.items()},
            requests=None if self.requests is None else self.requests[is_kept],
            memory=None if self.memory is None else self.memory[is_kept],
        )

    @property
    def is_of_many(self) -> bool:
        return "workload" in self.labels


PAUSE = "POD"
"""The container that holds a pod's network; some exporters list it."""


def added_up(samples: Samples) -> Samples:
    """Return one row for each pod and time: the sum over its containers, unknown where one is unknown.

    A series without a container is the total of its pod's others, and does not count beside them.
    """
    if not len(samples.times):
        return samples
    group = np.zeros(len(samples.times), np.intp)
    for label in LABELS:
        if label in samples.labels:
            group = group * max(1, len(samples.names[label])) + samples.labels[label]
    names = samples.names.get(CONTAINER, [""])
    container = samples.labels.get(CONTAINER, np.zeros(len(group), np.intp))
    is_real = np.array([name not in {"", PAUSE} for name in names], np.bool_)[container]
    _, pod = np.unique(group, return_inverse=True)
    has_real = np.zeros(int(pod.max()) + 1, np.bool_)
    has_real[pod[is_real]] = True
    rows = np.flatnonzero(is_real | ~has_real[pod])
    order = rows[np.lexsort((samples.times[rows], pod[rows]))]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(pod[order]) != 0) | (np.diff(samples.times[order]) != 0)
    starts = np.flatnonzero(is_new)
    found = samples.only(order[starts])
    return replace(
        found,
        values=np.add.reduceat(samples.values[order], starts),
        labels={label: codes for label, codes in found.labels.items() if label != CONTAINER},
        names={label: words for label, words in samples.names.items() if label != CONTAINER},
        requests=None if samples.requests is None else np.add.reduceat(samples.requests[order], starts),
        memory=None if samples.memory is None else np.add.reduceat(samples.memory[order], starts),
    )


OTHER_STEP_FACTOR = 1.5
"""Factor from which a step differs from the file's; less may be jitter or a gap."""
STEPS_MIN = 12
"""Number of intervals from which a workload can have a step of its own."""
REGULAR_SHARE_MIN, REGULAR_WITHIN = 0.8, 0.1
"""Share of the intervals that must be regular, and their tolerance around the usual one."""


def rows_by_step(own: Floats, owner: Whole) -> Iterator[tuple[float, Whole]]:
    """Yield each step with its rows, in the order of the file."""
    steps, number = np.unique(own, return_inverse=True)
    for step, rows in _rows_by_key(number[owner]):
        yield float(steps[step]), rows


def _rows_by_key(keys: Whole) -> Iterator[tuple[int, Whole]]:
    """Yield each key with its rows, in the order of the file; sorts all rows once."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order])) + 1
    yield from ((int(keys[part[0]]), part) for part in np.split(order, starts) if len(part))


def steps_of(samples: Samples) -> tuple[Floats, Whole]:
    """Return the step of each workload, its own where it differs from the file's, and of each row."""
    pods, owner = _numbers(samples)
    usual = usual_interval(samples.times, pods)
    own = np.full(int(owner.max(initial=-1)) + 1, usual)
    for number, rows in _suspects(samples, pods, owner, usual):
        step = _regular_step(samples.times[rows], pods[rows])
        if step and not usual / OTHER_STEP_FACTOR < step < usual * OTHER_STEP_FACTOR:
            own[number] = step
    return own, owner


def _numbers(samples: Samples) -> tuple[Whole, Whole]:
    """Return the number of each row's pod, and of each row's workload."""
    zero = np.zeros(len(samples.times), np.intp)
    spaces = samples.labels.get("namespace", zero)
    works = spaces * max(1, len(samples.names["workload"])) + samples.labels["workload"]
    count = max(1, len(samples.names.get("pod", ())))
    pods = samples.labels.get("pod", zero)
    owners = np.full(count, -1)
    owners[pods] = works
    if (owners[pods] != works).any():  # pods of several workloads share a name
        _, first, pods = np.unique(works * count + pods, return_index=True, return_inverse=True)
        owners = works[first]
    return np.asarray(pods, np.intp), np.asarray(np.unique(owners, return_inverse=True)[1][pods], np.intp)


def _suspects(samples: Samples, pods: Whole, owner: Whole, usual: float) -> Iterator[tuple[int, Whole]]:
    """Yield the rows of workloads whose mean interval differs from the usual one.

    They are few, and only their rows have to be sorted.
    """
    if not usual or not len(owner):
        return
    counts = np.bincount(pods)
    first, last = np.full(len(counts), np.inf), np.full(len(counts), -np.inf)
    np.minimum.at(first, pods, samples.times)
    np.maximum.at(last, pods, samples.times)
    apart = (last - first) / np.maximum(counts - 1, 1)
    is_odd = (counts > STEPS_MIN) & (
        (apart >= usual * OTHER_STEP_FACTOR) | (apart <= usual / OTHER_STEP_FACTOR)
    )
    is_suspect = np.zeros(int(owner.max()) + 1, np.bool_)
    is_suspect[owner[is_odd[pods]]] = True
    rows = np.flatnonzero(is_suspect[owner])
    for number, part in _rows_by_key(owner[rows]):
        yield number, rows[part]


def _regular_step(times: Floats, pods: Whole) -> float:
    """Return the step of a workload whose samples are regular, else 0."""
    step = usual_interval(times, pods)
    order = np.lexsort((times, pods))
    steps = np.diff(times[order])[np.diff(pods[order]) == 0]
    is_kept = np.abs(steps - step) <= REGULAR_WITHIN * step
    return step if len(steps) >= STEPS_MIN and is_kept.mean() >= REGULAR_SHARE_MIN else 0.0
