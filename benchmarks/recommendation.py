"""Advice for a whole fleet from weeks in memory, beside a loop with numpy's own percentile and median."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.forecast import SAMPLES, SEED, weeks
from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, memory_bytes
from benchmarks.tables import Section, Table, ratio

WORKLOADS = 20_000
BATCH = 256
LOOPED = 400
"""The loop takes too long for all; its time per workload does not depend on their number."""
GOAL, GOAL_WITH_FORECAST, GOAL_RATIO = 5000, 1000, 5


def ours(workloads: int, has_forecast: bool) -> Figures:
    """Decide for all; the weeks are generated batch by batch, and only deciding is timed."""
    from equipoise.core.reason import Code
    from equipoise.recommendation.decide import decide
    from equipoise.recommendation.observe import Observation
    from equipoise.recommendation.settings import AdviceRequest, RecommendationPolicy
    from equipoise.stats.predict import Algorithm

    chance, policy = np.random.default_rng(SEED), RecommendationPolicy()
    algorithm = Algorithm.PROFILE if has_forecast else None
    cpu_seconds, advised = 0.0, 0
    for start in range(0, workloads, BATCH):
        count = min(BATCH, workloads - start)
        seen = Observation(
            subjects=[f"shop/web-{start + number}" for number in range(count)],
            kinds=["Deployment"] * count,
            replicas=np.full(count, 10),
            pods=np.full(count, 10),
            available=np.full(count, 10),
            request_cores=np.full(count, 4.0),
            history=weeks(chance, count),
            interval_seconds=60.0,
            at=1.8e9,
        )
        before = time.process_time()
        decisions = decide(AdviceRequest(policy, algorithm=algorithm), seen)
        cpu_seconds += time.process_time() - before
        advised += sum(one.decision.reason.code is Code.RECOMMEND for one in decisions)
    return {"cpu_seconds": cpu_seconds, "peak_bytes": memory_bytes("VmHWM"), "advised": advised}


def loop(workloads: int) -> Figures:
    """Take the same numbers of one workload after the other, as a script would."""
    chance = np.random.default_rng(SEED)
    cpu_seconds, total = 0.0, 0.0
    hours = np.arange(SAMPLES) // 60 % 24
    for start in range(0, workloads, BATCH):
        batch = weeks(chance, min(BATCH, workloads - start))
        before = time.process_time()
        for row in batch:
            p95, p99 = np.percentile(row, [95, 99], method="inverted_cdf")
            medians = [np.median(row[hours == hour]) for hour in range(24)]
            total += float(p95 + p99 + max(medians) / min(medians) + row.max())
        cpu_seconds += time.process_time() - before
    return {"cpu_seconds": cpu_seconds, "peak_bytes": memory_bytes("VmHWM"), "advised": total}


def run(*, quick: bool) -> Section:
    large = WORKLOADS // 10 if quick else WORKLOADS
    small, looped, repeats = large // 10, LOOPED // (4 if quick else 1), 1 if quick else 3
    parts = {
        (small, False): lambda: in_own_process(ours, workloads=small, has_forecast=False),
        (large, False): lambda: in_own_process(ours, workloads=large, has_forecast=False),
        (small, True): lambda: in_own_process(ours, workloads=small, has_forecast=True),
        (large, True): lambda: in_own_process(ours, workloads=large, has_forecast=True),
        (looped, None): lambda: in_own_process(loop, workloads=looped),
    }
    taken = dict(zip(parts, interleaved(repeats, *parts.values()), strict=True))
    per = {key: figures["cpu_seconds"] / key[0] for key, figures in taken.items()}
    base = per[looped, None]
    table = Table(
        (
            "advice",
            "workloads",
            "CPU s",
            "workloads/s/core",
            "samples/s/core",
            "peak RSS MiB",
            "times the loop",
        )
    )
    for (count, has_forecast), figures in taken.items():
        pace = 1 / per[count, has_forecast]
        table.add(
            {
                None: "numpy's percentile and median, one by one",
                False: "ours",
                True: "ours, with the forecast",
            }[has_forecast],
            f"{count:,}",
            f"{figures['cpu_seconds']:.2f}",
            f"{pace:,.0f}",
            f"{pace * SAMPLES / 1e6:,.0f} M",
            f"{figures['peak_bytes'] / MEBIBYTE:,.0f}",
            ratio(base, per[count, has_forecast]),
        )
    return Section("Advice for a fleet", [table], _meaning(per, large, base), _remarks(per, large, small))


def _meaning(per: dict[tuple[int, bool | None], float], large: int, base: float) -> str:
    plain, full = 1 / per[large, False], 1 / per[large, True]
    verdicts = [
        "meets" if is_met else "misses"
        for is_met in (plain >= GOAL, full >= GOAL_WITH_FORECAST, base * plain >= GOAL_RATIO)
    ]
    return (
        f"A core advises {plain:,.0f} workloads a second from a week of minutes each ({verdicts[0]} the goal "
        f"of {GOAL:,}), {base * plain:.1f} times what a loop with numpy's own functions does ({verdicts[2]} "
        f"{GOAL_RATIO}), and {full:,.0f} with the forecast of the next week ({verdicts[1]} "
        f"{GOAL_WITH_FORECAST:,})."
    )


def _remarks(per: dict[tuple[int, bool | None], float], large: int, small: int) -> list[str]:
    growth = [per[large, way] / per[small, way] for way in (False, True)]
    factors = f"a factor of {growth[0]:.2f}, and of {growth[1]:.2f} with the forecast"
    held = "which is most of the memory; sentences and documents are included"
    return [
        f"From {small:,} to {large:,} workloads, the CPU time per workload changes by {factors}.",
        f"{SAMPLES:,} samples per workload in single precision, made in batches of {BATCH}, {held}.",
        _decoding(),
    ]


def _decoding() -> str:
    figures = in_own_process(decoded)
    return (
        f"CSV is read at {figures['rows'] / figures['cpu_seconds'] / 1e6:.1f} million rows a second "
        f"({figures['rows']:,.0f} rows of time, namespace, workload, pod and a value of all its digits)."
    )


def decoded() -> Figures:
    """Read a file of many workloads."""
    import tempfile
    from pathlib import Path

    from equipoise.adapters.sample_files import read_samples

    chance = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage.csv"
        with path.open("w") as file:
            file.write("timestamp,namespace,workload,pod,value\n")
            for moment in range(1000):
                values = chance.random(300)
                at = 1_700_000_000 + moment * 60
                file.writelines(
                    f"{at},shop,web-{n // 3},web-{n // 3}-5f6d8c9b7-{n:05d},{value!r}\n"
                    for n, value in enumerate(values.tolist())
                )
        before = time.process_time()
        samples = read_samples(str(path))
        return {"cpu_seconds": time.process_time() - before, "rows": float(len(samples.times))}
