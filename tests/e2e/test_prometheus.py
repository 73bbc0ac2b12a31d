"""The Prometheus adapter against real ones: killed and back, asked for too much, scraped twice."""

import json
import time
from collections.abc import Mapping
from contextlib import closing

import numpy as np
import pytest

from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import BadQuery, PrometheusUnreachable, Reply, TooHeavy
from equipoise.adapters.prometheus.matrix import Grid, Matrix
from equipoise.adapters.prometheus.metrics import PrometheusMetrics
from equipoise.adapters.prometheus.promql import CpuQueries, Matcher, plan
from equipoise.adapters.prometheus.range import query_range
from equipoise.adapters.prometheus.settings import CADVISOR, LabelNames, PrometheusSettings, QueryLimits
from equipoise.adapters.prometheus.transport import Direct
from tests.support.cli.running import equipoise_anew as equipoise
from tests.testbed import ControlPlane, Kwok, Prometheus, StartPrometheus, wait_until
from tests.testbed.scenes import SIX_LOADS, history, six_pods

HOURS = 3
STEP_SECONDS = 60
PODS = {"shop": tuple(f"web-{i}" for i in range(12)), "batch": tuple(f"job-{i}" for i in range(7))}
CONTAINERS = ("app", "proxy")
SERIES = sum(map(len, PODS.values())) * len(CONTAINERS)


class Counted:
    """A transport that counts what it carries."""

    query_max_bytes = Direct.query_max_bytes

    def __init__(self, url: str) -> None:
        self._way = Direct(PrometheusSettings(url))
        self.ranges = 0

    @property
    def address(self) -> str:
        return self._way.address

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        self.ranges += path == "/api/v1/query_range"
        return self._way.send(path, fields, timeout_seconds, bytes_max)

    def close(self) -> None:
        self._way.close()


def _metrics(url: str, **limits: float) -> PrometheusMetrics:
    chosen = QueryLimits(**{"timeout_seconds": 20.0, **limits})  # type: ignore[arg-type]
    return PrometheusMetrics(PrometheusClient(Direct(PrometheusSettings(url)), chosen))


def _cores(
    metrics: PrometheusMetrics, asked: Mapping[str, tuple[str, ...]], seconds: float
) -> dict[str, float]:
    usage = metrics.cpu_usage(asked, time.time(), seconds)
    return dict(zip(usage.pods, usage.cores.tolist(), strict=True))


def _wait_for_cores(
    metrics: PrometheusMetrics,
    asked: Mapping[str, tuple[str, ...]],
    seconds: float,
    expected: Mapping[str, float],
    rel: float,
) -> None:
    """Wait for these loads: a scrape that a busy machine misses makes all of them unknown until the next.

    If it stood still between the end of the written past and the first look at a node, those seconds are
    missing from the window.
    """

    def are_as_set() -> bool:
        found = _cores(metrics, asked, seconds)
        print(found)
        return bool(found == pytest.approx(expected, rel=rel))

    wait_until(are_as_set, "the loads as set", 60)


def _is_rotated(*command: str) -> bool:
    """Whether the command decides to rotate; what it says otherwise is printed."""
    done = equipoise(*command)
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    print(decision)
    return bool(decision["reason"] == "Rotate")


