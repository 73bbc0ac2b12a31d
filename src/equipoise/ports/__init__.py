"""The protocols through which balancers reach the outside. Adapters and the simulator implement them."""

from equipoise.ports.actions import (
    Actuator,
    Applier,
    ApplyAnswer,
    ApplyResult,
    EvictionAnswer,
    EvictionResult,
)
from equipoise.ports.cluster import Autoscalers, Clock, Cluster, CpuUsage, History, Metrics, NoHistory, Owners
from equipoise.ports.pools import Pools, PoolsUpkeep, Unanswered
from equipoise.ports.state import (
    CycleReport,
    FailedTurn,
    Journal,
    Leadership,
    NotInstalled,
    Pauses,
    Policies,
    PolicyObject,
    Store,
    StoreConflict,
    Stored,
)

__all__ = [
    "Actuator",
    "Applier",
    "ApplyAnswer",
    "ApplyResult",
    "Autoscalers",
    "Clock",
    "Cluster",
    "CpuUsage",
    "CycleReport",
    "EvictionAnswer",
    "EvictionResult",
    "FailedTurn",
    "History",
    "Journal",
    "Leadership",
    "Metrics",
    "NoHistory",
    "NotInstalled",
    "Owners",
    "Pauses",
    "Policies",
    "PolicyObject",
    "Pools",
    "PoolsUpkeep",
    "Store",
    "StoreConflict",
    "Stored",
    "Unanswered",
]
