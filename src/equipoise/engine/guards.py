"""Guards of several balancers. Each returns a reason to wait, or None; guards only reduce a decision.

A decision is right for what was observed. Whether it may be executed now depends on input that a pure
function does not have: a pause, leadership, the age of the snapshot, actions of others on the same workload.
A guard is a function of one such input; each balancer calls those that it needs in its own order, and reports
the first reason.

Two balancers may run in two processes with two Leases, and agents have none. They share the ledger of the
workload: a balancer that finds another's recent action waits until it is over. The compare-and-swap that
writes its own intent then fails if another has written an intent in between.
"""

from collections.abc import Collection, Mapping

from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import INTENT_MAX_SECONDS, Entry, EntryState, Ledger
from equipoise.core.quantity import print_count, print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.ports import Leadership, Pauses


def held_by_cooldown(ledger: Ledger, balancer: str, cooldown_seconds: float, at: float) -> Reason | None:
    """Hold until the cooldown after the last action is over, whichever replica was the leader then."""
    last = ledger.last_at(balancer)
    if last is None or at - last >= cooldown_seconds:
        return None
    left = cooldown_seconds - (at - last)
    sentence = f"The last action was {_seconds(at - last)} ago; the cooldown ends in {_seconds(left)}."
    if at < last:
        ahead = _seconds(last - at)
        sentence = f"The ledger has an action that is {ahead} in the future. Check the clocks of the nodes."
    return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": left})


def _seconds(seconds: float) -> str:
    return print_seconds(round(seconds))


def count_streaks(before: Mapping[str, int], hot: Collection[str]) -> dict[str, int]:
    """Return the number of consecutive cycles, this one included, in which each pod was hot."""
    assert all(count >= 1 for count in before.values()), "a pod that was never hot has no count"
    return {uid: before.get(uid, 0) + 1 for uid in hot}


def hold_spikes(decision: Decision, streaks: Mapping[str, int], cycles_min: int) -> Decision:
    """Hold the actions from the first pod on that was not hot for enough cycles: one may be a spike."""
    for number, action in enumerate(decision.actions):
        cycles_hot = streaks.get(action.uid)
        if cycles_hot is not None and cycles_hot < cycles_min:
            cycles = print_count(cycles_hot, "cycle")
            sentence = f"{action.pod} has been hot for {cycles} in a row; {cycles_min} are required."
            numbers = {"hot_cycles": cycles_hot, "debounce_cycles": cycles_min}
            return decision.hold(Reason(Code.HELD_BY_THRESHOLD, sentence, numbers), number)
    return decision


def held_by_lag(lag: float | None, threshold: float, query: str = "?") -> Reason | None:
    """Hold at or above the threshold, and while the lag is unknown."""
    if lag is None:
        why = "its query returned no value" if query else "kafkaLag.query is not set"
        sentence = f"The Kafka consumer lag is unknown because {why}. Evicting a pod would stop consumption."
    elif lag >= threshold:
        sentence = f"The Kafka consumer lag is {lag:.0f}; rotation waits until it is below {threshold:.0f}."
    else:
        return None
    return Reason(Code.HELD_BY_LAG, sentence, {"kafka_lag": lag, "kafka_lag_threshold": threshold})


def held_by_pause(pauses: Pauses, namespace: str) -> Reason | None:
    """Hold in a paused namespace, and where it is unknown whether it is paused."""
    try:
        paused_by = pauses.pause_of(namespace)
    except WorldFailed as error:
        return Reason(Code.HELD_BY_PAUSE, f"It is unknown whether namespace {namespace} is paused: {error}.")
    if paused_by is None:
        return None
    return Reason(Code.HELD_BY_PAUSE, f"{paused_by[0].upper()}{paused_by[1:]}.")


OTHERS_SECONDS = INTENT_MAX_SECONDS
"""How long an action may be missing from a snapshot; after that, what is observed counts."""
RECOVERY_SECONDS = 3600.0
"""How long a workload's missing pods may be the effect of another's action."""


def held_by_others(ledger: Ledger, balancer: str, at: float) -> Reason | None:
    """Hold shortly after another balancer or an agent has acted on a pod of this workload, or may have."""
    return _held([entry for entry in ledger.entries if entry.balancer != balancer], at, OTHERS_SECONDS)


def held_by_anyone(ledger: Ledger, own: Collection[str], at: float, *, is_whole: bool) -> Reason | None:
    """Hold while an action other than our own is in progress: for an agent, which reads one node's pods.

    While the workload lacks ready pods (not `is_whole`), an action of the last hour counts as in progress.
    """
    entries = [entry for entry in ledger.entries if entry.id not in own]
    return _held(entries, at, OTHERS_SECONDS if is_whole else RECOVERY_SECONDS)


def _held(entries: Collection[Entry], at: float, seconds: float) -> Reason | None:
    recent = [entry for entry in entries if entry.state is not EntryState.FAILED and at - entry.at < seconds]
    if not recent:
        return None
    last = max(recent, key=lambda entry: entry.at)
    since = max(0.0, at - last.at)
    return Reason(
        Code.HELD_BY_BUDGET,
        f"The balancer {last.balancer} acted on {last.pod} of this workload {_seconds(since)} ago "
        f"({last.action}). Only one balancer acts on a workload at a time.",
        {"other": last.balancer, "seconds_since": since},
    )


def held_by_leader(leadership: Leadership) -> Reason | None:
    if leadership.epoch() is not None:
        return None
    return Reason(Code.HELD_BY_LEADER, "This process is not the leader, so it changes nothing.")


SNAPSHOT_AGE_MAX_SECONDS = 120.0


def held_by_age(age_seconds: float) -> Reason | None:
    """Hold when the snapshot is too old: the cluster may have changed since."""
    if age_seconds <= SNAPSHOT_AGE_MAX_SECONDS:
        return None
    most = SNAPSHOT_AGE_MAX_SECONDS
    sentence = f"The observed data is {_seconds(age_seconds)} old; the limit is {_seconds(most)}."
    return Reason(Code.HELD_BY_LEADER, sentence, {"look_age_seconds": age_seconds})
