"""Which pods may be acted on, and by which actions."""

from equipoise.qos.observation import PodSeen
from equipoise.qos.policy import PodQOSSpec, QosPolicy, Scope, ScopeName, ScopeOperator, priorities

Allowed = frozenset[str] | None
"""Names of actions; None allows all."""
NOBODY: Allowed = frozenset()


def allowed_actions(policy: QosPolicy, pod: PodSeen) -> Allowed:
    """Say which actions may be taken on a pod.

    Static, mirror and critical pods are never touched, nor one that is on its way out. Without any PodQOS all
    others but those of DaemonSets may be; with one, those that some PodQOS selects.
    """
    if pod.protection or pod.is_terminating:
        return NOBODY
    if policy.pods is None:
        return NOBODY if pod.is_daemon else None
    return frozenset(name for asked in policy.pods if selects(asked, pod) for name in asked.actions)


def selects(asked: PodQOSSpec, pod: PodSeen) -> bool:
    """Whether a PodQOS is about this pod: all that it says must hold."""
    if asked.labels is not None and not asked.labels.selector.matches(pod.labels):
        return False
    return asked.scopes is None or all(_holds(term, pod) for term in asked.scopes.terms)


def _holds(term: Scope, pod: PodSeen) -> bool:
    match term.name:
        case ScopeName.PRIORITY:
            is_within = any(pod.priority in priorities(value) for value in term.values)
        case ScopeName.NAMESPACE:
            is_within = pod.namespace in term.values
        case ScopeName.QOS_CLASS:
            is_within = pod.qos_class in term.values
    return is_within is (term.operator is ScopeOperator.IN)
