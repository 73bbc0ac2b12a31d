"""A week of a cluster's containers for a real Prometheus: counters and gauges, scraped early or late."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, TextIO

import numpy as np

WORKLOADS = 400
REPLICAS = 3
NAMESPACES = 20
DAYS = 7
STEP_SECONDS = 60
JITTER_MS = 3000
SEED = 23
END = 2959 * 7 * 86400
"""A multiple of a week, so that the history is one block of the server's."""
START = END - DAYS * 86400
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"


OWNED = "kube_replicaset_owner", "kube_pod_owner", "kube_pod_status_phase"
"""What kube-state-metrics tells, and krr asks for."""


def namespace(workload: int) -> str:
    """Give the namespace of a workload."""
    return f"shop-{workload % NAMESPACES:02d}"


def deployment(workload: int) -> str:
    """Give the name of a workload."""
    return f"web-{workload:04d}"


def replica_set(workload: int) -> str:
    """Give the name of the only revision of a workload."""
    return f"{deployment(workload)}-7c9f8b6d5"


def pod(workload: int, replica: int) -> str:
    """Give the name of a pod, which looks as if it was drawn."""
    return f"{replica_set(workload)}-{'bcdfg'[replica]}{'hjklm'[workload % 5]}x7z"


def labels(workload: int, replica: int) -> str:
    """Give the labels that cAdvisor gives, lengths and all."""
    return (
        f'container="app",cpu="total",endpoint="https-metrics",'
        f'id="/kubepods/burstable/pod{workload:04d}-{replica}",'
        f'image="registry.example/shop/web:1.{workload}",instance="10.0.{workload % 250}.{replica}:10250",'
        f'job="kubelet",metrics_path="/metrics/cadvisor",name="{workload:08x}{replica:04x}",'
        f'namespace="{namespace(workload)}",node="node-{workload % 50:02d}",'
        f'pod="{pod(workload, replica)}",service="kubelet"'
    )


def write(file: TextIO, workloads: int, jitter_ms: int = JITTER_MS) -> None:
    """Write the history as OpenMetrics text, series by series."""
    for metric, kind in ((CPU.removesuffix("_total"), "counter"), (MEMORY, "gauge")):
        file.write(f"# TYPE {metric} {kind}\n")
        chance = np.random.default_rng(SEED)
        name = CPU if kind == "counter" else MEMORY
        for workload in range(workloads):
            for replica in range(REPLICAS):
                at_ms = times(chance, jitter_ms)
                values = counter(chance, at_ms) if kind == "counter" else gauge(chance, len(at_ms))
                head = f"{name}{{{labels(workload, replica)}}} "
                rows = zip(values.tolist(), (at_ms / 1000.0).tolist(), strict=True)
                file.write("".join([f"{head}{value!r} {at:.3f}\n" for value, at in rows]))
    _write_owners(file, workloads)
    file.write("# EOF\n")


def _write_owners(file: TextIO, workloads: int) -> None:
    """Write whose the pods are and that they run: a one in every minute."""
    minutes = range(START, END, STEP_SECONDS)
    ones = [f" 1 {at}\n" for at in minutes]
    for metric in OWNED:
        file.write(f"# TYPE {metric} gauge\n")
        for workload in range(workloads):
            file.writelines(head + head.join(ones) for head in _owned(metric, workload))


def _owned(metric: str, workload: int) -> list[str]:
    scraped = f'job="kube-state-metrics",namespace="{namespace(workload)}"'
    if metric == OWNED[0]:
        owner = f'owner_kind="Deployment",owner_name="{deployment(workload)}"'
        return [f'{metric}{{{scraped},{owner},replicaset="{replica_set(workload)}"}}']
    told = f'owner_kind="ReplicaSet",owner_name="{replica_set(workload)}"'
    if metric == OWNED[2]:
        told = 'phase="Running"'
    return [f'{metric}{{{scraped},{told},pod="{pod(workload, replica)}"}}' for replica in range(REPLICAS)]


def times(chance: np.random.Generator, jitter_ms: int) -> Any:
    """Return when a series is scraped, in milliseconds: early or late by up to the jitter."""
    even = START * 1000 + np.arange(DAYS * 86400 // STEP_SECONDS, dtype=np.int64) * STEP_SECONDS * 1000
    return even + STEP_SECONDS * 500 + chance.integers(-jitter_ms, jitter_ms + 1, len(even))


def counter(chance: np.random.Generator, times: Any) -> Any:
    """Use cores that follow the day, with noise; counted in nanoseconds, as a kernel does."""
    day = 1.0 + 0.6 * np.sin(2 * np.pi * (times / 86_400_000.0))
    cores = chance.gamma(1.5, 0.2) * day * chance.gamma(8.0, 0.125, len(times))
    used = np.cumsum(cores[1:] * np.diff(times) / 1000.0)
    return np.concatenate(([0.0], used)).round(9) + round(chance.random() * 1e5, 9)


def gauge(chance: np.random.Generator, count: int) -> Any:
    mean = chance.uniform(5e7, 2e9)
    walk = np.cumsum(chance.normal(0.0, mean * 0.002, count))
    return np.maximum(4096.0, np.rint((mean + walk) / 4096.0) * 4096.0)


def backfill(folder: Path, promtool: str, workloads: int = WORKLOADS, jitter_ms: int = JITTER_MS) -> Path:
    """Make the data folder of a server, unless it is there from an earlier run."""
    data = folder / f"history-{workloads}x{REPLICAS}x{DAYS}d-{jitter_ms}ms-{SEED}-owned"
    if data.exists():
        return data
    making, text = folder / f"{data.name}.making", folder / f"{data.name}.txt"
    making.mkdir(parents=True, exist_ok=True)
    with text.open("w") as file:
        write(file, workloads, jitter_ms)
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=168h", "--quiet"]
    subprocess.run([*command, str(text), str(making)], check=True, stdout=subprocess.DEVNULL, timeout=1800)
    text.unlink()
    return making.rename(data)
