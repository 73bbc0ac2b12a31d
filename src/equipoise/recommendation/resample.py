"""Workloads of one file that were measured at different steps: each is judged by its own.

On a grid of the others' step, one that is measured every hour beside those of every minute would seem to be
known for a sixtieth of the time. A few scattered samples are no step: whoever has no more is judged by the
file's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from equipoise.recommendation.history_file import Said, check, chosen, observe
from equipoise.recommendation.observation import Observation
from equipoise.stats.grid import usual_interval
from equipoise.stats.ranks import Floats, Whole
from equipoise.stats.samples import Samples

OTHER = 1.5
"""A step that is so many times as long or as short is another one; less may be jitter, or a gap."""
STEPS_MIN = 12
"""So many steps show that one is kept."""
KEPT_MIN, KEPT_WITHIN = 0.8, 0.1
"""How many of them must be about as long as the usual one."""


def observe_many(samples: Samples, said: Said, workloads: Sequence[str]) -> list[Observation]:
    """Observe the workloads that were asked for, or all; those of one step together.

    Who is asked for changes nothing of what is seen of each: step and end are of the whole file.
    """
    check(samples, said.source)
    is_kept = chosen(samples, workloads, said.source)
    own, owner = steps_of(samples)
    if not len(owner):
        return [observe(samples, replace(said, at=None, interval_seconds=None), "")]
    end = float(samples.times.max())
    found = []
    for step, rows in _by_step(own, owner):
        part = rows[is_kept[rows]]
        if not len(part):
            continue
        some = samples if len(part) == len(owner) else samples.only(part)
        last = float(samples.times[rows].max())
        # The end is the file's, unless those of this step were not due again before it.
        at = last if end - last < step else end
        found.append(observe(some, replace(said, at=at, interval_seconds=step or None), ""))
    return found


def _by_step(own: Floats, owner: Whole) -> Iterator[tuple[float, Whole]]:
    """Yield each step with its rows in the order of the file; all rows are sorted once."""
    steps, number = np.unique(own, return_inverse=True)
    of_row = number[owner]
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(steps)), side="right").tolist()
    for step, start, last in zip(steps.tolist(), [0, *ends], ends, strict=False):
        yield step, order[start:last]


def steps_of(samples: Samples) -> tuple[Floats, Whole]:
    """Give each workload's step, its own where it keeps another than the file's; and each row's workload."""
    pods, owner = _numbers(samples)
    usual = usual_interval(samples.times, pods)
    own = np.full(int(owner.max(initial=-1)) + 1, usual)
    for number, rows in _suspects(samples, pods, owner, usual):
        step = _kept_step(samples.times[rows], pods[rows])
        if step and not usual / OTHER < step < usual * OTHER:
            own[number] = step
    return own, owner


def _numbers(samples: Samples) -> tuple[Whole, Whole]:
    """Return the number of each row's pod, and of its workload."""
    zero = np.zeros(len(samples.times), np.intp)
    spaces = samples.labels.get("namespace", zero)
    works = spaces * max(1, len(samples.names["workload"])) + samples.labels["workload"]
    count = max(1, len(samples.names.get("pod", ())))
    pods = samples.labels.get("pod", zero)
    owners = np.full(count, -1)
    owners[pods] = works
    if (owners[pods] != works).any():  # some share a name, so that all rows must be sorted to number them
        _, first, pods = np.unique(works * count + pods, return_index=True, return_inverse=True)
        owners = works[first]
    return np.asarray(pods, np.intp), np.asarray(np.unique(owners, return_inverse=True)[1][pods], np.intp)


def _suspects(samples: Samples, pods: Whole, owner: Whole, usual: float) -> Iterator[tuple[int, Whole]]:
    """Yield the rows of those whose samples are on average further apart, or closer, than is usual.

    Few are, and only theirs have to be sorted.
    """
    if not usual or not len(owner):
        return
    counts = np.bincount(pods)
    first, last = np.full(len(counts), np.inf), np.full(len(counts), -np.inf)
    np.minimum.at(first, pods, samples.times)
    np.maximum.at(last, pods, samples.times)
    apart = (last - first) / np.maximum(counts - 1, 1)
    is_odd = (counts > STEPS_MIN) & ((apart >= usual * OTHER) | (apart <= usual / OTHER))
    looked_at = np.unique(owner[is_odd[pods]])
    is_looked_at = np.zeros(int(owner.max()) + 1, np.bool_)
    is_looked_at[looked_at] = True
    rows = np.flatnonzero(is_looked_at[owner])
    rows = rows[np.argsort(owner[rows], kind="stable")]
    ends = np.searchsorted(owner[rows], looked_at, side="right").tolist()
    for number, start, end in zip(looked_at.tolist(), [0, *ends], ends, strict=False):
        yield number, rows[start:end]


def _kept_step(times: Floats, pods: Whole) -> float:
    """Return the step that a workload keeps, or 0 where it keeps none."""
    step = usual_interval(times, pods)
    order = np.lexsort((times, pods))
    steps = np.diff(times[order])[np.diff(pods[order]) == 0]
    is_kept = np.abs(steps - step) <= KEPT_WITHIN * step
    return step if len(steps) >= STEPS_MIN and is_kept.mean() >= KEPT_MIN else 0.0