def _past(until: float) -> str:
    """Tell hours of counters whose rate rises from pod to pod, with a hole in some."""
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for namespace, pods in PODS.items():
        for number, pod in enumerate(pods):
            for container in CONTAINERS:
                labels = f'namespace="{namespace}",pod="{pod}",container="{container}"'
                for i in range(HOURS * 60):
                    if number % 3 == 1 and 40 <= i < 70:
                        continue
                    value = 0.01 * (number + 1) * i * 60 + (i * 7 % 13)
                    at = until - HOURS * 3600 + i * 60
                    lines.append(f"container_cpu_usage_seconds_total{{{labels}}} {value:.2f} {at:.3f}")
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture
def until() -> float:
    """The end of the written past: a whole hour, so that nothing of it is yet to come."""
    return float(int(time.time()) // 3600 * 3600)


def _ask(url: str, until: float, **limits: float) -> tuple[Matrix, int]:
    """Ask for all of the past; give it in a fixed order of rows, and the number of range requests."""
    queries = CpuQueries()
    chosen = QueryLimits(**{"timeout_seconds": 30.0, **limits})  # type: ignore[arg-type]
    shards = plan(
        PODS,
        None,
        series_max=chosen.series_max,
        query_max_bytes=Counted.query_max_bytes,
        containers_per_pod=2,
    )
    with closing(Counted(url)) as way:
        client, grid = PrometheusClient(way, chosen), Grid.over(until - HOURS * 3600, until, STEP_SECONDS)
        parts = [
            query_range(client, queries.usage(shard.matchers(CADVISOR), 300), grid, CADVISOR.labels)
            for shard in shards
        ]
    keys = [key for part in parts for key in part.keys]
    values = np.concatenate([part.values for part in parts])
    order = sorted(range(len(keys)), key=lambda row: keys[row])
    return Matrix([keys[row] for row in order], grid.timestamps, values[order]), way.ranges


SCRAPED = {
    "whole": (True, [range(-300, 301, 15)]),
    "rarely": (True, [range(-280, 301, 60)]),
    "begun late": (False, [range(100, 301, 15)]),
    "with a hole": (True, [range(-300, 101, 15), range(200, 301, 15)]),
    "ended early": (False, [range(-300, 241, 15)]),
    "by two jobs": (True, [range(-300, 301, 15), range(200, 301, 15)]),
    "anew in the middle": (False, [range(-300, 151, 15), range(165, 301, 15)]),
    "anew after a while": (False, [range(-300, 21, 15), range(200, 301, 15)]),
}
"""Seconds after a window of 300 s began: one series each, but for the hole. Does one of them cover it?"""


def _scraped(until: float) -> str:
    """Tell counters of one core."""
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for pod, (_, runs) in SCRAPED.items():
        for number, run in enumerate(runs):
            series = 0 if pod == "with a hole" else number
            labels = f'namespace="shop",pod="{pod}",container="app",id="{series}"'
            lines += [
                f"container_cpu_usage_seconds_total{{{labels}}} {1000 + second} {until - 300 + second:.3f}"
                for second in run
            ]
    return "\n".join([*lines, "# EOF", ""])


def test_the_server_tells_whose_samples_cover_the_window(
    start_prometheus: StartPrometheus, until: float
) -> None:
    """Of one series or of several: nobody is covered by the beginning of one and the end of another."""
    server = start_prometheus(backfill=_scraped(until))
    for pods in (list(SCRAPED), *([pod] for pod in SCRAPED)):
        usage = _metrics(server.url).cpu_usage({"shop": pods}, until, 300.0)
        assert usage.is_covered is not None
        found = dict(zip(usage.pods, usage.is_covered.tolist(), strict=True))
        assert found == {pod: SCRAPED[pod][0] for pod in pods}
        for pod, cores in zip(usage.pods, usage.cores.tolist(), strict=True):
            assert cores == pytest.approx(1, rel=0.1) or not found[pod]


@pytest.mark.parametrize(
    ("limits", "requests_min"),
    [
        ({"points_max": 50}, 4),
        ({"series_max": 8}, 4),
        ({"memory_max_bytes": 4 * 20_000}, 10),
        ({"points_max": 50, "series_max": 10, "memory_max_bytes": 4 * 20_000}, 15),
    ],
    ids=["points", "series", "memory", "all three"],
)
def test_a_range_that_was_split_equals_the_whole(
    start_prometheus: StartPrometheus, until: float, limits: dict[str, float], requests_min: int
) -> None:
    """Whichever limit cuts a range query, put together it is what one query gives."""
    server = start_prometheus(backfill=_past(until))
    whole, requests = _ask(server.url, until)
    assert requests == 1
    assert len(whole.keys) == SERIES
    assert np.isfinite(whole.values).sum() > 0.9 * whole.values.size
    assert np.isnan(whole.values).any(), "the holes are part of the comparison"
    split, requests = _ask(server.url, until, **limits)
    assert requests >= requests_min
    assert split.keys == whole.keys
    np.testing.assert_array_equal(split.values, whole.values)
    np.testing.assert_array_equal(split.timestamps, whole.timestamps)


def test_what_the_server_finds_too_heavy_is_split_until_it_fits(
    start_prometheus: StartPrometheus, until: float
) -> None:
    """`--query.max-samples` is met as a real 422: split where that helps, a typed error where not."""
    past = _past(until)
    whole, _ = _ask(start_prometheus(backfill=past).url, until)
    small = start_prometheus(backfill=past, extra_args=["--query.max-samples=150"])
    one = CpuQueries().usage([Matcher("pod", "=", "web-0")], HOURS * 3600)
    with (
        closing(_metrics(small.url).client) as client,
        pytest.raises(TooHeavy, match=f"{small.url} refused the query as too heavy: .*too many samples"),
    ):
        client.vector(one, until, CADVISOR.labels)
    split, requests = _ask(small.url, until)
    assert requests > 20
    assert split.keys == whole.keys
    np.testing.assert_array_equal(split.values, whole.values)


@pytest.fixture
def six(control_plane: ControlPlane, kwok: Kwok, namespace: str) -> dict[str, str]:
    """The six pods of the example, by letter, with their HPA."""
    return six_pods(control_plane, kwok, namespace=namespace)


@pytest.fixture
def measured(
    control_plane: ControlPlane,
    kwok: Kwok,
    namespace: str,
    six: dict[str, str],
    start_prometheus: StartPrometheus,
) -> Prometheus:
    """A Prometheus with an hour's past of the six, which goes on scraping them."""
    loads = dict(zip(six.values(), SIX_LOADS, strict=True))
    past = history(control_plane, kwok, namespace, loads, until=time.time())
    server = start_prometheus(backfill=past, kwok=kwok)
    # The past has a sample every five seconds; more of them are scraped ones.
    scraped = f'count_over_time(container_cpu_usage_seconds_total{{namespace="{namespace}"}}[5s]) >= 3'
    server.wait_for(scraped, len(six))
    return server


def test_a_killed_prometheus_is_unknown_until_it_is_back(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """The same client: an answer, a typed error that names the address, an answer; and so the command."""
    asked = {namespace: tuple(six.values())}
    expected = dict(zip(six.values(), SIX_LOADS, strict=True))
    command = (
        *("rotation", "plan", "web", "-n", namespace, "-o", "json", "--set", "minPodAge=0s"),
        *("--kubeconfig", str(control_plane.kubeconfig)),
        *("--prometheus-url", measured.url, "--prometheus-timeout", "30s"),
    )
    with closing(_metrics(measured.url, timeout_seconds=30).client) as client:
        metrics = PrometheusMetrics(client)
        _wait_for_cores(metrics, asked, 300, expected, rel=0.05)
        wait_until(lambda: _is_rotated(*command), "a plan to rotate", 60)

        measured.kill()
        with pytest.raises(PrometheusUnreachable, match=f"cannot reach {measured.url}: connection refused"):
            metrics.cpu_usage(asked, time.time(), 300)
        with pytest.raises(PrometheusUnreachable):
            metrics.scalar("vector(1)", time.time())
        done = equipoise(*command)
        assert (done.returncode, done.stdout) == (1, "")
        expected_line = f"the CPU usage over 5m is unknown: cannot reach {measured.url}: connection refused"
        assert done.stderr == f"error: {expected_line}\n"

        measured.restart()
        _wait_for_cores(metrics, asked, 300, expected, rel=0.05)
        wait_until(lambda: _is_rotated(*command), "the same plan again", 60)


def test_a_pod_that_stopped_is_not_counted_as_fresh(
    control_plane: ControlPlane, namespace: str, six: dict[str, str], measured: Prometheus
) -> None:
    """Its rate lives on for the window, but its series is stale, so its usage is unknown, not old."""
    asked, gone = {namespace: tuple(six.values())}, six["A"]
    metrics = _metrics(measured.url)

    def is_left_out() -> bool:
        """Whether it alone is; a missed scrape leaves out all of its node for a moment."""
        usage = metrics.cpu_usage(asked, time.time(), 300)
        is_told = "the usage of 1 container was ignored: it has no current sample" in usage.warnings
        are_kept = set(usage.pods) == set(six.values()) - {gone}
        return is_told and are_kept and bool(usage.sampled_at.min() > time.time() - 30)

    with closing(metrics.client):
        wait_until(lambda: _cores(metrics, asked, 300).keys() == set(six.values()), "all six measured", 60)
        control_plane.api.delete(f"/api/v1/namespaces/{namespace}/pods/{gone}")
        wait_until(is_left_out, f"{gone} to be stale, and the others fresh", 60)
    rate = f'rate(container_cpu_usage_seconds_total{{namespace="{namespace}",pod="{gone}"}}[5m])'
    assert measured.query(rate), "the rate of a pod that is gone: what makes this test worth having"


def test_a_container_scraped_by_two_jobs_counts_once(
    kwok: Kwok, namespace: str, six: dict[str, str], start_prometheus: StartPrometheus
) -> None:
    """Two jobs give two series for each container; the usage is that of one."""
    server = start_prometheus(kwok=kwok, jobs=("kubelet", "cadvisor"))
    rate = f'rate(container_cpu_usage_seconds_total{{namespace="{namespace}",container="app"}}[10s])'
    expected = dict(zip(six.values(), SIX_LOADS, strict=True))
    doubled = {pod: 2 * cores for pod, cores in expected.items()}
    wait_until(
        lambda: server.values(f"sum by (pod) ({rate})", "pod") == pytest.approx(doubled, rel=0.1),
        "both jobs to have measured the six",
        120,
    )
    metrics = _metrics(server.url)
    with closing(metrics.client):
        _wait_for_cores(metrics, {namespace: tuple(six.values())}, 10, expected, rel=0.1)


def test_a_server_before_version_3_says_which_label_names_it_cannot_read(prometheus: Prometheus) -> None:
    """Names with dots are quoted, which only Prometheus 3 reads; the error says so."""
    names = LabelNames(pod="k8s.pod.name")
    metrics = PrometheusMetrics(PrometheusClient(Direct(PrometheusSettings(prometheus.url))), names)
    if metrics.client.build_info().version.startswith("2."):
        with pytest.raises(BadQuery, match="a label name in quotes needs Prometheus 3 or newer"):
            metrics.cpu_usage({"shop": ["web-1"]}, time.time(), 300.0)
    else:
        assert metrics.cpu_usage({"shop": ["web-1"]}, time.time(), 300.0).pods == []
