"""Which pods are registered, forgotten, suspended and resumed, from Kubernetes' list and the tiers; pure.

    new      = ready and in no tier, or in one under another UID         register
    gone     = ended; or not in the list any more                        unregister
    unready  = in a tier, and not ready or about to end                  suspend: no more calls
    back     = suspended, and ready again                                resume

A list can be wrong: empty, incomplete, of a wrong selector. So a missing pod is unregistered only if it was
terminating before, if it has been missing for a while and few others are, or if the API server has no pod of
its name. A list without any registered pod is no evidence. Where more pods than the allowed share are missing
without such evidence, a person has to unregister them.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from equipoise.core.decision import (
    Decided,
    Decision,
    Held,
    RegisterPod,
    RegistrationAction,
    ResumePod,
    SuspendPod,
    UnregisterPod,
)
from equipoise.core.pools import PoolsSnapshot, by_ordinal
from equipoise.core.reason import Code, Reason
from equipoise.pools.invariants import MERCHANT

SUBJECT = "{prefix}/pods"
NAMED_MAX = 5
"""How many pods a sentence names."""


class ListedState(StrEnum):
    """The state of a pod in Kubernetes' list."""

    READY = "ready"
    UNREADY = "unready"
    LEAVING = "leaving"
    """Terminating."""
    ENDED = "ended"
    """In phase Succeeded or Failed."""


class ListedPod(msgspec.Struct, frozen=True, gc=False):
    """One pod of Kubernetes' list."""

    name: str
    uid: str
    state: ListedState


class RegisteredPod(msgspec.Struct, frozen=True, gc=False):
    """One pod of the tiers."""

    name: str
    uid: str = ""
    is_draining: bool = False
    is_suspended: bool = False


class RegistrationRule(msgspec.Struct, frozen=True):
    """What share of pods may be unregistered without proof, and how long a pod must be missing first."""

    loss_max: float = 0.3
    """Share of the registered pods; one pod is always allowed."""
    missing_seconds: float = 30.0


class PodLists(msgspec.Struct, frozen=True):
    """Kubernetes' pods and the tiers' pods at one time, in ordinal order."""

    subject: str
    listed: tuple[ListedPod, ...]
    registered: tuple[RegisteredPod, ...]
    confirmed: tuple[str, ...] = ()
    """Missing pods of which a query by name found none, too."""


class RegistrationMemory(msgspec.Struct, frozen=True):
    """Earlier observations of missing and terminating pods."""

    missing: dict[str, float] = {}
    """The time since when each pod has been missing from the list."""
    leaving: dict[str, str] = {}
    """The UIDs of pods that were observed terminating."""


class RegistrationCounts(msgspec.Struct, frozen=True):
    """The numbers of a decision about registrations."""

    listed: int
    registered: int
    missing: int
    unready: int
    lost_max: int


def observe_lists(
    snapshot: PoolsSnapshot, listed: Sequence[ListedPod], failing: Collection[str] = ()
) -> PodLists:
    """Return both lists, without merchants' pods and pods that are in several tiers.

    Failing pods are left out, too: their state in Kubernetes is unknown.
    """
    homes = Counter(pod for pool in snapshot.pools for pod in pool.assigned)
    left_out = {pod for pod, count in homes.items() if count > 1}.union(failing)
    left_out |= {pod for pod, keys in snapshot.pods.items() if (keys.tier or "").startswith(MERCHANT)}
    registered = [
        RegisteredPod(pod, keys.uid, keys.is_draining, bool(keys.suspended))
        for pod in sorted(homes.keys() - left_out, key=by_ordinal)
        for keys in (snapshot.pods[pod],)
    ]
    present = [pod for pod in listed if pod.name not in left_out]
    present.sort(key=lambda pod: by_ordinal(pod.name))
    return PodLists(SUBJECT.format(prefix=snapshot.prefix), tuple(present), tuple(registered))


def restricted(lists: PodLists, pods: Collection[str]) -> PodLists:
    return msgspec.structs.replace(
        lists,
        listed=tuple(pod for pod in lists.listed if pod.name in pods),
        registered=tuple(pod for pod in lists.registered if pod.name in pods),
    )


