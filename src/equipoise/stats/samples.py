"""Samples as columns: a time, a value, and the labels of what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.stats.grid import usual_interval
from equipoise.stats.ranks import Floats, Whole

Numbers = npt.NDArray[np.float64]
WordNumbers = dict[str, int]
"""Distinct words, numbered in order of their first use."""
Part = Mapping[str, npt.NDArray[np.float64] | Whole]

LABELS = ("namespace", "workload", "pod")
COLUMNS = {name: name for name in ("timestamp", "value", *LABELS, "request")} | {"ts": "timestamp"}
"""The names of columns in a file, and what each one means."""
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
    **dict.fromkeys(LABELS, "a name"),
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
    if column in LABELS and size > NAME_LENGTH_MAX:
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

    @classmethod
    def joined(
        cls, parts: Sequence[Part], names: Mapping[str, WordNumbers], columns: Sequence[str]
    ) -> "Samples":
        """Return the samples of all blocks of a file."""
        assert {"timestamp", "value"} <= set(columns), "samples have a time and a value"
        whole = {
            column: np.concatenate([part[column] for part in parts]) if parts else np.zeros(0)
            for column in columns
        }
        return cls(
            times=whole["timestamp"].astype(np.float64, copy=False),
            values=whole["value"].astype(np.float64, copy=False),
            labels={label: whole[label].astype(np.intp) for label in LABELS if label in whole},
            names={label: list(numbers) for label, numbers in names.items()},
            requests=whole["request"].astype(np.float64) if "request" in whole else None,
        )

    def only(self, is_kept: npt.NDArray[np.bool_] | Whole) -> "Samples":
        """Return some of the rows, by mask or by index, with all words."""
        return Samples(
            self.times[is_kept],
            self.values[is_kept],
            {label: codes[is_kept] for label, codes in self.labels.items()},
            self.names,
            None if self.requests is None else self.requests[is_kept],
        )

    @property
    def is_of_many(self) -> bool:
        return "workload" in self.labels


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
