"""All contracts, and how many facts they have."""

from typing import Any

from tests.support.contracts.actuator_facts import ACTUATOR
from tests.support.contracts.applier_facts import APPLIER
from tests.support.contracts.cluster_facts import CLUSTER
from tests.support.contracts.contract import Contract
from tests.support.contracts.leadership_facts import LEADERSHIP
from tests.support.contracts.metrics_facts import METRICS, QUERIES
from tests.support.contracts.operator_facts import PAUSES, POLICIES
from tests.support.contracts.sizes_facts import SIZES
from tests.support.contracts.store_facts import STORE

WORLDS: dict[str, tuple[str, ...]] = {
    CLUSTER.port: ("the simulator", "the API server"),
    ACTUATOR.port: ("the simulator", "the API server"),
    APPLIER.port: ("the simulator", "the API server"),
    SIZES.port: ("the simulator", "the API server"),
    STORE.port: ("the simulator", "a small API", "the API server"),
    LEADERSHIP.port: ("the simulator", "a small API", "the API server"),
    POLICIES.port: ("the simulator", "the API server"),
    PAUSES.port: ("the simulator", "the API server"),
    METRICS.port: ("the simulator", "Prometheus", "metrics-server"),
    QUERIES.port: ("the simulator", "Prometheus"),
}
"""Where each contract is run: the first ones by `make test`, the real neighbours by `make e2e`."""
CONTRACTS: tuple[Contract[Any], ...] = (
    CLUSTER,
    ACTUATOR,
    APPLIER,
    SIZES,
    STORE,
    LEADERSHIP,
    POLICIES,
    PAUSES,
    METRICS,
    QUERIES,
)


def summary() -> str:
    """Tell the number of facts, and in how many worlds they hold."""
    lines = [f"{c.port}: {len(c)} facts in {', '.join(WORLDS[c.port])}" for c in CONTRACTS]
    facts = sum(map(len, CONTRACTS))
    runs = sum(len(c) * len(WORLDS[c.port]) for c in CONTRACTS)
    worlds = len({world for places in WORLDS.values() for world in places})
    return "\n".join([*lines, f"{facts} facts in {worlds} worlds, {runs} runs"])
