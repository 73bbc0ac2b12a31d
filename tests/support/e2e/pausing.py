"""What a watch of pauses says, on a machine that may have stood still."""

from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.core.errors import WorldFailed

UNKNOWN = "nobody knows"


def said_of(pauses: NamespacePauses, namespace: str) -> str | None:
    """Say who or what paused a namespace, or None; `UNKNOWN` while the server was not heard for a while."""
    try:
        return pauses.pause_of(namespace)
    except WorldFailed:
        return UNKNOWN
