"""In-place resizes of a pod: which ones restart a container, and which ones the node has not carried out."""

from __future__ import annotations

from equipoise.adapters.kubernetes.structs import PodSpec, PodStatus, Quantities, RawCondition, RawContainer
from equipoise.core.cluster import Resize
from equipoise.core.errors import DECODE_ERRORS
from equipoise.core.quantity import parse_bytes

RESTART = "RestartContainer"
_RESOURCES = ("cpu", "memory")
_STATES = frozenset({"Deferred", "Infeasible"})
_IN_PROGRESS = Resize("InProgress")


def restarts_for(raw: RawContainer) -> tuple[str, ...]:
    """Return the resources whose in-place resize restarts this container."""
    if not raw.resizePolicy:
        return ()
    return tuple(
        sorted(policy.resourceName for policy in raw.resizePolicy if policy.restartPolicy == RESTART)
    )


def resize_of(spec: PodSpec, status: PodStatus) -> Resize | None:
    """Return the resize that the node has not carried out yet, or None."""
    for condition in status.conditions or ():
        if condition.status == "True" and condition.type in {"PodResizePending", "PodResizeInProgress"}:
            return _resize_from(condition)
    return _IN_PROGRESS if _differs(spec, status) else None


def _resize_from(condition: RawCondition) -> Resize:
    if condition.type == "PodResizePending":
        return Resize(condition.reason if condition.reason in _STATES else "Deferred", condition.message)
    return Resize("Error" if condition.reason == "Error" else "InProgress", condition.message)


def _differs(spec: PodSpec, status: PodStatus) -> bool:
    """Return whether a container's status differs from its spec; an absent status does not differ."""
    has = {
        one.name: one.resources
        for statuses in (status.containerStatuses, status.initContainerStatuses)
        for one in statuses or ()
        if one.resources is not None and one.state is not None and one.state.running is not None
    }
    if not has:
        return False
    for raw in (*spec.containers, *(spec.initContainers or ())):
        present, requested = has.get(raw.name), raw.resources
        if present is None or requested is None:
            continue
        if _differ(requested.requests, present.requests) or _differ(requested.limits, present.limits):
            return True
    return False


def _differ(requested: Quantities | None, present: Quantities | None) -> bool:
    if not requested or not present or requested == present:
        return False
    both = [name for name in _RESOURCES if name in requested and name in present]
    return any(_amount(requested[name]) != _amount(present[name]) for name in both)


def _amount(value: str | float) -> float | None:
    try:
        return parse_bytes(value)
    except DECODE_ERRORS:
        return None
