"""What an error is about on a node: a pod is left out of a round, an action fails, and the rest goes on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from equipoise.guard.isolation import Isolation
from equipoise.model.decision import Action, Decision, EvictPod, Outcome
from equipoise.model.errors import EquipoiseError
from equipoise.ports import FailedTurn
from equipoise.qos.decide import decide
from equipoise.qos.node import Look
from equipoise.qos.observation import Observation
from equipoise.qos.pods import PodTold
from equipoise.qos.policy import QosPolicy
from equipoise.qos.see import Marks, see

Deed = Callable[..., Outcome]


def decided_apart(
    asked: tuple[QosPolicy, Mapping[str, Any], Isolation],
    place: tuple[str, float, tuple[Look | None, Look]],
    pods: Sequence[PodTold],
    marks: Marks,
    **more: Any,
) -> tuple[Observation, Decision]:
    """Return what is seen and decided; a pod that an error is about is left out, so that it stays as it is.

    `asked` is what decides, `place` and `more` are what `see` takes beside the pods and their marks.
    """
    policy, memory, isolation = asked

    def decided(some: Sequence[PodTold]) -> tuple[Observation, Decision]:
        seen = see(*place, some, marks, **more)
        return seen, decide(policy, seen, memory)

    def probed(some: Sequence[PodTold]) -> list[bool]:
        decided(some)
        return [True] * len(some)

    try:
        return decided(pods)
    except EquipoiseError:
        raise
    except Exception:
        found = isolation.each(pods, probed, lambda pod: pod.key, (EquipoiseError,))
        kept = [pod for pod, one in zip(pods, found, strict=True) if not isinstance(one, FailedTurn)]
        if not kept:  # it is about none of them
            raise
        return decided(kept)


def done_apart(isolation: Isolation, deed: Deed, action: Action, *told: Any) -> Outcome:
    """Return what came of an action; an error fails it alone, and an eviction may have been sent by then."""
    done = isolation.attempt(action.pod, lambda: deed(action, *told), (EquipoiseError,))
    if isinstance(done, FailedTurn):
        return Outcome(action, "Unknown" if isinstance(action, EvictPod) else "Failed", done.error)
    return done
