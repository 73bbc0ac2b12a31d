"""The queries of docs/how-to/data.md, asked of a real Prometheus as the page asks them."""

import math
import time
from pathlib import Path

import pytest

from tests.support.docs.data_page import ADDRESS, run_block, shell_blocks
from tests.testbed import StartPrometheus

OF_SERVER = [text for text in shell_blocks() if ADDRESS in text]
STEP_SECONDS, DAYS = 60, 8
NAME = "container_cpu_usage_seconds_total"


def _past(until: float) -> str:
    """Return a week of two pods and another workload's one, whose usage rises and falls with the day."""
    lines = [f"# TYPE {NAME.removesuffix('_total')} counter"]
    for pod, container, share in (("web-0", "app", 0.4), ("web-1", "app", 0.5), ("api-0", "app", 0.5)):
        total = 0.0
        for age in range(DAYS * 86400, -1, -STEP_SECONDS):
            at = until - age
            total += STEP_SECONDS * share * (10 + 8 * math.sin(2 * math.pi * at / 86400))
            labels = f'namespace="shop",pod="{pod}",container="{container}"'
            lines.append(f"{NAME}{{{labels}}} {total:.3f} {at:.0f}")
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture
def address(start_prometheus: StartPrometheus) -> str:
    """A Prometheus that has that week."""
    return start_prometheus(backfill=_past(time.time())).url


def test_the_queries_of_the_page_give_advice_from_a_real_prometheus(address: str, tmp_path: Path) -> None:
    """Each curl is answered, and each command recommends: the pods of web only, or all of the namespace."""
    assert len(OF_SERVER) == 4
    for text in OF_SERVER:
        done = run_block(text, tmp_path, address)
        assert done.returncode == 0, done.stderr
        assert "Recommend" in done.stdout
        assert ("api" in done.stdout) == ("shop.json" in text)
        assert "looks like" not in done.stderr
