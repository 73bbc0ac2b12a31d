"""Runs the command as a user does: another process, its own environment."""

import os
import subprocess
import sys
from collections.abc import Mapping

BOUND_SECONDS = 60


def equipoise(
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    seconds: float = BOUND_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run `equipoise` and give back what it printed; no variable of ours leaks in from outside."""
    foreign = (
        "KUBE",
        "REBALANCE_",
        "TOLERANCE_",
        "MINIMUM_",
        "HPA_",
        "KAFKA_",
        "METRICS_",
        "PROMETHEUS_",
        "DEPLOY",
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return subprocess.run(
        [sys.executable, "-c", "from equipoise.app.main import main; main()", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=clean | {"COLUMNS": "100", "NO_COLOR": "1", "HOME": "/nonexistent"} | dict(environment or {}),
    )
