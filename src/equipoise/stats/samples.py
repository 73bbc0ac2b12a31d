"""Samples as columns: a time, a value, and the labels of what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from equipoise.stats.ranks import Whole

Numbers = npt.NDArray[np.float64]
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


@dataclass(slots=True)
class WordNumbers:
    """Distinct words, numbered in order of their first use."""

    words: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, word: str) -> int:
        if word not in self.numbers:
            self.numbers[word] = len(self.words)
            self.words.append(word)
        return self.numbers[word]


def named(names: WordNumbers, codes: Whole, words: Sequence[str]) -> Whole:
    """Return a block's codes as the numbers of the whole file."""
    return np.array([names.number(word) for word in words], np.intp)[codes]


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
            names={label: numbering.words for label, numbering in names.items()},
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
        """Whether rows name their workload."""
        return "workload" in self.labels
