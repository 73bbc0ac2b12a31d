"""Has it been so for long enough? One look may be a spike."""

from collections.abc import Collection, Mapping

from equipoise.model.decision import Decision
from equipoise.model.reason import Code, Reason


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
