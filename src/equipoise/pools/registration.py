"""Which pods are registered, forgotten, suspended and resumed: Kubernetes' list beside the tiers', pure.

    new      = ready and in no tier, or in one under another UID         register
    gone     = ended; or not in the list any more                        unregister
    unready  = in a tier, and not ready or about to end                  suspend: no more calls
    back     = suspended, and ready again                                resume

A list can be wrong: empty, cut short, of a wrong selector. So a pod that is missing counts as gone only when
it was seen terminating before, when it has been missing for a while and few others are, or when the API
server, asked for it by name, does not know it. A list that has none of the registered pods proves nothing,
and what is lost beyond the share without proof waits for a person.

Before a StatefulSet gets smaller: who leaves, what moves first, and what is left to move; pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from equipoise.core.decision import (
    Action,
    Attendance,
    Decision,
    Held,
    RegisterPod,
    ResumePod,
    SuspendPod,
    UnregisterPod,
)
from equipoise.core.pools import PoolsSeen, by_ordinal, ordinal_of
from equipoise.core.reason import Code, Reason
from equipoise.pools.decide import decide
from equipoise.pools.invariants import MERCHANT
from equipoise.pools.observation import Observation, Stay, TierSeen
from equipoise.pools.policy import TierPolicy

SUBJECT = "{prefix}/pods"
NAMED_MAX = 5
"""How many pods a sentence names."""


class State(StrEnum):
    """What Kubernetes says of a pod."""

    READY = "ready"
    UNREADY = "unready"
    LEAVING = "leaving"
    """Its deletion has begun."""
    ENDED = "ended"
    """Succeeded or failed: it runs no more."""


class Listed(msgspec.Struct, frozen=True, gc=False):
    """One pod of Kubernetes' list."""

    name: str
    uid: str
    state: State


class Registered(msgspec.Struct, frozen=True, gc=False):
    """One pod of the tiers."""

    name: str
    uid: str = ""
    is_draining: bool = False
    is_suspended: bool = False


class RosterRule(msgspec.Struct, frozen=True):
    """How much of the fleet may be lost at once without proof, and for how long a pod must be missing."""

    loss_max: float = 0.3
    """A share of the registered pods; one pod is always allowed."""
    missing_seconds: float = 30.0


class Roster(msgspec.Struct, frozen=True):
    """Both lists at one moment, in ordinal order."""

    subject: str
    listed: tuple[Listed, ...]
    registered: tuple[Registered, ...]
    confirmed: tuple[str, ...] = ()
    """Pods that are missing, and that the API server does not know by their names either."""


class RosterMemory(msgspec.Struct, frozen=True):
    """What was seen of pods that may be gone."""

    missing: dict[str, float] = {}
    """Since when each pod has not been in the list."""
    leaving: dict[str, str] = {}
    """The UIDs of pods whose deletion was seen to begin."""


def roster_of(seen: PoolsSeen, listed: Sequence[Listed], odd: Collection[str] = ()) -> Roster:
    """Lay the lists side by side, without merchants' pods and pods whose tiers contradict each other.

    So are those left out that are odd: nobody knows what Kubernetes says of them.
    """
    homes: dict[str, int] = {}
    for pool in seen.pools:
        for pod in pool.assigned:
            homes[pod] = homes.get(pod, 0) + 1
    left_out = {pod for pod, count in homes.items() if count > 1}.union(odd)
    left_out |= {pod for pod, keys in seen.pods.items() if (keys.tier or "").startswith(MERCHANT)}
    registered = [
        Registered(pod, keys.uid, keys.is_draining, bool(keys.suspended))
        for pod in sorted(homes.keys() - left_out, key=by_ordinal)
        for keys in (seen.pods[pod],)
    ]
    present = sorted(
        (pod for pod in listed if pod.name not in left_out), key=lambda pod: by_ordinal(pod.name)
    )
    return Roster(SUBJECT.format(prefix=seen.prefix), tuple(present), tuple(registered))


