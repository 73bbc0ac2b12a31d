"""Every contract without a cluster: in the simulator, or against a small API."""

from dataclasses import dataclass

import pytest

from equipoise.adapters.kubernetes.store import LedgerStore
from tests.support.contracts.actuator_facts import ACTUATOR
from tests.support.contracts.applier_facts import APPLIER
from tests.support.contracts.cluster_facts import CLUSTER
from tests.support.contracts.contract import Fact, name_of
from tests.support.contracts.leadership_facts import LEADERSHIP
from tests.support.contracts.metrics_facts import METRICS, QUERIES
from tests.support.contracts.operator_facts import PAUSES, POLICIES
from tests.support.contracts.servers import elections, small_api
from tests.support.contracts.simulated import (
    SimulatedElections,
    SimulatedMetrics,
    SimulatedOperator,
    SimulatedWorld,
)
from tests.support.contracts.sized import SimulatedSizes
from tests.support.contracts.sizes_facts import SIZES, SizesWorld
from tests.support.contracts.store_facts import STORE
from tests.support.contracts.suites import CONTRACTS, summary
from tests.support.contracts.worlds import (
    ApplierWorld,
    ClusterWorld,
    ElectionWorld,
    MetricsWorld,
    OperatorWorld,
    QueryWorld,
    StoreWorld,
)


@dataclass
class LedgersInSmallApi:
    """The production store, against a server that only keeps and compares."""

    store: LedgerStore
    namespace: str = "shop"


@pytest.mark.parametrize("fact", CLUSTER.facts, ids=name_of)
def test_the_simulators_cluster_keeps_the_contract(fact: Fact[ClusterWorld]) -> None:
    """What the loops see in the simulator is what they would see."""
    fact(SimulatedWorld())


@pytest.mark.parametrize("fact", ACTUATOR.facts, ids=name_of)
def test_the_simulators_actuator_keeps_the_contract(fact: Fact[ClusterWorld]) -> None:
    """What they do there has the same effect and the same answer."""
    fact(SimulatedWorld())


@pytest.mark.parametrize("fact", APPLIER.facts, ids=name_of)
def test_the_simulators_applier_keeps_the_contract(fact: Fact[ApplierWorld]) -> None:
    """What is ours is made and kept there as it would be."""
    fact(SimulatedWorld())


@pytest.mark.parametrize("fact", SIZES.facts, ids=name_of)
def test_the_simulators_sizes_keep_the_contract(fact: Fact[SizesWorld]) -> None:
    """Requests and limits change there as they would on a server."""
    fact(SimulatedSizes())


@pytest.mark.parametrize("fact", STORE.facts, ids=name_of)
def test_the_simulators_store_keeps_the_contract(fact: Fact[StoreWorld]) -> None:
    """Memory in the simulator is swapped as memory in a cluster is."""
    fact(SimulatedWorld())


@pytest.mark.parametrize("fact", STORE.facts, ids=name_of)
def test_the_ledger_store_keeps_the_contract(fact: Fact[StoreWorld]) -> None:
    """The production store, without a cluster."""
    with small_api() as (_, client):
        fact(LedgersInSmallApi(LedgerStore(client)))


@pytest.mark.parametrize("fact", LEADERSHIP.facts, ids=name_of)
def test_the_lease_election_keeps_the_contract(fact: Fact[ElectionWorld]) -> None:
    """The production election, without a cluster and without waiting."""
    with elections() as world:
        fact(world)


@pytest.mark.parametrize("fact", LEADERSHIP.facts, ids=name_of)
def test_the_simulators_election_keeps_the_contract(fact: Fact[ElectionWorld]) -> None:
    """The same rule, without a wire."""
    fact(SimulatedElections())


@pytest.mark.parametrize("fact", [*POLICIES.facts, *PAUSES.facts], ids=name_of)
def test_the_simulators_policies_and_pauses_keep_the_contract(fact: Fact[OperatorWorld]) -> None:
    """What people ask, and where they say stop."""
    fact(SimulatedOperator())


@pytest.mark.parametrize("fact", METRICS.facts, ids=name_of)
def test_the_simulators_metrics_keep_the_contract(fact: Fact[MetricsWorld]) -> None:
    """Usage in the simulator is told as Prometheus tells it."""
    fact(SimulatedMetrics())


@pytest.mark.parametrize("fact", QUERIES.facts, ids=name_of)
def test_the_simulators_answers_keep_the_contract(fact: Fact[QueryWorld]) -> None:
    """And so are the answers to queries."""
    fact(SimulatedMetrics())


def test_the_summary_counts_every_fact() -> None:
    """`python -m tests.contracts` tells the truth."""
    facts = sum(len(contract.facts) for contract in CONTRACTS)
    assert f"{facts} facts in 5 worlds" in summary()
