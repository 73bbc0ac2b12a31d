"""A rotation whose Prometheus loses its past in the middle, on a real control plane."""

import time
from pathlib import Path

import pytest

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Operator
from tests.support.e2e.rotation_workload import WAVES_SECONDS, WINDOW_SECONDS, make_scene, settle
from tests.testbed import ControlPlane, Kwok, StartPrometheus

WINDOW = 2 * WINDOW_SECONDS
LOADS = (1.2, 0.8, 0.6, 0.6, 0.5, 0.5)
"""One is hot."""


def test_a_prometheus_that_lost_its_past_delays_the_verdict_and_does_not_falsify_it(
    control_plane: ControlPlane,
    kwok: Kwok,
    start_prometheus: StartPrometheus,
    namespace: str,
    tmp_path: Path,
) -> None:
    """Restarted with an empty store before the wave is measured: unknown until a window is whole."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    scene = make_scene(
        control_plane, kwok, start_prometheus(kwok=kwok, scrape_interval_seconds=0.5), namespace, loads=LOADS
    )
    settle(scene, LOADS)
    operating = Operator(control_plane, scene.prometheus.url, namespace, tmp_path)
    with operating as operator, scene.watched() as watched:
        control_plane.apply(scene.policy(metricsWindow=f"{WINDOW}s"))
        operator.wait_for(lambda: watched.letters == "A", "the wave", WAVES_SECONDS)
        restarted_at = time.time()  # before it: a stall after it would make a right verdict look early
        scene.prometheus.restart(is_emptied=True)
        operator.wait_for(lambda: scene.reason() == "MetricsIncomplete", "an uncovered window")
        assert scene.verdict() == {}
        operator.wait_for(lambda: bool(scene.verdict()), "a verdict", WAVES_SECONDS)
    verdict = scene.verdict()
    assert (verdict["ending"], verdict["waves"]) == ("NothingLeft", 1)
    assert verdict["endedAt"] >= restarted_at + 0.6 * WINDOW
    # From 1.2 cores, A's, to 0.8, B's: 33 %. Half a window's rate would make 67 % of it.
    assert verdict["realisedPercent"] == pytest.approx(35, abs=7)
    assert watched.letters == "A"
