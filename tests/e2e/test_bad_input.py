"""Whatever is wrong with a neighbour or its address: one line, one exit status, no traceback."""

import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.misconfigurations import CASES, Ground
from tests.testbed import ControlPlane, Kwok, StartPrometheus
from tests.testbed.scenes import deployment, history, namespaced, running_pods

NAMESPACE = "bad-input"


@pytest.fixture
def ground(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Ground]:
    """Where a case is laid out."""
    with ExitStack() as stack:
        yield Ground(control_plane, tmp_path, stack)


@pytest.fixture(scope="module")
def workload(control_plane: ControlPlane, kwok: Kwok) -> Iterator[list[str]]:
    """A Deployment `web`, so that its usage is asked for; its pods."""
    del kwok
    control_plane.apply([namespaced(NAMESPACE), deployment(NAMESPACE, "web", replicas=2, request="1")])
    yield running_pods(control_plane, NAMESPACE, "web", 2)
    control_plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}")


def _plan(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = ("rotation", "plan", "web", "-n", NAMESPACE, "-o", "json")
    return equipoise(*command, *arguments, environment=environment)


def _assert_one_line(done: subprocess.CompletedProcess[str], status: int, says_what: str) -> None:
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr), done.stderr
    assert re.search(says_what, done.stderr), done.stderr


class Outcome(NamedTuple):
    """What the command did, and how long it took."""

    done: subprocess.CompletedProcess[str]
    seconds: float


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    workload: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Outcome]:
    """All chosen cases at once, four at a time: most of them wait for something that never comes."""
    del workload

    def run(case: str) -> Outcome:
        with ExitStack() as stack:
            ground = Ground(control_plane, tmp_path_factory.mktemp("case"), stack)
            options = CASES[case].options(ground)
            began_at = time.monotonic()
            return Outcome(_plan(*options), time.monotonic() - began_at)

    here = [item for item in request.session.items if item.path == Path(__file__)]
    chosen = [item.callspec.params["case"] for item in here if hasattr(item, "callspec")]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(chosen, pool.map(run, chosen), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_used_is_one_line(outcomes: dict[str, Outcome], case: str) -> None:
    """The address, the file or the field is named; 1 for the world, 2 for what the user wrote; soon."""
    outcome = outcomes[case]
    _assert_one_line(outcome.done, CASES[case].status, CASES[case].says_what)
    assert outcome.seconds < 120


def test_an_unknown_context_is_named_with_those_that_are_known(ground: Ground) -> None:
    """Also when the file comes from the environment."""
    path = str(ground.config())
    for arguments, environment in (
        (("--kubeconfig", path), {}),
        ((), {"KUBECONFIG": path}),
    ):
        done = _plan(*arguments, "--context", "nowhere", environment=environment)
        _assert_one_line(done, 2, r"there is no context 'nowhere' \(known: x\)")


def test_no_cluster_at_all_says_where_it_was_looked_for(tmp_path: Path) -> None:
    """Neither an option, nor a variable, nor a pod, nor a file at home."""
    _assert_one_line(
        _plan(environment={"HOME": str(tmp_path)}), 2, "no cluster: .*/.kube/config does not exist"
    )
    _assert_one_line(_plan(environment={"KUBECONFIG": str(tmp_path / "absent")}), 2, "/absent")


def test_a_real_prometheus_that_finds_it_too_heavy_is_one_line(
    ground: Ground, workload: list[str], kwok: Kwok, start_prometheus: StartPrometheus
) -> None:
    """A server that may load one sample refuses every rate with a real 422."""
    past = history(ground.control_plane, kwok, NAMESPACE, dict.fromkeys(workload, 0.5), until=time.time())
    server = start_prometheus(backfill=past, extra_args=["--query.max-samples=1"])
    done = _plan("--kubeconfig", str(ground.config()), "--prometheus-url", server.url)
    _assert_one_line(done, 1, f"{server.url} refused the query as too heavy: .*too many samples")


def test_a_workload_that_is_not_there_is_one_line(ground: Ground) -> None:
    """The cluster is well, and has no such thing."""
    done = equipoise(
        *("rotation", "plan", "nope", "-n", NAMESPACE, "-o", "json", "--metrics-from", "metrics-server"),
        *("--kubeconfig", str(ground.config())),
    )
    _assert_one_line(done, 1, f"workload nope: not found in namespace {NAMESPACE}")
