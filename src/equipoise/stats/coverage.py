"""Whether the samples of a counter tell about the whole of a window.

`rate` reaches from the first and the last sample to the edges of the window as long as that is hardly more
than the usual time between two samples, and half that time otherwise. The rest of the window counts as no
usage at all: a rate over a part of a window is too low. A hole between two samples takes nothing away.
"""

import numpy as np
from numpy.typing import NDArray

REACH = 1.1
"""How many usual times between samples an edge may be away to be reached."""
LATE = 1.5
"""How many it may be away while the next sample is merely late: scrapes jitter."""
LEFT_OUT_MAX = 0.1
"""The share of the window that a rate may leave out.

A scrape that was missed leaves out less than this where a window holds twenty of them.
"""

EARLY = 1.1
"""How many usual times after the window's beginning a sample is looked for: less than what is merely late."""
EARLY_SHARES = (1 / 12, 1 / 2)
"""The least and the most of the window that is looked at for it."""

Floats = NDArray[np.float64]


def is_covered(window_seconds: float, spans: Floats, counts: Floats, ages: Floats) -> NDArray[np.bool_]:
    """Return whether a rate over the window tells about all of it; what is not known is not covered.

    `spans` are the seconds from the first to the last sample, `ages` those from the last one to the window's
    end.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = spans / (counts - 1)
        before, after = np.maximum(window_seconds - spans - ages, 0.0), np.maximum(ages, 0.0)
        is_late_only = np.maximum(before, after) <= LATE * usual
        left_out = _left_out(before, usual) + _left_out(after, usual)
        enough: NDArray[np.bool_] = (counts > 1) & (
            is_late_only | (left_out <= LEFT_OUT_MAX * window_seconds)
        )
    return enough


def early_seconds(window_seconds: float, counts: Floats) -> float:
    """Say how far into the window one look finds most series begun, when they have so many samples in it."""
    least, most = (share * window_seconds for share in EARLY_SHARES)
    return float(np.clip(EARLY * window_seconds / np.median(counts), least, most))


def _left_out(edge: Floats, usual: Floats) -> Floats:
    """Return how many seconds between a sample and the window's edge a rate does not reach; NaN stays NaN."""
    return np.where(edge <= REACH * usual, 0.0, edge - usual / 2)
