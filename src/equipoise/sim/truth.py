"""What a workload really went through, read from the simulator itself and not from any metric."""

from equipoise.sim.scenes import is_whole
from equipoise.sim.state import WorkloadState
from equipoise.sim.world import World

_STEP_SECONDS = 5.0
_WHOLE_MAX_SECONDS = 3600.0


class Watch:
    """Sees every change of one workload's pods."""

    def __init__(self, world: World, workload: WorkloadState) -> None:
        self._workload = workload
        self.ready_min = sum(pod.is_serving for pod in workload.pods.values())
        self.peak_cores = 0.0
        """The most that any pod used while another was away."""
        world.state.listeners.append(self._notice)

    def _notice(self, workload: WorkloadState) -> None:
        if workload is not self._workload:
            return
        serving = [pod for pod in workload.pods.values() if pod.is_serving]
        self.ready_min = min(self.ready_min, len(serving))
        if len(serving) < workload.replicas:
            used = (pod.counter.rate_cores for pod in serving if pod.counter is not None)
            self.peak_cores = max(self.peak_cores, *used, 0.0)


def hottest_cores(world: World, workload: WorkloadState, window_seconds: float) -> float:
    """Give the mean usage of the busiest serving pod over the window that ends now."""
    since, until = world.now - window_seconds, world.now
    return max(
        (
            pod.counter.mean_cores(since, until)
            for pod in workload.pods.values()
            if pod.is_serving and pod.counter is not None
        ),
        default=0.0,
    )


def run_until_measured(world: World, workload: WorkloadState, window_seconds: float) -> bool:
    """Let time pass until all pods have served for one whole window; say whether that came about."""
    ends_at = world.now + _WHOLE_MAX_SECONDS
    while world.now < ends_at:
        if is_whole(workload):
            changed_at = max(pod.ready_changed_at for pod in workload.pods.values())
            if world.now >= changed_at + window_seconds:
                return True
        world.advance(_STEP_SECONDS)
    return False
