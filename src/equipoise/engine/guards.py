"""Was there a rest since the last time?

Has it been so for long enough? One look may be a spike.

Is the consumer group keeping up? A rotation stops consumption, so a lagging group is left alone.

Has somebody said stop?

Is somebody else taking pods of this workload now?

Two balancers may run in two processes with two Leases, and agents have none. What they share is the ledger of
the workload: whoever finds that another has begun something waits until it is over. The compare-and-swap with
which the own intent is then written makes sure that nobody has begun in between.

Is it our turn?
"""

from collections.abc import Callable, Collection, Mapping

from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import GUEST_EPOCH, INTENT_MAX_SECONDS, Entry, EntryState, Ledger
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
    """Count in how many looks in a row each was hot; whoever was not begins anew."""
    return {uid: before.get(uid, 0) + 1 for uid in hot}


def hold_spikes(decision: Decision, streaks: Mapping[str, int], cycles_min: int) -> Decision:
    """Hold from the first hot pod on that was not hot for long enough; those behind it wait too."""
    for number, action in enumerate(decision.actions):
        seen = streaks.get(action.uid)
        if seen is not None and seen < cycles_min:
            cycles = "1 cycle" if seen == 1 else f"{seen} cycles"
            sentence = f"{action.pod} was hot in {cycles} in a row, and {cycles_min} are needed."
            numbers = {"hot_cycles": seen, "debounce_cycles": cycles_min}
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
        who = pauses.pause_of(namespace)
    except WorldFailed as error:
        return Reason(Code.HELD_BY_PAUSE, f"Whether {namespace} is paused is unknown: {error}.")
    if who is None:
        return None
    return Reason(Code.HELD_BY_PAUSE, f"Stop was said: {who}.")


OTHERS_SECONDS = INTENT_MAX_SECONDS
"""So long nobody may have seen yet what another has done; from then on what is seen counts."""
MENDING_SECONDS = 3600.0
"""So long it is another's deed, as far as anybody can tell, when a workload is not whole."""


def held_by_others(ledger: Ledger, balancer: str, at: float) -> Reason | None:
    """Hold shortly after another balancer, or an agent, has taken a pod of this workload or may have."""
    return _held([entry for entry in ledger.entries if entry.balancer != balancer], at, OTHERS_SECONDS)


def held_by_anyone(ledger: Ledger, own: Collection[str], at: float, *, is_whole: bool) -> Reason | None:
    """Hold as long as anyone's deed is under way, but for our own: for who sees only some of the pods.

    `is_whole` says whether the workload has all the pods that it wants; while it has not, a deed of the last
    hour is not over.
    """
    entries = [entry for entry in ledger.entries if entry.id not in own]
    return _held(entries, at, OTHERS_SECONDS if is_whole else MENDING_SECONDS)


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


class LeaselessLeadership:
    """Acts without a Lease, for one command: the compare-and-swap of each ledger keeps two apart.

    A command that was stopped between its look and its deed finds that its turn is over, as a leader would.
    """

    def __init__(self, monotonic: Callable[[], float], turn_seconds: float = 120.0) -> None:
        self._monotonic = monotonic
        self._turn_seconds = turn_seconds
        self._looked_at = monotonic()

    def look(self) -> None:
        """Begin a turn: what is seen from here on is fresh."""
        self._looked_at = self._monotonic()

    def epoch(self) -> int | None:
        """Return the epoch of guests while the turn lasts."""
        return GUEST_EPOCH if self._monotonic() - self._looked_at < self._turn_seconds else None
