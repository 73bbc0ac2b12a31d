"""Gives each serving pod its part of the workload's demand.

The demand is split anew whenever a pod begins or stops to serve, and in steps of time.
"""

from equipoise.sim.state import PodState, SimState, WorkloadState

PERIOD_US = 100_000


class Serving:
    """Splits each workload's demand as its sharing says, whenever somebody comes or goes, and in steps."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        state.listeners.append(self.notice)

    def notice(self, workload: WorkloadState) -> None:
        """Move the work when the servers changed; else only see to those who started or stopped."""
        serving = tuple(pod.uid for pod in workload.pods.values() if pod.is_serving)
        if serving != workload.serving:
            workload.serving = serving
            workload.sharing.settle(serving, workload.replicas)
        self._spread(workload)

    def step(self) -> None:
        """Follow the demand of all workloads."""
        seconds = self._state.settings.load_step_seconds
        for workload in self._state.workloads.values():
            has_drifted = workload.sharing.drift(seconds)
            if has_drifted or workload.shape.cores(self._state.now) != workload.demand_cores:
                self._spread(workload)
                self._state.reloaded.add(workload.ref)

    def _spread(self, workload: WorkloadState) -> None:
        now = workload.spread_at = self._state.now
        demand = workload.demand_cores = workload.shape.cores(now)
        shares = workload.sharing.shares() if workload.serving else {}
        workload.unserved_cores = 0.0 if shares else demand
        for pod in workload.pods.values():
            pod.work_cores = demand * shares.get(pod.uid, 0.0)
            if pod.counter is not None:
                pod.counter.set_rate(now, usage_cores(pod))


def usage_cores(pod: PodState) -> float:
    """Return what a pod uses: work times its node's factor, within limit and cgroup quotas."""
    if pod.node is None or not pod.node.is_alive:
        return 0.0
    template = pod.template
    if pod.is_serving:
        wanted = template.idle_cores + pod.work_cores * pod.node.cpu_factor
    elif pod.deletion_at is None:
        wanted = template.start_cores
    else:
        wanted = template.idle_cores
    used = min(wanted, pod.limit_cores)
    return _throttled(pod, used) if pod.quotas else used


def _throttled(pod: PodState, used_cores: float) -> float:
    """Slow a whole pod by the container that is at its quota: they work together."""
    for name, part in pod.template.parts:
        quota_us = pod.quotas.get(name, -1)
        if quota_us >= 0 and part > 0:
            used_cores = min(used_cores, quota_us / PERIOD_US / part)
    return used_cores
