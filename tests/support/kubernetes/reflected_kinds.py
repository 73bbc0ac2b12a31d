"""The kinds of ours that are kept by a reflector: how to make each, and to look at what it knows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.cluster import CachedCluster
from equipoise.adapters.kubernetes.policies import KubernetesAnalyses, KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.crd.definition import DefinedKind
from equipoise.ports import PolicyObject

Looking = Callable[[], Sequence[PolicyObject]]


def policies(client: Client) -> tuple[Reflector[Any], Looking]:
    made = KubernetesPolicies(
        client, DefinedKind("equipoise.dev", "v1", "RotationPolicy", "rotationpolicies", "", {})
    )
    return made.reflector, made.policies


def analytics(client: Client) -> tuple[Reflector[Any], Looking]:
    watched: list[Reflector[Any]] = []
    made = KubernetesAnalyses(client, watched.append)
    return watched[0], made.analytics


def recommendations(client: Client) -> tuple[Reflector[Any], Looking]:
    watched: list[Reflector[Any]] = []
    made = KubernetesAnalyses(client, watched.append)
    return watched[1], made.recommendations


KEPT = [policies, analytics, recommendations]


def stop_all(reflectors: Sequence[Reflector[Any]], timeout_seconds: float = 5.0) -> bool:
    """Stop all first, then wait for each; return whether all have ended in time."""
    for reflector in reflectors:
        reflector.stop(0.0)
    ended = [reflector.stop(timeout_seconds) for reflector in reflectors]
    return all(ended)


@contextmanager
def running(cluster: CachedCluster) -> Iterator[None]:
    """Run its reflectors, from the time when every kind was listed."""
    for reflector in cluster.reflectors:
        reflector.start()
    try:
        assert all(reflector.synced.wait(60) for reflector in cluster.reflectors)
        yield
    finally:
        assert stop_all(cluster.reflectors, 60)
