"""How the rotation's loop is wired: a heavy batch goes to the worker in parts, and comes back in order."""

from types import SimpleNamespace
from typing import Any

import pytest

from equipoise.ports.wiring import DEADLINE_SECONDS
from equipoise.rotation import balancer as wired
from equipoise.runtime.settings import Settings

PODS = 700


@pytest.mark.parametrize(("workloads", "parts"), [(0, 0), (1, 0), (14, 0), (15, 2), (40, 5)])
def test_a_heavy_batch_goes_in_parts_and_comes_back_in_order(
    monkeypatch: pytest.MonkeyPatch, workloads: int, parts: int
) -> None:
    """A light one is decided at once; none is lost, and no part is much larger than it may be."""
    sent: list[list[Any]] = []

    def submit(function: Any, part: list[Any], *, deadline_seconds: float) -> list[Any]:
        assert 0 < deadline_seconds <= DEADLINE_SECONDS
        sent.append(part)
        return list(function(part))

    monkeypatch.setattr(wired, "decide_all", lambda batch: [number for number, _, _ in batch])
    monkeypatch.setattr(wired, "RotationLoop", lambda _ports, _policies, options, *_: options)
    anything: Any = SimpleNamespace(
        **dict.fromkeys(
            ("cluster", "metrics", "pauses", "leadership", "store", "actuator", "journal", "heartbeat")
        ),
        batches=SimpleNamespace(submit=submit, replaced=0),
        clock=SimpleNamespace(now=None),
        new_id=None,
        operator_namespace="ops",
        policies=lambda kind: None,
    )
    loop: Any = wired.make_loop(anything, Settings())
    batch: Any = [(number, SimpleNamespace(pods=range(PODS)), {}) for number in range(workloads)]
    found = [one for part, decide in loop.batches(batch) for one in decide(part)]
    assert found == list(range(workloads))
    assert len(sent) == parts
    assert all(len(part) * PODS < wired.BATCH_PODS + PODS for part in sent)
