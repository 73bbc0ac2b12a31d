"""Files with the usage of many workloads."""

from collections.abc import Mapping

import numpy as np

from equipoise.stats.samples import Samples
from tests.support.recommendation.worlds import policy

START = 1_700_006_400.0  # midnight, UTC


OPEN = policy(min_cpu_usage_threshold="0", fluctuation_threshold="0")


def many(rows: list[tuple[float, str, str, str, float]]) -> Samples:
    """Give rows of many workloads."""
    names: dict[str, list[str]] = {label: [] for label in ("namespace", "workload", "pod")}
    labels: Mapping[str, list[int]] = {label: [] for label in names}
    for row in rows:
        for label, word in zip(names, row[1:4], strict=True):
            if word not in names[label]:
                names[label].append(word)
            labels[label].append(names[label].index(word))
    return Samples(
        np.array([START + row[0] for row in rows]),
        np.array([row[4] for row in rows]),
        {label: np.array(codes, np.intp) for label, codes in labels.items()},
        names,
    )
