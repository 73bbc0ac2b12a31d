"""The `Sizes` port over an API server: in-place resizes, pod templates, and other managers of the values.

Every change is a strategic merge patch of requests and limits alone, with the object's UID as a precondition:
it does nothing to another incarnation. It is idempotent, so a lost answer costs another read, not a pod; but
its retries are short, since a pause may begin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from equipoise.adapters.http import one_line
from equipoise.adapters.kubernetes.apply import MANAGER, ManagedFields
from equipoise.adapters.kubernetes.client import STRATEGIC_PATCH, WRITE_SECONDS, Client
from equipoise.adapters.kubernetes.errors import REFUSALS, ApiError, Unreachable
from equipoise.adapters.kubernetes.keda_vpa import RecentVpas
from equipoise.adapters.kubernetes.kinds import DAEMONSETS, PODS, WORKLOADS
from equipoise.adapters.kubernetes.objects import ApiResourceList
from equipoise.adapters.kubernetes.reflector import Reflector, Stale, Timings
from equipoise.core.cluster import ObjectRef, PodRef, Workload, WorkloadRef
from equipoise.ports import Cluster
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Values

ASK_AGAIN_SECONDS = 300.0
"""How long it is cached that the server has no `resize`: it may be upgraded."""
_OTHER_UID = re.compile(r"\bUID in (the )?precondition\b|metadata\.uid", re.IGNORECASE)
_NO_RIGHT = re.compile(r"\bcannot \w+ resource\b")
"""The authorizer's message; a quota and a LimitRange answer 403 too, with other messages."""
_NO_SUBRESOURCE = "could not find the requested resource"
_NO_SUPPORT = "without support for resize"
"""The server's message when a pod's node is too old."""
_STALE = Stale("{subject} have not been listed yet", "{subject} were last updated {age:.0f} s ago")


class _ManagedMeta(msgspec.Struct):
    managedFields: list[ManagedFields] | None = None


class _Managed(msgspec.Struct):
    metadata: _ManagedMeta


class KubernetesSizes:
    """Reads from `cluster` and from the server. Threads may share it."""

    def __init__(self, client: Client, cluster: Cluster, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._cluster = cluster
        self._vpas = RecentVpas(client, namespaces)
        self._offers = False
        self._asked_at = float("-inf")

    def workload(self, ref: WorkloadRef) -> Workload | None:
        return self._cluster.workload(ref)

    def advised(self) -> Mapping[WorkloadRef, str]:
        return self._vpas.targets()

    def offers_resize(self) -> bool:
        """Look for the `resize` subresource; True is cached for good."""
        now = self._client.world.monotonic()
        if not self._offers and now - self._asked_at >= ASK_AGAIN_SECONDS:
            found = self._client.get_as(ApiResourceList, "/api/v1").resources or []
            self._offers = any(resource.name == "pods/resize" for resource in found)
            self._asked_at = now
        return self._offers

    def resize(
        self,
        pod: PodRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        path = PODS.path(pod.namespace, pod.name, "resize")
        return self._patch(path, _containers(values, sidecars), pod.uid, version, is_dry_run=is_dry_run)

    def set_template(
        self,
        workload: ObjectRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
    ) -> ResizeAnswer:
        path = WORKLOADS[workload.kind].path(workload.namespace, workload.name)
        spec = {"template": {"spec": _containers(values, sidecars)}}
        return self._patch(path, spec, workload.uid, version, is_dry_run=is_dry_run)

    def setter_of(self, about: ObjectRef, container: str, section: str, resource: str) -> str:
        kind = PODS if about.kind == "Pod" else WORKLOADS[about.kind]
        above = ("spec",) if kind is PODS else ("spec", "template", "spec")
        value = (f'k:{{"name":"{container}"}}', "resources", section, resource)
        found = self._client.get_as(_Managed, kind.path(about.namespace, about.name))
        others = [
            (entry.time, entry.manager)
            for entry in found.metadata.managedFields or ()
            if entry.manager != MANAGER
            and (entry.has(*above, "containers", *value) or entry.has(*above, "initContainers", *value))
        ]
        return one_line(max(others)[1], 100) if others else ""

    def _patch(
        self, path: str, spec: Mapping[str, Any], uid: str, version: str, *, is_dry_run: bool
    ) -> ResizeAnswer:
        if not uid:
            return ResizeAnswer(ResizeResult.REFUSED, "expected a UID for the change, got none")
        preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        try:
            self._client.patch(
                path,
                {"metadata": preconditions, "spec": spec},
                {"fieldManager": MANAGER} | ({"dryRun": "All"} if is_dry_run else {}),
                content_type=STRATEGIC_PATCH,
                within_seconds=WRITE_SECONDS,
            )
        except ApiError as error:
            answer = judge_resize(error)
            if answer is None:
                raise
            return answer
        return ResizeAnswer(ResizeResult.ACCEPTED)


class CachedSizes(KubernetesSizes):
    """Adds DaemonSets from reflectors, for the operator; the owner of this object starts them."""

    def __init__(
        self, client: Client, cluster: Cluster, namespaces: Sequence[str] = (), timings: Timings | None = None
    ) -> None:
        super().__init__(client, cluster, namespaces)
        places: list[str | None] = list(dict.fromkeys(namespaces)) or [None]
        self.reflectors: dict[str | None, Reflector[Workload]] = {
            place: Reflector(client, DAEMONSETS, namespace=place, timings=timings) for place in places
        }

    def workload(self, ref: WorkloadRef) -> Workload | None:
        if (ref.kind, ref.group) != ("DaemonSet", "apps"):
            return super().workload(ref)
        reflector = self.reflectors.get(ref.namespace) or self.reflectors.get(None)
        if reflector is None:
            raise Unreachable(f"namespace {ref.namespace}: it is not watched")
        return reflector.require_fresh(sentences=_STALE).get(ref.namespace, ref.name)


def judge_resize(error: ApiError) -> ResizeAnswer | None:
    """Return the answer for an error; None when it does not show whether anything was changed."""
    status, message = error.status, error.message
    is_unknown = status == HTTPStatus.NOT_FOUND and _NO_SUBRESOURCE in message
    is_unsupported = status == HTTPStatus.UNPROCESSABLE_ENTITY and _NO_SUPPORT in message
    if status == HTTPStatus.METHOD_NOT_ALLOWED or is_unknown or is_unsupported:
        return ResizeAnswer(ResizeResult.UNSUPPORTED, message)
    is_refusal = status in REFUSALS or status == HTTPStatus.CONFLICT
    if error.is_not_found or (is_refusal and _OTHER_UID.search(message) is not None):
        return ResizeAnswer(ResizeResult.GONE, message)
    if status == HTTPStatus.CONFLICT:
        return ResizeAnswer(ResizeResult.OUTDATED, message)
    if status == HTTPStatus.FORBIDDEN:
        is_right = _NO_RIGHT.search(message) is not None
        return ResizeAnswer(ResizeResult.FORBIDDEN if is_right else ResizeResult.REFUSED, message)
    return ResizeAnswer(ResizeResult.REFUSED, message) if status in REFUSALS else None


def _containers(values: Values, sidecars: Collection[str]) -> dict[str, Any]:
    """Return the values in the shape of a pod's spec: sidecars are init containers."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, resources in values.items():
        place = "initContainers" if name in sidecars else "containers"
        parts.setdefault(place, []).append({"name": name, "resources": resources})
    return parts
