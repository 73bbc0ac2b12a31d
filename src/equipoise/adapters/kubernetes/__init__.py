"""The Kubernetes API: sessions, partial decoding, watched caches, writes."""

from equipoise.adapters.kubernetes.actions import KubernetesActuator, NodeMarks, Taint
from equipoise.adapters.kubernetes.cache import ChangeType
from equipoise.adapters.kubernetes.client import Client, Environment, Limits, connect
from equipoise.adapters.kubernetes.cluster import CachedCluster, KubernetesCluster
from equipoise.adapters.kubernetes.errors import (
    ApiError,
    BadAnswer,
    CredentialFailed,
    RightMissing,
    Stopped,
    Unreachable,
)
from equipoise.adapters.kubernetes.kinds import list_kind
from equipoise.adapters.kubernetes.kubeconfig import Target, find_target
from equipoise.adapters.kubernetes.lease import LeaseElection, process_identity
from equipoise.adapters.kubernetes.objects import (
    Discovery,
    Objects,
    Resource,
    path_of,
    write_status,
)
from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.selectors import format_selector, parse_selector
from equipoise.adapters.kubernetes.store import LedgerStore, LedgerTooLarge

__all__ = [
    "ApiError",
    "BadAnswer",
    "CachedCluster",
    "ChangeType",
    "Client",
    "CredentialFailed",
    "Discovery",
    "Environment",
    "KubernetesActuator",
    "KubernetesCluster",
    "LeaseElection",
    "LedgerStore",
    "LedgerTooLarge",
    "Limits",
    "NamespacePauses",
    "NodeMarks",
    "Objects",
    "Reflector",
    "Resource",
    "RightMissing",
    "Stopped",
    "Taint",
    "Target",
    "Timings",
    "Unreachable",
    "connect",
    "find_target",
    "format_selector",
    "list_kind",
    "parse_selector",
    "path_of",
    "process_identity",
    "write_status",
]
