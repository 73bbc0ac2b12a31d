"""The Kubernetes API: sessions, partial decoding, watched caches, writes."""

from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.client import Client, connect
from equipoise.adapters.kubernetes.cluster import CachedCluster, KubernetesCluster
from equipoise.adapters.kubernetes.errors import ApiError, Unreachable
from equipoise.adapters.kubernetes.reflector import Reflector

__all__ = [
    "ApiError",
    "CachedCluster",
    "Client",
    "KubernetesActuator",
    "KubernetesCluster",
    "Reflector",
    "Unreachable",
    "connect",
]
