"""What came of a round's actions: what is counted, felt, or has to be decided anew. Pure."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from equipoise.model.decision import (
    Decision,
    DisableScheduling,
    EnableScheduling,
    EvictPod,
    Outcome,
    RestorePod,
    ThrottlePod,
)
from equipoise.model.errors import WorldFailed
from equipoise.ports import EvictionResult
from equipoise.qos.metrics import NANOS_PER_MILLI
from equipoise.qos.node import ContainerRef, Node
from equipoise.qos.pods import PodTold
from equipoise.qos.surroundings import Surroundings

WELL = frozenset({"Done", "Accepted"})
SAID_MAX = 4


def is_unforeseen(outcome: Outcome) -> bool:
    """Tell whether the rest of the plan was made from what did not come true, or from a guess."""
    if isinstance(outcome.action, EvictPod):
        return outcome.result != EvictionResult.ACCEPTED.value
    if isinstance(outcome.action, ThrottlePod):
        return outcome.result != "Done" or outcome.action.reclaim is not None
    return False


def is_felt(outcome: Outcome) -> bool:
    """Tell whether something was done to a pod, or may have been."""
    if isinstance(outcome.action, EvictPod):
        return outcome.result in {EvictionResult.ACCEPTED.value, "Unknown"}
    return isinstance(outcome.action, ThrottlePod | RestorePod)


def throttled_nanos(outcomes: Sequence[Outcome]) -> int:
    """Give what the quotas that were lowered just now release."""
    return sum(
        int(Fraction(one.action.release) * NANOS_PER_MILLI)
        for one in outcomes
        if isinstance(one.action, ThrottlePod)
        and one.result == "Done"
        and one.action.quota is not None
        and one.action.release is not None
    )


def accepted(outcomes: Sequence[Outcome]) -> int:
    """Count the evictions that were accepted, or may have been."""
    return sum(
        isinstance(one.action, EvictPod) and one.result in {EvictionResult.ACCEPTED.value, "Unknown"}
        for one in outcomes
    )


def failed(outcomes: Sequence[Outcome]) -> int:
    """Count the throttles that could not be written."""
    return sum(isinstance(one.action, ThrottlePod) and one.result == "Failed" for one in outcomes)


def refused(outcomes: Sequence[Outcome]) -> int:
    """Count the evictions that somebody said no to: the server, or another balancer's deed."""
    going = {EvictionResult.ACCEPTED.value, EvictionResult.GONE.value, "Unknown"}
    return sum(isinstance(one.action, EvictPod) and one.result not in going for one in outcomes)


def came_otherwise(decision: Decision, outcomes: Sequence[Outcome]) -> str:
    """Say what came of a plan that was not carried out as it was made; nothing where it was, or none of it.

    The rest of a round is decided anew where an action was refused: then other pods go than the plan names.
    """
    planned = [(type(action), action.pod) for action in decision.actions]
    came = [(type(one.action), one.action.pod) for one in outcomes]
    if not came or (came == planned and all(one.result in WELL for one in outcomes)):
        return ""
    said = [f"{one.action.pod or type(one.action).__name__} {one.result}" for one in outcomes]
    more = f" and {len(said) - SAID_MAX} more" if len(said) > SAID_MAX else ""
    return f" What came of it: {', '.join(said[:SAID_MAX])}{more}."


def set_quotas(node: Node, action: ThrottlePod | RestorePod, pod: PodTold, ids: Mapping[str, str]) -> Outcome:
    """Write the quotas of a pod's containers."""
    gone = []
    try:
        for name, quota in (action.quota or {}).items():
            if not node.set_quota(ContainerRef(pod.uid, ids[name], pod.qos_class), quota):
                gone.append(name)
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    return Outcome(action, "Gone", f"{', '.join(gone)} has vanished") if gone else Outcome(action, "Done")


def reclaim_memory(node: Node, action: ThrottlePod, pod: PodTold, ids: Mapping[str, str]) -> Outcome:
    """Ask the kernel to reclaim memory of a pod's containers."""
    released = 0
    try:
        for name, amount in (action.reclaim or {}).items():
            got = node.reclaim(ContainerRef(pod.uid, ids[name], pod.qos_class), amount)
            released += got or 0
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    return Outcome(action, "Done", f"{released} bytes were released")


def set_scheduling(
    around: Surroundings, action: DisableScheduling | EnableScheduling, sentence: str
) -> Outcome:
    """Close the node to new pods, or open it again."""
    try:
        around.set_scheduling(is_disabled=isinstance(action, DisableScheduling), sentence=sentence)
    except WorldFailed as error:
        return Outcome(action, "Failed", str(error))
    return Outcome(action, "Done")
