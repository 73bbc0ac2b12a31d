"""A real Prometheus with samples to be read remotely."""

import numpy as np

END = 1_789_603_200
"""A multiple of a week, long ago: all of it is in blocks."""


def containers(until: int) -> str:
    """Tell a day of six containers, two of them scraped twice, one restarted, with jitter and a hole."""
    chance = np.random.default_rng(3)
    parts = {"container_cpu_usage_seconds": "counter", "container_memory_working_set_bytes": "gauge"}
    lines: list[str] = []
    for family, kind in parts.items():
        lines.append(f"# TYPE {family} {kind}")
        for number in range(8):
            labels = (
                f'namespace="ns-{number % 3}",pod="pod-{number % 6}",container="app",job="job-{number // 6}"'
            )
            total = 0.0
            for i in range(1440):
                at = 1000 * until - 60_000 * (1440 - i) + int(chance.integers(-4000, 4001))
                total = 0.0 if number == 4 and i == 700 else total + float(chance.gamma(2.0, 10.0))
                if number == 5 and 300 < i < 400:
                    continue
                name = f"{family}_total" if kind == "counter" else family
                value = total if kind == "counter" else 4096.0 * round(total)
                lines.append(f"{name}{{{labels}}} {value!r} {at / 1000:.3f}")
    return "\n".join([*lines, "# EOF", ""])
