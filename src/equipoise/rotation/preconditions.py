"""The observation of one workload, and the conditions under which its rotation is held. Pure.

Evicting pods of a workload that is being rolled out or scaled disturbs what is under way, and leaves nothing
to compare afterwards. Each `held_by_*` returns the reason to wait, or None.
"""

import math

import msgspec

from equipoise.core.cluster import TOLERANCE, HpaMetric
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.engine.disruption import held_by_kind
from equipoise.rotation.policy import RotationPolicy

CORES_MAX = 1e12
"""Largest plausible usage; sums of larger values would overflow."""


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """One pod: its usage, its requests, and whether the two can be compared."""

    name: str
    cpu_cores: float | None
    """None means no fresh sample, or not over the whole window. Missing is never zero."""
    request_cores: float | None
    is_ready: bool = True
    """Ready, running and not terminating."""
    age_seconds: float | None = None
    """None counts as old enough."""
    has_restarted: bool = False
    """Restarted inside the metrics window."""
    node: str = ""
    uid: str = ""
    ready_seconds: float | None = None
    """Seconds since it became ready; None counts as long enough."""
    protection: str = ""
    """Why it is never evicted; empty if it may be."""
    is_leaving: bool = False
    """Terminating."""
    revision: str = ""
    """The UID of its controller: pods of two ReplicaSets are two versions of the workload."""


class ObservedHpa(msgspec.Struct, frozen=True):
    """An HPA whose `scaleTargetRef` names the workload."""

    name: str
    metrics: tuple[HpaMetric, ...]
    replicas_min: int | None = None
    replicas_max: int | None = None
    replicas_current: int | None = None
    replicas_desired: int | None = None
    scaled_seconds: float | None = None
    """Seconds since it last scaled."""
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE

    @property
    def is_scaling(self) -> bool:
        """Whether its desired number of replicas differs from the current one.

        An HPA that has not read its metrics yet desires 0, which does not count.
        """
        return bool(self.replicas_desired) and self.replicas_desired != (self.replicas_current or 0)


class ObservedWorkload(msgspec.Struct, frozen=True):
    """The controller of the pods."""

    kind: str
    replicas_wanted: int
    replicas_seen: int
    replicas_updated: int
    """Of the newest version, among `replicas_seen`."""
    is_observed: bool = True
    """Whether its controller has observed the newest spec."""
    opt_out: str = ""
    """The annotation that opts it out."""
    autoscaler_pause: str = ""
    """Who paused its autoscaler, and how."""
    is_protected: bool = False
    """Whether its namespace is protected from all evictions."""


class Observation(msgspec.Struct, frozen=True):
    """One workload at one time."""

    subject: str
    at: float
    hpas: tuple[ObservedHpa, ...]
    pods: tuple[PodLoad, ...]
    namespace: str = ""
    workload: ObservedWorkload | None = None
    """None for a file, where only the algorithm decides."""
    metrics_partial: str = ""
    """Why the metrics source's answer was partial, in its words."""

    def scaling_hpa(self, policy: RotationPolicy) -> ObservedHpa | None:
        """Return the HPA that scales the workload, where there is exactly one."""
        named = [hpa for hpa in self.hpas if hpa.name.startswith(policy.hpa_prefix)]
        return named[0] if len(named) == 1 else None


class RotationPlan(msgspec.Struct, frozen=True):
    """The proposal of the algorithm for one workload; its fields are the decision's numbers, in order."""

    target_cores: float
    threshold_cores: float
    hot: list[str]
    cold: list[str]
    average_hot_cores: float | None
    average_rotated_cores: float | None
    improvement_percent: float | None
    pods_ready: int
    pods_unknown: int
    candidates: int
    pods_protected: int | msgspec.UnsetType = msgspec.UNSET


def held_by_opt_out(policy: RotationPolicy, observation: Observation) -> Reason | None:
    """Hold in a protected namespace, and where the workload is opted out."""
    workload = observation.workload
    if workload is None:
        return None
    if workload.is_protected:
        return Reason(Code.OPTED_OUT, f"Pods in namespace {observation.namespace} are never evicted.")
    if workload.opt_out:
        return Reason(Code.OPTED_OUT, f"The annotation {workload.opt_out} excludes the workload.")
    return held_by_kind(workload.kind, includes_stateful_sets=policy.includes_stateful_sets)


def held_by_autoscaler_pause(observation: Observation) -> Reason | None:
    """Hold while the autoscaler is paused, since a person may be working on the workload."""
    if observation.workload is None or not observation.workload.autoscaler_pause:
        return None
    paused = f"The autoscaling of the workload is paused: {observation.workload.autoscaler_pause}."
    return Reason(Code.HELD_BY_PAUSE, paused)


