"""Workloads that KEDA or a VerticalPodAutoscaler manages.

KEDA pauses autoscaling by annotations of a ScaledObject. It parses their values as Go parses booleans, and
takes any other value, such as `yes`, for true; a number of paused replicas pauses by its presence. A pause
in one direction counts: its owner wants the number of replicas to stay.

Two controllers that set the same requests would conflict. A VerticalPodAutoscaler whose `updateMode` is `Off`
only recommends, so it does not count. An absent mode is VPA's default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Generic, NamedTuple, TypeVar

import msgspec

from equipoise.adapters.kubernetes.cache import Warnings
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, Outline, RightMissing
from equipoise.adapters.kubernetes.kinds import list_items
from equipoise.adapters.kubernetes.objects import Discovery, path_of
from equipoise.adapters.kubernetes.structs import ObjectMeta, RawScaleTargetRef
from equipoise.core.cluster import API_VERSIONS, WorkloadRef
from equipoise.ports.actions import every_workload

R = TypeVar("R")

FRESH_SECONDS = 15.0
"""How long an answer is cached."""
ABSENT_SECONDS = 300.0
"""How long it is cached that a kind is not installed."""


class OptionalKind(NamedTuple, Generic[R]):
    """A kind of another project, which may not be installed."""

    group: str
    version: str
    name: str
    plural: str
    raw: type[R]


def list_if_installed(
    client: Client,
    discovery: Discovery,
    kind: OptionalKind[R],
    namespace: str | None,
    unknown: str,
    warn: Callable[[Outline], object],
) -> list[R] | None:
    """List the objects; None where the kind is not installed.

    Without the right to list them, RightMissing is raised, which names what is `unknown`.
    """
    try:
        return list_items(client, path_of(kind.group, kind.version, kind.plural, namespace), kind.raw, warn)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        # Rights are asked before kinds: who has none is refused also where there is nothing to see.
        with suppress(ApiError):  # where that is not answered either, the kind may be there
            if discovery.find(f"{kind.group}/{kind.version}", kind.name) is None:
                return None
        raise RightMissing("list", f"{kind.plural}.{kind.group}", namespace, unknown, error) from error


class RecentAnswer:
    """Caches sentences about workloads, and for longer that a kind is not installed. Threads may share it."""

    def __init__(
        self, monotonic: Callable[[], float], ask: Callable[[], Mapping[WorkloadRef, str] | None]
    ) -> None:
        """Prepare; `ask` returns None where the kind is not installed."""
        self._monotonic = monotonic
        self._ask = ask
        self._lock = threading.Lock()
        self._cached: Mapping[WorkloadRef, str] = {}
        self._until = float("-inf")

    def get(self) -> Mapping[WorkloadRef, str]:
        with self._lock:
            now = self._monotonic()
            if now >= self._until:
                found = self._ask()
                self._cached = found or {}
                self._until = now + (ABSENT_SECONDS if found is None else FRESH_SECONDS)
            return self._cached


PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = f"{PAUSED}-replicas"
PAUSE_ANNOTATIONS = (PAUSED, PAUSED_REPLICAS, f"{PAUSED}-scale-in", f"{PAUSED}-scale-out")
"""KEDA copies them to the HPA that it creates."""
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


class _ScaleTarget(msgspec.Struct, gc=False):
    name: str
    kind: str = ""
    apiVersion: str = ""


class _ScaledObjectSpec(msgspec.Struct, gc=False):
    scaleTargetRef: _ScaleTarget


class _RawScaledObject(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: _ScaledObjectSpec

    @property
    def target(self) -> WorkloadRef:
        """The workload, with KEDA's defaults for absent fields."""
        target = self.spec.scaleTargetRef
        api_version = target.apiVersion or API_VERSIONS["Deployment"]
        kind = target.kind or "Deployment"
        return WorkloadRef(api_version, kind, self.metadata.namespace, target.name).canonical


SCALED_OBJECTS = OptionalKind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", _RawScaledObject)


def pause_annotation(annotations: Mapping[str, str]) -> str | None:
    """Return the annotation that pauses the autoscaling of the object, or None."""
    for key in PAUSE_ANNOTATIONS:
        value = annotations.get(key)
        if value is not None and (key == PAUSED_REPLICAS or value not in _FALSE):
            return key
    return None


