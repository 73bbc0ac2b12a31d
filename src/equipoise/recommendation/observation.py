"""What is seen of many workloads before they get advice: one row of each array is one workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.recommendation.picture import Sketch
from equipoise.stats.arrays import Floats, Whole

WEEK_SECONDS = 7 * 86400
INTERVAL_SECONDS_BELIEVED_MAX = 86400.0
"""Samples further apart are gaps, not a way to measure: two of them must not look like a whole week."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What an HPA that targets the workload has beside its CPU utilisation."""

    metrics: Sequence[Mapping[str, Any]] = ()
    behavior: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Containers:
    """The containers of all workloads of a batch, for advice of the type Resource."""

    owner: Whole
    """The row of the workload that each one belongs to."""
    names: Sequence[str]
    cpu_p99_cores: Floats
    memory_peak_bytes: Floats
    """NaN where memory was not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A batch of workloads whose histories end at the same moment."""

    subjects: Sequence[str]
    kinds: Sequence[str]
    replicas: Whole
    pods: Whole
    """Pods in phase Pending or Running that are not terminating."""
    available: Whole
    """Those that have been Ready long enough."""
    request_cores: Floats
    """The sum of a pod's CPU requests; NaN where one is missing."""
    history: Floats
    """Cores of the workload, evenly spaced, NaN where unknown; the last column is of `at`."""
    interval_seconds: float
    at: float
    pod_p99_cores: Floats | None = None
    """Over all samples of all pods of the week. None: a pod uses its share of the workload's usage."""
    samples: Floats | None = None
    """The week's samples where they are not evenly spaced, with their times; else the history has them."""
    sample_times: Floats | None = None
    inherited: Sequence[Inherited | None] = ()
    containers: Containers | None = None
    measurable: Whole | None = None
    """Pods that have been ready for so long that they must have samples. None: from a file, nobody knows."""
    unmeasured: Whole | None = None
    """Those of them that have none."""
    partial: Sequence[str] = ()
    """By workload, why the source could not answer in full, in its words; empty where it could."""

    @property
    def measured_share(self) -> Floats:
        """The share of the pods that must have samples, and have some."""
        if self.measurable is None or self.unmeasured is None:
            return np.ones(len(self.subjects))
        return 1.0 - self.unmeasured / np.maximum(self.measurable, 1)

    @property
    def week_samples(self) -> int:
        """How many samples seven whole days have."""
        return max(1, round(WEEK_SECONDS / self.interval_seconds))

    @property
    def expected_samples(self) -> int:
        """How many samples seven days should have, for whoever judges how much is known."""
        return max(self.week_samples, round(WEEK_SECONDS / INTERVAL_SECONDS_BELIEVED_MAX))

    def rows(self, part: slice) -> "Observation":
        """Give some of the workloads. Containers belong to the whole batch, and stay behind."""
        return Observation(
            subjects=self.subjects[part],
            kinds=self.kinds[part],
            replicas=self.replicas[part],
            pods=self.pods[part],
            available=self.available[part],
            request_cores=self.request_cores[part],
            history=self.history[part],
            interval_seconds=self.interval_seconds,
            at=self.at,
            pod_p99_cores=None if self.pod_p99_cores is None else self.pod_p99_cores[part],
            samples=None if self.samples is None else self.samples[part],
            sample_times=self.sample_times,
            inherited=self.inherited[part],
            measurable=None if self.measurable is None else self.measurable[part],
            unmeasured=None if self.unmeasured is None else self.unmeasured[part],
            partial=self.partial[part],
        )

    def week(self) -> tuple[Floats, Floats]:
        """Give the samples of the past seven days, and their times."""
        if self.samples is not None and self.sample_times is not None:
            return self.samples, self.sample_times
        values = self.history[:, max(0, self.history.shape[1] - self.week_samples) :]
        ages = np.arange(values.shape[1])[::-1] * self.interval_seconds
        return values, self.at - ages


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """All that the advice is made from, by workload: enough to decide again without the history."""

    pod_p99_cores: Floats
    lowest_median_cores: Floats
    highest_median_cores: Floats
    p95_cores: Floats
    """Of the past week, and of the next one too where it is predictable."""
    p95_past_cores: Floats
    peak_cores: Floats
    known_samples: Whole
    expected_samples: int
    predictions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    sketch: Sketch | None = None
    """Usage and forecast for people's eyes, where somebody asked for it."""

    @property
    def coverage(self) -> Floats:
        """The share of a week's samples that is known."""
        return np.minimum(self.known_samples / self.expected_samples, 1.0)
