"""The status of a policy: conditions in Kubernetes' form, written only when they change.

Every write is sent to all watchers of the object, so a status is written only when its content is new. The
transition time of a condition is the time at which its status, not its reason, last changed; it is taken from
the present status.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from equipoise.core.errors import WorldFailed
from equipoise.ports import PolicyObject, StoreConflict


def timestamp(at: float) -> str:
    """Return a time as the API server prints it: RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def condition(
    kind: str, reason: str, message: str, *, is_true: bool, generation: int | None = None
) -> dict[str, Any]:
    """Return a condition without its transition time."""
    observed = {} if generation is None else {"observedGeneration": generation}
    return {"type": kind, "status": str(is_true), "reason": reason, "message": message} | observed


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a status' condition of this type; empty if it has none."""
    conditions: Iterable[Any] = status.get("conditions") or ()
    found = (each for each in conditions if isinstance(each, Mapping) and each.get("type") == kind)
    return next(found, {})


def keep_transition_time(new: Mapping[str, Any], old: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Return a condition with its transition time: the present status' unless `status` changes."""
    assert new["status"] in {"True", "False"}, f"{new['status']} is no status of a condition of ours"
    before = condition_of(old, new["type"])
    since = before.get("lastTransitionTime") if before.get("status") == new["status"] else None
    return {**new, "lastTransitionTime": since or now}


def has_condition(
    old: Mapping[str, Any], new: Mapping[str, Any], fields: Sequence[str] = ("status", "reason")
) -> bool:
    """Return whether a status already has this condition with the same values of these fields."""
    before = condition_of(old, new["type"])
    return all(before.get(field) == new[field] for field in fields)


class StatusWrite(NamedTuple):
    """Whether a status was written, and the error if that failed."""

    is_written: bool
    error: str = ""


def write_status(
    write: Callable[[PolicyObject, Mapping[str, Any]], object],
    policy: PolicyObject,
    status: Mapping[str, Any],
) -> StatusWrite:
    """Replace a status. A conflict is no error: the next cycle reads the other's change and tries again."""
    try:
        write(policy, status)
    except StoreConflict:
        return StatusWrite(False)
    except WorldFailed as error:
        return StatusWrite(False, f"the status of {policy.ref} was not written: {error}")
    return StatusWrite(True)
