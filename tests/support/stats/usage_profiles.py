"""Made-up courses of CPU usage."""

import numpy as np
import numpy.typing as npt

MINUTES = 1440

WorkloadSeries = npt.NDArray[np.float32]


def daily(days: int, samples: int = MINUTES, seed: int = 1) -> WorkloadSeries:
    """Give a day that repeats, with some noise."""
    random = np.random.default_rng(seed)
    angle = np.arange(days * samples) / samples * 2 * np.pi
    return np.asarray((5 + 3 * np.sin(angle)) * random.uniform(0.95, 1.05, days * samples), np.float32)
