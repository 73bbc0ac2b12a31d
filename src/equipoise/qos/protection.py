"""Which pods are never acted on, whatever a policy says."""

CRITICAL_PRIORITY_MIN = 2_000_000_000
"""Kubernetes keeps priorities from here on for its own critical classes."""
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


def protection_of(owner: str, priority: int, priority_class: str, *, is_mirror: bool = False) -> str:
    """Say why a pod is never touched, or nothing; the owner is the kind of its controller."""
    if is_mirror or owner == "Node":
        return "it is a static pod"
    if priority >= CRITICAL_PRIORITY_MIN or priority_class in CRITICAL_CLASSES:
        return "its priority is critical"
    return ""