class ScaledObjects:
    """Reads ScaledObjects from the server at every call."""

    def __init__(self, client: Client, discovery: Discovery) -> None:
        self._client = client
        self._listed = partial(list_if_installed, client, discovery, SCALED_OBJECTS)

    def pauses(self, namespace: str | None, warnings: Warnings) -> dict[WorkloadRef, str] | None:
        """Return the workloads whose autoscaling is paused, and by what; None without KEDA."""
        unknown = "it is unknown whether KEDA has paused an autoscaler"
        what = "a ScaledObject that cannot be read"
        found = self._listed(namespace, unknown, lambda one: warnings.add(what, one.place))
        if found is None:
            return None
        return {
            each.target: f"ScaledObject {each.metadata.namespace}/{each.metadata.name} is paused by {by}"
            for each in found
            if (by := pause_annotation(each.metadata.annotations or {})) is not None
        }

    def names(self, namespace: str) -> dict[WorkloadRef, str]:
        """Return the workloads of a namespace that KEDA scales, with the names of their ScaledObjects."""
        unreadable: list[Outline] = []
        unknown = "it is unknown whether KEDA scales a workload"
        found = self._listed(namespace, unknown, unreadable.append)
        if unreadable:
            which = f"the ScaledObject {unreadable[0].place}"
            raise BadAnswer(f"{self._client.address}: {which} cannot be read, so {unknown}")
        return {each.target: each.metadata.name for each in found or ()}


class RecentPauses:
    """The pauses of KEDA, cached."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._scaled_objects = ScaledObjects(client, Discovery(client))
        self._namespace = namespace
        self._recent = RecentAnswer(client.world.monotonic, self._ask)
        self.warnings = Warnings()

    def pauses(self, namespace: str | None) -> Mapping[WorkloadRef, str]:
        """Return the workloads whose autoscaling is paused, and by what."""
        return {ref: why for ref, why in self._recent.get().items() if namespace in {None, ref.namespace}}

    def _ask(self) -> Mapping[WorkloadRef, str] | None:
        warnings = Warnings()
        found = self._scaled_objects.pauses(self._namespace, warnings)
        self.warnings = warnings
        return found


MODE_DEFAULT = "Auto"
ONLY_ADVISES = "Off"
UNKNOWN = "it is unknown whether a VerticalPodAutoscaler sets a workload's requests"


class _UpdatePolicy(msgspec.Struct, gc=False):
    updateMode: str | None = None


class _VpaSpec(msgspec.Struct, gc=False):
    targetRef: RawScaleTargetRef | None = None
    updatePolicy: _UpdatePolicy | None = None


class _RawVpa(msgspec.Struct, gc=False):
    metadata: ObjectMeta
    spec: _VpaSpec


VPAS = OptionalKind("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", _RawVpa)


class RecentVpas:
    """The VerticalPodAutoscalers that set requests, cached."""

    def __init__(self, client: Client, namespaces: Sequence[str] = ()) -> None:
        self._listed = partial(list_if_installed, client, Discovery(client), VPAS)
        self._places: Sequence[str | None] = list(namespaces) or [None]
        self.targets = RecentAnswer(client.world.monotonic, self._ask).get
        """Returns the VerticalPodAutoscaler that sets the requests of each workload."""

    def _ask(self) -> Mapping[WorkloadRef, str] | None:
        lists = [found for place in self._places if (found := self._of(place)) is not None]
        return {ref: which for found in lists for ref, which in found.items()} if lists else None

    def _of(self, namespace: str | None) -> dict[WorkloadRef, str] | None:
        """Return the workloads whose requests are set, and by which object; None where VPA is not installed.

        An object that cannot be read may set the requests of any workload in its namespace.
        """
        unreadable: list[Outline] = []
        found = self._listed(namespace, UNKNOWN, unreadable.append)
        if found is None:
            return None
        unknown = {
            every_workload(one.meta.namespace): f"{VPAS.name} {one.place}, which cannot be read ({one.why})"
            for one in unreadable
        }
        return unknown | dict(_targets(found))


def _targets(found: Sequence[_RawVpa]) -> Iterator[tuple[WorkloadRef, str]]:
    for vpa in found:
        target, policy = vpa.spec.targetRef, vpa.spec.updatePolicy
        mode = (policy.updateMode if policy else None) or MODE_DEFAULT
        if target is not None and mode != ONLY_ADVISES:
            meta = vpa.metadata
            which = f"{VPAS.name} {meta.namespace}/{meta.name} ({mode})"
            yield target.workload(meta.namespace).canonical, which
