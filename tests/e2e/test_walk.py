"""The way of one sample, from Prometheus to an eviction and its record, as docs/architecture.md walks it."""

from pathlib import Path

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Operator
from tests.support.e2e.rotation_workload import make_scene, settle
from tests.testbed import ControlPlane, Kwok, Prometheus
from tools.drawings import PAGE, walk

FILES_MAX = 34
PROGRAM = """
from pathlib import Path
from tools.trace import trace

trace("RotationLoop.cycle", through="KubernetesActuator.evict", to=Path({to!r}))
from equipoise.cli.main import main

main()
"""


def test_a_sample_goes_the_way_that_is_documented(
    control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus, namespace: str, tmp_path: Path
) -> None:
    """The operator as a user runs it, traced in the cycle in which it evicts its first pod.

    The page names each file once, and its functions run in its order.
    """
    steps = walk(PAGE.read_text())
    files = [file for file, _ in steps]
    assert len(files) == len(set(files)) <= FILES_MAX
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    scene = settle(make_scene(control_plane, kwok, prometheus, namespace))
    to = tmp_path / "trace"
    program = PROGRAM.format(to=str(to))
    with Operator(control_plane, prometheus.url, namespace, tmp_path, program=program) as operator:
        scene.control_plane.apply(scene.policy())
        operator.wait_for(to.exists, "a cycle that evicts a pod")
    ran = [tuple(line.split()) for line in to.read_text().splitlines()]
    assert [step for step in steps if step not in ran] == []
    assert steps == sorted(steps, key=ran.index)
