"""How many more pods may be disturbed now?"""

from equipoise.model.ledger import Ledger
from equipoise.model.reason import Code, Reason

HOUR_SECONDS = 3600.0


def held_by_hourly_budget(ledger: Ledger, balancer: str, rounds_max: int, at: float) -> Reason | None:
    """Hold when this hour's rounds are used up."""
    used = ledger.rounds_since(at - HOUR_SECONDS, balancer)
    if used < rounds_max:
        return None
    rounds = "1 round in the last hour has" if used == 1 else f"{used} rounds in the last hour have"
    return Reason(
        Code.HELD_BY_BUDGET,
        f"{rounds} used up the budget of {rounds_max}.",
        {"rounds_last_hour": used, "rounds_per_hour": rounds_max},
    )


def room_for_disruption(
    disturbed: int, disturbed_max: int, disturbed_in_cluster: int, disturbed_in_cluster_max: int
) -> tuple[int, Reason]:
    """Give how many more pods may go at once, of this workload and of all, and the reason for the rest."""
    here = max(0, disturbed_max - disturbed)
    everywhere = max(0, disturbed_in_cluster_max - disturbed_in_cluster)
    numbers = {"disturbed": disturbed, "disturbed_in_cluster": disturbed_in_cluster}
    whose, now, most = ("this workload", disturbed, disturbed_max)
    if everywhere < here:
        whose, now, most = ("the cluster", disturbed_in_cluster, disturbed_in_cluster_max)
    pods, are = ("pod", "is") if now == 1 else ("pods", "are")
    sentence = f"{now} {pods} of {whose} {are} disturbed now, and at most {most} may be; the rest wait."
    if now == 0:
        sentence = (
            f"No more than {most} of {whose}'s pods may be away at once; the rest wait for the next wave."
        )
    return min(here, everywhere), Reason(Code.HELD_BY_BUDGET, sentence, numbers)
