"""The contracts of a source of usage, on every server that understands PromQL, live: each scrapes kwok."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from equipoise.adapters.kubernetes import Client
from equipoise.runtime.metrics_source import PrometheusOptions, prometheus_metrics
from tests.e2e.conftest import Offered
from tests.support.compat.servers import Thanos, VictoriaMetrics
from tests.support.contracts.contract import Fact, name_of
from tests.support.contracts.metrics_facts import METRICS, QUERIES
from tests.support.contracts.real import session_of
from tests.support.contracts.worlds import QueryWorld
from tests.support.e2e.measured import Measured, hold
from tests.testbed import ControlPlane, Kwok, Prometheus, wait_until
from tests.testbed.scenes import history, namespaced, six_pods

LOADS = (1.2, 0.8, 0.4)
PLACE = "compat-contracts"
LIVE_SECONDS = 30.0
"""Longer than VictoriaMetrics holds the present back, so that its latency would be seen."""

Start = Callable[[ExitStack, Path, Kwok, str], str]


def _prometheus(
    stack: ExitStack, folder: Path, kwok: Kwok, past: str, command: str = "prometheus"
) -> Prometheus:
    server = Prometheus(folder, kwok=kwok, command=command, external_labels={"prometheus": folder.name})
    stack.callback(server.stop)
    server.backfill(past)
    server.start()
    return server


def _victoria_metrics(stack: ExitStack, folder: Path, kwok: Kwok, past: str) -> str:
    server = VictoriaMetrics(folder, kwok=kwok)
    stack.callback(server.stop)
    server.start()
    server.backfill(past)
    return server.url


def _thanos(stack: ExitStack, folder: Path, kwok: Kwok, past: str) -> str:
    server = Thanos(folder, [_prometheus(stack, folder / "store", kwok, past, "prometheus")])
    stack.callback(server.stop)
    server.start()
    return server.url


STARTS: dict[str, Start] = {
    "prometheus-2": lambda stack, folder, kwok, past: (
        _prometheus(stack, folder, kwok, past, "prometheus").url
    ),
    "prometheus-3": lambda stack, folder, kwok, past: (
        _prometheus(stack, folder, kwok, past, "prometheus3").url
    ),
    "victoria-metrics": _victoria_metrics,
    "thanos": _thanos,
}


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A session with all rights."""
    client = session_of(control_plane)
    yield client
    client.close()


@pytest.fixture(scope="module")
def loads(control_plane: ControlPlane, kwok: Kwok) -> dict[str, float]:
    """Cores by pod."""
    control_plane.apply(namespaced(PLACE))
    pods = six_pods(control_plane, kwok, namespace=PLACE, loads=LOADS, hpa_target_percent=None)
    return dict(zip(pods.values(), LOADS, strict=True))


@pytest.fixture(scope="module")
def servers(
    offered: Offered,
    control_plane: ControlPlane,
    kwok: Kwok,
    client: Client,
    loads: dict[str, float],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Measured]]:
    """Servers that have seen the pods for an hour, and go on scraping them: all at once, for one past."""
    began = time.time()
    with ExitStack() as stack, offered():
        past = history(control_plane, kwok, PLACE, loads, until=began)
        urls = {
            name: start(stack, tmp_path_factory.mktemp(name), kwok, past) for name, start in STARTS.items()
        }
        found = {
            name: Measured(prometheus_metrics(client, PrometheusOptions(url=url)), loads, PLACE)
            for name, url in urls.items()
        }
        for name, one in found.items():
            wait_until(lambda at=one: _is_live(at, began), f"live samples in {name}", 180)  # type: ignore[misc]
        yield found


def _is_live(measured: Measured, began: float) -> bool:
    """Whether all pods were scraped long after the past that was written."""
    usage = measured.metrics.cpu_usage({PLACE: list(measured.loads)}, time.time(), 300.0)
    times = usage.sampled_at.tolist()
    return len(times) == len(measured.loads) and min(times) > began + LIVE_SECONDS


@pytest.fixture(scope="module", params=STARTS)
def measured(request: pytest.FixtureRequest, servers: dict[str, Measured]) -> Measured:
    """One of the servers."""
    return servers[request.param]


@pytest.mark.parametrize("fact", [*METRICS.facts, *QUERIES.facts], ids=name_of)
def test_every_server_keeps_the_contract(fact: Fact[QueryWorld], measured: Measured) -> None:
    """Rates of real counters, as of now."""
    hold(fact, measured)
