"""Every contract against the real neighbours: the API server, Prometheus, metrics-server."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.ports import Store
from equipoise.runtime.metrics_source import PrometheusOptions, prometheus_metrics, resource_metrics
from tests.e2e.conftest import Offered
from tests.support.contracts.actuator_facts import ACTUATOR
from tests.support.contracts.applier_facts import APPLIER
from tests.support.contracts.cluster_facts import CLUSTER
from tests.support.contracts.contract import Fact, name_of
from tests.support.contracts.elections import SteppedElections
from tests.support.contracts.leadership_facts import LEADERSHIP
from tests.support.contracts.metrics_facts import METRICS, QUERIES
from tests.support.contracts.operator_facts import PAUSES, POLICIES
from tests.support.contracts.real import RealOperator, RealWorld, install_kinds, session_of
from tests.support.contracts.sized import RealSizes
from tests.support.contracts.sizes_facts import SIZES, SizesWorld
from tests.support.contracts.store_facts import STORE
from tests.support.contracts.worlds import (
    ApplierWorld,
    ClusterWorld,
    ElectionWorld,
    MetricsWorld,
    OperatorWorld,
    QueryWorld,
    StoreWorld,
)
from tests.support.e2e.measured import MEASURED, Measured, hold
from tests.testbed import ControlPlane, Kwok, MetricsServer, Prometheus, wait_until
from tests.testbed.granting import Granting
from tests.testbed.scenes import history, namespaced, six_pods

LOADS = (1.2, 0.8, 0.4)


@dataclass
class Ledgers:
    """The production store in a namespace of the real API server."""

    store: Store
    namespace: str


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A session with all rights."""
    client = session_of(control_plane)
    yield client
    client.close()


@pytest.fixture
def world(control_plane: ControlPlane, kwok: Kwok, client: Client, namespace: str) -> RealWorld:
    """A namespace of a fact's own, with nodes to spare."""
    del kwok
    return RealWorld(control_plane, client, namespace)


@pytest.fixture
def ledgers(control_plane: ControlPlane, client: Client, namespace: str) -> Ledgers:
    """A store, with the definition that the chart installs."""
    install_kinds(control_plane)
    return Ledgers(LedgerStore(client), namespace)


@pytest.fixture(scope="module")
def loads(control_plane: ControlPlane, kwok: Kwok) -> Iterator[dict[str, float]]:
    """Cores by pod."""
    control_plane.apply(namespaced(MEASURED))
    pods = six_pods(control_plane, kwok, namespace=MEASURED, loads=LOADS, hpa_target_percent=None)
    yield dict(zip(pods.values(), LOADS, strict=True))
    control_plane.api.delete(f"/api/v1/namespaces/{MEASURED}")


@pytest.fixture(scope="module")
def in_prometheus(
    offered: Offered,
    control_plane: ControlPlane,
    kwok: Kwok,
    client: Client,
    loads: dict[str, float],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Measured]:
    """A Prometheus that has seen the pods for an hour, and goes on scraping them."""
    server = Prometheus(tmp_path_factory.mktemp("contract-prometheus"), kwok=kwok)
    with ExitStack() as stack:
        stack.callback(server.stop)
        with offered():
            server.backfill(history(control_plane, kwok, MEASURED, loads, until=time.time()))
            server.start()
        fresh = f'timestamp(container_cpu_usage_seconds_total{{namespace="{MEASURED}"}}) > time() - 10'
        server.wait_for(fresh, len(loads))
        yield Measured(prometheus_metrics(client, PrometheusOptions(url=server.url)), loads)


@pytest.fixture(scope="module")
def in_metrics_server(metrics_server: MetricsServer, client: Client, loads: dict[str, float]) -> Measured:
    """The real metrics-server, once its short window holds nothing but the steady loads."""
    metrics_server.wait_for_pods(MEASURED, len(loads))
    metrics = resource_metrics(client)

    def is_steady() -> bool:
        answer = metrics.cpu_usage({MEASURED: list(loads)}, time.time(), 300.0)
        return dict(zip(answer.pods, answer.cores.tolist(), strict=True)) == pytest.approx(loads, rel=0.05)

    wait_until(is_steady, "steady loads in metrics-server", 180)
    return Measured(metrics, loads)


@pytest.mark.parametrize("fact", CLUSTER.facts, ids=name_of)
def test_the_real_cluster_keeps_the_contract(fact: Fact[ClusterWorld], world: RealWorld) -> None:
    """The reads."""
    fact(world)


@pytest.mark.parametrize("fact", ACTUATOR.facts, ids=name_of)
def test_the_real_eviction_api_keeps_the_contract(fact: Fact[ClusterWorld], world: RealWorld) -> None:
    """Evictions, budgets, dry runs, events."""
    fact(world)


@pytest.mark.parametrize("fact", APPLIER.facts, ids=name_of)
def test_server_side_apply_keeps_the_contract(fact: Fact[ApplierWorld], world: RealWorld) -> None:
    """HPAs that are ours, and those that are not."""
    fact(world)


@pytest.mark.parametrize("fact", SIZES.facts, ids=name_of)
def test_sizes_keep_the_contract(
    control_plane: ControlPlane, kwok: Kwok, client: Client, namespace: str, fact: Fact[SizesWorld]
) -> None:
    """The production adapter, on pods whose nodes can change them."""
    del kwok
    with Granting(control_plane, namespace):
        fact(RealSizes(control_plane, client, namespace))


@pytest.mark.parametrize("fact", STORE.facts, ids=name_of)
def test_the_ledgers_of_a_real_cluster_keep_the_contract(fact: Fact[StoreWorld], ledgers: Ledgers) -> None:
    """Memory by compare-and-swap, under the definition's own validation."""
    fact(ledgers)


@pytest.mark.parametrize("fact", LEADERSHIP.facts, ids=name_of)
def test_a_lease_of_a_real_cluster_keeps_the_contract(
    fact: Fact[ElectionWorld], client: Client, namespace: str
) -> None:
    """Elections on a clock that the fact moves, over the real server's compare-and-swap."""
    elections = SteppedElections(client, namespace, "operator")
    try:
        fact(elections)
    finally:
        elections.close()


@pytest.mark.parametrize("fact", [*POLICIES.facts, *PAUSES.facts], ids=name_of)
def test_policies_and_pauses_of_a_real_cluster_keep_the_contract(
    fact: Fact[OperatorWorld], control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """Custom resources under their own definition, and annotations of namespaces."""
    install_kinds(control_plane)
    world = RealOperator(control_plane, client, namespace)
    try:
        fact(world)
    finally:
        world.close()


@pytest.mark.parametrize("fact", [*METRICS.facts, *QUERIES.facts], ids=name_of)
def test_a_real_prometheus_keeps_the_contract(fact: Fact[QueryWorld], in_prometheus: Measured) -> None:
    """Rates of real counters."""
    hold(fact, in_prometheus)


@pytest.mark.parametrize("fact", METRICS.facts, ids=name_of)
def test_a_real_metrics_server_keeps_the_contract(
    fact: Fact[MetricsWorld], in_metrics_server: Measured
) -> None:
    """Its own short window."""
    hold(fact, in_metrics_server)
