"""The pace of the simulated cluster."""

from dataclasses import dataclass, field

from equipoise.model.ledger import BYTES_MAX
from equipoise.sim.hpa import HpaController


@dataclass(frozen=True, slots=True)
class Settings:
    """How long the parts of the cluster take; the defaults are Kubernetes' own where it has some."""

    controller_delay_seconds: float = 0.1
    """From a change to the ReplicaSet or Deployment controller's answer."""
    scheduler_delay_seconds: float = 0.1
    budget_delay_seconds: float = 0.2
    """From a change of pods to a PodDisruptionBudget's new status."""
    disrupted_seconds: float = 120.0
    """How long an eviction that did not end its pod is believed."""
    node_grace_seconds: float = 40.0
    """From a node's last sign of life to `NotReady`."""
    node_eviction_seconds: float = 300.0
    """From `NotReady` to the deletion of its pods."""
    crash_delay_seconds: float = 10.0
    """The first wait of a crash loop; it doubles up to the maximum."""
    crash_delay_max_seconds: float = 300.0
    load_step_seconds: float = 15.0
    """How often the demand is looked at; it is constant between."""
    scrape_interval_seconds: float = 15.0
    scrape_delay_seconds: float = 1.0
    retention_seconds: float = 900.0
    """How long the samples of a pod that ended can be asked for."""
    resource_interval_seconds: float = 15.0
    """The resolution of metrics-server."""
    resource_delay_seconds: float = 1.0
    resource_phase_seconds: float | None = None
    """When in its interval metrics-server scrapes, after the start; None: by chance."""
    hpa_sync_seconds: float = 15.0
    hpa_phase_seconds: float | None = None
    """When the first sync of an HPA is, after it was made; None: by chance."""
    hpa: HpaController = field(default_factory=HpaController)
    store_bytes_max: int = BYTES_MAX
    """How big one entry of memory may be."""