def held_by_rollout(observation: Observation) -> Reason | None:
    """Hold during a rollout: the controller replaces the pods anyway.

    The counts are of one status: a pod that is only missing, such as one that we evicted, is no rollout.
    """
    workload = observation.workload
    if workload is None:
        return None
    revisions = len({pod.revision for pod in observation.pods if pod.revision})
    numbers = {"replicas_updated": workload.replicas_updated, "replicas_seen": workload.replicas_seen}
    if not workload.is_observed:
        sentence = "The controller has not processed the newest spec of the workload yet."
    elif workload.replicas_updated < workload.replicas_seen:
        counts = f"{workload.replicas_updated} of {workload.replicas_seen}"
        sentence = f"A rollout is in progress: {counts} pods have the newest version."
    elif revisions > 1:
        sentence = f"A rollout is in progress: the pods have {revisions} versions."
    else:
        return None
    return Reason(Code.HELD_BY_ROLLOUT, sentence, numbers)


def held_by_health(observation: Observation) -> Reason | None:
    """Hold until as many pods as desired are ready, and no other is starting or terminating."""
    workload = observation.workload
    if workload is None:
        return None
    ready = sum(pod.is_ready for pod in observation.pods)
    unready = [pod.name for pod in observation.pods if not pod.is_ready]
    if not unready and ready >= workload.replicas_wanted:
        return None
    wanted = workload.replicas_wanted
    names = f" ({unready[0]} is not)" if len(unready) == 1 else ""
    sentence = f"{ready} of {wanted} pods are ready{names}. Rotation waits until all of them are."
    numbers = {"pods_ready": ready, "pods_unready": len(unready), "replicas_wanted": wanted}
    return Reason(Code.HELD_BY_HEALTH, sentence, numbers)


def held_by_scaling(policy: RotationPolicy, observation: Observation, target: float) -> Reason | None:
    """Hold while the HPA scales, has just scaled, is at its maximum, or is about to scale."""
    hpa, workload = observation.scaling_hpa(policy), observation.workload
    if workload is None or hpa is None:
        return None
    window = policy.metrics_window_seconds
    if hpa.is_scaling:
        current, desired = hpa.replicas_current or 0, hpa.replicas_desired or 0
        sentence = f"HPA {hpa.name} is scaling from {current} to {desired} replicas."
        numbers = {"replicas_current": current, "replicas_desired": desired}
        return Reason(Code.HELD_BY_SCALING, sentence, numbers)
    if hpa.replicas_max is not None and workload.replicas_wanted >= hpa.replicas_max:
        sentence = (
            f"HPA {hpa.name} is at its maximum of {hpa.replicas_max} replicas, so no pod can be spared."
        )
        numbers = {"replicas_wanted": workload.replicas_wanted, "replicas_max": hpa.replicas_max}
        return Reason(Code.HELD_BY_SCALING, sentence, numbers)
    if hpa.scaled_seconds is not None and hpa.scaled_seconds < window:
        ago = max(0.0, hpa.scaled_seconds)  # tolerates clocks of other machines that are slightly ahead
        usage = f"the usage over {print_seconds(window)} still includes samples from before"
        sentence = f"HPA {hpa.name} scaled the workload {print_seconds(round(ago))} ago; {usage}."
        return Reason(Code.HELD_BY_SCALING, sentence, {"scaled_seconds": hpa.scaled_seconds})
    cores = [pod.cpu_cores for pod in observation.pods if pod.is_ready and pod.cpu_cores is not None]
    ratio = math.fsum(cores) / len(cores) / target if cores and target > 0 else None
    return _held_before_scaling(hpa, workload, ratio)


def _held_before_scaling(hpa: ObservedHpa, workload: ObservedWorkload, ratio: float | None) -> Reason | None:
    """Hold where mean usage is so far from the HPA's target that its next sync scales."""
    has_room = hpa.replicas_min is None or workload.replicas_wanted > hpa.replicas_min
    is_above = ratio is not None and ratio > 1 + hpa.tolerance_up
    is_below = ratio is not None and ratio < 1 - hpa.tolerance_down and has_room
    if ratio is None or not (is_above or is_below):
        return None
    usage = f"The mean usage is {ratio * 100:.0f}% of the target of HPA {hpa.name}"
    sentence = f"{usage}, so the HPA is about to scale {'up' if is_above else 'down'}."
    return Reason(Code.HELD_BY_SCALING, sentence, {"usage_ratio": ratio})


def was_scaled_since(policy: RotationPolicy, observation: Observation, since: float) -> bool:
    """Return whether the HPA scaled the workload after a moment, or does so now."""
    hpa = observation.scaling_hpa(policy)
    if hpa is None:
        return False
    return hpa.is_scaling or (hpa.scaled_seconds is not None and observation.at - hpa.scaled_seconds > since)


def hottest(pods: tuple[PodLoad, ...]) -> float | None:
    """Return the usage of the busiest ready pod, however young it is; a protected one does not count."""
    counted = [pod for pod in pods if pod.is_ready and not pod.protection]
    return max((pod.cpu_cores for pod in counted if pod.cpu_cores is not None), default=None)


def count_unknown(pods: tuple[PodLoad, ...]) -> int:
    """Count the ready pods without usage over the window; a restart may hide a part of it."""
    counted = [pod for pod in pods if pod.is_ready and not pod.protection]
    return sum(pod.cpu_cores is None or pod.has_restarted for pod in counted)
