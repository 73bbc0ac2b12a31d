"""The `Actuator` port over an API server: evictions that are asked for once, and events.

An eviction is never sent twice by itself. What the server said is judged here; where it said nothing, or
nothing that settles the matter, `WorldFailed` is raised and the outcome is unknown: a later look at the pod
tells.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.events import Events
from equipoise.adapters.kubernetes.nodes import NodeMarks
from equipoise.adapters.kubernetes.objects import Objects
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.model.references import ObjectRef, PodRef
from equipoise.ports import EvictionAnswer, EvictionResult

_OTHER_UID = re.compile(r"\bUID in (the )?precondition\b", re.IGNORECASE)
"""How the server says that the name belongs to another incarnation by now."""
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class KubernetesActuator:
    """Changes a cluster, one thing at a time. Threads may share it."""

    def __init__(self, client: Client, *, component: str = "equipoise", instance: str = "") -> None:
        self._client = client
        self.events = Events(client, component=component, instance=instance)
        self.objects = Objects(client)
        self.nodes = NodeMarks(client)

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        """Evict exactly this incarnation of a pod; without a grace period, its own."""
        if not pod.uid:
            return EvictionAnswer(
                EvictionResult.REFUSED, f"{pod}: an eviction must name the UID, and none is known"
            )
        path = path_of("", "v1", "pods", pod.namespace, pod.name, "eviction")
        params = {"dryRun": "All"} if is_dry_run else None
        try:
            # Once: a budget's 429 means wait, and after a lost answer nobody knows.
            self._client.post(path, _eviction(pod, grace_seconds, is_dry_run=is_dry_run), params, retry=False)
        except ApiError as error:
            answer = judge_eviction(error)
            if answer is None:
                raise
            return answer
        return EvictionAnswer(EvictionResult.ACCEPTED)

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        """Attach one sentence to an object; a failure is counted in `events`, and never raised."""
        self.events.record(about, reason, sentence, is_warning=is_warning)


def _eviction(pod: PodRef, grace_seconds: int | None, *, is_dry_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if is_dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }


def judge_eviction(error: ApiError) -> EvictionAnswer | None:
    """Turn the server's refusal into an answer; None when it does not tell whether the pod was evicted."""
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return EvictionAnswer(EvictionResult.BLOCKED, _why_blocked(error), error.retry_after_seconds)
    # A 404 without the API's own reason comes from something that stands before the server.
    is_gone = error.status == HTTPStatus.NOT_FOUND and error.reason == "NotFound"
    is_other = error.status == HTTPStatus.CONFLICT and _OTHER_UID.search(error.message) is not None
    if is_gone or is_other:
        return EvictionAnswer(EvictionResult.GONE, error.message)
    if error.status == HTTPStatus.FORBIDDEN:
        return EvictionAnswer(EvictionResult.FORBIDDEN, error.message)
    is_ambiguous = error.status == HTTPStatus.INTERNAL_SERVER_ERROR and _SEVERAL_BUDGETS in error.message
    if is_ambiguous or error.status in _REFUSALS:
        return EvictionAnswer(EvictionResult.REFUSED, error.message)
    return None


def _why_blocked(error: ApiError) -> str:
    """Give the budget's own words, which have its name and its numbers, before the general ones."""
    causes = [cause.message for cause in error.causes if cause.reason == "DisruptionBudget" and cause.message]
    return "; ".join(causes) or error.message or "the API server asks to wait"
