"""Brings the demand to the pods that serve."""

from equipoise.sim.state import PodState, State, WorkloadState


class Serving:
    """Splits each workload's demand as its sharing says, whenever somebody comes or goes, and in steps."""

    def __init__(self, state: State) -> None:
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
                pod.counter.set_rate(now, _usage_cores(pod))


def _usage_cores(pod: PodState) -> float:
    """Give what a pod uses: its work at its node's price, within its limit."""
    if pod.node is None or not pod.node.is_alive:
        return 0.0
    template = pod.template
    if pod.is_serving:
        wanted = template.idle_cores + pod.work_cores * pod.node.cpu_factor
    elif pod.deletion_at is None:
        wanted = template.start_cores
    else:
        wanted = template.idle_cores
    return min(wanted, pod.limit_cores)
