"""Why a workload is left alone now although it has a hot pod: its state, not ours. Pure.

What is seen of one workload before its rotation is decided.

What a file does not say counts as harmless.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from equipoise.core.cluster import TOLERANCE, HpaMetric
from equipoise.core.reason import Code, Reason
from equipoise.engine.disruption import held_by_kind
from equipoise.rotation.policy import RotationPolicy

CORES_MAX = 1e12
"""More is a mistake, and its sums would leave the floats."""


class PodLoad(msgspec.Struct, frozen=True, gc=False):
    """One pod: what it uses, what it asks for, and whether it can be judged."""

    name: str
    cpu_cores: float | None
    """None: no fresh sample, or none of a part of the window. Missing is never zero."""
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
    """For how long it has been ready; None counts as long enough."""
    protection: str = ""
    """Why it is never evicted, or nothing."""
    is_leaving: bool = False
    """Terminating."""
    revision: str = ""
    """The UID of what made it: two among the pods of a workload are two versions of it."""


class HpaSeen(msgspec.Struct, frozen=True):
    """An HPA whose `scaleTargetRef` names the workload."""

    name: str
    metrics: tuple[HpaMetric, ...]
    replicas_min: int | None = None
    replicas_max: int | None = None
    replicas_current: int | None = None
    replicas_desired: int | None = None
    scaled_seconds: float | None = None
    """How long ago it last scaled."""
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE


class WorkloadSeen(msgspec.Struct, frozen=True):
    """The controller of the pods."""

    kind: str
    replicas_wanted: int
    replicas_seen: int
    replicas_updated: int
    """Of the newest version, among those seen."""
    is_observed: bool = True
    """Whether its controller has seen the newest spec."""
    opt_out: str = ""
    """The annotation that asks to leave it alone."""
    autoscaler_pause: str = ""
    """Who paused its autoscaler, and how."""
    is_protected: bool = False
    """Whether it lives where nothing is ever evicted."""


class Observation(msgspec.Struct, frozen=True):
    """One workload at one moment."""

    subject: str
    at: float
    hpas: tuple[HpaSeen, ...]
    pods: tuple[PodLoad, ...]
    namespace: str = ""
    workload: WorkloadSeen | None = None
    """None: from a file, where only the algorithm decides."""
    metrics_partial: str = ""
    """Why the source of the usage could not answer in full, in its words."""


class RotationPlan(msgspec.Struct, frozen=True):
    """What the algorithm computed for one workload; its fields are the numbers of the decision, in order."""

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


def held_by_opt_out(policy: RotationPolicy, seen: Observation) -> Reason | None:
    """Hold where somebody asked to be left alone, and where nothing is ever evicted."""
    workload = seen.workload
    if workload is None:
        return None
    if workload.is_protected:
        return Reason(Code.OPTED_OUT, f"Nothing in {seen.namespace} is ever evicted.")
    if workload.opt_out:
        return Reason(Code.OPTED_OUT, f"The workload is opted out by {workload.opt_out}.")
    return held_by_kind(workload.kind, includes_stateful_sets=policy.includes_stateful_sets)


def held_by_autoscaler_pause(seen: Observation) -> Reason | None:
    """Hold while somebody keeps the autoscaler from scaling: they are at work on this workload."""
    if seen.workload is None or not seen.workload.autoscaler_pause:
        return None
    return Reason(Code.HELD_BY_PAUSE, f"Its autoscaler is paused: {seen.workload.autoscaler_pause}.")


def held_by_rollout(seen: Observation) -> Reason | None:
    """Hold while a new version comes: its controller replaces the pods anyway.

    Compared are counts of one status: a pod that is just missing, as one that we sent away, is no rollout.
    """
    workload = seen.workload
    if workload is None:
        return None
    revisions = len({pod.revision for pod in seen.pods if pod.revision})
    numbers = {"replicas_updated": workload.replicas_updated, "replicas_seen": workload.replicas_seen}
    if not workload.is_observed:
        sentence = "Its newest spec has not been taken up by its controller yet."
    elif workload.replicas_updated < workload.replicas_seen:
        counts = f"{workload.replicas_updated} of {workload.replicas_seen}"
        sentence = f"A rollout is under way: {counts} pods are of the newest version."
    elif revisions > 1:
        sentence = f"A rollout is under way: its pods are of {revisions} versions."
    else:
        return None
    return Reason(Code.HELD_BY_ROLLOUT, sentence, numbers)


def held_by_health(seen: Observation) -> Reason | None:
    """Hold until all pods that are wanted are there and ready, and no other is on its way."""
    workload = seen.workload
    if workload is None:
        return None
    ready = sum(pod.is_ready for pod in seen.pods)
    unready = sorted(pod.name for pod in seen.pods if not pod.is_ready)
    if not unready and ready >= workload.replicas_wanted:
        return None
    names = f" ({unready[0]} is not)" if len(unready) == 1 else ""
    return Reason(
        Code.HELD_BY_HEALTH,
        f"{ready} of {workload.replicas_wanted} pods are ready{names}; rotation waits until the workload is "
        "whole.",
        {"pods_ready": ready, "pods_unready": len(unready), "replicas_wanted": workload.replicas_wanted},
    )


def held_by_scaling(policy: RotationPolicy, seen: Observation, target: float) -> Reason | None:
    """Hold while the HPA scales, is about to, has just done so, or has no room left."""
    hpa = the_hpa(policy, seen)
    if seen.workload is None or hpa is None:
        return None
    for sentence, numbers in _scalings(policy, seen, hpa, seen.workload, target):
        return Reason(Code.HELD_BY_SCALING, sentence, numbers)
    return None


def _scalings(
    policy: RotationPolicy, seen: Observation, hpa: HpaSeen, workload: WorkloadSeen, target: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    current, desired = hpa.replicas_current or 0, hpa.replicas_desired or 0
    if _is_scaling(hpa):
        numbers = {"replicas_current": current, "replicas_desired": desired}
        yield f"HPA {hpa.name} is scaling from {current} to {desired} replicas.", numbers
    if hpa.replicas_max is not None and workload.replicas_wanted >= hpa.replicas_max:
        numbers = {"replicas_wanted": workload.replicas_wanted, "replicas_max": hpa.replicas_max}
        yield (
            f"HPA {hpa.name} is at its maximum of {hpa.replicas_max} replicas, with no pod to spare.",
            numbers,
        )
    window = policy.metrics_window_seconds
    if hpa.scaled_seconds is not None and hpa.scaled_seconds < window:
        # Another machine's clock may be a little ahead of ours.
        ago = f"HPA {hpa.name} scaled {max(0.0, hpa.scaled_seconds):.0f} s ago"
        yield (
            f"{ago}, and usage over {window:g} s still mixes before and after.",
            {"scaled_seconds": hpa.scaled_seconds},
        )
    ratio = _mean_ratio(seen, target)
    has_room = hpa.replicas_min is None or workload.replicas_wanted > hpa.replicas_min
    is_above = ratio is not None and ratio > 1 + hpa.tolerance_up
    is_below = ratio is not None and ratio < 1 - hpa.tolerance_down and has_room
    if ratio is not None and (is_above or is_below):
        usage = f"The mean usage is {ratio * 100:.0f} % of what HPA {hpa.name} wants"
        way = "up" if is_above else "down"
        yield f"{usage}, so it is about to scale {way}.", {"usage_ratio": ratio}


def _mean_ratio(seen: Observation, target: float) -> float | None:
    cores = [pod.cpu_cores for pod in seen.pods if pod.is_ready and pod.cpu_cores is not None]
    return math.fsum(cores) / len(cores) / target if cores and target > 0 else None


def the_hpa(policy: RotationPolicy, seen: Observation) -> HpaSeen | None:
    """Return the HPA that scales the workload, where there is exactly one."""
    chosen = [hpa for hpa in seen.hpas if hpa.name.startswith(policy.hpa_prefix)]
    return chosen[0] if len(chosen) == 1 else None


def was_scaled_since(policy: RotationPolicy, seen: Observation, since: float) -> bool:
    """Whether the autoscaler changed the workload after a moment, or does so now."""
    hpa = the_hpa(policy, seen)
    if hpa is None:
        return False
    return _is_scaling(hpa) or (hpa.scaled_seconds is not None and seen.at - hpa.scaled_seconds > since)


def _is_scaling(hpa: HpaSeen) -> bool:
    """Whether it wants another number than there is; one that never read its metrics wants 0, and nothing."""
    return bool(hpa.replicas_desired) and hpa.replicas_desired != (hpa.replicas_current or 0)


def hottest(pods: tuple[PodLoad, ...]) -> float | None:
    """Return the usage of the busiest ready pod, however young it is; a protected one does not count."""
    return max(
        (pod.cpu_cores for pod in pods if pod.is_ready and pod.cpu_cores is not None and not pod.protection),
        default=None,
    )


def count_unknown(pods: tuple[PodLoad, ...]) -> int:
    """Count the ready pods without usage over the window; a restart may hide a part of it."""
    return sum(
        pod.is_ready and not pod.protection and (pod.cpu_cores is None or pod.has_restarted) for pod in pods
    )
