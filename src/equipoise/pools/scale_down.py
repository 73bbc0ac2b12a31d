"""Before a StatefulSet gets smaller: who leaves, what moves first, and what is left to move; pure."""

from typing import Any

import msgspec

from equipoise.model.decision import Decision
from equipoise.model.names import ordinal_of
from equipoise.pools.decide import decide
from equipoise.pools.observation import Observation, Stay, TierSeen
from equipoise.pools.policy import TierPolicy


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
