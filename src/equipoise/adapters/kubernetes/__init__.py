"""Kubernetes, over its HTTP API: sessions, slim reads, caches that follow the cluster."""

from equipoise.adapters.kubernetes.cache import ChangeType
from equipoise.adapters.kubernetes.client import Client, Limits, World, connect
from equipoise.adapters.kubernetes.cluster import CachedCluster, KubernetesCluster
from equipoise.adapters.kubernetes.discovery import Discovery, Resource
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, CredentialFailed, Stopped, Unreachable
from equipoise.adapters.kubernetes.kubeconfig import Target, find_target
from equipoise.adapters.kubernetes.lists import list_kind, list_raw
from equipoise.adapters.kubernetes.paths import path_of, proxy_path
from equipoise.adapters.kubernetes.reflector import Reflector, Timings
from equipoise.adapters.kubernetes.selectors import format_selector, parse_selector

__all__ = [
    "ApiError",
    "BadAnswer",
    "CachedCluster",
    "ChangeType",
    "Client",
    "CredentialFailed",
    "Discovery",
    "KubernetesCluster",
    "Limits",
    "Reflector",
    "Resource",
    "Stopped",
    "Target",
    "Timings",
    "Unreachable",
    "World",
    "connect",
    "find_target",
    "format_selector",
    "list_kind",
    "list_raw",
    "parse_selector",
    "path_of",
    "proxy_path",
]