def narrowed(roster: Roster, pods: Collection[str]) -> Roster:
    """Return both lists with these pods only."""
    return msgspec.structs.replace(
        roster,
        listed=tuple(pod for pod in roster.listed if pod.name in pods),
        registered=tuple(pod for pod in roster.registered if pod.name in pods),
    )


def attend(rule: RosterRule, seen: Roster, memory: Mapping[str, Any], at: float) -> Decision:
    """Decide who is registered, forgotten, suspended and resumed."""
    known = msgspec.convert(dict(memory), RosterMemory)
    listed = {pod.name: pod for pod in seen.listed}
    # Never since a moment that is still to come: a clock that was set back is not waited for.
    missing = {
        pod.name: min(known.missing.get(pod.name, at), at)
        for pod in seen.registered
        if pod.name not in listed
    }
    leaving = _leaving(seen, known, missing)
    proven, doubtful = _gone(seen, missing, leaving)
    unready = [pod for pod in seen.registered if _is(listed, pod, State.UNREADY)]
    lost_max = max(1, int(rule.loss_max * len(seen.registered)))
    is_sane = len(doubtful) <= lost_max and len(missing) < len(seen.registered)
    is_mostly_ready = len(unready) <= lost_max
    ripe = [pod for pod in doubtful if at - missing[pod.name] >= rule.missing_seconds]
    actions: list[Attendance] = [UnregisterPod(pod.name, pod.uid) for pod in proven]
    actions += [UnregisterPod(pod.name, pod.uid) for pod in ripe if is_sane]
    suspended = [pod for pod in seen.registered if _is(listed, pod, State.LEAVING)]
    suspended += unready if is_mostly_ready else []
    actions += [SuspendPod(pod.name, pod.uid) for pod in suspended if not pod.is_draining]
    actions += _resumed(seen, listed)
    actions += _registered(seen)
    held: list[Held] = []
    if not is_sane:
        held += _held([UnregisterPod(pod.name, pod.uid) for pod in doubtful], _lost(len(doubtful), seen))
    if not is_mostly_ready:
        held += _held(
            [SuspendPod(pod.name, pod.uid) for pod in unready if not pod.is_draining],
            _unready(len(unready), seen),
        )
    numbers = {
        "listed": len(seen.listed),
        "registered": len(seen.registered),
        "missing": len(missing),
        "unready": len(unready),
        "lost_max": lost_max,
    }
    kept = msgspec.to_builtins(RosterMemory(missing, leaving))
    return Decision(seen.subject, _reason(actions, held, numbers), tuple(actions), tuple(held), kept)


def _leaving(seen: Roster, known: RosterMemory, missing: Mapping[str, float]) -> dict[str, str]:
    """Remember whose end was seen to begin, until the pod is forgotten."""
    now = {pod.name: pod.uid for pod in seen.listed if pod.state is State.LEAVING}
    return {name: uid for name, uid in known.leaving.items() if name in missing} | now


def _gone(
    seen: Roster, missing: Mapping[str, float], leaving: Mapping[str, str]
) -> tuple[list[Registered], list[Registered]]:
    """Part those that are surely gone from those that are only missing."""
    ended = {pod.name: pod.uid for pod in seen.listed if pod.state is State.ENDED}
    is_ours = len(missing) < len(seen.registered)
    confirmed = set(seen.confirmed) if is_ours else set()
    proven: list[Registered] = []
    doubtful: list[Registered] = []
    for pod in seen.registered:
        if pod.name in missing:
            is_proven = pod.name in leaving and pod.uid in {"", leaving[pod.name]}
            is_proven = is_proven or pod.name in confirmed
            (proven if is_proven else doubtful).append(pod)
        elif pod.name in ended and pod.uid in {"", ended[pod.name]}:
            proven.append(pod)
    return proven, doubtful


def _is(listed: Mapping[str, Listed], pod: Registered, state: State) -> bool:
    found = listed.get(pod.name)
    return found is not None and found.state is state


