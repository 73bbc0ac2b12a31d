"""One HPA, minute by minute, as quickly as it goes; `hpa_fleet` says what is simulated.

A sync that changes nothing is not computed: while usage and replicas stay, so does the proposal, and the
highest recommendation of the window stays until the newest one of that height is too old.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from equipoise.sim.hpa import HpaController

SYNCS = 4
"""In a minute: the controller's 15 seconds."""
SYNC_SECONDS = 15.0
NOISE_MILLI = 1e-6


class Setting(NamedTuple):
    """How an HPA is set, and how many replicas it begins with."""

    request_milli: int
    replicas_min: int
    replicas_max: int
    target_percent: int
    replicas: int


class Alone(NamedTuple):
    """What came of it."""

    replicas: list[int]
    """Those that served each minute."""
    replica_syncs: int
    scalings: int
    replicas_highest: int


def window_syncs(controller: HpaController) -> int:
    """Count the syncs whose recommendations still hold a scale-down back, this one included."""
    return int(controller.down_window_seconds / SYNC_SECONDS) + 1


def run_alone(setting: Setting, cores: Sequence[float], controller: HpaController) -> Alone:
    """Run one HPA over minutes of usage, NaN where it is unknown."""
    low, high = setting.replicas_min, setting.replicas_max
    window = window_syncs(controller)
    now = most = setting.replicas
    recent = deque([(0, now)])  # of the window those that no later one reaches: falling from the left
    served: list[int] = []
    sync = paid = scalings = 0
    for seen in [math.nan, *cores][: len(cores)]:
        served.append(now)
        left = SYNCS
        while left:
            passed = left
            wanted = now
            if now and not low <= now <= high:
                wanted = min(max(now, low), high)
            elif now and not math.isnan(seen):
                proposed = _proposed(setting, seen * 1000, now, controller.tolerance)
                while recent and recent[-1][1] <= proposed:
                    recent.pop()
                recent.append((sync, proposed))
                while recent[0][0] <= sync - window:
                    recent.popleft()
                first, stable = recent[0]
                wanted = min(max(stable, low), high, max(2 * now, 4))
                if wanted == now:
                    passed = min(left, first + window - sync) if stable > proposed else left
                    recent[-1] = (sync + passed - 1, proposed)
            if wanted != now:
                passed, scalings, now = 1, scalings + 1, wanted
                most = max(most, now)
            paid += now * passed
            sync += passed
            left -= passed
    return Alone(served, paid, scalings, most)


def _proposed(setting: Setting, usage_milli: float, now: int, tolerance: float) -> int:
    percent = math.ceil(usage_milli / now - NOISE_MILLI) * 100 // setting.request_milli
    ratio = percent / setting.target_percent
    return now if 1 - tolerance <= ratio <= 1 + tolerance else math.ceil(ratio * now)
