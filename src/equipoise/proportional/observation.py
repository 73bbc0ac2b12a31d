"""What is seen before a decision: how large the cluster is, and what the containers have now."""

from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction

import msgspec

from equipoise.crd.fields import read_amount
from equipoise.proportional.fields import INPUTS
from equipoise.proportional.functions import Slot


class Observation(msgspec.Struct, frozen=True):
    """One look at the cluster, for one policy. Amounts are quantities, so that JSON keeps them exactly."""

    subject: str
    at: float
    """Seconds since 1970."""
    inputs: Mapping[str, str]
    """Such as {"cores": "18", "memory": "64Gi"}."""
    current: Mapping[str, str] = {}
    """What is in force, by slot, such as {"kube-dns.requests.cpu": "250m"}; what is absent is unknown."""
    pods: int | None = None
    """How many pods the workload has, where it was looked at."""
    pods_behind: int = 0
    """How many of them run and ask for something else than what is in force."""
    stuck: Mapping[str, str] = {}
    """What nodes can't give, by `Infeasible` and `Deferred`: a pod, and its node's words."""


def moment_of(seconds: float | Fraction) -> int:
    """Return a time in whole milliseconds: what windows are counted in."""
    return round(Fraction(seconds) * 1000)


def time_of(milliseconds: int) -> datetime:
    """Return a time as status and sentences have it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def read_inputs(inputs: Mapping[str, str]) -> dict[str, int]:
    """Read what was counted; a ValueError names what does not fit."""
    found = {}
    for name, text in inputs.items():
        if name.lower() not in INPUTS:
            raise ValueError(f"{name}: expected one of {', '.join(INPUTS)}")
        amount = _amount(name, text)
        if name.lower() in found:
            raise ValueError(f"{name}: expected each input once")
        found[name.lower()] = amount
    return found


def read_current(slots: tuple[Slot, ...], current: Mapping[str, str]) -> dict[str, int]:
    """Read what is in force, in each slot's units; a ValueError names what does not fit."""
    known = {slot.key: slot for slot in slots}
    found = {}
    for key, text in current.items():
        if key not in known:
            names = ", ".join(known) or "nothing, since the policy sets nothing"
            raise ValueError(f"{key}: expected one of {names}")
        found[key] = -(-_amount(key, text) // known[key].unit_nanos)
    return found


def _amount(name: str, text: str) -> int:
    try:
        amount = read_amount(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if amount.nanos < 0:
        raise ValueError(f"{name}: expected an amount of 0 or more, got {text!r}")
    return amount.nanos