def _resumed(seen: Roster, listed: Mapping[str, Listed]) -> Iterator[Attendance]:
    for pod in seen.registered:
        if pod.is_suspended and _is(listed, pod, State.READY) and pod.uid in {"", listed[pod.name].uid}:
            yield ResumePod(pod.name, pod.uid)


def _registered(seen: Roster) -> Iterator[Attendance]:
    """Take in who is new, and who has another UID than the tiers know, or none yet."""
    uids = {pod.name: pod.uid for pod in seen.registered}
    for pod in seen.listed:
        if pod.state is State.READY and uids.get(pod.name) != pod.uid:
            yield RegisterPod(pod.name, pod.uid)


def _held(actions: Sequence[Action], sentence: str) -> list[Held]:
    return [Held(action, Code.HELD_BY_HEALTH, sentence) for action in actions]


def _lost(missing: int, seen: Roster) -> str:
    of = f"{missing} of {len(seen.registered)} registered pods are missing"
    why = "more than may be lost at once" if seen.listed else "and the list of pods is empty"
    return (
        f"{of}, {why}: a wrong list must not empty the tiers. "
        "If they are gone, forget them by `equipoise pools unregister`."
    )


def _unready(unready: int, seen: Roster) -> str:
    of = f"{unready} of {len(seen.registered)} registered pods are not ready"
    return f"{of}, more than may be lost at once: all of them go on."


def _reason(actions: Sequence[Attendance], held: Sequence[Held], numbers: dict[str, Any]) -> Reason:
    if actions:
        return Reason(Code.RECONCILE, _told(actions), numbers)
    if held:
        return Reason(held[0].reason, held[0].sentence, numbers)
    said = f"The tiers have the pods of Kubernetes, {numbers['registered']}."
    if numbers["missing"]:
        said = f"{numbers['missing']} of {numbers['registered']} pods are missing, and are waited for."
    return Reason(Code.IN_STEP, said, numbers)


VERBS = {RegisterPod: "register", UnregisterPod: "forget", SuspendPod: "suspend", ResumePod: "resume"}


def _told(actions: Sequence[Attendance]) -> str:
    """Return who, as far as a sentence can."""
    groups: dict[str, list[str]] = {}
    for action in actions:
        groups.setdefault(VERBS[type(action)], []).append(action.pod)
    parts = []
    for verb, pods in groups.items():
        more = f" and {len(pods) - NAMED_MAX} more" if len(pods) > NAMED_MAX else ""
        parts.append(f"{verb} {', '.join(pods[:NAMED_MAX])}{more}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def plan_scale_down(policy: TierPolicy, seen: Observation, replicas: int) -> Decision:
    """Decide as ever, and say beside it which ordinals leave and what their leaving leaves to do.

    A StatefulSet deletes its highest ordinals, busy or not, so those with calls are named.
    """
    now = decide(policy, seen)
    leaving = [
        {"pod": pod.name, "tier": tier.name, "state": pod.stay.value}
        for tier in seen.tiers
        for pod in tier.pods
        if (ordinal_of(pod.name) or 0) >= replicas
    ]
    names = {pod["pod"] for pod in leaving}
    stays = tuple(
        TierSeen(tier.name, tuple(pod for pod in tier.pods if pod.name not in names)) for tier in seen.tiers
    )
    after = decide(policy, Observation(seen.subject, stays))
    extra: dict[str, Any] = {
        "replicas": replicas,
        "leaving": leaving,
        "busy": [pod["pod"] for pod in leaving if pod["state"] in {Stay.BUSY, Stay.LEASED}],
        "drain": [pod["pod"] for pod in leaving if pod["state"] != Stay.DRAINING],
        "after": {
            "reason": after.reason.code.value,
            "sentence": after.reason.sentence,
            "actions": [msgspec.to_builtins(action) for action in after.actions],
        },
    }
    return msgspec.structs.replace(now, extra=extra)
