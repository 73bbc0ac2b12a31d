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
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=clean(environment),
    )


def command(*arguments: str) -> list[str]:
    """Give the words that start it."""
    return [sys.executable, "-c", "from equipoise.app.main import main; main()", *arguments]


def clean(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give an environment without variables that mean something to us, but for these."""
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
    ours = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return ours | {"COLUMNS": "100", "NO_COLOR": "1", "HOME": "/nonexistent"} | dict(environment or {})