def reconcile(
    rule: RegistrationRule, lists: PodLists, memory: Mapping[str, Any], at: float
) -> Decided[RegistrationCounts]:
    before = msgspec.convert(dict(memory), RegistrationMemory)
    listed = {pod.name: pod for pod in lists.listed}
    # Never a time in the future, where the clock was set back.
    missing = {
        pod.name: min(before.missing.get(pod.name, at), at)
        for pod in lists.registered
        if pod.name not in listed
    }
    # Pods observed terminating stay until they are unregistered.
    leaving = {name: uid for name, uid in before.leaving.items() if name in missing}
    leaving |= {pod.name: pod.uid for pod in lists.listed if pod.state is ListedState.LEAVING}
    proven, unproven = _ended_and_missing(lists, missing, leaving)
    unready = [pod for pod in lists.registered if _is(listed, pod, ListedState.UNREADY)]
    lost_max = max(1, int(rule.loss_max * len(lists.registered)))
    is_plausible = len(unproven) <= lost_max and len(missing) < len(lists.registered)
    is_mostly_ready = len(unready) <= lost_max
    overdue = [pod for pod in unproven if at - missing[pod.name] >= rule.missing_seconds]
    actions: list[RegistrationAction] = [UnregisterPod(pod.name, pod.uid) for pod in proven]
    actions += [UnregisterPod(pod.name, pod.uid) for pod in overdue if is_plausible]
    suspended = [pod for pod in lists.registered if _is(listed, pod, ListedState.LEAVING)]
    suspended += unready if is_mostly_ready else []
    actions += [SuspendPod(pod.name, pod.uid) for pod in suspended if not pod.is_draining]
    back = [pod for pod in lists.registered if pod.is_suspended and _is(listed, pod, ListedState.READY)]
    actions += [ResumePod(pod.name, pod.uid) for pod in back if pod.uid in {"", listed[pod.name].uid}]
    actions += _registered(lists)
    held: list[Held] = []
    of = f"of {len(lists.registered)} registered pods are"
    if not is_plausible:
        why = f"; the limit is {lost_max}" if lists.listed else " because the list of pods is empty"
        sentence = (
            f"{len(unproven)} {of} missing{why}. The list may be wrong, so none of them is removed. "
            "If they no longer exist, run `equipoise pools unregister`."
        )
        held += [Held(UnregisterPod(pod.name, pod.uid), Code.HELD_BY_HEALTH, sentence) for pod in unproven]
    if not is_mostly_ready:
        sentence = f"{len(unready)} {of} not ready; the limit is {lost_max}. All of them stay in service."
        going_on = [SuspendPod(pod.name, pod.uid) for pod in unready if not pod.is_draining]
        held += [Held(action, Code.HELD_BY_HEALTH, sentence) for action in going_on]
    counts = RegistrationCounts(
        listed=len(lists.listed),
        registered=len(lists.registered),
        missing=len(missing),
        unready=len(unready),
        lost_max=lost_max,
    )
    assert not (held and is_plausible and is_mostly_ready), "nothing is held without a reason"
    forgotten = sum(isinstance(action, UnregisterPod) for action in actions)
    assert forgotten <= len(proven) + lost_max, "without proof no more pods are forgotten than may be lost"
    memory_after = msgspec.to_builtins(RegistrationMemory(missing, leaving))
    reason = _reason(actions, held, counts)
    return Decided(Decision(lists.subject, reason, tuple(actions), tuple(held), memory_after), counts)


def _ended_and_missing(
    lists: PodLists, missing: Mapping[str, float], leaving: Mapping[str, str]
) -> tuple[list[RegisteredPod], list[RegisteredPod]]:
    """Return the pods that are proven to have ended, and those that are only missing."""
    ended = {pod.name: pod.uid for pod in lists.listed if pod.state is ListedState.ENDED}
    is_ours = len(missing) < len(lists.registered)
    confirmed = set(lists.confirmed) if is_ours else set()
    proven: list[RegisteredPod] = []
    unproven: list[RegisteredPod] = []
    for pod in lists.registered:
        if pod.name in missing:
            is_proven = pod.name in leaving and pod.uid in {"", leaving[pod.name]}
            is_proven = is_proven or pod.name in confirmed
            (proven if is_proven else unproven).append(pod)
        elif pod.name in ended and pod.uid in {"", ended[pod.name]}:
            proven.append(pod)
    return proven, unproven


def _is(listed: Mapping[str, ListedPod], pod: RegisteredPod, state: ListedState) -> bool:
    found = listed.get(pod.name)
    return found is not None and found.state is state


def _registered(lists: PodLists) -> Iterator[RegistrationAction]:
    """Yield ready pods that are new, or whose UID is not the one that the tiers have."""
    uids = {pod.name: pod.uid for pod in lists.registered}
    for pod in lists.listed:
        if pod.state is ListedState.READY and uids.get(pod.name) != pod.uid:
            yield RegisterPod(pod.name, pod.uid)


def _reason(
    actions: Sequence[RegistrationAction], held: Sequence[Held], counts: RegistrationCounts
) -> Reason:
    if actions:
        return Reason.of(Code.RECONCILE, _list(actions), counts)
    if held:
        return Reason.of(held[0].reason, held[0].sentence, counts)
    sentence = f"The tiers have the same pods as Kubernetes: {counts.registered}."
    if counts.missing:
        are = "is" if counts.missing == 1 else "are"
        missing = f"{counts.missing} of {counts.registered} registered pods {are} missing"
        sentence = f"{missing}. Pods that stay missing are removed."
    return Reason.of(Code.IN_STEP, sentence, counts)


VERBS = {RegisterPod: "register", UnregisterPod: "unregister", SuspendPod: "suspend", ResumePod: "resume"}


def _list(actions: Sequence[RegistrationAction]) -> str:
    """Return a sentence with the pods by verb, of which it names the first `NAMED_MAX`."""
    groups: dict[str, list[str]] = {}
    for action in actions:
        groups.setdefault(VERBS[type(action)], []).append(action.pod)
    parts = []
    for verb, pods in groups.items():
        more = f" and {len(pods) - NAMED_MAX} more" if len(pods) > NAMED_MAX else ""
        parts.append(f"{verb} {', '.join(pods[:NAMED_MAX])}{more}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
