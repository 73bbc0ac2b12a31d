"""Has somebody said stop?"""

from equipoise.model.errors import WorldFailed
from equipoise.model.reason import Code, Reason
from equipoise.ports import Pauses


def held_by_pause(pauses: Pauses, namespace: str) -> Reason | None:
    """Hold in a paused namespace, and wherever we can't tell."""
    try:
        who = pauses.pause_of(namespace)
    except WorldFailed as error:
        return Reason(Code.HELD_BY_PAUSE, f"Whether {namespace} is paused is unknown: {error}.")
    if who is None:
        return None
    return Reason(Code.HELD_BY_PAUSE, f"Stop was said: {who}.")
