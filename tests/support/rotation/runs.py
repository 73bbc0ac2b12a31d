"""A rotation under way."""

from equipoise.rotation.progress import (
    RotationRun,
)
from tests.support.rotation.worlds import NOW

BEGAN = NOW - 1000.0


COURSE = RotationRun(
    "r0", BEGAN, wave_at=NOW - 400, waves=2, planned=4, predicted_percent=34.8, hottest_cores=1.2, evicted=2
)
