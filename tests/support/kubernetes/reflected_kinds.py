"""The kinds of ours that are kept by a reflector: how to make each, and to look at what it knows."""

from collections.abc import Callable, Sequence
from typing import Any

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.policies import KubernetesAnalyses, KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.ports import PolicyObject

Looking = Callable[[], Sequence[PolicyObject]]


def policies(client: Client) -> tuple[Reflector[Any], Looking]:
    made = KubernetesPolicies(
        client, group="equipoise.dev", version="v1", name="RotationPolicy", plural="rotationpolicies"
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
