"""Guards that several balancers ask before they act. Each returns why to wait, or None; they only reduce.

A decision says what would be right for what was observed. Whether it may be carried out now depends on what a
pure function cannot know: a pause, leadership, the age of the snapshot, what others do to the same workload.
A guard is a function of one such input and of nothing else; each balancer calls those that it needs, in an
order of its own, and the first reason is the one that people see.

Two balancers may run in two processes with two Leases, and agents have none. What they share is the ledger of
the workload: whoever finds that another has begun something waits until it is over. The compare-and-swap with
which the own intent is then written makes sure that nobody has begun in between.
"""

from collections.abc import Collection, Mapping

from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import INTENT_MAX_SECONDS, Entry, EntryState, Ledger
from equipoise.core.reason import Code, Reason
from equipoise.ports import Leadership, Pauses


def held_by_cooldown(ledger: Ledger, balancer: str, cooldown_seconds: float, at: float) -> Reason | None:
    """Hold until so long after the last action, whoever led then."""
    last = ledger.last_at(balancer)
    if last is None or at - last >= cooldown_seconds:
        return None
    left = cooldown_seconds - (at - last)
    if at < last:
        sentence = (
            f"The ledger has an action {last - at:.0f} s in the future: a clock is wrong, or the ledger."
        )
        return Reason(Code.HELD_BY_COOLDOWN, sentence, {"seconds_left": left})
    return Reason(
        Code.HELD_BY_COOLDOWN,
        f"The last action was {at - last:.0f} s ago, and the next waits {left:.0f} s more.",
        {"seconds_left": left},
    )


def count_streaks(before: Mapping[str, int], hot: Collection[str]) -> dict[str, int]:
    """Return in how many cycles in a row each was hot; whoever was not begins anew."""
    assert all(count >= 1 for count in before.values()), "who was never hot has no count"
    return {uid: before.get(uid, 0) + 1 for uid in hot}


def hold_spikes(decision: Decision, streaks: Mapping[str, int], cycles_min: int) -> Decision:
    """Hold from the first pod on that was not hot for long enough: one cycle may be a spike."""
    for number, action in enumerate(decision.actions):
        cycles_hot = streaks.get(action.uid)
        if cycles_hot is not None and cycles_hot < cycles_min:
            cycles = "1 cycle" if cycles_hot == 1 else f"{cycles_hot} cycles"
            sentence = f"{action.pod} was hot in {cycles} in a row, and {cycles_min} are needed."
            numbers = {"hot_cycles": cycles_hot, "debounce_cycles": cycles_min}
            return decision.hold(Reason(Code.HELD_BY_THRESHOLD, sentence, numbers), number)
    return decision


def held_by_lag(lag: float | None, threshold: float, query: str = "?") -> Reason | None:
    """Hold at or above the threshold, and while the lag is unknown."""
    if lag is None:
        why = "its query has no answer" if query else "no query says how to read it (kafkaLag.query)"
        return Reason(
            Code.HELD_BY_LAG,
            f"The Kafka consumer lag is unknown, since {why}; a rotation would stop consumption.",
            {"kafka_lag": None, "kafka_lag_threshold": threshold},
        )
    if lag >= threshold:
        return Reason(
            Code.HELD_BY_LAG,
            f"The Kafka consumer lag is {lag:g}, and rotation waits until it is below {threshold:g}.",
            {"kafka_lag": lag, "kafka_lag_threshold": threshold},
        )
    return None


def held_by_pause(pauses: Pauses, namespace: str) -> Reason | None:
    """Hold in a paused namespace, and wherever we can't tell."""
    try:
        paused_by = pauses.pause_of(namespace)
    except WorldFailed as error:
        return Reason(Code.HELD_BY_PAUSE, f"Whether {namespace} is paused is unknown: {error}.")
    if paused_by is None:
        return None
    return Reason(Code.HELD_BY_PAUSE, f"Stop was said: {paused_by}.")


OTHERS_SECONDS = INTENT_MAX_SECONDS
"""For so long an action may not show in a snapshot yet; from then on what is observed counts."""
RECOVERY_SECONDS = 3600.0
"""For so long a workload that is not whole may be so because of another's action."""


def held_by_others(ledger: Ledger, balancer: str, at: float) -> Reason | None:
    """Hold shortly after another balancer, or an agent, has taken a pod of this workload or may have."""
    return _held([entry for entry in ledger.entries if entry.balancer != balancer], at, OTHERS_SECONDS)


def held_by_anyone(ledger: Ledger, own: Collection[str], at: float, *, is_whole: bool) -> Reason | None:
    """Hold while anyone's action but our own is under way: for an agent, which observes some of the pods.

    While the workload lacks pods that it wants (not `is_whole`), an action of the last hour is under way.
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
        f"{last.balancer} acted on {last.pod} of this workload {since:.0f} s ago ({last.action}), and one "
        "balancer at a time takes pods of it.",
        {"other": last.balancer, "seconds_since": since},
    )


def held_by_leader(leadership: Leadership) -> Reason | None:
    """Hold unless we lead at this moment."""
    if leadership.epoch() is not None:
        return None
    return Reason(Code.HELD_BY_LEADER, "This process does not lead, so it only looks.")


SNAPSHOT_AGE_MAX_SECONDS = 120.0


def held_by_age(age_seconds: float) -> Reason | None:
    """Hold when the snapshot is old, whatever kept us: the cluster may be anything by now."""
    if age_seconds <= SNAPSHOT_AGE_MAX_SECONDS:
        return None
    most = SNAPSHOT_AGE_MAX_SECONDS
    sentence = f"What was seen is {age_seconds:.0f} s old, and at most {most:g} s is believed."
    return Reason(Code.HELD_BY_LEADER, sentence, {"look_age_seconds": age_seconds})
