"""Ways to rotate the pods of one workload: the closed loop, the rule that it came from, and simpler ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.model.decision import Decision
from equipoise.sim.enforcing import CYCLE_SECONDS, enforce, remembered, rotation_loop
from equipoise.sim.scenes import Unbalanced

CLOSED_LOOP, SEED, HOT_ONLY, HOTTEST, LEFT_ALONE = "closed loop", "seed", "hot only", "hottest", "left alone"
CLOSED_LOOP_MAX_SECONDS = 4 * 3600.0
"""How long the closed loop may take for one rotation."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the algorithm wants at one moment, whatever may hold it: the hottest first, then the coldest."""

    pods: Sequence[str]
    hot: Sequence[str]
    predicted_percent: float


def plan_now(scene: Unbalanced, settings: Mapping[str, Any]) -> Plan | None:
    """Ask the production loop what it would do, without doing it; None when nothing is hot."""
    enforce(scene.world, settings)
    (decision,) = rotation_loop(scene.world, is_acting=False).cycle(scene.world.now).decisions
    pods = _wanted(decision)
    if not pods:
        return None
    numbers = decision.reason.numbers
    return Plan(pods, numbers["hot"], numbers["improvement_percent"])


def _wanted(decision: Decision) -> list[str]:
    """Give all pods of a plan in order; what is held was to follow what is not."""
    return [action.pod for action in decision.actions] + [held.action.pod for held in decision.held]


Strategy = Callable[[Unbalanced, Plan, Mapping[str, Any]], int]
"""Rotates, and says how many pods went."""


def _delete(scene: Unbalanced, names: Sequence[str]) -> int:
    """Delete pods at once, past every budget."""
    pods = [pod for pod in scene.workload.pods.values() if pod.name in set(names)]
    for pod in pods:
        scene.world.kubelet.end(pod)
    return len(pods)


def close_the_loop(scene: Unbalanced, plan: Plan, settings: Mapping[str, Any]) -> int:
    """Run the production loop until its first rotation has ended and was verified."""
    del plan
    world, ref = scene.world, scene.workload.ref
    enforce(world, settings)
    loop = rotation_loop(world)
    ends_at = world.now + CLOSED_LOOP_MAX_SECONDS
    while world.now < ends_at:
        loop.cycle(world.now)
        if remembered(world, ref).last is not None:
            break
        world.advance(CYCLE_SECONDS)
    return len(world.state.evictions)


STRATEGIES: dict[str, Strategy] = {
    CLOSED_LOOP: close_the_loop,
    SEED: lambda scene, plan, _: _delete(scene, plan.pods),
    HOT_ONLY: lambda scene, plan, _: _delete(scene, plan.hot),
    HOTTEST: lambda scene, plan, _: _delete(scene, plan.hot[:1]),
}
