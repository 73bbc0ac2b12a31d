"""Advice for a live cluster, wired: the API server, and a Prometheus with a week of samples."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from equipoise.adapters.kubernetes import Client, KubernetesCluster
from equipoise.adapters.kubernetes.hpa_specs import HpaSpecs
from equipoise.adapters.prometheus.history import PrometheusHistory, Source
from equipoise.adapters.prometheus.owners import PrometheusOwners
from equipoise.app.live import Neighbours, prometheus_metrics
from equipoise.app.output import warn
from equipoise.app.progress import reading
from equipoise.model.decision import Decision
from equipoise.model.errors import BadInput
from equipoise.recommendation.choose import check_names
from equipoise.recommendation.loop import Asked, World, plan


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    asked: Asked
    neighbours: Neighbours
    source: Source = Source.AUTO
    is_everywhere: bool = False

    @classmethod
    def from_options(cls, asked: Asked, options: Mapping[str, Any]) -> "Request":
        """Take what is about neighbours from the parsed options."""
        source = Source(options["source"].value)
        return cls(asked, Neighbours.from_options(options), source, options["all_namespaces"])


def plan_recommendation(request: Request, at: float | None = None) -> list[Decision]:
    """See the cluster and its past week, and decide; nothing is changed."""
    asked = request.asked
    check_names(asked.names)
    if asked.namespace is not None and request.is_everywhere and "KUBE_NAMESPACE" not in os.environ:
        raise BadInput("-n and -A: expected one of them, not both")
    client = request.neighbours.client()
    where = None if request.is_everywhere else asked.namespace or client.namespace
    world = _world(request, client)
    with reading("a week of usage") as on_bytes:
        world = replace(world, on_bytes=on_bytes)
        decisions = plan(replace(asked, namespace=where), world, time.time() if at is None else at)
    for warning in world.cluster.warnings if isinstance(world.cluster, KubernetesCluster) else ():
        warn(warning)
    return decisions


def _world(request: Request, client: Client) -> World:
    """Choose what stands behind the ports."""
    metrics = prometheus_metrics(client, request.neighbours.prometheus)
    return World(
        cluster=KubernetesCluster(client),
        history=PrometheusHistory(
            metrics.client, metrics.names, metrics.extra_matchers, source=request.source
        ),
        autoscalers=HpaSpecs(client),
        owners=PrometheusOwners(metrics.client, metrics.extra_matchers),
        warn=warn,
    )
